package snapshot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// user is a workload of a made-up node and what it does in a second.
type user struct {
	cgroup        string
	reads, writes map[string]uint64 // requests on a disk, by its number
	bytes         uint64            // of each of them
	ioStall       float64           // share of the second
	memoryStall   float64
	grows         uint64 // bytes
	reclaimed     uint64 // pages
	hits          uint64 // of its own limit
	cores         float64
	cpuStall      float64
	itself        float64 // the part of cpuStall in which another task of its own ran; -1: unknown
	held          float64 // by its own quota, summed over CPUs; -1: unknown, -2: it cannot have one
}

// sharing is a made-up node of several users.
type sharing struct {
	disks  []Disk // with what each does in a second
	users  []user
	source IOSource
	noPSI  bool
	// Of the node, in a second.
	scans, reclaimed, taken uint64
	stall                   float64
	ioStall                 float64 // below 0: unknown
	uncounted               string  // why no IO of workloads is counted
	cpus                    int
	cpuStall                float64
	others                  float64 // CPUs that no user uses
	cluster                 *Cluster
}

func leafDisk(name, number string, requests, bytes uint64) Disk {
	return Disk{
		Name: name, Number: number, Layer: LayerLeaf,
		DiskCounters: DiskCounters{Reads: requests, Writes: requests, ReadBytes: bytes, WrittenBytes: bytes, ReadMs: 10 * requests, WriteMs: 20 * requests},
	}
}

// after is the snapshot after some seconds.
func (n sharing) after(seconds uint64) *Snapshot {
	h := &History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	var last *Snapshot
	for i := range seconds + 1 {
		last = h.Add(n.sample(i))
	}
	return last
}

func (n sharing) sample(i uint64) *Sample {
	at := time.Hour + time.Duration(i)*time.Second
	s := &Sample{Time: time.Unix(0, 0).Add(at), Monotonic: at, Boottime: at, BootID: "a", IOSource: n.source, Cluster: n.cluster}
	s.Memory = Memory{FreeBytes: Some(1<<40 - n.taken*i), ScansKswapd: Some(n.scans * i), Reclaimed: Some(n.reclaimed * i)}
	s.Pressure.Memory.Some = Some(micros(n.stall, i))
	if n.ioStall >= 0 {
		s.Pressure.IO.Some = Some(micros(n.ioStall, i))
	}
	n.computes(s, i)
	for _, d := range n.disks {
		c := &d.DiskCounters
		for _, v := range []*uint64{&c.Reads, &c.Writes, &c.ReadBytes, &c.WrittenBytes, &c.ReadMs, &c.WriteMs, &c.WeightedMs} {
			*v *= i
		}
		s.Disks = append(s.Disks, d)
	}
	for inode, u := range n.users {
		w := NewWorkload(u.cgroup)
		w.Inode, w.At, w.DetailAt = uint64(inode+1), at, at
		w.MemoryBytes, w.Reclaimed, w.LimitHits = Some(1<<30+u.grows*i), Some(u.reclaimed*i), Some(u.hits*i)
		if !n.noPSI {
			w.Pressure.IO.Some, w.Pressure.Memory.Some = Some(micros(u.ioStall, i)), Some(micros(u.memoryStall, i))
		}
		for _, number := range []string{"8:0", "8:16", "253:0"} {
			r, wr := u.reads[number]*i, u.writes[number]*i
			if u.reads[number]+u.writes[number] > 0 {
				w.IO = append(w.IO, WorkloadIO{Number: number, Reads: r, Writes: wr, ReadBytes: r * u.bytes, WrittenBytes: wr * u.bytes})
			}
		}
		u.computes(&w, n, i)
		s.Workloads = append(s.Workloads, w)
	}
	return s
}

// computes fills in the CPUs of the node.
func (n sharing) computes(s *Sample, i uint64) {
	if n.cpus == 0 {
		return
	}
	used := n.others
	for _, u := range n.users {
		used += u.cores
	}
	s.CPU = CPU{Online: Some(n.cpus), Seconds: map[string]float64{"user": used * float64(i)}}
	s.Pressure.CPU.Some = Some(micros(n.cpuStall, i))
}

