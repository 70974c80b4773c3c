package snapshot

import (
	"encoding/json"
	"time"
)

// Sample has the counters and gauges of one instant as the kernel prints them,
// nothing derived. Recordings store Samples, and History derives Snapshots from
// them.
type Sample struct {
	// Time is the wall clock, for display; nothing is computed from it.
	Time time.Time `json:"time"`
	// Monotonic is CLOCK_MONOTONIC, which stops in suspend: rates are divided
	// by it.
	Monotonic time.Duration `json:"monotonicNanoseconds"`
	// Boottime is CLOCK_BOOTTIME, which includes suspend: it shows gaps. It is
	// also the node's uptime.
	Boottime time.Duration `json:"boottimeNanoseconds"`
	// BootID is /proc/sys/kernel/random/boot_id: counters of two boots are
	// never compared.
	BootID string `json:"bootId"`

	CPU       CPU        `json:"cpu"`
	Memory    Memory     `json:"memory"`
	Pressure  Pressure   `json:"pressure"`
	Network   Network    `json:"network"`
	Disks     []Disk     `json:"disks"`
	NICs      []NIC      `json:"nics"`
	Workloads []Workload `json:"workloads"`
	// NUMANodes are the NUMA nodes that have memory; empty if there is only one, or
	// if they are not measured.
	NUMANodes []NUMANode `json:"numaNodes,omitempty"`
	// IOSource is the file that the IO of workloads comes from.
	IOSource IOSource `json:"workloadIoSource,omitempty"`
	// Filesystems are the watched mounts.
	Filesystems []Filesystem `json:"filesystems,omitempty"`

	// Rootfs is what the container runtime reports of the root filesystems of pods;
	// nil while no rule needs it, and before the first answer. The agent sets it
	// after Read, like Cluster.
	Rootfs *Rootfs `json:"rootFilesystems,omitempty"`
	// Cluster is what the API server reports about this node; nil without an
	// API server. The agent sets it after Read, so that a recording has it.
	Cluster *Cluster `json:"cluster,omitempty"`
	// OuterVerdicts has the answers of outer plugins since the previous sample, as JSON;
	// absent if they did not change. The agent sets it after Read: a replay
	// cannot ask the plugins.
	OuterVerdicts json.RawMessage `json:"said,omitempty"`

	// Probes has the duration and error of each reader.
	Probes []Probe `json:"probes"`
}

// Probe is the outcome of one reader in one sample.
type Probe struct {
	Name     string        `json:"name"`
	Duration time.Duration `json:"durationNanoseconds"`
	// Error is empty when the probe succeeded.
	Error string `json:"error,omitempty"`
	// Note is a remark about a probe that succeeded, such as that it reads less
	// often than every tick.
	Note string `json:"note,omitempty"`
}

// CPU is /proc/stat, cumulative seconds since boot, summed over CPUs.
type CPU struct {
	// Seconds by mode: user, nice, system, irq, softirq, steal never decrease;
	// idle and iowait may (proc(5)), so nothing is derived from those two. Nil
	// if /proc/stat could not be read.
	Seconds map[string]float64 `json:"secondsTotal,omitempty"`
	// Online CPUs.
	Online Opt[int] `json:"onlineCpus,omitzero"`
}

// Memory is /proc/meminfo (bytes) and /proc/vmstat (counts since boot).
type Memory struct {
	TotalBytes     Opt[uint64] `json:"totalBytes,omitzero"`
	AvailableBytes Opt[uint64] `json:"availableBytes,omitzero"`
	// HugetlbBytes are reserved for huge pages of all sizes (Hugetlb of /proc/meminfo):
	// a part of TotalBytes that is never available. Absent if there are none.
	HugetlbBytes   Opt[uint64] `json:"hugetlbBytes,omitzero"`
	FreeBytes      Opt[uint64] `json:"freeBytes,omitzero"`
	SwapTotalBytes Opt[uint64] `json:"swapTotalBytes,omitzero"`
	SwapFreeBytes  Opt[uint64] `json:"swapFreeBytes,omitzero"`
	// InactiveFileBytes are pages of files that were not used lately; the
	// kubelet does not count them in the node's working set.
	InactiveFileBytes Opt[uint64] `json:"inactiveFileBytes,omitzero"`

	// ScansDirect and ScansKswapd are pages scanned by global reclaim
	// (pgscan_direct, pgscan_kswapd). A cgroup at its own limit increases
	// neither.
	ScansDirect Opt[uint64] `json:"scansDirectTotal,omitzero"`
	ScansKswapd Opt[uint64] `json:"scansKswapdTotal,omitzero"`
	// Refaults are pages that were read back soon after reclaim
	// (workingset_refault_anon + _file); a cgroup at its own limit increases it
	// too.
	Refaults Opt[uint64] `json:"refaultsTotal,omitzero"`
	// Reclaimed are pages that global reclaim freed (pgsteal_direct,
	// pgsteal_kswapd).
	Reclaimed Opt[uint64] `json:"reclaimedTotal,omitzero"`
	OOMKills  Opt[uint64] `json:"oomKillsTotal,omitzero"`
	SwapIns   Opt[uint64] `json:"swapInsTotal,omitzero"`
	SwapOuts  Opt[uint64] `json:"swapOutsTotal,omitzero"`

	Absent Absent `json:"absent,omitempty"`
}

