package plugins

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// numaHost is a made-up node with two NUMA nodes of 32 GiB, second by second.
type numaHost struct {
	*podNode
	nodes []snapshot.NUMANode
	scans uint64
	// uncounted: the kernel counts no scanned pages.
	uncounted bool
}

const numaReserve = 64 * mib

func newNUMAHost(t *testing.T, change ...func(*NUMAMemory)) *numaHost {
	t.Helper()
	c := Config{NUMAMemory: DefaultNUMAMemory()}
	c.NUMAMemory.Enabled = true
	for _, f := range change {
		f(&c.NUMAMemory)
	}
	h := &numaHost{podNode: newPodNode(t, c)}
	for id := range 2 {
		h.nodes = append(h.nodes, snapshot.NUMANode{ID: id, TotalBytes: snapshot.Some[uint64](32 * gib), ReserveBytes: snapshot.Some[uint64](numaReserve)})
		h.memory(id, 16*gib, 8*gib)
	}
	return h
}

// memory of a NUMA node from now on.
func (h *numaHost) memory(id int, available, free uint64) *numaHost {
	h.nodes[id].AvailableBytes, h.nodes[id].FreeBytes = snapshot.Some(available), snapshot.Some(free)
	return h
}

// holds adds a pod that requests and has so much on the two NUMA nodes.
func (h *numaHost) holds(name string, request, zero, one uint64) *numaHost {
	h.pod(name, snapshot.Pod{MemoryRequestBytes: request})
	l := &h.list[len(h.list)-1]
	l.MemoryBytes = snapshot.Some(zero + one)
	l.NUMA = []snapshot.WorkloadNUMA{{Node: 0, Bytes: zero}, {Node: 1, Bytes: one}}
	return h
}

// tick is a second in which pages were scanned and the first pods stalled for these
// shares of it.
func (h *numaHost) tick(scans uint64, stalls ...float64) []Verdict {
	h.t.Helper()
	h.scans += scans
	for i, stall := range stalls {
		p := &h.list[i].Pressure.Memory
		full, _ := p.Full.Get()
		p.Full = snapshot.Some(full + uint64(stall*1e6))
	}
	nodes := append([]snapshot.NUMANode{}, h.nodes...)
	h.cluster = snapshot.NewCluster(h.pods, h.reclaimable, h.absent)
	return h.second(func(s *snapshot.Sample) {
		s.Workloads, s.NUMANodes = append(s.Workloads, h.list...), nodes
		if !h.uncounted {
			s.Memory.ScansDirect, s.Memory.ScansKswapd = snapshot.Some[uint64](0), snapshot.Some(h.scans)
		}
		if !h.standalone {
			s.Cluster = h.cluster
		}
	})
}

func (h *numaHost) ticks(n int, scans uint64, stalls ...float64) (list []Verdict) {
	for range n {
		list = h.tick(scans, stalls...)
	}
	return list
}

// short is a host whose NUMA node 0 is short.
func (h *numaHost) short() *numaHost { return h.memory(0, gib, 60*mib) }

func TestNUMAMemory(t *testing.T) {
	t.Run("levels", numaMemoryLevels)
	t.Run("reason", numaMemoryReason)
	t.Run("own limit", numaMemoryOwnLimit)
	t.Run("candidates", numaMemoryCandidates)
	t.Run("largest waits", numaMemoryLargestWaits)
	t.Run("lowest class", numaMemoryLowestClass)
	t.Run("some unknown", numaMemorySomeUnknown)
	t.Run("unknown", numaMemoryUnknown)
	t.Run("one NUMA node", numaMemoryNoNodes)
	t.Run("warm-up", numaMemoryWarmUp)
	t.Run("model", numaMemoryModel)
}