// computes fills in the CPU time of a workload, and that its IO is not counted.
func (u user) computes(w *Workload, n sharing, i uint64) {
	w.CPUMicroseconds, w.ThrottledAt = Some(micros(u.cores, i)), w.At
	if n.cpus > 0 && !n.noPSI {
		w.Pressure.CPU.Some = Some(micros(u.cpuStall, i))
		if u.itself >= 0 {
			w.Pressure.CPU.Full = Some(micros(u.cpuStall-u.itself, i))
		}
	}
	switch {
	case u.held == -1:
		w.Absent.Because("throttledMicrosecondsTotal", "no cpu.stat")
	case u.held < -1:
		w.Absent.Because("throttledMicrosecondsTotal", NoCPUController)
	default:
		w.ThrottledMicroseconds = Some(micros(u.held, i))
	}
	if n.uncounted != "" {
		w.Absent.Because("io", n.uncounted)
	}
}

func micros(share float64, seconds uint64) uint64 { return uint64(share * 1e6 * float64(seconds)) }

func onDevice(t *testing.T, s *Snapshot, device string) Contention {
	t.Helper()
	i := slices.IndexFunc(s.Contention, func(c Contention) bool { return c.Device == device })
	require.GreaterOrEqual(t, i, 0, "%s is not among %+v", device, s.Contention)
	return s.Contention[i]
}

func culprits(c Contention) (names []string) {
	for _, p := range c.Culprits {
		names = append(names, fmt.Sprintf("%s %.0f %%", p.Cgroup, 100*p.Share))
	}
	return names
}

func sufferers(c Contention) (names []string) {
	for _, p := range c.Sufferers {
		names = append(names, fmt.Sprintf("%s %.0f %%", p.Cgroup, 100*p.Waited))
	}
	return names
}

const (
	database = "/kubepods/burstable/pod11111111-1111-1111-1111-111111111111"
	backup   = "/kubepods/besteffort/pod22222222-2222-2222-2222-222222222222"
	web      = "/kubepods/burstable/pod33333333-3333-3333-3333-333333333333"
)

func TestContention(t *testing.T) {
	t.Run("disks", contentionDisks)
	t.Run("lone backup busy", contentionLoneBackupBusy)
	t.Run("unattributed counts", contentionUnattributedCounts)
	t.Run("lowest class", contentionLowestClass)
	t.Run("two movers", contentionTwoMovers)
	t.Run("stall split by disk", contentionStallSplitByDisk)
	t.Run("v1 writes unattributed", contentionV1WritesUnattributed)
	t.Run("root ignored", contentionRootIgnored)
	t.Run("nested workloads", contentionNestedWorkloads)
	t.Run("without PSI", contentionWithoutPSI)
	t.Run("stacked and idle disks", contentionStackedAndIdleDisks)
	t.Run("ten named", contentionTenNamed)
	t.Run("waits behind others", contentionWaitsBehindOthers)
	t.Run("just appeared", contentionJustAppeared)
	t.Run("memory", contentionMemory)
	t.Run("shares in bounds", contentionSharesInBounds)
}

// A service and a culprit on two disks at once, each named on its own.
func contentionDisks(t *testing.T) {
	s := sharing{
		disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20), leafDisk("sdb", "8:16", 50, 1<<20)},
		users: []user{
			{cgroup: backup, reads: map[string]uint64{"8:0": 90}, writes: map[string]uint64{"8:0": 90}, bytes: 1 << 20, ioStall: 0.9},
			{cgroup: database, reads: map[string]uint64{"8:0": 10}, writes: map[string]uint64{"8:0": 10}, bytes: 8 << 10, ioStall: 0.5},
			{cgroup: web, reads: map[string]uint64{"8:16": 40}, writes: map[string]uint64{"8:16": 40}, bytes: 16 << 10},
		},
	}.after(10)
	sda, sdb := onDevice(t, s, "sda"), onDevice(t, s, "sdb")
	assert.Equal(t, []string{backup + " 90 %", database + " 5 %"}, culprits(sda))
	assert.Equal(t, []string{database + " 47 %", backup + " 5 %"}, sufferers(sda), "a workload does not wait for itself")
	assert.Equal(t, ContentionPresent, sda.State)
	coverage, _ := sda.Coverage.Get()
	assert.InDelta(t, (180+20.0/128)/200, coverage, 1e-9)

	assert.Equal(t, []string{web + " 71 %"}, culprits(sdb))
	assert.Empty(t, sdb.Sufferers)
	assert.Equal(t, ContentionBusy, sdb.State)
}