// OrdinaryBytes is the memory that can be available: all but what is reserved for huge
// pages.
func (m *Memory) OrdinaryBytes() Opt[uint64] { return ordinary(m.TotalBytes, m.HugetlbBytes) }

func ordinary(total, hugetlb Opt[uint64]) Opt[uint64] {
	all, known := total.Get()
	reserved, _ := hugetlb.Get()
	if !known || reserved > all {
		return Opt[uint64]{}
	}
	return Some(all - reserved)
}

// NUMANode is the memory of one NUMA node, in bytes:
// /sys/devices/system/node/nodeN/meminfo, and its zones in /proc/zoneinfo.
type NUMANode struct {
	ID         int         `json:"numa"`
	TotalBytes Opt[uint64] `json:"totalBytes,omitzero"`
	FreeBytes  Opt[uint64] `json:"freeBytes,omitzero"`
	// HugetlbBytes are reserved here for huge pages of all sizes (hugepages/ in its
	// directory): a part of TotalBytes that is never available. Absent if there are none.
	HugetlbBytes Opt[uint64] `json:"hugetlbBytes,omitzero"`
	// AvailableBytes is what programs can take without swapping. The kernel has
	// MemAvailable for the whole host only; this is its formula for one NUMA node.
	AvailableBytes Opt[uint64] `json:"availableBytes,omitzero"`
	// ReserveBytes is what its zones keep free (high watermark and lowmem reserve):
	// while less is free, the kernel reclaims from this NUMA node.
	ReserveBytes Opt[uint64] `json:"reserveBytes,omitzero"`

	Absent Absent `json:"absent,omitempty"`
}

// OrdinaryBytes is the memory that can be available: all but what is reserved for huge
// pages.
func (n *NUMANode) OrdinaryBytes() Opt[uint64] { return ordinary(n.TotalBytes, n.HugetlbBytes) }

// Stall has the totals of one PSI file, in µs since boot (kernel
// Documentation/accounting/psi.rst). The kernel's averages are not read: a
// difference of totals over one's own window has no lag.
type Stall struct {
	// Some is the time in which at least one task waited for the resource.
	Some Opt[uint64] `json:"someTotalMicroseconds,omitzero"`
	// Full is the time in which no task ran because all waited. Absent for cpu,
	// where it means nothing on a whole node, and before kernel 5.13 in
	// cgroups.
	Full Opt[uint64] `json:"fullTotalMicroseconds,omitzero"`
}

// Pressure is PSI of a node or of one cgroup.
type Pressure struct {
	CPU    Stall `json:"cpu,omitzero"`
	Memory Stall `json:"memory,omitzero"`
	IO     Stall `json:"io,omitzero"`
	// Absent has the reason why cpu, memory or io has no stall.
	Absent Absent `json:"absent,omitempty"`
}

// Network has the protocol stack's counters for the whole host, since boot.
type Network struct {
	TCPSegmentsSent Opt[uint64] `json:"tcpSegmentsSentTotal,omitzero"`
	TCPRetransmits  Opt[uint64] `json:"tcpRetransmitsTotal,omitzero"`
	ListenDrops     Opt[uint64] `json:"listenDropsTotal,omitzero"`
	// SoftnetSqueezed counts how often receive processing used up its time or
	// packet budget (time_squeeze), which also happens on healthy busy nodes.
	SoftnetSqueezed Opt[uint64] `json:"softnetSqueezedTotal,omitzero"`

	Absent Absent `json:"absent,omitempty"`
}

// Layer is a device's place in a stack of devices that repeat the same IO.
// Rules and sums use LayerLeaf alone.
type Layer string

