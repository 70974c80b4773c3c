package throttle

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var pod = Target{Cgroup: "pod", Memory: true}

// taken is one pod that takes the memory, at so many seconds.
func taken(seconds int, level plugins.Level, w Workload) Input {
	return Input{
		Time: at(time.Duration(seconds) * time.Second), Workloads: map[string]Workload{"pod": w},
		Culprits: map[Target]Use{pod: {Rates: Rates{Memory: 900 * mib}}}, Memory: Pressure{Level: level},
	}
}

// held are the seconds of the next two hundred in which memory is limited, of a pod for which
// the level of each second is given.
func held(w Workload, level func(second int) plugins.Level) (in []int) {
	var list map[Target]Throttle
	for s := range 200 {
		list = Next(list, taken(s, level(s), w))
		if c := list[pod]; c.InForce() {
			in = append(in, s)
		}
	}
	return in
}

func hardThroughout(int) plugins.Level { return plugins.Hard }

func hardIf(is func(second int) bool) func(int) plugins.Level {
	return func(s int) plugins.Level {
		if is(s) {
			return plugins.Hard
		}
		return plugins.None
	}
}

func seconds(from, to int) (list []int) {
	for s := from; s < to; s++ {
		list = append(list, s)
	}
	return list
}

func TestMemoryHeld(t *testing.T) {
	for name, row := range map[string]struct {
		w     Workload
		level func(int) plugins.Level
		want  []int
	}{
		"held, raised, removed":          {Workload{}, hardThroughout, seconds(0, 150)},
		"the same with a liveness probe": {Workload{Liveness: 10 * time.Second}, hardThroughout, seconds(0, 128)},
		"at hard alone":                  {Workload{}, func(int) plugins.Level { return plugins.Soft }, nil},
		"goes on at soft": {Workload{}, func(s int) plugins.Level {
			if s > 0 {
				return plugins.Soft
			}
			return plugins.Hard
		}, seconds(0, 150)},
		"its owner forbids it at soft": {Workload{ExemptAtSoft: "its owner"}, func(s int) plugins.Level {
			if s > 0 {
				return plugins.Soft
			}
			return plugins.Hard
		}, seconds(0, 150)},
		"ends 5 s after the pressure":             {Workload{}, hardIf(func(s int) bool { return s < 5 }), seconds(0, 10)},
		"two short ones are no longer than one":   {Workload{}, hardIf(func(s int) bool { return s < 5 || s >= 20 }), append(seconds(0, 10), seconds(20, 150)...)},
		"comes and goes in moments":               {Workload{}, hardIf(func(s int) bool { return s%2 == 0 }), seconds(0, 150)},
		"comes and goes, with 10 s between":       {Workload{}, hardIf(func(s int) bool { return s%20 < 10 }), slices.Concat(seconds(0, 15), seconds(20, 35), seconds(40, 55), seconds(60, 75), seconds(80, 95), seconds(100, 115), seconds(120, 135), seconds(140, 150))},
		"until it has ended":                      {Workload{Terminating: true, Liveness: time.Second}, hardThroughout, seconds(0, 200)},
		"its liveness probe fails at once":        {Workload{Liveness: 2 * time.Second}, hardThroughout, nil},
		"it holds what it requests":               {Workload{RequestBytes: 900 * mib}, hardThroughout, nil},
		"it holds more than it requests":          {Workload{RequestBytes: 899 * mib}, hardThroughout, seconds(0, 150)},
		"it is exempt":                            {Workload{Exempt: "because"}, hardThroughout, nil},
		"in a dry run it is decided all the same": {Workload{DryRun: true}, hardThroughout, seconds(0, 150)},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, row.want, held(row.w, row.level)) })
	}
}