func contentionLoneBackupBusy(t *testing.T) {
	for _, cgroup := range []string{backup, database, "/system.slice/backup.service"} {
		for _, seen := range []uint64{100, 98, 93, 86} { // workloads are read a little later than the disk
			s := sharing{
				disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)},
				users: []user{
					{cgroup: cgroup, reads: map[string]uint64{"8:0": seen}, writes: map[string]uint64{"8:0": seen}, bytes: 1 << 20, ioStall: 1},
					{cgroup: web, ioStall: 0.3}, // waits for something else: it has no request here
				},
			}.after(10)
			c := onDevice(t, s, "sda")
			assert.Equal(t, ContentionBusy, c.State, "%+v", c)
			assert.Equal(t, []string{fmt.Sprintf("%s %d %%", cgroup, seen)}, culprits(c))
			assert.Empty(t, c.Sufferers)
		}
	}
}

// A workload that does a quarter of the traffic may well wait for itself.
func contentionUnattributedCounts(t *testing.T) {
	s := sharing{disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)}, users: []user{
		{cgroup: database, reads: map[string]uint64{"8:0": 75}, writes: map[string]uint64{"8:0": 75}, bytes: 1 << 20, ioStall: 1},
	}}.after(10)
	c := onDevice(t, s, "sda")
	assert.Equal(t, ContentionPresent, c.State)
	assert.Equal(t, []string{database + " 25 %"}, sufferers(c))
}

// The lowest class causes no contention by waiting, but is shown.
func contentionLowestClass(t *testing.T) {
	n := sharing{disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)}, users: []user{
		{cgroup: backup, reads: map[string]uint64{"8:0": 5}, bytes: 4096, ioStall: 0.8},
		{cgroup: web, reads: map[string]uint64{"8:0": 95}, bytes: 1 << 20, ioStall: 0.01},
	}}
	c := onDevice(t, n.after(10), "sda")
	assert.Equal(t, ContentionBusy, c.State)
	require.NotEmpty(t, c.Sufferers)
	assert.True(t, c.Sufferers[0].LowestClass)
	n.users[0].cgroup = database
	assert.Equal(t, ContentionPresent, onDevice(t, n.after(10), "sda").State)
}

// A workload on two disks waits for the one on which its requests take long. By
// the cgroups alone the movers would be services that wait.
func contentionTwoMovers(t *testing.T) {
	const one, two = "11111111-1111-1111-1111-111111111111", "33333333-3333-3333-3333-333333333333"
	n := sharing{disks: []Disk{leafDisk("sda", "8:0", 500, 50<<20)}, users: []user{
		{cgroup: "/kubepods/burstable/pod" + one, reads: map[string]uint64{"8:0": 500}, bytes: 1 << 16, ioStall: 0.8},
		{cgroup: "/kubepods/burstable/pod" + two, reads: map[string]uint64{"8:0": 500}, bytes: 1 << 16, ioStall: 0.7},
	}}
	require.Equal(t, ContentionPresent, onDevice(t, n.after(5), "sda").State)
	movers := []Pod{{UID: one, Namespace: "velero", Name: "du-1", QoS: "Burstable", Mover: true}, {UID: two, Namespace: "velero", Name: "du-2", QoS: "Burstable", Mover: true}}
	n.cluster = NewCluster(movers, Reclaimable{}, nil)
	c := onDevice(t, n.after(5), "sda")
	assert.Equal(t, ContentionBusy, c.State)
	require.Len(t, c.Sufferers, 2, "they are shown, and nothing is done for their sake")
	assert.True(t, c.Sufferers[0].LowestClass && c.Sufferers[1].LowestClass)
	assert.Equal(t, "velero/du-1", c.Sufferers[0].Name)
	movers[1].Mover = false
	n.cluster = NewCluster(movers, Reclaimable{}, nil)
	assert.Equal(t, ContentionPresent, onDevice(t, n.after(5), "sda").State, "a service that waits for a mover is a sufferer")
}

func contentionStallSplitByDisk(t *testing.T) {
	slow := leafDisk("sdb", "8:16", 1000, 1<<30)
	slow.ReadMs *= 99
	s := sharing{
		disks: []Disk{leafDisk("sda", "8:0", 1000, 1<<30), slow},
		users: []user{{cgroup: database, reads: map[string]uint64{"8:0": 10, "8:16": 10}, bytes: 4096, ioStall: 0.5}},
	}.after(10)
	assert.Equal(t, []string{database + " 49 %"}, sufferers(onDevice(t, s, "sdb")), "99 parts of 100, and 1 % of the requests is its own")
	assert.Empty(t, onDevice(t, s, "sda").Sufferers)
}

