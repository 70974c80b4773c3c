package snapshot

import (
	"cmp"
	"slices"
	"strings"
)

// Contention has the workloads that use a shared resource (culprits) and those
// that wait for it (sufferers) in one window.
type Contention struct {
	Resource SharedResource `json:"resource"`
	// Device is a disk of the leaf layer, or the only link in use; empty for
	// memory, and for several links together.
	Device string          `json:"device,omitempty"`
	State  ContentionState `json:"state"`
	// Coverage is the share of the traffic that workloads account for, 0 to 1.
	// The rest is the kernel's, of processes outside any workload, or of
	// workloads that are not counted. Absent if the traffic is.
	Coverage Opt[float64] `json:"coverageRatio,omitzero"`
	// Culprits are ordered by their share, Sufferers by how long they wait,
	// both descending; at most ten each, with the number of the others.
	Culprits      []Culprit  `json:"culprits,omitempty"`
	Sufferers     []Sufferer `json:"sufferers,omitempty"`
	MoreCulprits  int        `json:"moreCulprits,omitempty"`
	MoreSufferers int        `json:"moreSufferers,omitempty"`

	Absent Absent `json:"absent,omitempty"`
}

// SharedResource is what workloads contend for.
type SharedResource string

// The shared resources.
const (
	SharedDisk    SharedResource = "disk"
	SharedMemory  SharedResource = "memory"
	SharedNetwork SharedResource = "network"
)

// ContentionState is whether a workload waits because of others.
type ContentionState string

// The states.
const (
	// ContentionBusy: the resource is in use, and no workload waits because of
	// others except those of the lowest class (pods of low QoS, and Velero's
	// movers), such as a nightly backup alone on a disk.
	ContentionBusy ContentionState = "busy"
	// ContentionPresent: a workload waits because of others.
	ContentionPresent ContentionState = "contention"
	// ContentionUnknown: the kernel does not report which workloads wait.
	ContentionUnknown ContentionState = "unknown"
)

// Party is a workload in a Contention.
type Party struct {
	Cgroup string `json:"cgroup"`
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
	PodUID string `json:"podUid,omitempty"`
}

// Culprit is a workload that uses the resource.
type Culprit struct {
	Party
	// Share of the traffic, 0 to 1; for a link in the busier direction. For a
	// disk it is the mean of the shares of bytes and of requests: which of the
	// two saturates it depends on the disk.
	Share float64 `json:"shareRatio"`
	// BytesPerSecond that it transferred, or of memory that it took: its growth
	// plus what reclaim freed from it.
	BytesPerSecond    float64 `json:"bytesPerSecond"`
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"`
}

// Sufferer is a workload that waits for the resource because of others.
type Sufferer struct {
	Party
	// Waited is the share of the window in which a task of it waited here for
	// others, 0 to 1: its stall, reduced by its own share of the traffic. A
	// stall on IO is split between disks by the time that its requests took on
	// each.
	Waited float64 `json:"waitedRatio"`
	// Share of the traffic that is its own.
	Share float64 `json:"shareRatio"`
	// LowestClass: it is of the lowest class, whose waiting is no contention.
	LowestClass bool `json:"lowest,omitempty"`
}

// Significant reports whether its waiting makes this a contention: it waits at least
// WaitedThreshold and is not of the lowest class.
func (s Sufferer) Significant() bool { return s.Waited >= WaitedThreshold && !s.LowestClass }

const (
	// maxParties is how many culprits, and how many sufferers, are listed.
	maxParties = 10
	// minShare and minWaited: a workload below them is not listed.
	minShare, minWaited = 0.01, 0.01
	// WaitedThreshold is the share of the window that a workload must wait to make it
	// a contention.
	WaitedThreshold = 0.05
)

// use is the traffic of one workload on one device, or the memory it takes.
type use struct {
	workload, device int
	bytes, requests  float64 // per second
	inFlight         float64 // mean number of requests
	waited           float64 // share of the window
	stallUnknown     bool    // its stall is unknown
	share            float64
}