func TestMemoryNotHeldReasons(t *testing.T) {
	for want, change := range map[string]func(*Input){
		"cgroup v1 has no memory.high":                                                               func(in *Input) { in.MemoryUnlimited = "cgroup v1 has no memory.high" },
		"it holds 900 MiB, no more than the 1000 that it requests":                                   func(in *Input) { in.Workloads["pod"] = Workload{RequestBytes: 1000 * mib} },
		"its liveness or startup probe would end a container within 1s, too soon to hold its memory": func(in *Input) { in.Workloads["pod"] = Workload{Liveness: time.Second} },
	} {
		in := taken(0, plugins.Hard, Workload{})
		change(&in)
		assert.Empty(t, Next(nil, in))
		assert.Equal(t, []NotThrottled{{pod, want}}, Exempted(nil, in))
	}
	list := map[Target]Throttle{}
	for s := range 151 {
		list = Next(list, taken(s, plugins.Hard, Workload{}))
	}
	assert.Equal(t, []NotThrottled{{pod, "it lasted as long as it may; not tried again before 12:12:30 UTC"}}, Exempted(list, taken(151, plugins.Hard, Workload{})))
}

// Memory is pressed again soon after a pod was released: another one takes it.
func TestMemoryNotHeldForAnother(t *testing.T) {
	list := Next(nil, taken(0, plugins.Hard, Workload{}))
	for s := 5; s <= 10; s += 5 {
		list = Next(list, taken(s, plugins.None, Workload{}))
	}
	again := taken(15, plugins.Hard, Workload{})
	again.Culprits = nil
	c := Next(list, again)[pod]
	assert.False(t, c.InForce())
	c = Next(list, taken(15, plugins.Hard, Workload{holds: 950 * mib}))[pod]
	require.True(t, c.InForce(), "it takes more again")
	assert.InDelta(t, 950*mib, c.Limits().Memory, 0, "what it holds by now")
}

// It was held as long as it may be, and is evicted then: it is held again while it ends.
func TestMemoryHeldWhileItEnds(t *testing.T) {
	var list map[Target]Throttle
	for s := range 151 {
		list = Next(list, taken(s, plugins.Hard, Workload{}))
	}
	c := list[pod]
	require.False(t, c.InForce())
	list = Next(list, taken(151, plugins.Hard, Workload{Terminating: true}))
	c = list[pod]
	assert.True(t, c.InForce())
	assert.Empty(t, Exempted(list, taken(151, plugins.Hard, Workload{Terminating: true})))
}

// The others wait longer than before: memory is as short as it was, and shorter without.
func TestMemoryHeldWhileOthersWait(t *testing.T) {
	waits := func(s int, share float64) Input {
		in := taken(s, plugins.Hard, Workload{})
		in.Memory.Waited = snapshot.Some(share)
		return in
	}
	list := Next(nil, waits(0, 0.2))
	for s := range 149 {
		list = Next(list, waits(1+s, 0.9))
		c := list[pod]
		require.True(t, c.InForce())
	}
	c := Next(list, waits(150, 0.9))[pod]
	assert.Contains(t, c.NotAgain(), "it lasted as long as it may")
}

func TestMemoryHeldWhileUnknown(t *testing.T) {
	list := Next(nil, taken(0, plugins.Hard, Workload{}))
	unknown := taken(1, plugins.None, Workload{})
	unknown.Memory.Unknown = true
	list = Next(list, unknown)
	c := list[pod]
	assert.True(t, c.InForce())
	unknown.Time = at(150 * time.Second)
	c = Next(list, unknown)[pod]
	assert.False(t, c.InForce(), "it ends in any case")
}

// A pod that takes all it may, of a node whose memory is pressed at soft once it is held: it
// gets a part of what is available every 5 s.
func TestMemoryWidened(t *testing.T) {
	in := func(s int, level plugins.Level, holds, available float64) Input {
		in := taken(s, level, Workload{holds: holds * mib})
		in.available = available * mib
		return in
	}
	list := Next(nil, in(0, plugins.Hard, 900, 344))
	holds, available := 900.0, 344.0
	raised := map[int]float64{}
	for s := 1; s < 200; s++ {
		now := in(s, plugins.Soft, holds, available)
		now.Memory.Unknown = s >= 35 && s < 40 // such as soon after a boot
		list = Next(list, now)
		c := list[pod]
		if !c.InForce() {
			assert.Equal(t, 150, s, "it ends in any case")
			break
		}
		if may := c.Limits().Memory / mib; may > holds {
			raised[s] = may - holds
			available -= may - holds
			holds = may
		}
	}
	assert.Equal(t, []int{30, 35, 40, 45}, slices.Sorted(maps.Keys(raised))[:4])
	assert.Equal(t, []float64{86, 64.5, 48.375}, []float64{raised[30], raised[35], raised[40]})
	assert.Less(t, available, 1.0, "the rest")

	w := Workload{holds: 900 * mib, Terminating: true}
	ending := taken(31, plugins.Soft, w)
	ending.available = 344 * mib
	c := Next(Next(nil, in(0, plugins.Hard, 900, 344)), ending)[pod]
	assert.InDelta(t, 900*mib, c.Limits().Memory, 0, "one that is being ended gets no more")
}

