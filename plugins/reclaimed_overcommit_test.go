package plugins

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func overcommit(t *testing.T, change ...func(*ReclaimedOvercommit)) *podNode {
	t.Helper()
	c := Config{ReclaimedOvercommit: DefaultReclaimedOvercommit()}
	c.ReclaimedOvercommit.Enabled, c.ReclaimedOvercommit.For = true, 0
	for _, f := range change {
		f(&c.ReclaimedOvercommit)
	}
	return newPodNode(t, c)
}

// borrowing so much of both, of low QoS.
func borrowing(millicores, memory uint64, priority int32) snapshot.Pod {
	return snapshot.Pod{LowQoS: true, CPURequestMillicores: millicores, MemoryRequestBytes: memory, Priority: priority}
}

func (w *podNode) lends(millicores, memory uint64) *podNode {
	w.reclaimable = snapshot.Reclaimable{CPUMillicores: snapshot.Some(millicores), MemoryBytes: snapshot.Some(memory)}
	w.changed()
	return w
}

func TestReclaimedOvercommit(t *testing.T) {
	t.Run("hard", reclaimedOvercommitHard)
	t.Run("none", reclaimedOvercommitNone)
	t.Run("soft", reclaimedOvercommitSoft)
	t.Run("NUMA zones", reclaimedOvercommitZones)
	t.Run("must last", reclaimedOvercommitMustLast)
	t.Run("configured", reclaimedOvercommitConfigured)
	t.Run("unknown", reclaimedOvercommitUnknown)
	t.Run("model", reclaimedOvercommitModel)
}

func reclaimedOvercommitHard(t *testing.T) {
	w := overcommit(t).pod("a", borrowing(4000, gib, 7)).pod("b", borrowing(2000, gib, 0)).pod("c", borrowing(3000, 0, 0)).lends(5000, 8*gib)
	list := w.pass()
	require.Len(t, list, 2)
	cpu, memory := list[0], list[1]
	assert.Equal(t, "reclaimed cpu", cpu.Scope)
	assert.Equal(t, Hard, cpu.Level, cpu.Reason)
	assert.Contains(t, cpu.Reason, "CPUs requested by low-QoS pods (5 reclaimed, limit 120 %) 9 (> 6)")
	assert.Equal(t, snapshot.Some(9.0), cpu.Observed)
	assert.Equal(t, snapshot.Some(6.0), cpu.Threshold)
	assert.Equal(t, snapshot.Some(3.0), cpu.Target)
	assert.Equal(t, snapshot.Some(9.0), cpu.Whole)
	assert.Equal(t, "ReclaimedOvercommit", cpu.Condition)
	var names []string
	for _, c := range cpu.Candidates {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"ns/c", "ns/b", "ns/a"}, names, "the lowest priority first, and of these the largest")
	assert.Equal(t, Candidate{Cgroup: "/kubepods/burstable/podc", Name: "ns/c", PodUID: "c", Relief: 3, Unit: "cores", Why: "requests 3 CPUs, priority 0"}, cpu.Candidates[0])
	assert.Equal(t, None, memory.Level, memory.Reason)
	assert.Equal(t, "reclaimed memory", memory.Scope)

	list = w.lends(9000, gib).pass()
	assert.Equal(t, None, list[0].MetLevel)
	assert.Equal(t, Hard, list[1].Level)
	assert.Len(t, list[1].Candidates, 2, "c asks for no memory")
}

func reclaimedOvercommitNone(t *testing.T) {
	for what, row := range map[string]struct {
		pod  snapshot.Pod
		lent uint64
	}{
		"a healthy busy node":       {borrowing(5000, gib, 0), 5000},
		"a little more than lent":   {borrowing(5500, gib, 0), 5000},
		"it is no pod of low QoS":   {snapshot.Pod{CPURequestMillicores: 50_000}, 5000},
		"it is ending already":      {snapshot.Pod{LowQoS: true, CPURequestMillicores: 50_000, Terminating: true}, 5000},
		"nobody asks, none is lent": {snapshot.Pod{LowQoS: true}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			w := overcommit(t).pod("a", row.pod).lends(row.lent, 64*gib)
			for range 10 {
				verdicts := w.pass()
				require.NotEmpty(t, verdicts)
				for _, v := range verdicts {
					require.Equal(t, None, v.Level, v.Reason)
					require.Empty(t, v.Absent)
					require.True(t, v.Target.IsZero())
				}
			}
		})
	}
}