// ContentionIn computes the contention over another window than the snapshot's
// own. It costs a pass over all workloads.
func (s *Snapshot) ContentionIn(w Window) []Contention {
	rates := make([]Opt[WorkloadRates], len(s.Workloads))
	var io []WorkloadIORates
	for i := range s.Workloads {
		rates[i] = w.workload(&s.Workloads[i].Workload, &io)
	}
	disks := make([]Opt[DiskRates], len(s.Disks))
	for i := range s.Disks {
		disks[i] = w.Disk(&s.Disks[i].Disk)
	}
	return s.contention(w, func(i int) Opt[WorkloadRates] { return rates[i] }, func(i int) Opt[DiskRates] { return disks[i] })
}

func (s *Snapshot) contention(w Window, of func(workload int) Opt[WorkloadRates], on func(disk int) Opt[DiskRates]) []Contention {
	if w.Elapsed() <= 0 {
		return nil
	}
	list := s.diskContention(of, on)
	if c, some := s.memoryContention(w, of); some {
		list = append(list, c)
	}
	if c, some := s.networkContention(w, of); some {
		list = append(list, c)
	}
	return list
}

// busyDisk is a disk of the leaf layer that did IO in the window.
type busyDisk struct {
	index           int // in Snapshot.Disks
	rates           DiskRates
	bytes, requests float64 // per second
}

func (s *Snapshot) diskContention(of func(int) Opt[WorkloadRates], on func(int) Opt[DiskRates]) []Contention {
	var disks []busyDisk
	at := map[string]int{}
	for i := range s.Disks {
		r, ok := on(i).Get()
		b := busyDisk{i, r, r.ReadBytesPerSecond + r.WrittenBytesPerSecond, r.ReadsPerSecond + r.WritesPerSecond}
		if ok && s.Disks[i].Layer == LayerLeaf && b.requests > 0 {
			at[s.Disks[i].Number] = len(disks)
			disks = append(disks, b)
		}
	}
	if len(disks) == 0 {
		return nil
	}
	uses := s.diskUses(disks, at, of)
	list := make([]Contention, len(disks))
	for k := range disks {
		n := 0
		for n < len(uses) && uses[n].device == k {
			n++
		}
		list[k] = s.onDisk(&disks[k], uses[:n])
		uses = uses[n:]
	}
	return list
}

// diskUses returns the uses sorted by disk. A workload that contains others
// counts only its own processes.
func (s *Snapshot) diskUses(disks []busyDisk, at map[string]int, of func(int) Opt[WorkloadRates]) []use {
	most := 0
	for i := range s.Workloads {
		r, _ := of(i).Get()
		most += len(r.IO)
	}
	uses := make([]use, 0, most)
	nested := s.nesting()
	for i := range s.Workloads {
		if s.Workloads[i].Cgroup == "/" {
			continue // the root has the disk's own counters
		}
		r, _ := of(i).Get()
		first := len(uses)
		for _, io := range r.IO {
			if k, there := at[io.Number]; there && io.ReadsPerSecond+io.WritesPerSecond > 0 {
				uses = append(uses, s.diskUse(i, io, k, &disks[k].rates))
			}
		}
		splitStall(uses[first:], r.Pressure.IO.Some)
		nested.subtract(i, uses, first)
	}
	slices.SortStableFunc(uses, func(a, b use) int { return cmp.Compare(a.device, b.device) })
	return uses
}

func (s *Snapshot) diskUse(workload int, io WorkloadIORates, disk int, rates *DiskRates) use {
	u := use{workload: workload, device: disk, inFlight: io.inFlight(rates)}
	u.bytes, u.requests = io.ReadBytesPerSecond, io.ReadsPerSecond
	if s.IOSource != IOBlkio { // blkio attributes no writes of the page cache
		u.bytes, u.requests = u.bytes+io.WrittenBytesPerSecond, u.requests+io.WritesPerSecond
	}
	return u
}