// On v1 writeback is attributed to no workload, which shows as low coverage.
func contentionV1WritesUnattributed(t *testing.T) {
	s := sharing{
		source: IOBlkio, disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)},
		users: []user{
			{cgroup: backup, writes: map[string]uint64{"8:0": 100}, bytes: 1 << 20},
			{cgroup: database, reads: map[string]uint64{"8:0": 50}, bytes: 1 << 20, ioStall: 0.5},
		},
	}.after(10)
	c := onDevice(t, s, "sda")
	coverage, _ := c.Coverage.Get()
	assert.InDelta(t, 0.25, coverage, 1e-9)
	assert.Equal(t, []string{database + " 25 %"}, culprits(c))
	assert.Equal(t, ContentionPresent, c.State)
}

// The root has the disk's own counters: it accounts for nothing.
func contentionRootIgnored(t *testing.T) {
	s := sharing{
		disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)},
		users: []user{{cgroup: "/", writes: map[string]uint64{"8:0": 200}, bytes: 1 << 20, ioStall: 1}},
	}.after(10)
	c := onDevice(t, s, "sda")
	coverage, _ := c.Coverage.Get()
	assert.Zero(t, coverage)
	assert.Empty(t, c.Culprits)
	assert.Empty(t, c.Sufferers)
}

func contentionNestedWorkloads(t *testing.T) {
	on := map[string]uint64{"8:0": 60}
	s := sharing{
		disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)},
		users: []user{
			{cgroup: "/a", reads: map[string]uint64{"8:0": 100}, bytes: 1 << 20, ioStall: 0.9},
			{cgroup: "/a-b", reads: on, bytes: 1 << 20},
			{cgroup: "/a/b", reads: map[string]uint64{"8:0": 70}, bytes: 1 << 20, ioStall: 0.8},
			{cgroup: "/a/b/c", reads: on, bytes: 1 << 20, ioStall: 0.8},
		},
	}.after(10)
	c := onDevice(t, s, "sda")
	assert.Equal(t, []string{"/a-b 30 %", "/a/b/c 30 %", "/a 15 %", "/a/b 5 %"}, culprits(c))
	coverage, _ := c.Coverage.Get()
	assert.InDelta(t, 0.8, coverage, 1e-9)
	assert.Equal(t, []string{"/a/b/c 56 %", "/a 8 %"}, sufferers(c), "a parent waits with its children")
}

func contentionWithoutPSI(t *testing.T) {
	n := sharing{
		noPSI: true, ioStall: -1, disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)},
		users: []user{{cgroup: database, reads: map[string]uint64{"8:0": 100}, bytes: 1 << 20}},
	}
	c := onDevice(t, n.after(10), "sda")
	assert.Equal(t, ContentionUnknown, c.State)
	assert.Contains(t, c.Absent["sufferers"], "psi=1")
	assert.Len(t, c.Culprits, 1)
}

func contentionStackedAndIdleDisks(t *testing.T) {
	stacked := leafDisk("dm-0", "253:0", 100, 1<<20)
	stacked.Layer = LayerStacked
	s := sharing{
		disks: []Disk{stacked, leafDisk("sda", "8:0", 0, 0)},
		users: []user{{cgroup: database, reads: map[string]uint64{"253:0": 100}, bytes: 4096, ioStall: 1}},
	}.after(10)
	assert.Empty(t, s.Contention)
	assert.Empty(t, sharing{}.after(0).Contention)
}

func contentionTenNamed(t *testing.T) {
	n := sharing{disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)}}
	for i := range 15 {
		n.users = append(n.users, user{cgroup: fmt.Sprintf("/w%02d", i), reads: map[string]uint64{"8:0": 10}, bytes: 1 << 20, ioStall: 0.5})
	}
	c := onDevice(t, n.after(10), "sda")
	assert.Len(t, c.Culprits, 10)
	assert.Len(t, c.Sufferers, 10)
	assert.Equal(t, 5, c.MoreCulprits)
	assert.Equal(t, 5, c.MoreSufferers)
}