// The layers.
const (
	// LayerLeaf counts IO once: disks and physical NICs, the head of a
	// multipath instead of its paths, a bond instead of its ports.
	LayerLeaf Layer = "leaf"
	// LayerStacked repeats the IO of leaves: LVM, md, crypt, loop on a file;
	// VLANs, bridges, veths.
	LayerStacked Layer = "stacked"
	// LayerPath is below the leaf: a path of a multipath head, a port of a bond.
	LayerPath Layer = "path"
)

// Disk is a whole block device, not a partition: one line of /proc/diskstats
// (kernel Documentation/admin-guide/iostats.rst).
type Disk struct {
	Name string `json:"device"`
	// Number is "major:minor". Name, Number and Sequence together are a
	// device's identity.
	Number string `json:"number"`
	// Sequence is /sys/block/X/diskseq (kernel ≥ 5.15): a re-created device
	// gets a new one.
	Sequence   Opt[uint64] `json:"sequence,omitzero"`
	Rotational Opt[bool]   `json:"rotational,omitzero"`
	SizeBytes  Opt[uint64] `json:"sizeBytes,omitzero"`
	// WWID identifies the medium across reboots
	// (/sys/block/X/{wwid,device/wwid}).
	WWID Opt[string] `json:"wwid,omitzero"`
	// Kind is what drives the device: disk, nvme, lvm, crypt, multipath, dm
	// (any other target), md, loop, zram, ram, rom.
	Kind string `json:"kind,omitempty"`
	// Slaves are the names of the devices directly below (/sys/block/X/slaves),
	// which repeat a stacked device's IO.
	Slaves []string `json:"slaves,omitempty"`
	Layer  Layer    `json:"layer,omitempty"`

	DiskCounters

	Absent Absent `json:"absent,omitempty"`
	series series
}

// DiskCounters of one disk since it appeared. The kernel keeps the times in
// 32 bits of milliseconds: a Sample has them as read, a Snapshot unwrapped.
type DiskCounters struct {
	Reads        uint64 `json:"readsCompletedTotal"`
	Writes       uint64 `json:"writesCompletedTotal"`
	ReadBytes    uint64 `json:"readBytesTotal"`
	WrittenBytes uint64 `json:"writtenBytesTotal"`
	ReadMs       uint64 `json:"readMillisecondsTotal"`
	WriteMs      uint64 `json:"writeMillisecondsTotal"`
	// BusyMs is the time with a request in flight, WeightedMs that time
	// multiplied by the number in flight.
	BusyMs     uint64 `json:"busyMillisecondsTotal"`
	WeightedMs uint64 `json:"weightedMillisecondsTotal"`
	// InFlight is the number of requests in flight, and no counter: Minus leaves it out. 0 in an
	// older recording.
	InFlight uint64 `json:"requestsInFlight,omitempty"`
}

// NIC is a network device of the host's network namespace.
type NIC struct {
	Name    string      `json:"device"`
	Index   Opt[int]    `json:"index,omitzero"`
	Address Opt[string] `json:"address,omitzero"`
	// Physical: the NIC has a bus device (/sys/class/net/X/device).
	Physical bool `json:"physical"`
	// SpeedBytesPerSecond of the link per direction; absent if the driver does
	// not know it (-1) or the link is down.
	SpeedBytesPerSecond Opt[uint64] `json:"speedBytesPerSecond,omitzero"`
	// Carrier: the link is up (/sys/class/net/X/carrier).
	Carrier Opt[bool] `json:"carrier,omitzero"`
	// Kind is what drives the device: physical, vf (an SR-IOV function), bond,
	// vlan, bridge, veth, tun, loopback, a DEVTYPE of sysfs, or virtual.
	Kind string `json:"kind,omitempty"`
	// Master is the device that this one is a port of (/sys/class/net/X/master).
	Master string `json:"master,omitempty"`
	// Lower are the names of the devices directly below
	// (/sys/class/net/X/lower_*).
	Lower []string `json:"lower,omitempty"`
	Layer Layer    `json:"layer,omitempty"`

	NICCounters

	Absent Absent `json:"absent,omitempty"`
	series series
}

// NICCounters of one NIC since it appeared, from /proc/1/net/dev.
type NICCounters struct {
	ReceiveBytes    uint64 `json:"receiveBytesTotal"`
	ReceivePackets  uint64 `json:"receivePacketsTotal"`
	ReceiveErrors   uint64 `json:"receiveErrorsTotal"`
	ReceiveDrops    uint64 `json:"receiveDropsTotal"`
	TransmitBytes   uint64 `json:"transmitBytesTotal"`
	TransmitPackets uint64 `json:"transmitPacketsTotal"`
	TransmitErrors  uint64 `json:"transmitErrorsTotal"`
	TransmitDrops   uint64 `json:"transmitDropsTotal"`
}

