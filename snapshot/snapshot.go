package snapshot

import (
	"slices"
	"time"
)

// Snapshot is the node at one tick: the newest Sample with its disk times
// unwrapped, and the rates and ratios over the sliding window before it. It
// never changes.
type Snapshot struct {
	Time time.Time `json:"time"`
	// Sequence counts samples since the agent started, from 1.
	Sequence      uint64  `json:"sequence"`
	UptimeSeconds float64 `json:"uptimeSeconds"`
	// WindowSeconds is the real length of the window; 0, without rates, at the
	// first sample and after a gap.
	WindowSeconds float64 `json:"windowSeconds"`
	// Gaps counts how often the window was dropped.
	Gaps uint64 `json:"gaps"`

	CPU       CPUState        `json:"cpu"`
	Memory    MemoryState     `json:"memory"`
	Pressure  PressureState   `json:"pressure"`
	Network   NetworkState    `json:"network"`
	Disks     []DiskState     `json:"disks"`
	NICs      []NICState      `json:"nics"`
	Workloads []WorkloadState `json:"workloads"`
	// NUMANodes are those of the Sample.
	NUMANodes []NUMANode `json:"numaNodes,omitempty"`
	// Contention has, for memory and each resource in use, the workloads that
	// use it and those that wait for it.
	Contention []Contention `json:"contention,omitempty"`
	IOSource   IOSource     `json:"workloadIoSource,omitempty"`
	// Filesystems are those of the Sample.
	Filesystems []Filesystem `json:"filesystems,omitempty"`
	// Exhaustion has an estimate for each resource that shrinks steadily.
	Exhaustion Exhaustions `json:"exhaustion,omitempty"`
	// Rootfs is that of the Sample.
	Rootfs *Rootfs `json:"rootFilesystems,omitempty"`
	Probes []Probe `json:"probes"`
	// Cluster is that of the Sample. JSON has each workload's pod instead.
	Cluster *Cluster `json:"-"`

	Absent Absent `json:"absent,omitempty"`

	points  []*point // the history that Over reaches; the newest is the last
	columns columns  // of the points
	ended   []endedWorkload
	from    int // index of the point at which its own window begins
}

// CPUState is the CPUs' counters and their rates in the window.
type CPUState struct {
	CPU
	// BusyRatio of all CPUs together, 0 to 1.
	BusyRatio Opt[float64] `json:"busyRatio,omitzero"`
}

// MemoryState is the node's memory and its rates in the window.
type MemoryState struct {
	Memory
	AvailableRatio Opt[float64] `json:"availableRatio,omitzero"`
	MemoryRates
}

// MemoryRates over a window. Scans and refaults are in pages.
type MemoryRates struct {
	// ScansPerSecond by global reclaim, direct and kswapd together.
	ScansPerSecond    Opt[float64] `json:"scansPerSecond,omitzero"`
	RefaultsPerSecond Opt[float64] `json:"refaultsPerSecond,omitzero"`
	SwapInsPerSecond  Opt[float64] `json:"swapInsPerSecond,omitzero"`
	// OOMKills within the window, a count.
	OOMKills Opt[uint64] `json:"oomKills,omitzero"`
}

// PressureState is the stall totals and their share of the window.
type PressureState struct {
	Totals Pressure `json:"totals"`
	Ratios
}

// Ratios is the share of the window, 0 to 1, in which tasks stalled on each
// resource.
type Ratios struct {
	CPU    StallRatio `json:"cpu,omitzero"`
	Memory StallRatio `json:"memory,omitzero"`
	IO     StallRatio `json:"io,omitzero"`
}

// StallRatio is the share of a window in which some task, or all, stalled.
type StallRatio struct {
	Some Opt[float64] `json:"someRatio,omitzero"`
	Full Opt[float64] `json:"fullRatio,omitzero"`
}

// NetworkState is the protocol stack's counters and their rates in the window.
type NetworkState struct {
	Network
	// TCPRetransmitRatio is retransmitted over sent segments; absent if none
	// was sent.
	TCPRetransmitRatio       Opt[float64] `json:"tcpRetransmitRatio,omitzero"`
	ListenDropsPerSecond     Opt[float64] `json:"listenDropsPerSecond,omitzero"`
	SoftnetSqueezedPerSecond Opt[float64] `json:"softnetSqueezedPerSecond,omitzero"`
}

// DiskState is a disk and its rates.
type DiskState struct {
	Disk
	Rates Opt[DiskRates] `json:"rates,omitzero"`
}