// splitStall splits a workload's IO stall between the disks it uses, in
// proportion to the time its requests took on each (Little's law).
func splitStall(uses []use, stall Opt[float64]) {
	all := 0.0
	for _, u := range uses {
		all += u.inFlight
	}
	waited, known := stall.Get()
	for j := range uses {
		part := 1 / float64(len(uses))
		if all > 0 {
			part = uses[j].inFlight / all
		}
		uses[j].waited, uses[j].stallUnknown = waited*part, !known
	}
}

// inFlight estimates the requests that a workload has in flight on a disk, if
// each takes as long as the disk's do on average.
func (io WorkloadIORates) inFlight(d *DiskRates) float64 {
	read, _ := d.ReadAwaitSeconds.Get()
	write, _ := d.WriteAwaitSeconds.Get()
	return io.ReadsPerSecond*read + io.WritesPerSecond*write
}

// onDisk returns the contention on one disk.
func (s *Snapshot) onDisk(d *busyDisk, uses []use) Contention {
	c := Contention{Resource: SharedDisk, Device: s.Disks[d.index].Name}
	var bytes, requests float64
	for _, u := range uses {
		bytes += u.bytes
		requests += u.requests
	}
	if d.bytes > 0 {
		c.Coverage = Some(min(1, bytes/d.bytes))
	} else {
		c.Absent.Because("coverageRatio", "the disk transferred no bytes")
	}
	// A workload's requests are counted before the kernel merges them, and its
	// bytes when they are submitted: they may exceed the disk's.
	bytes, requests = max(bytes, d.bytes), max(requests, d.requests)
	for i := range uses {
		uses[i].share = (portion(uses[i].bytes, bytes) + portion(uses[i].requests, requests)) / 2
	}
	s.listParties(&c, uses)
	return c
}

func portion(of, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return min(1, of/all)
}

// listParties lists the workloads above the smallest shares and sets the state.
func (s *Snapshot) listParties(c *Contention, uses []use) {
	c.State = ContentionBusy
	seen := len(uses) == 0
	all := attributedShare(uses)
	for i := range uses {
		uses[i].waited *= 1 - uses[i].share/all
		seen = seen || !uses[i].stallUnknown
	}
	if !seen {
		c.State = ContentionUnknown
		c.Absent.Because("sufferers", "no workload's stall is known (needs cgroup v2, booted with psi=1)")
	}
	var top [maxParties]*use
	most, more := largest(top[:0], uses, minShare, func(u *use) float64 { return u.share })
	c.MoreCulprits = more
	for _, u := range most {
		c.Culprits = append(c.Culprits, Culprit{s.party(u), u.share, u.bytes, u.requests})
	}
	sufferer := func(u *use) Sufferer {
		return Sufferer{s.party(u), u.waited, u.share, s.Workloads[u.workload].LowestClass()}
	}
	most, c.MoreSufferers = largest(top[:0], uses, minWaited, func(u *use) float64 { return u.waited })
	for _, u := range most {
		c.Sufferers = append(c.Sufferers, sufferer(u))
	}
	if slices.ContainsFunc(uses, func(u use) bool { return u.waited >= WaitedThreshold && sufferer(&u).Significant() }) {
		c.State = ContentionPresent
	}
}

// fullyAttributed is the share of the traffic above which the rest is taken for
// measurement error, since workloads and device are not read at the same
// instant. Otherwise a workload alone on a device would seem to wait for
// others.
const fullyAttributed = 0.85

// attributedShare is the share of the traffic of known and unknown workloads: the sum
// of shares if that is nearly all, otherwise 1.
func attributedShare(uses []use) float64 {
	sum := 0.0
	for i := range uses {
		sum += uses[i].share
	}
	if sum < fullyAttributed {
		return 1
	}
	return sum
}

func (s *Snapshot) party(u *use) Party {
	w := &s.Workloads[u.workload]
	return Party{w.Cgroup, w.Kind, w.Title(), w.PodUID}
}

// BestEffort reports whether the kubelet put a pod into the BestEffort class,
// by its cgroup.
func (w *Workload) BestEffort() bool {
	return w.Kind == KindPod && strings.Contains(w.Cgroup, "besteffort")
}