// grew is a node with a sample 5 s ago, since when these cgroups grew by so many MiB, and
// with so many MiB available.
func grew(available uint64, by map[string]uint64) *snapshot.Snapshot {
	h := &snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 10 * time.Second}
	var s *snapshot.Snapshot
	for i := range 2 {
		now := time.Duration(1+5*i) * time.Second
		sample := &snapshot.Sample{Time: noon.Add(now), Monotonic: now, Boottime: now, IOSource: snapshot.IOStat}
		sample.Memory.AvailableBytes = snapshot.Some(available * mib)
		for _, cgroup := range []string{hogGroup, moverGroup, serviceGroup, "/system.slice/a.service"} {
			kind := snapshot.KindPod
			if cgroup == "/system.slice/a.service" {
				kind = snapshot.KindService
			}
			sample.Workloads = append(sample.Workloads, snapshot.Workload{
				Cgroup: cgroup, Inode: uint64(len(cgroup)), Kind: kind, Name: cgroup, At: now, DetailAt: now, ThrottledAt: now,
				MemoryBytes: snapshot.Some((500 + uint64(i)*by[cgroup]) * mib),
			})
		}
		s = h.Add(sample)
	}
	return s
}

func missing(v plugins.Verdict, bytes float64) plugins.Verdict {
	v.Target = snapshot.Some(bytes)
	return v
}

func TestMemoryTaker(t *testing.T) {
	const eats = hogGroup + " took 500 MiB in 5 s, and 91 % of the memory growth of a minute; 80 MiB are available"
	hard := missing(judged(plugins.Memory, "node", plugins.Hard), 500*mib)
	hog := map[string]uint64{hogGroup: 500, serviceGroup: 50}
	for name, row := range map[string]struct {
		available uint64
		by        map[string]uint64
		verdict   plugins.Verdict
		want      string
	}{
		"who takes what is left":           {80, hog, hard, eats},
		"at soft none is held":             {80, hog, judged(plugins.Memory, "node", plugins.Soft), ""},
		"the rule cannot name any":         {80, hog, unnamed(hard), ""},
		"it took less than is missing":     {80, hog, missing(hard, 501*mib), ""},
		"there is enough for a while":      {3001, hog, hard, ""},
		"two took less than is missing":    {80, map[string]uint64{hogGroup: 50, moverGroup: 51, serviceGroup: 20}, hard, ""},
		"many small ones take it":          {80, map[string]uint64{hogGroup: 190, moverGroup: 190, serviceGroup: 190, "/system.slice/a.service": 600}, hard, ""},
		"a service of the host takes most": {80, map[string]uint64{hogGroup: 50, "/system.slice/a.service": 500}, hard, ""},
		"none grows":                       {80, nil, hard, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := NewInput(grew(row.available, row.by), said(row.verdict), known(), nil)
			if row.want == "" {
				assert.Empty(t, in.Culprits)
				return
			}
			assert.Equal(t, map[Target]Use{{Cgroup: hogGroup, Memory: true}: {Rates{Memory: 1000 * mib}, row.want}}, in.Culprits)
		})
	}
	assert.Empty(t, NewInput(grew(80, hog), said(hard), nil, nil).Culprits, "it is no known pod")
	v1 := grew(80, hog)
	v1.IOSource = snapshot.IOBlkio
	assert.Equal(t, "cgroup v1 has no memory.high", NewInput(v1, said(hard), known(), nil).MemoryUnlimited)
}

