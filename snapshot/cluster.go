package snapshot

import (
	"slices"
	"time"
)

// Cluster has what rules need from the API server about this node. It is not
// measured: the agent adds it to a Sample. It never changes, so samples share
// it.
type Cluster struct {
	// Pods that are bound to this node and have not terminated; each UID once.
	Pods []Pod `json:"pods,omitempty"`
	// Reclaimable is what pods of low QoS may request together.
	Reclaimable Reclaimable `json:"reclaimable,omitzero"`
	// Absent has the reason why "pods" or "reclaimable" are unknown.
	Absent Absent `json:"absent,omitempty"`

	byUID map[string]int // index in Pods by UID
}

// Pod is what rules need to know of a pod.
type Pod struct {
	// UID is the one in the name of its cgroup: for a static pod the hash of
	// its manifest.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// QoS is Guaranteed, Burstable or BestEffort.
	QoS string `json:"qos,omitempty"`
	// LowQoS: BestEffort, or Katalyst's reclaimed_cores.
	LowQoS   bool  `json:"lowQos,omitempty"`
	Priority int32 `json:"priority,omitempty"`
	// CPURequestMillicores and MemoryRequestBytes are its requests, including
	// those for Katalyst's reclaimed resources; 0 if it has none.
	CPURequestMillicores uint64 `json:"cpuRequestMillicores,omitempty"`
	MemoryRequestBytes   uint64 `json:"memoryRequestBytes,omitempty"`
	// StorageRequestBytes is its request of ephemeral-storage, 0 if it has none: for
	// writable layers, emptyDir volumes and logs together.
	StorageRequestBytes uint64 `json:"storageRequestBytes,omitempty"`
	// CPULimitMillicores and MemoryLimitBytes are 0 without a limit, also if
	// only one container has none.
	CPULimitMillicores uint64 `json:"cpuLimitMillicores,omitempty"`
	MemoryLimitBytes   uint64 `json:"memoryLimitBytes,omitempty"`
	// Mover: it is a data mover pod of Velero, whose waiting is no contention.
	Mover bool `json:"mover,omitempty"`
	// Maintenance: it maintains a backup repository of Velero. Its waiting is no
	// contention either, and it takes no place of a data mover load.
	Maintenance bool `json:"maintenance,omitempty"`
	// Terminating: it was deleted and may still be terminating. Its grace period
	// counts only as far as the agent would have given it.
	Terminating bool `json:"ending,omitempty"`
	// RSSOveruse is the RSS allowed as a multiple of its memory request, by its
	// own annotation; 0 without one.
	RSSOveruse float64 `json:"rssOveruseRatio,omitempty"`
}

// Reclaimable is what of this node is reclaimed for pods of low QoS; absent if
// unknown.
type Reclaimable struct {
	CPUMillicores Opt[uint64] `json:"cpuMillicores,omitzero"`
	MemoryBytes   Opt[uint64] `json:"memoryBytes,omitzero"`
	// Zones are its parts by NUMA node, sorted by ID; empty if they are not reported.
	Zones []ReclaimableZone `json:"zones,omitempty"`
}

// ReclaimableZone is what of one NUMA node is reclaimed for pods of low QoS, and which
// pods it was allocated to.
type ReclaimableZone struct {
	ID            int              `json:"numa"`
	CPUMillicores Opt[uint64]      `json:"cpuMillicores,omitzero"`
	MemoryBytes   Opt[uint64]      `json:"memoryBytes,omitzero"`
	Allocations   []ZoneAllocation `json:"allocations,omitempty"`
}

// ZoneAllocation is what a pod requests of one NUMA node.
type ZoneAllocation struct {
	PodUID        string `json:"podUid"`
	CPUMillicores uint64 `json:"cpuMillicores,omitempty"`
	MemoryBytes   uint64 `json:"memoryBytes,omitempty"`
}

// Equal reports whether two are the same.
func (r Reclaimable) Equal(o Reclaimable) bool {
	return r.CPUMillicores == o.CPUMillicores && r.MemoryBytes == o.MemoryBytes && slices.EqualFunc(r.Zones, o.Zones, func(a, b ReclaimableZone) bool {
		return a.ID == b.ID && a.CPUMillicores == b.CPUMillicores && a.MemoryBytes == b.MemoryBytes && slices.Equal(a.Allocations, b.Allocations)
	})
}