// Kind of a workload, derived from its cgroup's path.
type Kind string

// The kinds. A pod is one workload, which includes its containers' cgroups.
const (
	KindPod     Kind = "pod"
	KindService Kind = "service" // systemd .service or .scope
	KindSlice   Kind = "slice"   // systemd .slice that holds processes itself
	KindOther   Kind = "other"
)

// Workload is a cgroup that is accounted as one: a pod or, outside pods, any
// cgroup with processes of its own. Its counters include all cgroups below it.
type Workload struct {
	// Cgroup is the path below the cgroup mount, such as
	// /system.slice/cron.service; with Inode it is the workload's identity.
	Cgroup string `json:"cgroup"`
	Inode  uint64 `json:"inode"`
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
	// PodUID as the API server writes it; pods only.
	PodUID string `json:"podUid,omitempty"`
	// Throttled are the resources of which the agent limits its use, so that its stall is the
	// throttle's effect and no pressure. The agent sets them (Sample.MarkThrottled).
	Throttled []SharedResource `json:"throttled,omitempty"`

	// At is when the counters were read, on CLOCK_MONOTONIC; rates are divided
	// by it, since not every sample reads every workload. For an idle workload
	// it is the sample's time.
	At time.Duration `json:"monotonicNanoseconds,omitempty"`
	// DetailAt is when the more expensive files were read, which happens less
	// often: SwapBytes, NUMA, and LimitHits and OOMKills where the kernel does not
	// sum them over cgroups (v1, or memory_localevents).
	DetailAt time.Duration `json:"detailMonotonicNanoseconds,omitempty"`
	// StatAt is when memory.stat was read: InactiveFileBytes, RSSBytes, Reclaimed and
	// Charged are as of then. 0, in an older recording: at DetailAt.
	StatAt time.Duration `json:"statMonotonicNanoseconds,omitempty"`
	// ThrottledAt is the time that ThrottledMicroseconds is as of: when it was read, or
	// that of the sample if hardly anything waited for a CPU since.
	ThrottledAt time.Duration `json:"throttledMonotonicNanoseconds,omitempty"`

	// MemoryBytes is memory.current, or v1 memory.usage_in_bytes. For an idle
	// workload it is up to 5 s old: reclaim may have freed some since.
	MemoryBytes       Opt[uint64] `json:"memoryBytes,omitzero"`
	InactiveFileBytes Opt[uint64] `json:"inactiveFileBytes,omitzero"`
	// SwapBytes is memory.swap.current, or v1 total_swap of memory.stat.
	SwapBytes Opt[uint64] `json:"swapBytes,omitzero"`
	// RSSBytes is memory that no file backs and that is not swapped (anon of
	// memory.stat, v1 total_rss): reclaim can free it only by swapping.
	RSSBytes Opt[uint64] `json:"rssBytes,omitzero"`
	// Reclaimed are pages that reclaim freed from it (pgsteal of memory.stat,
	// v2), Charged pages that were charged to it (total_pgpgin, v1): one of the
	// two.
	Reclaimed Opt[uint64] `json:"reclaimedTotal,omitzero"`
	Charged   Opt[uint64] `json:"chargedTotal,omitzero"`
	// NUMA is its memory on each NUMA node, as of DetailAt; empty if it is not
	// measured.
	NUMA []WorkloadNUMA `json:"numaMemory,omitempty"`
	// MemoryLimitBytes is absent if there is no limit.
	MemoryLimitBytes Opt[uint64] `json:"memoryLimitBytes,omitzero"`
	// LimitHits counts how often the cgroup reached its own limit:
	// memory.events high + max, or v1 memory.failcnt. It, OOMKills and
	// ThrottledMicroseconds include what was read of cgroups below that are gone.
	LimitHits Opt[uint64] `json:"limitHitsTotal,omitzero"`
	OOMKills  Opt[uint64] `json:"oomKillsTotal,omitzero"`

	CPUMicroseconds       Opt[uint64] `json:"cpuMicrosecondsTotal,omitzero"`
	ThrottledMicroseconds Opt[uint64] `json:"throttledMicrosecondsTotal,omitzero"`

	// IO by device. A device without a line did no IO for this cgroup, or is
	// not counted: then Absent has the reason under "io".
	IO []WorkloadIO `json:"io,omitempty"`

	// Network has the counters of the pod's network namespace; pods only. For a
	// pod in the host's it is absent, with the reason under "network".
	Network Opt[WorkloadNetwork] `json:"network,omitzero"`

	Pressure Pressure `json:"pressure,omitzero"`

	Absent Absent `json:"absent,omitempty"`
	series series
}