// DiskRates over a window: that of the snapshot, or a shorter one for a disk
// that appeared within it.
type DiskRates struct {
	WindowSeconds         float64 `json:"windowSeconds"`
	ReadsPerSecond        float64 `json:"readsPerSecond"`
	WritesPerSecond       float64 `json:"writesPerSecond"`
	ReadBytesPerSecond    float64 `json:"readBytesPerSecond"`
	WrittenBytesPerSecond float64 `json:"writtenBytesPerSecond"`
	// Await is the mean time of a completed request, queue included; absent if
	// none completed.
	ReadAwaitSeconds  Opt[float64] `json:"readAwaitSeconds,omitzero"`
	WriteAwaitSeconds Opt[float64] `json:"writeAwaitSeconds,omitzero"`
	// QueueLength is the mean number of requests in flight.
	QueueLength float64 `json:"queueLength"`
	// BusyRatio is the share of time with a request in flight: no sign of
	// saturation on NVMe and RAID.
	BusyRatio float64 `json:"busyRatio"`
}

// NICState is a NIC and its rates.
type NICState struct {
	NIC
	Rates Opt[NICRates] `json:"rates,omitzero"`
}

// NICRates over a window.
type NICRates struct {
	WindowSeconds            float64 `json:"windowSeconds"`
	ReceiveBytesPerSecond    float64 `json:"receiveBytesPerSecond"`
	TransmitBytesPerSecond   float64 `json:"transmitBytesPerSecond"`
	ReceivePacketsPerSecond  float64 `json:"receivePacketsPerSecond"`
	TransmitPacketsPerSecond float64 `json:"transmitPacketsPerSecond"`
	ErrorsPerSecond          float64 `json:"errorsPerSecond"`
	DropsPerSecond           float64 `json:"dropsPerSecond"`
	// Utilization of each direction; absent if the speed is.
	ReceiveUtilizationRatio  Opt[float64] `json:"receiveUtilizationRatio,omitzero"`
	TransmitUtilizationRatio Opt[float64] `json:"transmitUtilizationRatio,omitzero"`
}

// WorkloadState is a workload and its rates.
type WorkloadState struct {
	Workload
	// WorkingSetBytes is memory without inactive file pages, which reclaim
	// frees at no cost.
	WorkingSetBytes Opt[uint64]        `json:"workingSetBytes,omitzero"`
	Rates           Opt[WorkloadRates] `json:"rates,omitzero"`
	// Pod is the pod as the API server reports it; nil if it does not.
	Pod *Pod `json:"pod,omitempty"`
	// throttles are those of the agent, one for each resource, as far as the history reaches.
	throttles []throttleSeen
}

// WorkloadRates over a window; each part is absent if its counter is.
type WorkloadRates struct {
	WindowSeconds float64      `json:"windowSeconds"`
	CPUCores      Opt[float64] `json:"cpuCores,omitzero"`
	// MemoryTakenPerSecond is its growth plus what reclaim freed from it, in
	// bytes; negative if it freed more than it took.
	MemoryTakenPerSecond Opt[float64] `json:"memoryTakenBytesPerSecond,omitzero"`
	// ThrottledRatio is the time its CPU quota throttled it, per second; above
	// 1 if it throttled several CPUs at once.
	ThrottledRatio Opt[float64] `json:"throttledRatio,omitzero"`
	Pressure       Ratios       `json:"pressure,omitzero"`
	// LimitHits in the window: if above zero, the memory stall of this workload
	// may be caused by its own limit and not by the node.
	LimitHits Opt[uint64]       `json:"limitHits,omitzero"`
	IO        []WorkloadIORates `json:"io,omitempty"`
	// Network of a pod's own namespace, over a window of its own.
	Network Opt[WorkloadNetworkRates] `json:"network,omitzero"`
}

// WorkloadNetworkRates are the rates of all devices but lo in a workload's
// network namespace.
type WorkloadNetworkRates struct {
	WindowSeconds            float64 `json:"windowSeconds"`
	ReceiveBytesPerSecond    float64 `json:"receiveBytesPerSecond"`
	ReceivePacketsPerSecond  float64 `json:"receivePacketsPerSecond"`
	TransmitBytesPerSecond   float64 `json:"transmitBytesPerSecond"`
	TransmitPacketsPerSecond float64 `json:"transmitPacketsPerSecond"`
}

// WorkloadIORates are a workload's rates on one device.
type WorkloadIORates struct {
	Number                string  `json:"number"`
	ReadsPerSecond        float64 `json:"readsPerSecond"`
	WritesPerSecond       float64 `json:"writesPerSecond"`
	ReadBytesPerSecond    float64 `json:"readBytesPerSecond"`
	WrittenBytesPerSecond float64 `json:"writtenBytesPerSecond"`
}