func numaMemoryLevels(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*numaHost)
		scans  uint64
		stalls []float64 // of a, on node 0, and b, on node 1
		want   [2]Level
	}{
		"idle":                              {nil, 0, nil, [2]Level{}},
		"short, and its workload stalls":    {func(h *numaHost) { h.short() }, 900, []float64{0.5}, [2]Level{Hard, None}},
		"a little stall and some available": {func(h *numaHost) { h.memory(0, 3*gib, 60*mib) }, 900, []float64{0.12}, [2]Level{Soft, None}},
		"a long stall and some available":   {func(h *numaHost) { h.memory(0, 3*gib, 60*mib) }, 900, []float64{0.9}, [2]Level{Soft, None}},
		"full of memory, nothing stalls":    {func(h *numaHost) { h.memory(0, 40*mib, 40*mib) }, 900, []float64{0.02, 0.02}, [2]Level{}},
		"full of file pages":                {func(h *numaHost) { h.memory(0, 20*gib, 60*mib) }, 90_000, []float64{0.05}, [2]Level{}},
		"the stall is on the other":         {func(h *numaHost) { h.short() }, 900, []float64{0, 0.9}, [2]Level{}},
		"nothing is reclaimed":              {func(h *numaHost) { h.short() }, 0, []float64{0.9}, [2]Level{}},
		"reclaimed from the other":          {func(h *numaHost) { h.memory(0, gib, gib) }, 900, []float64{0.9}, [2]Level{}},
		"both are short":                    {func(h *numaHost) { h.short().memory(1, gib, 60*mib) }, 900, []float64{0.5, 0.5}, [2]Level{Hard, Hard}},
		"spread over both": {
			func(h *numaHost) { h.short().list[0].NUMA[1].Bytes = h.list[0].NUMA[0].Bytes }, 900, []float64{0.9}, [2]Level{},
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := newNUMAHost(t).holds("a", gib, 8*gib, 0).holds("b", gib, gib, 8*gib)
			h.ticks(40, 0)
			if row.change != nil {
				row.change(h)
			}
			list := h.ticks(40, row.scans, row.stalls...)
			require.Len(t, list, 2)
			for id, v := range list {
				assert.Equal(t, row.want[id], v.Level, "%s: %s", v.Scope, v.Reason)
				assert.Equal(t, []string{"NUMA 0", "NUMA 1"}[id], v.Scope)
				assert.Equal(t, Memory, v.Resource)
				assert.Equal(t, "NUMAMemoryContention", v.Condition)
				assert.Empty(t, v.Absent)
				if v.Level == None {
					assert.Empty(t, v.Candidates)
				}
			}
		})
	}
}