// IOSource is the kernel's file that counts the IO of cgroups.
type IOSource string

// The sources. IOBlkio attributes reads only: writeback from the page cache is
// counted for the root cgroup.
const (
	IOStat  IOSource = "io.stat"
	IOBlkio IOSource = "blkio.throttle"
)

// WorkloadIO has the counters of one cgroup on one device: io.stat, or v1 blkio
// throttle.io_service_bytes_recursive and io_serviced_recursive.
type WorkloadIO struct {
	// Number is the device's "major:minor".
	Number       string `json:"number"`
	Reads        uint64 `json:"readsCompletedTotal"`
	Writes       uint64 `json:"writesCompletedTotal"`
	ReadBytes    uint64 `json:"readBytesTotal"`
	WrittenBytes uint64 `json:"writtenBytesTotal"`
}

// WorkloadNUMA is the memory of a workload on one NUMA node (memory.numa_stat)
// that is released when it ends and that reclaim does not get for nothing.
type WorkloadNUMA struct {
	// Node is NUMANode.ID.
	Node int `json:"numa"`
	// Bytes are anonymous and shared memory and active file pages; v1, which does
	// not tell active pages apart, anonymous and unevictable memory.
	Bytes uint64 `json:"memoryBytes"`
}

// WorkloadNetwork has the counters of all devices but lo in the network
// namespace of a workload (/proc/<pid>/net/dev of one of its processes). What passes a
// bridge or a tap there is counted on each device, and in both directions: which devices
// lead out of the namespace is told only inside it.
type WorkloadNetwork struct {
	// At is when it was read, on CLOCK_MONOTONIC; not every sample reads it.
	At time.Duration `json:"monotonicNanoseconds"`
	// Namespace is the inode of the network namespace; counters of two
	// namespaces are never compared.
	Namespace uint64 `json:"namespace"`

	ReceiveBytes    uint64 `json:"receiveBytesTotal"`
	ReceivePackets  uint64 `json:"receivePacketsTotal"`
	TransmitBytes   uint64 `json:"transmitBytesTotal"`
	TransmitPackets uint64 `json:"transmitPacketsTotal"`
}

// Filesystem is one watched mount, as statfs(2) reports it.
type Filesystem struct {
	Mountpoint string `json:"mountpoint"`
	// Type is as in /proc/1/mountinfo, such as ext4; Device is its source.
	Type   string `json:"type,omitempty"`
	Device string `json:"device,omitempty"`
	// Use is who manages its available space; empty: not known, or not yet.
	Use FilesystemUse `json:"use,omitempty"`

	SizeBytes Opt[uint64] `json:"sizeBytes,omitzero"`
	// AvailableBytes to users other than root.
	AvailableBytes Opt[uint64] `json:"availableBytes,omitzero"`
	Files          Opt[uint64] `json:"files,omitzero"`
	FilesFree      Opt[uint64] `json:"filesFree,omitzero"`
	// AgeSeconds since the values were read: a mount that hangs keeps its last
	// values. Absent: never read.
	AgeSeconds Opt[float64] `json:"ageSeconds,omitzero"`

	Absent Absent `json:"absent,omitempty"`
}

// Problem returns the reason why the values are older than the last scheduled
// statfs: the mount hangs, fails, is not mounted, is not read, or has not
// answered yet; empty if they are current.
func (f *Filesystem) Problem() string { return f.Absent[AbsentFilesystem] }

// Pending reports whether the first statfs has not returned yet.
func (f *Filesystem) Pending() bool { return f.Problem() == AnswerPending }

// FilesystemUse is who manages the available space of a filesystem.
type FilesystemUse string

// The uses; empty is not known, or not yet.
const (
	// UseNode: only the node's administrator.
	UseNode FilesystemUse = "node"
	// UseKubelet: it holds files of the kubelet or of its container runtime, so
	// it is the kubelet's nodefs, imagefs or containerfs.
	UseKubelet FilesystemUse = "kubelet"
	// UseVolume: it is mounted in the kubelet's directory only, for pods.
	UseVolume FilesystemUse = "volume"
)

// The key in Absent of a filesystem as a whole, and what it says before the
// first answer.
const (
	AbsentFilesystem = "statfs"
	AnswerPending    = "first statfs has not returned yet"
)
