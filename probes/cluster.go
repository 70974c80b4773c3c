package probes

// Cluster is what the API server says of this node that rules need beside what
// the kernel says. It is no measurement: whoever knows it hands it in with a
// Sample. It never changes, so that samples share it.
type Cluster struct {
	// Pods that run here or will, and have not ended; each UID once.
	Pods []Pod `json:"pods,omitempty"`
	// Reclaimable is what pods of low QoS may ask for together.
	Reclaimable Reclaimable `json:"reclaimable,omitzero"`
	// Absent tells why the "pods", or what is "reclaimable", are not known.
	Absent Absent `json:"absent,omitempty"`

	places map[string]int // of UIDs in Pods
}

// Pod is what rules need to know of a pod.
type Pod struct {
	// UID is the one in the name of its cgroup: of a static pod the hash of its
	// manifest.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// QoS is Guaranteed, Burstable or BestEffort.
	QoS string `json:"qos,omitempty"`
	// LowQoS: BestEffort, or Katalyst's reclaimed_cores.
	LowQoS   bool  `json:"lowQos,omitempty"`
	Priority int32 `json:"priority,omitempty"`
	// CPURequestMillicores and MemoryRequestBytes are what it was promised: what
	// the scheduler sets aside for it, and what it asks for of Katalyst's
	// reclaimed resources. 0 where it asks for none.
	CPURequestMillicores uint64 `json:"cpuRequestMillicores,omitempty"`
	MemoryRequestBytes   uint64 `json:"memoryRequestBytes,omitempty"`
	// CPULimitMillicores and MemoryLimitBytes are 0 where there is none, as for
	// a pod of which one container has none.
	CPULimitMillicores uint64 `json:"cpuLimitMillicores,omitempty"`
	MemoryLimitBytes   uint64 `json:"memoryLimitBytes,omitempty"`
	// Mover: it moves data for Velero, and waits for nobody's sake but its own.
	Mover bool `json:"mover,omitempty"`
	// Ending: it was deleted, and may still take its time, of which its grace period
	// counts as far as the agent would have given it.
	Ending bool `json:"ending,omitempty"`
	// RSSOveruse is how many times its memory request its RSS may be; 0 where
	// it does not say so itself.
	RSSOveruse float64 `json:"rssOveruseRatio,omitempty"`
}

// Reclaimable is what of this node is lent to pods of low QoS; absent where
// nobody says.
type Reclaimable struct {
	CPUMillicores Opt[uint64] `json:"cpuMillicores,omitzero"`
	MemoryBytes   Opt[uint64] `json:"memoryBytes,omitzero"`
}

// NewCluster is what is known of a cluster: pods of which each UID is there
// once, what is reclaimable, and why some of it is not known.
func NewCluster(pods []Pod, reclaimable Reclaimable, absent Absent) *Cluster {
	c := &Cluster{Pods: pods, Reclaimable: reclaimable, Absent: absent}
	c.index()
	return c
}

func (c *Cluster) index() {
	c.places = make(map[string]int, len(c.Pods))
	for i := range c.Pods {
		c.places[c.Pods[i].UID] = i
	}
}

// pod that a cgroup is of; nil when it is not known.
func (c *Cluster) pod(uid string) *Pod {
	if c == nil || uid == "" {
		return nil
	}
	if i, there := c.places[uid]; there {
		return &c.Pods[i]
	}
	return nil
}

const whyNoCluster = "no API server is configured: the pods' requests are unknown"

// Pods of the node as the API server knows them; why is for what they are not
// known, and empty when they are.
func (s *Snapshot) Pods() (pods []Pod, why string) {
	if s.Cluster == nil {
		return nil, whyNoCluster
	}
	return s.Cluster.Pods, s.Cluster.Absent["pods"]
}

// Reclaimable is what of the node is lent to pods of low QoS; why is for what
// the API server does not say, and empty where there is something.
func (s *Snapshot) Reclaimable() (lent Reclaimable, why string) {
	if s.Cluster == nil {
		return lent, whyNoCluster
	}
	return s.Cluster.Reclaimable, s.Cluster.Absent["reclaimable"]
}

// Lowest says whether nothing is done for a workload's sake: pods of low QoS,
// and those that move data for Velero, also where they ask for memory, and
// whoever waits because of a limit of ours. Of a pod that the API server does
// not tell of, its cgroup says whether it is BestEffort.
func (w *WorkloadState) Lowest() bool {
	if w.Pod != nil {
		return w.Pod.LowQoS || w.Pod.Mover || w.Curbed
	}
	return w.BestEffort() || w.Curbed
}

// Curb marks the workloads that carry a limit of the agent's own, before
// anybody sees the sample.
func (s *Sample) Curb(cgroups map[string]bool) {
	for i := range s.Workloads {
		s.Workloads[i].Curbed = cgroups[s.Workloads[i].Cgroup]
	}
}

// Title is the name of a workload for people: of a pod the API server's.
func (w *WorkloadState) Title() string {
	if w.Pod != nil {
		return w.Pod.Namespace + "/" + w.Pod.Name
	}
	return w.Name
}