// NewCluster indexes the pods, of which each UID occurs once.
func NewCluster(pods []Pod, reclaimable Reclaimable, absent Absent) *Cluster {
	c := &Cluster{Pods: pods, Reclaimable: reclaimable, Absent: absent}
	c.Index()
	return c
}

// Index prepares the lookup of pods by UID; a Cluster that was decoded needs it.
func (c *Cluster) Index() {
	c.byUID = make(map[string]int, len(c.Pods))
	for i := range c.Pods {
		c.byUID[c.Pods[i].UID] = i
	}
}

// pod returns the pod of a cgroup; nil if unknown.
func (c *Cluster) pod(uid string) *Pod {
	if c == nil || uid == "" {
		return nil
	}
	if i, there := c.byUID[uid]; there {
		return &c.Pods[i]
	}
	return nil
}

// LowestClass reports whether a workload is of the lowest class, whose waiting for a
// resource is no contention: pods of low QoS, data mover pods and those of Velero's
// maintenance jobs even with memory requests, and workloads that wait because the agent
// throttles them. For a pod that the API server does not list, its cgroup shows whether it
// is BestEffort.
func (w *WorkloadState) LowestClass(of SharedResource) bool {
	if w.Pod != nil {
		return w.Pod.LowQoS || w.Pod.Mover || w.Pod.Maintenance || w.waitsForThrottle(of)
	}
	return w.BestEffort() || w.waitsForThrottle(of)
}

// waitsForThrottle tells whether its waiting for a resource may be the effect of a throttle,
// also of one that ended within the window of the rates.
// Who may hold less memory reads pages again; who may compute less empties its network queues
// later. Reclaim of memory needs the disk and the CPU.
func (w *WorkloadState) waitsForThrottle(of SharedResource) bool {
	computes := func(r SharedResource) bool { return r == SharedCPU || r == SharedNetwork }
	delays := func(r SharedResource) bool { return of == SharedMemory || computes(r) == computes(of) }
	return slices.ContainsFunc(w.Throttled, delays) ||
		slices.ContainsFunc(w.throttles, func(t throttleSeen) bool { return t.inRates && delays(t.of) })
}

// throttleSeen is when the agent last limited the use of a resource.
type throttleSeen struct {
	of      SharedResource
	at      time.Duration // of the newest sample that has it, on CLOCK_MONOTONIC
	inRates bool          // it is within the window of the Snapshot's rates
}

// seeThrottles adds the throttles of a new sample to those of the sample before.
func (w *WorkloadState) seeThrottles(now, window, keep time.Duration) {
	if len(w.Throttled)+len(w.throttles) == 0 {
		return
	}
	seen := make([]throttleSeen, 0, len(w.Throttled)+len(w.throttles))
	for _, of := range w.Throttled {
		seen = append(seen, throttleSeen{of, now, true})
	}
	for _, t := range w.throttles { // the slice belongs to an older Snapshot, too
		if t.at >= now-keep && !slices.Contains(w.Throttled, t.of) {
			seen = append(seen, throttleSeen{t.of, t.at, t.at >= now-window})
		}
	}
	w.throttles = seen
}

// Throttled tells whether the agent limited the workload's use of a resource in the window,
// so that its waiting may be the effect.
func (w Window) Throttled(l *WorkloadState) bool {
	begin := w.points[w.from].Monotonic
	return len(l.Throttled) > 0 || slices.ContainsFunc(l.throttles, func(t throttleSeen) bool { return t.at >= begin })
}

// MarkThrottled marks the workloads that the agent throttles, before the sample is used.
func (s *Sample) MarkThrottled(cgroups map[string][]SharedResource) {
	for i := range s.Workloads {
		s.Workloads[i].Throttled = cgroups[s.Workloads[i].Cgroup]
	}
}

// Title is the workload's display name: for a pod its namespace and name.
func (w *WorkloadState) Title() string {
	if w.Pod != nil {
		return w.Pod.Namespace + "/" + w.Pod.Name
	}
	return w.Name
}
