package snapshot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// crowd is a made-up node on which disks, NICs and workloads are added,
// removed, renamed and restarted at every sample. Each kind counts in its own
// steps, so that mixing them up shows.
type crowd struct {
	rnd     *rand.Rand
	at      time.Duration
	members map[string]*member // by kind and name
	made    uint64
}

// member is one disk, NIC or workload.
type member struct {
	identity  uint64
	counter   uint64
	readAt    time.Duration
	network   uint64
	networkAt time.Duration
	namespace uint64
}

func crowdNames() []string { return []string{"a", "b", "c", "d", "e", "f", "g", "h"} }

func (c *crowd) step() {
	c.at += time.Duration(500+c.rnd.IntN(1000)) * time.Millisecond
	for _, kind := range []string{"disk", "nic", "workload"} {
		for _, name := range crowdNames() {
			c.happen(kind + name)
		}
		if a, b := kind+crowdNames()[c.rnd.IntN(8)], kind+crowdNames()[c.rnd.IntN(8)]; c.rnd.IntN(10) == 0 {
			c.rename(a, b)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.members)) {
		c.count(c.members[name])
	}
}

func (c *crowd) happen(name string) {
	m := c.members[name]
	switch n := c.rnd.IntN(40); {
	case m == nil && n < 8, m != nil && n == 0: // appears, or is made anew
		c.made++
		c.members[name] = &member{identity: c.made, counter: c.rnd.Uint64N(1e12), network: c.rnd.Uint64N(1e12), namespace: c.made}
	case m != nil && n == 1:
		delete(c.members, name)
	case m != nil && n == 2:
		m.counter = 0 // is reset
	case m != nil && n == 3:
		c.made++
		m.namespace, m.network = c.made, m.network+c.rnd.Uint64N(1e9) // a new sandbox
	}
}

// rename swaps two members, or gives one another name.
func (c *crowd) rename(a, b string) {
	was, other := c.members[a], c.members[b]
	delete(c.members, a)
	delete(c.members, b)
	if was != nil {
		c.members[b] = was
	}
	if other != nil && a != b {
		c.members[a] = other
	}
}

// count advances one member; not each is read at each sample.
func (c *crowd) count(m *member) {
	if m.readAt != 0 && c.rnd.IntN(3) == 0 {
		return
	}
	m.counter += c.rnd.Uint64N(1e6)
	m.readAt = c.at
	if m.networkAt == 0 || c.rnd.IntN(4) == 0 {
		m.network += c.rnd.Uint64N(1e6)
		m.networkAt = c.at
	}
}

func (c *crowd) sample() *Sample {
	s := &Sample{Monotonic: c.at, Boottime: c.at}
	for _, name := range crowdNames() {
		if m := c.members["disk"+name]; m != nil {
			s.Disks = append(s.Disks, Disk{Name: name, Sequence: Some(m.identity), DiskCounters: DiskCounters{Reads: m.counter}})
		}
		if m := c.members["nic"+name]; m != nil {
			s.NICs = append(s.NICs, NIC{Name: name, Index: Some(int(m.identity)), NICCounters: NICCounters{ReceiveBytes: m.counter}})
		}
		if m := c.members["workload"+name]; m != nil {
			s.Workloads = append(s.Workloads, Workload{
				Cgroup: name, Inode: m.identity, At: m.readAt, DetailAt: m.networkAt, CPUMicroseconds: Some(m.counter),
				IO:      []WorkloadIO{{Number: fmt.Sprintf("8:%d", m.identity%3), Writes: m.counter}, {Number: "9:9", Reads: m.counter}},
				Network: Some(WorkloadNetwork{At: m.networkAt, Namespace: m.namespace, ReceiveBytes: m.network}),
			})
		}
	}
	return s
}

// slowHistory keeps every member of every sample, and searches all of them for
// each rate.
type slowHistory struct {
	at   []time.Duration
	seen []map[string]member
}

func (h *slowHistory) add(c *crowd) {
	now := map[string]member{}
	for name, m := range c.members {
		now[name] = *m
	}
	h.at, h.seen = append(h.at, c.at), append(h.seen, now)
}

// base is the sample at the start of a window, or as far back as a member is the same
// one without a reset.
func (h *slowHistory) base(name string, window time.Duration) int {
	last := len(h.at) - 1
	i := last
	for h.at[last]-h.at[i] < window-jitter && h.follows(name, i) {
		i--
	}
	return i
}