// What a workload does in the last of ten seconds is a tenth of what it does in all of them.
func contentionJustAppeared(t *testing.T) {
	n := sharing{
		disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20)}, scans: 5000, taken: 10 << 20, stall: 0.5, cpus: 4, cpuStall: 0.5,
		users: []user{
			{cgroup: database, reads: map[string]uint64{"8:0": 50}, bytes: 1 << 20, cores: 1, grows: 1 << 20},
			{cgroup: web, reads: map[string]uint64{"8:0": 100}, bytes: 1 << 20, cores: 2, grows: 5 << 20, ioStall: 0.5},
		},
	}
	h := &History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	var s *Snapshot
	for i := range uint64(11) {
		sample := n.sample(i)
		if i < 9 {
			sample.Workloads = sample.Workloads[:1]
		}
		s = h.Add(sample)
	}
	share := map[SharedResource]float64{}
	for _, c := range s.Contention {
		i := slices.IndexFunc(c.Culprits, func(p Culprit) bool { return p.Cgroup == web })
		require.GreaterOrEqual(t, i, 0, "%+v", c)
		share[c.Resource] = c.Culprits[i].Share
	}
	assert.Len(t, share, 3)
	assert.InDelta(t, 0.05, share[SharedDisk], 0.001)
	assert.InDelta(t, 0.05, share[SharedMemory], 0.001)
	assert.InDelta(t, 2.0/30, share[SharedCPU], 0.001)
	coverage, _ := onDevice(t, s, "sda").Coverage.Get()
	assert.InDelta(t, 0.3, coverage, 0.001)
	assert.InDelta(t, 0.05*0.95, onDevice(t, s, "sda").Sufferers[0].Waited, 0.001, "and of its waiting")
}

// More than ten wait longer than the workload that makes this a contention, or than one
// that is a culprit as well.
func contentionWaitsBehindOthers(t *testing.T) {
	for name, class := range map[string]string{"of the lowest class": "besteffort", "services": "burstable"} {
		t.Run(name, func(t *testing.T) {
			n := sharing{disks: []Disk{leafDisk("sda", "8:0", 1000, 1000<<20)}}
			for i := range 11 {
				n.users = append(n.users, user{cgroup: fmt.Sprintf("/kubepods/%s/podci%02d", class, i), reads: map[string]uint64{"8:0": 24}, bytes: 1 << 20, ioStall: 0.5})
			}
			n.users = append(n.users, user{cgroup: database, reads: map[string]uint64{"8:0": 500}, bytes: 1 << 20, ioStall: 0.5},
				user{cgroup: web, reads: map[string]uint64{"8:0": 1200}, bytes: 1 << 20})
			slices.SortFunc(n.users, func(a, b user) int { return strings.Compare(a.cgroup, b.cgroup) })
			c := onDevice(t, n.after(10), "sda")
			require.Equal(t, ContentionPresent, c.State)
			require.Equal(t, []string{web + " 60 %", database + " 25 %"}, culprits(c)[:2])
			assert.InDelta(t, 0.37, c.Culprits[1].Waited, 0.01)
			assert.Zero(t, c.Culprits[0].Waited)
			assert.Equal(t, class == "besteffort", c.Culprits[2].Waited == 0)
			require.Len(t, c.Sufferers, 10)
			assert.Equal(t, 2, c.MoreSufferers)
			listed := slices.Contains(sufferers(c), database+" 37 %")
			assert.Equal(t, class == "besteffort", listed, "%v", sufferers(c))
			sharesAreShares(t, c)
		})
	}
}

func contentionMemory(t *testing.T) {
	n := sharing{
		scans: 5000, reclaimed: 1000, taken: 10 << 20, stall: 0.5,
		users: []user{
			{cgroup: backup, grows: 9 << 20, reclaimed: 900, memoryStall: 0.5},
			{cgroup: database, memoryStall: 0.4, reclaimed: 10},
			{cgroup: web, hits: 5, reclaimed: 100_000, memoryStall: 1}, // thrashes at its own limit
		},
	}
	c := onDevice(t, n.after(10), "")
	require.Equal(t, SharedMemory, c.Resource)
	taken := 10*(1<<20) + 1000*pageBytes()
	share := (9*(1<<20) + 900*pageBytes()) / taken
	assert.InDelta(t, share, c.Culprits[0].Share, 1e-9)
	assert.Equal(t, backup, c.Culprits[0].Cgroup)
	assert.Len(t, c.Culprits, 1)
	assert.Equal(t, ContentionPresent, c.State)
	assert.Equal(t, database, c.Sufferers[0].Cgroup)
	assert.InDelta(t, 0.4, c.Sufferers[0].Waited, 0.01)
	coverage, _ := c.Coverage.Get()
	assert.InDelta(t, (9*(1<<20)+910*pageBytes())/taken, coverage, 1e-9)

	n.scans, n.stall = 0, 0
	assert.Empty(t, n.after(10).Contention, "no contention")
}