func numaMemoryReason(t *testing.T) {
	h := newNUMAHost(t).holds("a", gib, 8*gib, 0)
	h.ticks(40, 0)
	v := h.short().ticks(6, 900, 0.5)[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Equal(t, "memory stall, full, over 5s, of ns/a 50.0 % (≥ 25 %); memory available on NUMA 0 3.1 % (< 4 %); "+
		"global reclaim, pages scanned per second 900 (> 0); least memory free on NUMA 0 over 5s (the kernel keeps 64 MiB free) 60 MiB (< 80 MiB)", v.Reason)
	assert.Equal(t, snapshot.Some(32.0*gib), v.Whole)
	target, _ := v.Target.Get()
	assert.InDelta(t, 2.2*gib, target, mib)
	assert.Len(t, v.Evidence, 8)
	assert.False(t, v.Urgent)
}

// A workload that thrashes at its own limit does not wait for the NUMA node.
func numaMemoryOwnLimit(t *testing.T) {
	h := newNUMAHost(t).holds("a", gib, 8*gib, 0)
	h.ticks(40, 0)
	h.short()
	for i := range 40 {
		h.list[0].LimitHits = snapshot.Some(uint64(i + 1))
		require.Equal(t, None, h.tick(900, 0.9)[0].Level)
	}
}

func numaMemoryCandidates(t *testing.T) {
	h := newNUMAHost(t).
		holds("waits", 10*gib, 9*gib, 0).   // within its request, and stalls
		holds("takes", gib, 4*gib, 20*gib). // far above its request, little of it here
		holds("largest", gib, 14*gib, 0).   // above its request, all of it here
		holds("away", 0, 0, 30*gib)
	h.ticks(40, 0)
	v := h.short().ticks(6, 900, 0.5)[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	var names []string
	for _, c := range v.Candidates {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"ns/largest", "ns/takes", "ns/waits"}, names)
	assert.Equal(t, Candidate{
		Cgroup: "/kubepods/burstable/podlargest", Name: "ns/largest", PodUID: "largest", Relief: 14 * gib, Unit: "bytes",
		Why: "14336 MiB on NUMA 0, 13312 MiB of it above its request of 1024 MiB",
	}, v.Candidates[0])

	h.standalone = true
	v = h.tick(900, 0.5)[0]
	require.Len(t, v.Candidates, 3)
	assert.Equal(t, "14336 MiB on NUMA 0", v.Candidates[0].Why)
	assert.Equal(t, "podwaits", v.Candidates[1].Cgroup[len("/kubepods/burstable/"):], "without requests the largest there")
}

// A pod that has the most memory there and thrashes ends nobody else, though it is within
// its request, and though another pod of its owner stalls for longer.
func numaMemoryLargestWaits(t *testing.T) {
	h := newNUMAHost(t).
		holds("thrashes", 30*gib, 20*gib, 0).
		holds("second", 2*gib, gib, 0).
		holds("above", gib, 8*gib, 0)
	h.ticks(40, 0)
	for _, second := range []float64{0, 0.9} {
		v := h.short().ticks(6, 900, 0.5, second)[0]
		require.Equal(t, Hard, v.Level, v.Reason)
		require.Len(t, v.Candidates, 1)
		assert.Equal(t, "ns/thrashes", v.Candidates[0].Name)
	}
	v := h.ticks(6, 900, 0.02, 0.9)[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	require.Len(t, v.Candidates, 3, "the largest does not wait")
	assert.Equal(t, "ns/above", v.Candidates[0].Name)
}

// The waiting of the lowest class is no contention.
func numaMemoryLowestClass(t *testing.T) {
	h := newNUMAHost(t).holds("batch", 0, 8*gib, 0).holds("service", gib, 8*gib, 0)
	h.pods[0].LowQoS = true
	h.ticks(40, 0)
	v := h.short().ticks(40, 900, 0.9)[0]
	require.Equal(t, None, v.Level, v.Reason)
	assert.Empty(t, v.Absent)
	v = h.ticks(6, 900, 0.9, 0.5)[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Contains(t, v.Reason, "of ns/service 50.0 %")
}

// What is unknown of one workload is no all-clear, and does not hide one that waits.
func numaMemorySomeUnknown(t *testing.T) {
	h := newNUMAHost(t).holds("a", gib, 8*gib, 0).holds("b", gib, 8*gib, 0)
	h.list[1].Pressure.Memory = snapshot.Stall{}
	h.list[1].Absent.Because("pressure", "permission denied")
	h.ticks(40, 0)
	v := h.short().ticks(6, 900, 0.01)[0]
	require.Equal(t, None, v.Level, v.Reason)
	assert.Equal(t, "the stall of workloads on NUMA 0 is unknown: permission denied", v.Absent)
	v = h.ticks(40, 900, 0.5)[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Empty(t, v.Absent)
}

func numaMemoryUnknown(t *testing.T) {
	for why, change := range map[string]func(*numaHost){
		"memory.numa_stat: no such file": func(h *numaHost) {
			h.list[0].NUMA = nil
			h.list[0].Absent.Because("numaMemory", "memory.numa_stat: no such file")
		},
		"no unified hierarchy": func(h *numaHost) {
			h.list[0].Pressure.Memory = snapshot.Stall{}
			h.list[0].Absent.Because("pressure", "no unified hierarchy is mounted")
		},
		"memory of NUMA 0: no zone": func(h *numaHost) {
			h.nodes[0].AvailableBytes = snapshot.Opt[uint64]{}
			h.nodes[0].Absent.Because("availableBytes", "no zone")
		},
		"least memory free on NUMA 0: no reserve": func(h *numaHost) {
			h.nodes[0].ReserveBytes = snapshot.Opt[uint64]{}
			h.nodes[0].Absent.Because("availableBytes", "no reserve")
		},
		"least memory free on NUMA 0: not in meminfo": func(h *numaHost) {
			h.nodes[0].FreeBytes = snapshot.Opt[uint64]{}
			h.nodes[0].Absent.Because("freeBytes", "not in meminfo")
		},
		"pages scanned: not in /proc/vmstat": func(h *numaHost) { h.uncounted = true },
		"10s of the last 30s seen so far":    nil,
	} {
		t.Run(why, func(t *testing.T) {
			h := newNUMAHost(t).holds("a", gib, 8*gib, 0).memory(0, 3*gib, 60*mib)
			if change != nil {
				change(h)
				h.ticks(60, 0)
			}
			v := h.ticks(11, 900)[0]
			assert.Equal(t, None, v.Level)
			assert.Contains(t, v.Absent, why)
			assert.Empty(t, v.Candidates)
			for _, e := range v.Evidence {
				assert.NotContains(t, e.What, "keeps 0 MiB", "the reserve is unknown")
			}
		})
	}
}

// One NUMA node of a machine with one is no scope.
func numaMemoryNoNodes(t *testing.T) {
	h := newNUMAHost(t).holds("a", gib, 8*gib, 0)
	h.nodes = nil
	assert.Empty(t, h.tick(900, 0.9))
}

func numaMemoryWarmUp(t *testing.T) {
	h := newNUMAHost(t).holds("a", gib, 8*gib, 0).short()
	h.set.config.WarmUp = time.Minute
	for range 59 {
		require.Equal(t, None, h.tick(900, 0.9)[0].Level)
	}
	v := h.ticks(6, 900, 0.9)[0]
	assert.Equal(t, Hard, v.Level, v.Reason)
}

// The slow obvious version: it keeps every second of a NUMA node's life, without
// windows, totals or latches.
type slowNUMA struct {
	stall, ratio, free []float64
	scans              []uint64
	on                 [2]bool
}

func (s *slowNUMA) judge(rules [2]StallRule) Level {
	last := len(s.stall) - 1
	for i, r := range rules {
		if s.met(last, r) {
			s.on[i] = true
			continue
		}
		calm := true
		for at := last; at > last-30; at-- {
			calm = calm && !s.met(at, r) && !s.kept(at, r)
		}
		s.on[i] = s.on[i] && !calm
	}
	switch {
	case s.on[1]:
		return Hard
	case s.on[0]:
		return Soft
	}
	return None
}

func (s *slowNUMA) over(at, seconds int) (stall float64, scans uint64, least float64) {
	least = s.free[at-seconds]
	for i := at - seconds + 1; i <= at; i++ {
		stall += s.stall[i] / float64(seconds)
		scans += s.scans[i]
		least = min(least, s.free[i])
	}
	return stall, scans, least
}

func (s *slowNUMA) met(at int, r StallRule) bool {
	stall, scans, least := s.over(at, int(r.Window/time.Second))
	return scans > 0 && stall >= r.StallFull-slack && s.ratio[at] < r.Available && least < 1.25*numaReserve
}

func (s *slowNUMA) kept(at int, r StallRule) bool {
	stall, scans, _ := s.over(at, 5)
	return scans > 0 && stall >= r.StallFull/2-slack && s.ratio[at] < r.Available*1.25
}

// What is reserved for huge pages is not lacking, and no pod can give it back.
func TestNUMAMemoryHugePages(t *testing.T) {
	n := snapshot.NUMANode{TotalBytes: snapshot.Some[uint64](32 * gib), HugetlbBytes: snapshot.Some[uint64](30 * gib), AvailableBytes: snapshot.Some[uint64](gib)}
	ratio, _ := numaAvailable(&n)
	assert.Equal(t, snapshot.Some(0.5), ratio)
	target, whole := DefaultNUMAMemory().release(&n)
	assert.Equal(t, snapshot.Some(0.0), target)
	assert.Equal(t, snapshot.Some(2.0*gib), whole)
}

func numaMemoryModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 21))
	h := newNUMAHost(t).holds("a", gib, 8*gib, 0).holds("b", gib, 0, 8*gib)
	slow := [2]slowNUMA{}
	seen := map[Level]int{}
	stalls, scans := []float64{0, 0}, uint64(0)
	for i := range 20_000 {
		if i > 60 && rnd.IntN(15) == 0 { // the weather changes
			scans = []uint64{0, 800, 800}[rnd.IntN(3)]
			for id := range 2 {
				stalls[id] = []float64{0, 0.03, 0.06, 0.12, 0.3, 0.9}[rnd.IntN(6)]
				h.memory(id, []uint64{16 * gib, 7 * gib / 2, 3 * gib, gib, gib / 2}[rnd.IntN(5)], []uint64{8 * gib, 70 * mib, 50 * mib, 90 * mib}[rnd.IntN(4)])
			}
		}
		list := h.tick(scans, stalls...)
		for id := range slow {
			s := &slow[id]
			free, _ := h.nodes[id].FreeBytes.Get()
			available, _ := h.nodes[id].AvailableBytes.Get()
			s.stall, s.scans = append(s.stall, stalls[id]), append(s.scans, scans)
			s.free, s.ratio = append(s.free, float64(free)), append(s.ratio, float64(available)/(32*gib))
			if i <= 60 {
				continue
			}
			want := s.judge([2]StallRule{DefaultNUMAMemory().Soft, DefaultNUMAMemory().Hard})
			require.Equal(t, want, list[id].Level, "second %d: %s", i, list[id].Reason)
			seen[want]++
		}
	}
	t.Log(seen)
	for _, l := range []Level{None, Soft, Hard} {
		require.Greater(t, seen[l], 100, l)
	}
}