// One that eats cannot evade by being several: all that it takes to have half are held.
func TestMemoryTakers(t *testing.T) {
	hard := missing(judged(plugins.Memory, "node", plugins.Hard), 500*mib)
	for name, row := range map[string]struct {
		by        map[string]uint64
		available uint64 // MiB; else 80
		want      []string
	}{
		"thirds":                              {by: map[string]uint64{hogGroup: 330, moverGroup: 320, serviceGroup: 310}, want: []string{hogGroup, moverGroup}},
		"half is less than is missing":        {by: map[string]uint64{hogGroup: 400, moverGroup: 200, serviceGroup: 50}, want: []string{hogGroup, moverGroup}},
		"half is enough":                      {by: map[string]uint64{hogGroup: 600, moverGroup: 300, serviceGroup: 100}, want: []string{hogGroup}},
		"less than a fifth is let alone":      {by: map[string]uint64{hogGroup: 450, moverGroup: 180, serviceGroup: 170, "/system.slice/a.service": 160}, want: nil},
		"a host's service among them":         {by: map[string]uint64{hogGroup: 300, "/system.slice/a.service": 400}, want: []string{hogGroup}},
		"half takes two of them":              {by: map[string]uint64{hogGroup: 600, moverGroup: 580, serviceGroup: 300}, want: []string{hogGroup, moverGroup}},
		"each takes its part of what is left": {by: map[string]uint64{hogGroup: 330, moverGroup: 320, serviceGroup: 310}, available: 2500, want: []string{hogGroup, moverGroup}},
		"together not soon":                   {by: map[string]uint64{hogGroup: 330, moverGroup: 320, serviceGroup: 310}, available: 4000},
	} {
		in := NewInput(grew(cmp.Or(row.available, 80), row.by), said(hard), known(), nil)
		var held []string
		for target := range in.Culprits {
			held = append(held, target.Cgroup)
		}
		assert.ElementsMatch(t, row.want, held, name)
	}
	// One of them has stopped.
	h := &snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 10 * time.Second}
	var s *snapshot.Snapshot
	for i, hog := range []uint64{500, 900, 900, 900} {
		now := time.Duration(1+5*i) * time.Second
		sample := &snapshot.Sample{Time: noon.Add(now), Monotonic: now, Boottime: now, IOSource: snapshot.IOStat}
		sample.Memory.AvailableBytes = snapshot.Some[uint64](80 * mib)
		holds := map[string]uint64{hogGroup: hog, serviceGroup: 500 + 120*uint64(i)}
		for _, cgroup := range []string{hogGroup, serviceGroup} {
			sample.Workloads = append(sample.Workloads, snapshot.Workload{
				Cgroup: cgroup, Inode: uint64(len(cgroup)), Kind: snapshot.KindPod, Name: cgroup, At: now, DetailAt: now, ThrottledAt: now, MemoryBytes: snapshot.Some(holds[cgroup] * mib),
			})
		}
		s = h.Add(sample)
	}
	in := NewInput(s, said(hard), known(), nil)
	require.Len(t, in.Culprits, 1)
	assert.Contains(t, in.Culprits, Target{Cgroup: serviceGroup, Memory: true}, "the other one took more, and has stopped")
}

// lost is a node on which so many MiB are available in each second, and grew as much.
func lost(available ...uint64) *snapshot.Snapshot {
	h := &snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 10 * time.Second}
	var s *snapshot.Snapshot
	for i, left := range available {
		now := time.Duration(1+i) * time.Second
		sample := &snapshot.Sample{Time: noon.Add(now), Monotonic: now, Boottime: now, IOSource: snapshot.IOStat}
		sample.Memory.AvailableBytes = snapshot.Some(left * mib)
		sample.Workloads = []snapshot.Workload{{
			Cgroup: hogGroup, Inode: 1, Kind: snapshot.KindPod, Name: hogGroup, At: now, DetailAt: now, ThrottledAt: now, MemoryBytes: snapshot.Some((2000 - left) * mib),
		}}
		s = h.Add(sample)
	}
	return s
}