// What is not known of a workload at one end of the window is no growth.
func TestMemoryGrowthUnknown(t *testing.T) {
	n := sharing{users: []user{{cgroup: backup, grows: 1 << 20}, {cgroup: database}}}
	h := &History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	var s *Snapshot
	for i := range uint64(11) {
		sample := n.sample(i)
		if i == 0 {
			sample.Workloads[1].MemoryBytes = Opt[uint64]{}
		}
		s = h.Add(sample)
	}
	list := s.Within(10 * time.Second).MemoryGrowth(s.Workloads)
	require.Len(t, list, 1)
	assert.Equal(t, backup, list[0].Workload.Cgroup)
}

// Memory that grows is told by the time between two readings, however short the window.
func TestMemoryGrowthReadSeldom(t *testing.T) {
	n := sharing{users: []user{{cgroup: backup, grows: 1 << 20}}}
	h := &History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	var read Workload
	for i := range uint64(30) {
		sample := n.sample(i)
		if i%7 == 0 {
			read = sample.Workloads[0]
		}
		sample.Workloads[0] = read
		s := h.Add(sample)
		list := s.Within(2 * time.Second).MemoryGrowth(s.Workloads)
		if i < 7 {
			require.Empty(t, list)
			continue
		}
		require.Len(t, list, 1, "second %d", i)
		require.InDelta(t, 1<<20, list[0].BytesPerSecond, 1)
		require.InDelta(t, 7<<20, list[0].Bytes, 1)
	}
}

// For any load, shares and waits are between 0 and 1, the named workloads are
// ordered, and they do not exceed the total.
func contentionSharesInBounds(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := sharing{scans: r.Uint64N(3), reclaimed: r.Uint64N(1000), taken: r.Uint64N(1 << 20), stall: r.Float64()}
		if r.IntN(3) == 0 {
			n.source = IOBlkio
		}
		for _, number := range []string{"8:0", "8:16"} {
			n.disks = append(n.disks, leafDisk("d"+number, number, r.Uint64N(200), r.Uint64N(1<<20)))
		}
		for i := range 1 + r.IntN(30) {
			n.users = append(n.users, user{
				cgroup: strings.Repeat("/a", r.IntN(3)) + fmt.Sprintf("/%c%d", 'a'+rune(r.IntN(3)), i), ioStall: r.Float64(), memoryStall: r.Float64(),
				reads: map[string]uint64{"8:0": r.Uint64N(50)}, writes: map[string]uint64{"8:16": r.Uint64N(50)}, bytes: r.Uint64N(1 << 16),
				grows: r.Uint64N(1 << 20), reclaimed: r.Uint64N(100), hits: r.Uint64N(4) / 3,
			})
		}
		slices.SortFunc(n.users, func(a, b user) int { return strings.Compare(a.cgroup, b.cgroup) })
		s := n.after(10)
		w, _ := s.Over(10 * time.Second)
		again := s.ContentionIn(w)
		for i := range again { // a single window does not know for how long
			for j := range again[i].Sufferers {
				again[i].Sufferers[j].LastingSeconds = s.Contention[i].Sufferers[j].LastingSeconds
			}
		}
		require.Equal(t, s.Contention, again)
		for _, c := range s.Contention {
			sharesAreShares(t, c)
		}
	}
}

func sharesAreShares(t *testing.T, c Contention) {
	t.Helper()
	sum := 0.0
	for i, p := range c.Culprits {
		sum += p.Share
		require.True(t, p.Share >= minShare && p.Share <= 1 && !math.IsNaN(p.Share), "%+v", p)
		require.True(t, i == 0 || p.Share <= c.Culprits[i-1].Share)
	}
	require.LessOrEqual(t, sum, 1+1e-9)
	for i, p := range c.Sufferers {
		require.True(t, p.Waited >= minWaited && p.Waited <= 1 && !math.IsNaN(p.Waited), "%+v", p)
		require.True(t, i == 0 || p.Waited <= c.Sufferers[i-1].Waited)
	}
	if v, ok := c.Coverage.Get(); ok {
		require.True(t, v >= 0 && v <= 1)
	}
}