// emptySnapshot returns the snapshot of a sample without rates.
func emptySnapshot(now *Sample, seq uint64) *Snapshot {
	s := &Snapshot{
		Time: now.Time, Sequence: seq, UptimeSeconds: now.Boottime.Seconds(),
		CPU: CPUState{CPU: now.CPU}, Memory: MemoryState{Memory: now.Memory},
		Pressure: PressureState{Totals: now.Pressure}, Network: NetworkState{Network: now.Network},
		Disks: make([]DiskState, len(now.Disks)), NICs: make([]NICState, len(now.NICs)),
		Workloads: make([]WorkloadState, len(now.Workloads)), Probes: append([]Probe{}, now.Probes...),
		Filesystems: slices.Clone(now.Filesystems), NUMANodes: now.NUMANodes, IOSource: now.IOSource, Rootfs: now.Rootfs, Cluster: now.Cluster,
	}
	for i := range s.Disks {
		s.Disks[i].Disk = now.Disks[i]
	}
	for i := range s.NICs {
		s.NICs[i].NIC = now.NICs[i]
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		w.Workload, w.Pod = now.Workloads[i], now.Cluster.pod(now.Workloads[i].PodUID)
		if w.At == 0 { // an old recording, without times per workload
			w.At, w.DetailAt, w.ThrottledAt = now.Monotonic, now.Monotonic, now.Monotonic
		}
	}
	return s
}

// derive computes the rates over a window. gap is the reason of the last
// dropped window.
func (s *Snapshot) derive(window time.Duration, gap string) {
	w, _ := s.Over(window)
	s.from, s.WindowSeconds = w.from, w.Seconds()
	if s.WindowSeconds == 0 {
		s.Absent.Because("rates", "first sample: a rate needs two")
		if gap != "" {
			s.Absent.Because("rates", "window dropped: "+gap)
		}
	}
	s.CPU.BusyRatio = w.CPUBusy()
	s.Memory.AvailableRatio = s.Memory.availableRatio()
	s.Memory.MemoryRates = w.Memory()
	s.Pressure.Ratios = w.Pressure()
	s.Network = w.network()
	for i := range s.Disks {
		s.Disks[i].Rates = w.Disk(&s.Disks[i].Disk)
	}
	for i := range s.NICs {
		s.NICs[i].Rates = w.NIC(&s.NICs[i].NIC)
	}
	s.deriveWorkloads(w)
}

func (s *Snapshot) deriveWorkloads(w Window) {
	devices := 0
	for i := range s.Workloads {
		devices += len(s.Workloads[i].IO)
	}
	io := make([]WorkloadIORates, 0, devices) // shared by all workloads
	for i := range s.Workloads {
		l := &s.Workloads[i]
		l.WorkingSetBytes, l.Rates = l.workingSet(), w.workload(&l.Workload, &io)
	}
	s.Contention = s.contention(w, func(i int) Opt[WorkloadRates] { return s.Workloads[i].Rates }, func(i int) Opt[DiskRates] { return s.Disks[i].Rates })
}

func (m *Memory) availableRatio() Opt[float64] {
	total, ok1 := m.OrdinaryBytes().Get()
	available, ok2 := m.AvailableBytes.Get()
	if !ok1 || !ok2 || total == 0 {
		return Opt[float64]{}
	}
	return Some(float64(available) / float64(total))
}

// Monotonic is the snapshot's instant on CLOCK_MONOTONIC.
func (s *Snapshot) Monotonic() time.Duration { return s.points[len(s.points)-1].Monotonic }

// Booted is when the machine booted, by the wall clock of Time; zero: the uptime is unknown.
// It moves when that clock is set.
func (s *Snapshot) Booted() time.Time {
	if s.UptimeSeconds == 0 {
		return time.Time{}
	}
	return s.Time.Add(-time.Duration(s.UptimeSeconds * float64(time.Second)))
}

// BootID of the boot that the snapshot is of.
func (s *Snapshot) BootID() string { return s.points[len(s.points)-1].BootID }

const whyNoCluster = "no API server is configured: the pods' requests are unknown"

// Pods returns the node's pods as the API server lists them, or the reason why
// they are unknown.
func (s *Snapshot) Pods() (pods []Pod, why string) {
	if s.Cluster == nil {
		return nil, whyNoCluster
	}
	return s.Cluster.Pods, s.Cluster.Absent["pods"]
}

// Reclaimable returns what of the node is reclaimed for pods of low QoS, or the
// reason why it is unknown.
func (s *Snapshot) Reclaimable() (reclaimable Reclaimable, why string) {
	if s.Cluster == nil {
		return reclaimable, whyNoCluster
	}
	return s.Cluster.Reclaimable, s.Cluster.Absent["reclaimable"]
}