func reclaimedOvercommitSoft(t *testing.T) {
	w := overcommit(t, func(r *ReclaimedOvercommit) { r.For = 10 * time.Second }).pod("a", borrowing(5600, gib, 0)).lends(5000, 64*gib)
	require.Equal(t, None, w.repeat(10*time.Second, nil).Level)
	v := w.repeat(time.Second, nil)
	require.Equal(t, Soft, v.Level, v.Reason)
	assert.Equal(t, Soft, v.MetLevel)
	assert.Equal(t, "CPUs requested by low-QoS pods (5 reclaimed, limit 110 %) 5.6 (> 5.5); met without a break for 10 s (≥ 10 s)", v.Reason)
	assert.Equal(t, snapshot.Some(5.5), v.Threshold)
	target, _ := v.Target.Get()
	assert.InDelta(t, 0.1, target, 1e-9)

	w.pods[0].CPURequestMillicores = 6100
	w.changed()
	v = w.repeat(10*time.Second, nil)
	require.Equal(t, Soft, v.Level, "each level has a time of its own: %s", v.Reason)
	v = w.repeat(time.Second, nil)
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Equal(t, snapshot.Some(6.0), v.Threshold)

	w.pods[0].CPURequestMillicores = 5600
	w.changed()
	require.Equal(t, Soft, w.repeat(31*time.Second, nil).Level, "hard ends, soft stays")

	w = overcommit(t, func(r *ReclaimedOvercommit) { r.SoftCPURate = 0 }).pod("a", borrowing(5600, gib, 0)).lends(5000, 64*gib)
	v = w.repeat(5*time.Second, nil)
	assert.Equal(t, None, v.Level)
	assert.Len(t, v.Evidence, 1, "0: there is no soft level")
}

func reclaimedOvercommitZones(t *testing.T) {
	w := overcommit(t).pod("a", borrowing(4000, 4*gib, 0)).pod("b", borrowing(2000, gib, 0)).
		pod("service", snapshot.Pod{CPURequestMillicores: 9000}).lends(8000, 64*gib)
	w.reclaimable.Zones = []snapshot.ReclaimableZone{
		{ID: 0, CPUMillicores: snapshot.Some[uint64](3000), MemoryBytes: snapshot.Some[uint64](32 * gib), Allocations: []snapshot.ZoneAllocation{
			{PodUID: "a", CPUMillicores: 4000, MemoryBytes: 4 * gib}, {PodUID: "service", CPUMillicores: 9000}, {PodUID: "elsewhere", CPUMillicores: 50_000},
		}},
		{ID: 1, CPUMillicores: snapshot.Some[uint64](5000), Allocations: []snapshot.ZoneAllocation{{PodUID: "b", CPUMillicores: 2000, MemoryBytes: gib}}},
	}
	w.changed()
	list := w.pass()
	var scopes []string
	for _, v := range list {
		scopes = append(scopes, v.Scope)
	}
	require.Equal(t, []string{"reclaimed cpu", "reclaimed memory", "reclaimed cpu, NUMA 0", "reclaimed memory, NUMA 0", "reclaimed cpu, NUMA 1"}, scopes)
	for i, want := range []Level{None, None, Hard, None, None} {
		assert.Equal(t, want, list[i].Level, "%s: %s", scopes[i], list[i].Reason)
	}
	v := list[2]
	assert.Contains(t, v.Reason, "CPUs requested by low-QoS pods (3 reclaimed, limit 120 %) 4 (> 3.6)")
	require.Len(t, v.Candidates, 1, "b is on another NUMA node, the service is of another class")
	assert.Equal(t, "ns/a", v.Candidates[0].Name)
	assert.InDelta(t, 4.0, v.Candidates[0].Relief, 1e-9)

	w.reclaimable.Zones = nil
	w.changed()
	assert.Len(t, w.pass(), 2, "a zone that is no more is no scope")
}