// A pod that takes memory so fast that it is gone before the rule's window is over.
func TestMemoryRunsOut(t *testing.T) {
	none := judged(plugins.Memory, "node", plugins.None)
	partial, absent, report := missing(none, 100*mib), missing(none, 100*mib), missing(none, 100*mib)
	fullNUMA := missing(judged(plugins.Memory, "NUMA 0", plugins.None), 100*mib)
	partial.Partial, absent.Absent, report.ReportOnly = true, "4s of the last 30s seen so far", true
	for name, row := range map[string]struct {
		s       *snapshot.Snapshot
		verdict plugins.Verdict
		out     bool
	}{
		"in a second":                      {lost(1100, 700, 300), missing(none, 100*mib), true},
		"in 12 s":                          {lost(350, 325, 300), missing(none, 100*mib), false},
		"nothing is missing yet":           {lost(1500, 1100, 700), none, false},
		"it has stopped":                   {lost(300, 300, 300), missing(none, 100*mib), false},
		"it comes back":                    {lost(100, 200, 300), missing(none, 100*mib), false},
		"while the node warms up":          {lost(1100, 700, 300), partial, true},
		"the rule has just begun to judge": {lost(1100, 700, 300), absent, true},
		"the rule only reports":            {lost(1100, 700, 300), report, false},
		"one NUMA node is full":            {lost(1100, 700, 300), fullNUMA, false},
		"one sample tells nothing":         {lost(300), missing(none, 100*mib), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.out, RunsOut(row.s, said(row.verdict)))
			in := NewInput(row.s, said(row.verdict), known(), nil)
			assert.Len(t, in.Culprits, map[bool]int{true: 1}[row.out])
		})
	}
	target := Target{Cgroup: hogGroup, Memory: true}
	list := Next(nil, NewInput(lost(1100, 700, 300), said(missing(none, 100*mib)), known(), nil))
	held := NewInput(lost(300, 300, 300), said(missing(none, 100*mib)), known(), list)
	held.Time = at(10 * time.Second)
	list = Next(list, held)
	c := list[target]
	assert.True(t, c.InForce(), "it goes on while any is missing")
	after := func(seconds int, none bool) {
		verdict := missing(judged(plugins.Memory, "node", plugins.None), 100*mib)
		if none {
			verdict = judged(plugins.Memory, "node", plugins.None)
		}
		in := NewInput(lost(300, 300, 400), said(verdict), known(), list)
		in.Time = at(time.Duration(seconds) * time.Second)
		list = Next(list, in)
		c = list[target]
	}
	after(11, true)
	assert.True(t, c.InForce(), "a little that is freed for a moment does not end it")
	after(14, false)
	after(15, true)
	after(19, true)
	assert.True(t, c.InForce(), "nothing is missing for 4 s, after some was")
	after(20, true)
	assert.False(t, c.InForce())
}

// However the pressure changes, no hold lasts longer than it may, and each is of what the pod held.
func TestMemoryHeldRandom(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := Workload{Liveness: time.Duration(3+r.IntN(60)) * time.Second}
		var list map[Target]Throttle
		level, now, began := plugins.None, 0, -1
		for range 300 {
			if r.IntN(6) == 0 {
				level = plugins.Level(r.IntN(3))
			}
			now += 1 + r.IntN(3)
			list = Next(list, taken(now, level, w))
			c := list[pod]
			switch {
			case !c.InForce():
				began = -1
			case began < 0:
				began = now
			}
			if c.InForce() {
				require.Less(t, time.Duration(now-began)*time.Second, w.holdFor()+widenFor, "seed %d", seed)
				require.Equal(t, Rates{Memory: 900 * mib}, c.Limits())
			}
		}
	}
}

// A clock that is set by an hour does not end a hold of which no pressure was seen for 2 s.
func TestMemoryHeldClockSet(t *testing.T) {
	var list map[Target]Throttle
	after := func(second int, level plugins.Level, set time.Duration) bool {
		in := taken(second, level, Workload{})
		in.Time = in.Time.Add(set)
		in.Booted = in.Time.Add(-time.Hour - time.Duration(second)*time.Second)
		list = Next(list, in)
		c := list[pod]
		return c.InForce()
	}
	assert.True(t, after(0, plugins.Hard, 0))
	assert.True(t, after(1, plugins.None, 0))
	assert.True(t, after(3, plugins.None, time.Hour))
	assert.False(t, after(6, plugins.None, time.Hour))
}
