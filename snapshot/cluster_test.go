package snapshot

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twoPods are two pods of which one asks for memory and CPUs.
func twoPods() []Pod {
	return []Pod{
		{UID: "u1", Namespace: "shop", Name: "web-1", QoS: "Burstable", Priority: 7, CPURequestMillicores: 1500, MemoryRequestBytes: 1 << 30, MemoryLimitBytes: 2 << 30, RSSOveruse: 1.2},
		{UID: "u2", Namespace: "velero", Name: "du-1", QoS: "BestEffort", LowQoS: true, Mover: true, Terminating: true},
	}
}

func TestWorkloadJoinedWithPod(t *testing.T) {
	c := NewCluster(twoPods(), Reclaimable{MemoryBytes: Some(uint64(5))}, nil)
	s := testHistory().Add(&Sample{Monotonic: 1, Cluster: c, Workloads: []Workload{
		{Cgroup: "/kubepods/burstable/podu1", Kind: KindPod, Name: "pod u1", PodUID: "u1"},
		{Cgroup: "/kubepods/burstable/podu9", Kind: KindPod, Name: "pod u9", PodUID: "u9"},
		{Cgroup: "/system.slice/a.service", Kind: KindService, Name: "a.service"},
	}})
	require.NotNil(t, s.Workloads[0].Pod)
	assert.EqualValues(t, 1<<30, s.Workloads[0].Pod.MemoryRequestBytes)
	assert.Equal(t, "shop/web-1", s.Workloads[0].Title())
	assert.Nil(t, s.Workloads[1].Pod, "the API server does not tell of it")
	assert.Equal(t, "pod u9", s.Workloads[1].Title())
	assert.Nil(t, s.Workloads[2].Pod)
	all, why := s.Pods()
	assert.Len(t, all, 2)
	assert.Empty(t, why)
	lent, _ := s.Reclaimable()
	assert.Equal(t, Some(uint64(5)), lent.MemoryBytes)
}

func TestPodsUnknownReason(t *testing.T) {
	alone := testHistory().Add(&Sample{Monotonic: 1})
	_, why := alone.Pods()
	assert.Contains(t, why, "no API server is configured")
	_, why = alone.Reclaimable()
	assert.Contains(t, why, "no API server is configured")
	early := testHistory().Add(&Sample{Monotonic: 1, Cluster: NewCluster(nil, Reclaimable{}, Absent{"pods": "not listed yet"})})
	_, why = early.Pods()
	assert.Equal(t, "not listed yet", why)
}

func TestLowestClass(t *testing.T) {
	for what, row := range map[string]struct {
		w    WorkloadState
		want bool
	}{
		"a service":                          {WorkloadState{Workload: Workload{Kind: KindService, Cgroup: "/system.slice/besteffort.service"}}, false},
		"BestEffort, by its cgroup":          {WorkloadState{Workload: Workload{Kind: KindPod, Cgroup: "/kubepods/besteffort/podu1"}}, true},
		"Burstable, by its cgroup":           {WorkloadState{Workload: Workload{Kind: KindPod, Cgroup: "/kubepods/burstable/podu1"}}, false},
		"Burstable, by the API server":       {WorkloadState{Workload: Workload{Kind: KindPod, Cgroup: "/kubepods/burstable/podu1"}, Pod: &Pod{QoS: "Burstable"}}, false},
		"Burstable with reclaimed resources": {WorkloadState{Workload: Workload{Kind: KindPod, Cgroup: "/kubepods/burstable/podu1"}, Pod: &Pod{QoS: "Burstable", LowQoS: true}}, true},
		"Burstable, and moves data":          {WorkloadState{Workload: Workload{Kind: KindPod, Cgroup: "/kubepods/burstable/podu1"}, Pod: &Pod{QoS: "Burstable", Mover: true}}, true},
		"Burstable, and maintains backups":   {WorkloadState{Workload: Workload{Kind: KindPod, Cgroup: "/kubepods/burstable/podu1"}, Pod: &Pod{QoS: "Burstable", Maintenance: true}}, true},
		"Burstable, and limited by us":       {WorkloadState{Workload: Workload{Kind: KindPod, Throttled: []SharedResource{SharedDisk}}, Pod: &Pod{QoS: "Burstable"}}, true},
		"unknown, and limited by us":         {WorkloadState{Workload: Workload{Kind: KindPod, Throttled: []SharedResource{SharedDisk}}}, true},
	} {
		assert.Equal(t, row.want, row.w.LowestClass(SharedDisk), what)
	}
	for limited, waits := range map[SharedResource][]SharedResource{
		SharedDisk: {SharedDisk, SharedMemory}, SharedMemory: {SharedDisk, SharedMemory}, SharedCPU: {SharedCPU, SharedNetwork, SharedMemory},
	} {
		w := WorkloadState{Workload: Workload{Kind: KindPod, Throttled: []SharedResource{limited}}, Pod: &Pod{QoS: "Burstable"}}
		for _, of := range []SharedResource{SharedDisk, SharedMemory, SharedCPU, SharedNetwork} {
			assert.Equal(t, slices.Contains(waits, of), w.LowestClass(of), "%s of one whose %s is limited", of, limited)
		}
	}
}