// follows reports whether a member is the same one as in the sample before i.
func (h *slowHistory) follows(name string, i int) bool {
	if i == 0 {
		return false
	}
	now := h.seen[i][name]
	was, there := h.seen[i-1][name]
	return there && was.identity == now.identity && was.counter <= now.counter
}

// read is a member as of base; one that was not read since, as of its reading before, if
// a sample of that is kept; nil if that is now.
func (h *slowHistory) read(name string, window, keep time.Duration) *member {
	last, i := len(h.at)-1, h.base(name, window)
	if i == last {
		return nil
	}
	for h.seen[i][name].readAt == h.seen[last][name].readAt && h.follows(name, i) && h.at[last]-h.at[i-1] <= keep {
		i--
	}
	m := h.seen[i][name]
	return &m
}

// rate of a member that is read at every sample.
func (h *slowHistory) rate(name string, window time.Duration) Opt[float64] {
	last, i := len(h.at)-1, h.base(name, window)
	return rateOf(h.seen[last][name].counter, h.seen[i][name].counter, h.at[last]-h.at[i])
}

func rateOf(now, was uint64, d time.Duration) Opt[float64] {
	if d <= 0 {
		return Opt[float64]{}
	}
	return Some(float64(now-was) / d.Seconds())
}

// crowdKeep is how far back the samples of a crowd are kept.
const crowdKeep = 13 * time.Second

// Hundreds of samples in which everything changes: no counter of one member is
// in the rate of another, and no possible rate is missing.
func TestHistoryRatesNeverMixed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &crowd{rnd: rand.New(rand.NewPCG(seed, 2)), at: time.Hour, members: map[string]*member{}}
	h := &History{Window: 5 * time.Second, Keep: crowdKeep, MaxGap: time.Minute}
	slow := &slowHistory{}
	rated := 0
	for range 600 {
		c.step()
		slow.add(c)
		s := h.Add(c.sample())
		for _, window := range []time.Duration{h.Window, 2 * time.Second, 11 * time.Second} {
			w, _ := s.Over(window)
			rated += compareCrowd(t, c, slow, s, w, window)
		}
	}
	require.Greater(t, rated, 5000)
	t.Logf("%d rates of %d members", rated, c.made)
}

func compareCrowd(t *testing.T, c *crowd, slow *slowHistory, s *Snapshot, w Window, window time.Duration) (rated int) {
	same := func(what string, want, got Opt[float64]) {
		v, there := want.Get()
		g, measured := got.Get()
		require.Equal(t, there, measured, "%s over %s", what, window)
		require.InDelta(t, v, g, 1e-6*max(1, v), "%s over %s", what, window)
		if !want.IsZero() {
			rated++
		}
	}
	for i := range s.Disks {
		d := &s.Disks[i].Disk
		same("disk "+d.Name, slow.rate("disk"+d.Name, window), part(w.Disk(d), func(r DiskRates) float64 { return r.ReadsPerSecond }))
	}
	for i := range s.NICs {
		n := &s.NICs[i].NIC
		same("nic "+n.Name, slow.rate("nic"+n.Name, window), part(w.NIC(n), func(r NICRates) float64 { return r.ReceiveBytesPerSecond }))
	}
	for i := range s.Workloads {
		l := &s.Workloads[i].Workload
		m := c.members["workload"+l.Cgroup]
		was := slow.read("workload"+l.Cgroup, window, crowdKeep)
		var cpu, io, network Opt[float64]
		if was != nil {
			cpu = rateOf(m.counter, was.counter, m.readAt-was.readAt)
			io = cpu
			if m.namespace == was.namespace && !cpu.IsZero() {
				network = rateOf(m.network, was.network, m.networkAt-was.networkAt)
			}
		}
		got := w.Workload(l)
		r, _ := got.Get()
		same("workload "+l.Cgroup, cpu, part(got, func(r WorkloadRates) float64 { cores, _ := r.CPUCores.Get(); return cores * 1e6 }))
		same("network of "+l.Cgroup, network, part(r.Network, func(r WorkloadNetworkRates) float64 { return r.ReceiveBytesPerSecond }))
		if io.IsZero() {
			assert.Empty(t, r.IO)
			continue
		}
		require.Len(t, r.IO, 2)
		same("IO of "+l.Cgroup, io, Some(r.IO[0].WritesPerSecond))
		same("IO of "+l.Cgroup, io, Some(r.IO[1].ReadsPerSecond))
	}
	return rated
}