func reclaimedOvercommitMustLast(t *testing.T) {
	w := overcommit(t, func(r *ReclaimedOvercommit) { r.For = time.Minute }).pod("a", borrowing(4000, gib, 0)).lends(1000, gib)
	require.Equal(t, None, w.repeat(60*time.Second, nil).Level)
	require.Equal(t, Hard, w.repeat(time.Second, nil).Level)
	w.lends(4000, gib)
	require.Equal(t, Hard, w.repeat(29*time.Second, nil).Level)
	require.Equal(t, None, w.repeat(time.Second, nil).Level)
}

func reclaimedOvercommitConfigured(t *testing.T) {
	w := overcommit(t, func(r *ReclaimedOvercommit) { r.CPU = 1000 }).pod("a", borrowing(4000, gib, 0))
	list := w.pass()
	assert.Equal(t, Hard, list[0].Level, list[0].Reason)
	assert.Equal(t, None, list[1].Level)
	assert.Contains(t, list[1].Absent, "the reclaimed amount is unknown: not reported, and none is configured")
	list = w.lends(4000, gib).pass()
	assert.Equal(t, None, list[0].MetLevel, "the node's own word is the better one")
	list = w.lends(0, gib).pass()
	assert.Equal(t, Hard, list[0].MetLevel, "none is lent any more")
}

func reclaimedOvercommitUnknown(t *testing.T) {
	for why, change := range map[string]func(*podNode){
		"no API server is configured": func(w *podNode) { w.standalone = true },
		"not listed yet":              func(w *podNode) { w.pods, w.absent = nil, snapshot.Absent{"pods": "not listed yet"} },
		"this Node has no such object": func(w *podNode) {
			w.reclaimable, w.absent = snapshot.Reclaimable{}, snapshot.Absent{"reclaimable": "this Node has no such object"}
		},
	} {
		t.Run(why, func(t *testing.T) {
			w := overcommit(t).pod("a", borrowing(4000, gib, 0)).lends(1, 1)
			change(w)
			verdicts := w.pass()
			require.NotEmpty(t, verdicts)
			for _, v := range verdicts {
				assert.Equal(t, None, v.Level)
				assert.Contains(t, v.Absent, why)
				assert.Empty(t, v.Candidates)
			}
		})
	}
}

// overcommitted is the level of so much that is requested; soft 0: there is none.
func overcommitted(asked, hard, soft uint64) Level {
	switch {
	case asked > hard:
		return Hard
	case soft > 0 && asked > soft:
		return Soft
	}
	return None
}

func reclaimedOvercommitModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 11))
	seen := map[Level]int{}
	for range 2000 {
		w := overcommit(t, func(r *ReclaimedOvercommit) {
			r.CPURate = 50 + rnd.IntN(150)
			r.SoftCPURate = rnd.IntN(r.CPURate + 1)
		})
		rate, soft := uint64(w.set.config.ReclaimedOvercommit.CPURate), uint64(w.set.config.ReclaimedOvercommit.SoftCPURate)
		var all uint64
		for i := range rnd.IntN(6) {
			p := borrowing(uint64(rnd.IntN(8000)), 0, 0)
			p.LowQoS, p.Terminating = rnd.IntN(4) > 0, rnd.IntN(5) == 0
			if w.pod(string(rune('a'+i)), p); p.LowQoS && !p.Terminating {
				all += p.CPURequestMillicores
			}
		}
		lent := uint64(rnd.IntN(16_000))
		v := w.lends(lent, gib).pass()[0]
		if 100*all == rate*lent || 100*all == soft*lent {
			continue // just on the line, which a ratio does not tell
		}
		want := overcommitted(100*all, rate*lent, soft*lent)
		require.Equal(t, want, v.Level, v.Reason)
		var relief float64
		for _, c := range v.Candidates {
			relief += c.Relief
		}
		if want > None {
			require.InDelta(t, float64(all)/1000, relief, 1e-9, "all that was counted is named")
		}
		seen[want]++
	}
	t.Log(seen)
	require.Greater(t, min(seen[None], seen[Soft], seen[Hard]), 100)
}