func TestMarkThrottled(t *testing.T) {
	disk := []SharedResource{SharedDisk}
	s := &Sample{Workloads: []Workload{{Cgroup: "/a"}, {Cgroup: "/b", Throttled: disk}}}
	s.MarkThrottled(map[string][]SharedResource{"/a": disk})
	assert.Equal(t, []Workload{{Cgroup: "/a", Throttled: disk}, {Cgroup: "/b"}}, s.Workloads)
}

func TestReclaimableEqual(t *testing.T) {
	lent := func() Reclaimable {
		return Reclaimable{CPUMillicores: Some[uint64](1), Zones: []ReclaimableZone{{ID: 1, MemoryBytes: Some[uint64](2), Allocations: []ZoneAllocation{{PodUID: "a", CPUMillicores: 3}}}}}
	}
	assert.True(t, lent().Equal(lent()))
	for _, change := range []func(*Reclaimable){
		func(r *Reclaimable) { r.CPUMillicores = Opt[uint64]{} },
		func(r *Reclaimable) { r.MemoryBytes = Some[uint64](0) },
		func(r *Reclaimable) { r.Zones = nil },
		func(r *Reclaimable) { r.Zones[0].ID = 0 },
		func(r *Reclaimable) { r.Zones[0].CPUMillicores = Some[uint64](0) },
		func(r *Reclaimable) { r.Zones[0].MemoryBytes = Opt[uint64]{} },
		func(r *Reclaimable) { r.Zones[0].Allocations[0].CPUMillicores = 4 },
	} {
		other := lent()
		change(&other)
		assert.False(t, lent().Equal(other))
	}
}

// What a workload waited for its throttle is in a window for as long as the window reaches
// back to the throttle, whatever becomes of the workload's counters.
func TestThrottleWithinWindow(t *testing.T) {
	h := &History{Window: 10 * time.Second, Keep: 60 * time.Second, MaxGap: time.Minute}
	at, inode, cpu := time.Second, uint64(1), uint64(100)
	sample := func(throttled ...SharedResource) (s *Snapshot, w *WorkloadState) {
		at += time.Second
		s = h.Add(&Sample{Monotonic: at, Boottime: at, Workloads: []Workload{{Cgroup: "/a", Inode: inode, At: at, CPUMicroseconds: Some(cpu), Throttled: throttled}}})
		return s, &s.Workloads[0]
	}
	sample()
	s, w := sample(SharedDisk, SharedCPU)
	assert.True(t, w.LowestClass(SharedDisk))
	was, limited := s, at
	for range 60 {
		var of []SharedResource
		if at < limited+5*time.Second {
			of = []SharedResource{SharedCPU}
		}
		cpu-- // a counter that decreases begins anew
		s, w = sample(of...)
		assert.Equal(t, at <= limited+10*time.Second, w.LowestClass(SharedDisk), at-limited)
		assert.Equal(t, at <= limited+15*time.Second, w.LowestClass(SharedNetwork), at-limited)
		for _, window := range []time.Duration{5 * time.Second, 30 * time.Second} {
			over, _ := s.Over(window)
			assert.Equal(t, at <= limited+5*time.Second+window, over.Throttled(w), "%s later, over %s", at-limited, window)
		}
	}
	assert.False(t, w.LowestClass(SharedDisk))
	assert.True(t, was.Workloads[0].LowestClass(SharedDisk), "a Snapshot does not change")
	sample(SharedDisk)
	inode++
	_, w = sample()
	assert.False(t, w.LowestClass(SharedDisk), "another one of the same name")
}
