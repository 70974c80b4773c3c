package snapshot

import (
	"cmp"
	"fmt"
	"slices"
)

// Contention has the workloads that use a shared resource (culprits) and those
// that wait for it (sufferers) in one window.
type Contention struct {
	Resource SharedResource `json:"resource"`
	// Device is a disk of the leaf layer, or the only link in use; empty for
	// memory and the CPUs, and for several links together.
	Device string          `json:"device,omitempty"`
	State  ContentionState `json:"state"`
	// Coverage is the share of the traffic that workloads account for, 0 to 1.
	// The rest is the kernel's, of processes outside any workload, or of
	// workloads that are not counted. Absent if the traffic is.
	Coverage Opt[float64] `json:"coverageRatio,omitzero"`
	// Culprits are ordered by their share, Sufferers by how long they wait,
	// both descending; at most ten each, with the number of the others. The
	// sufferer that waits longest of those that make this a contention is always listed.
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
	SharedCPU     SharedResource = "cpu"
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
	// ContentionUnknown: the kernel does not report which workloads wait, or
	// whether a workload that waits does so for others. Contention.Unknown has
	// the reason.
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
	// Cores that it used, of the CPUs alone.
	Cores float64 `json:"cpuCores,omitempty"`
	// Waited is as of a Sufferer, also where it is not listed as one: 0 if its waiting makes
	// no contention, however long it is (it is of the lowest class, or not counted).
	Waited float64 `json:"waitedRatio,omitempty"`
}

// Waits reports whether the culprit is a sufferer itself that makes this a contention.
func (c Culprit) Waits(threshold float64) bool { return c.Waited >= threshold }

// Sufferer is a workload that waits for the resource because of others.
type Sufferer struct {
	Party
	// Waited is the share of the window in which a task of it waited here for
	// others, 0 to 1: its stall, reduced by its own share of the traffic; for a
	// CPU the time in which tasks of it waited and none ran, without what its own
	// quota held back. A stall on IO is split between disks by the time that its
	// requests took on each. Where Share is unknown it is the whole stall, of
	// which a part may be its own doing.
	Waited float64 `json:"waitedRatio"`
	// Share of the traffic that is its own; absent where the kernel does not
	// count it.
	Share Opt[float64] `json:"shareRatio,omitzero"`
	// LowestClass: it is of the lowest class, whose waiting is no contention.
	LowestClass bool `json:"lowest,omitempty"`
	// LastingSeconds is for how long it has been a sufferer here at every sample.
	// Absent where another window than the snapshot's own is looked at (ContentionIn).
	LastingSeconds Opt[float64] `json:"lastingSeconds,omitzero"`
}

// Significant reports whether its waiting makes this a contention: it waits at least
// so long for others, and is not of the lowest class.
func (s Sufferer) Significant(threshold float64) bool {
	return s.Waited >= threshold && !s.LowestClass && !s.Share.IsZero()
}

// Unknown is why it is not known of a workload whether it waits because of others;
// empty if it is known of all. Another one may be seen to wait.
func (c *Contention) Unknown() string {
	return cmp.Or(c.Absent["shareRatio"], c.Absent["sufferers"])
}

// WaitedThreshold is the share of the window that a workload must wait for this
// resource to make it a contention. For a CPU each wake-up waits a little.
func (r SharedResource) WaitedThreshold() float64 {
	if r == SharedCPU {
		return CPUWaitedThreshold
	}
	return WaitedThreshold
}

const (
	// maxParties is how many culprits, and how many sufferers, are listed.
	maxParties = 10
	// minShare and minWaited: a workload below them is not listed.
	minShare, minWaited = 0.01, 0.01
	// WaitedThreshold is the share of the window that a workload must wait to make it
	// a contention.
	WaitedThreshold = 0.05
	// CPUWaitedThreshold is the same for the CPUs.
	CPUWaitedThreshold = 0.25
)

// use is the traffic of one workload on one device, or the memory it takes.
type use struct {
	workload, device int
	bytes, requests  float64 // per second
	inFlight         float64 // mean number of requests
	waited           float64 // share of the window
	stallUnknown     bool    // its stall is unknown
	forOthers        bool    // waited is for others alone
	share            float64
	// uncounted is why the kernel does not tell its traffic, or for whom it waits;
	// empty: it does.
	uncounted string
}

// spread spreads what a workload did that has just appeared, in this part of the time, over
// all of it.
func (u *use) spread(part float64) {
	u.bytes, u.requests, u.waited = u.bytes*part, u.requests*part, u.waited*part
}

// ContentionIn is the contention over a window. Over another one than the snapshot's own
// it costs a pass over all workloads.
func (s *Snapshot) ContentionIn(w Window) []Contention {
	if w.own {
		return s.Contention
	}
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
	list := diskContention(s, w, of, on)
	if c, some := memoryContention(s.Workloads, w, of); some {
		list = append(list, c)
	}
	if c, some := networkContention(s, w, of); some {
		list = append(list, c)
	}
	if c, some := cpuContention(s.Workloads, w, of); some {
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

func diskContention(s *Snapshot, w Window, of func(int) Opt[WorkloadRates], on func(int) Opt[DiskRates]) []Contention {
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
	uses, why := diskUses(s, w, disks, at, of)
	node := w.most(w.Pressure().IO.Some)
	list := make([]Contention, len(disks))
	for k := range disks {
		n := 0
		for n < len(uses) && uses[n].device == k {
			n++
		}
		list[k] = onDisk(s, &disks[k], uses[:n], node, why)
		uses = uses[n:]
	}
	return list
}

// diskUses returns the uses sorted by disk, and why some are not counted. A
// workload that contains others counts only its own processes.
func diskUses(s *Snapshot, w Window, disks []busyDisk, at map[string]int, of func(int) Opt[WorkloadRates]) (uses []use, why string) {
	most := 0
	for i := range s.Workloads {
		r, _ := of(i).Get()
		most += len(r.IO)
	}
	uses = make([]use, 0, most)
	nested := nestingOf(s.Workloads)
	for i := range s.Workloads {
		if s.Workloads[i].Cgroup == "/" {
			continue // the root has the disk's own counters
		}
		r, ok := of(i).Get()
		first := len(uses)
		for _, io := range r.IO {
			if k, there := at[io.Number]; there && io.ReadsPerSecond+io.WritesPerSecond > 0 {
				uses = append(uses, diskUse(s.IOSource, i, io, k, &disks[k].rates))
			}
		}
		splitStall(uses[first:], r.Pressure.IO.Some)
		reason := uncounted(s, i)
		doubtWaits(uses[first:], reason)
		if ok && len(uses) == first && reason != "" {
			uses, why = appendUncounted(uses, i, disks, r.Pressure.IO.Some, reason), reason
		}
		spreadOverDisks(uses[first:], disks, w.seen(&s.Workloads[i].Workload))
		nested.subtract(i, uses, first)
	}
	slices.SortStableFunc(uses, func(a, b use) int { return cmp.Compare(a.device, b.device) })
	return uses, why
}

// spreadOverDisks spreads the uses of a workload that was seen for so many seconds over the
// time that the rates of each disk are of.
func spreadOverDisks(uses []use, disks []busyDisk, seen float64) {
	for i := range uses {
		uses[i].spread(portion(seen, disks[uses[i].device].rates.WindowSeconds))
	}
}

// uncounted is why a workload may use a disk without requests of its own in the
// kernel's counters; empty: it does not.
func uncounted(s *Snapshot, workload int) string {
	if why := s.Workloads[workload].Absent["io"]; why != "" {
		return why
	}
	if s.IOSource == IOBlkio {
		return whyCachedWrites
	}
	return ""
}

const whyCachedWrites = "cgroup v1 counts no writes of the page cache"

// appendUncounted appends the uses of a workload whose requests are not counted. Its
// stall, if it has any, is split between the disks by the requests that they have
// in flight.
func appendUncounted(uses []use, workload int, disks []busyDisk, stall Opt[float64], why string) []use {
	waited, known := stall.Get()
	if known && waited < minWaited {
		return uses
	}
	queued := 0.0
	for k := range disks {
		queued += disks[k].rates.QueueLength
	}
	for k := range disks {
		part := 1 / float64(len(disks))
		if queued > 0 {
			part = disks[k].rates.QueueLength / queued
		}
		uses = append(uses, use{workload: workload, device: k, waited: waited * part, stallUnknown: !known, uncounted: why})
	}
	return uses
}

func diskUse(of IOSource, workload int, io WorkloadIORates, disk int, rates *DiskRates) use {
	u := use{workload: workload, device: disk, inFlight: io.inFlight(rates)}
	u.bytes, u.requests = io.ReadBytesPerSecond, io.ReadsPerSecond
	if of != IOBlkio { // blkio attributes no writes of the page cache
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

// maxStallOfRequests is how long a workload waits at most for its requests on a disk, for
// each that it has in flight there on average: tasks wait for single requests, what is
// in flight is an estimate, and the wait for a place in a full queue is not in it. Of 32
// workloads in recordings that waited for their disk it was 1.7 in the highest mean, and
// 18.8 of one that waited for a device above it.
const maxStallOfRequests = 4

// doubtWaits bounds the stall on each disk by the requests there. What is beyond is for
// IO that no disk here shows, such as a file system's on the network, or that a limit
// of its own holds back: where that alone makes a contention, the use is uncounted.
// reason is why the kernel does not count all of its requests; empty: it does.
func doubtWaits(uses []use, reason string) {
	for i := range uses {
		u := &uses[i]
		here := maxStallOfRequests * u.inFlight
		switch {
		case u.stallUnknown || u.waited <= max(here, WaitedThreshold):
		case here < WaitedThreshold:
			u.uncounted = cmp.Or(reason, whyElsewhere)
		case reason == "":
			u.waited = here
		}
	}
}

const whyElsewhere = "its requests on the disk are too few for it: it waits for a file system of the network, a device above the disk, or a limit of its own"

// inFlight estimates the requests that a workload has in flight on a disk, if
// each takes as long as the disk's do on average.
func (io WorkloadIORates) inFlight(d *DiskRates) float64 {
	read, _ := d.ReadAwaitSeconds.Get()
	write, _ := d.WriteAwaitSeconds.Get()
	return io.ReadsPerSecond*read + io.WritesPerSecond*write
}

// onDisk returns the contention on one disk. node is the longest stall on IO that a
// workload may have, why the reason of uncounted uses.
func onDisk(s *Snapshot, d *busyDisk, uses []use, node Opt[float64], why string) Contention {
	c := Contention{Resource: SharedDisk, Device: s.Disks[d.index].Name}
	var bytes, requests float64
	for _, u := range uses {
		bytes += u.bytes
		requests += u.requests
	}
	switch {
	case d.bytes <= 0:
		c.Absent.Because("coverageRatio", "the disk transferred no bytes")
	case requests == 0 && why != "":
		c.Absent.Because("coverageRatio", why)
		c.Absent.Because("culprits", why)
	default:
		c.Coverage = Some(min(1, bytes/d.bytes))
	}
	// A workload's requests are counted before the kernel merges them, and its
	// bytes when they are submitted: they may exceed the disk's.
	bytes, requests = max(bytes, d.bytes), max(requests, d.requests)
	for i := range uses {
		uses[i].share = (portion(uses[i].bytes, bytes) + portion(uses[i].requests, requests)) / 2
	}
	if s.IOSource == IOBlkio {
		written := (portion(d.rates.WrittenBytesPerSecond, bytes) + portion(d.rates.WritesPerSecond, requests)) / 2
		doubtWriters(uses, written, c.Resource.WaitedThreshold())
	}
	parties(s.Workloads).list(&c, uses, node)
	return c
}

// doubtWriters makes uses uncounted whose waiting could be for their own writes: on v1
// the share of the disk's traffic that is written may be of any workload. One that
// waits for others for long enough even so is not in doubt. What remains is the most that
// it may wait for others: for what it read itself it does not.
func doubtWriters(uses []use, written, threshold float64) {
	for i := range uses {
		u := &uses[i]
		forOthers := u.waited * (1 - u.share)
		if u.uncounted == "" && forOthers >= threshold && u.waited*(1-u.share-written) < threshold {
			u.uncounted, u.waited = whyCachedWrites, forOthers
		}
	}
}

func portion(of, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return min(1, of/all)
}

// parties are the workloads of a Contention.
type parties []WorkloadState

// list lists the workloads above the smallest shares and sets the state. node
// is the longest stall that a workload may have.
func (p parties) list(c *Contention, uses []use, node Opt[float64]) {
	all := attributedShare(uses)
	for i := range uses {
		if uses[i].uncounted == "" && !uses[i].forOthers {
			uses[i].waited *= 1 - uses[i].share/all
		}
	}
	var top [maxParties]*use
	most, more := largest(top[:0], uses, minShare, func(u *use) float64 { return u.share })
	c.MoreCulprits = more
	for _, u := range most {
		c.Culprits = append(c.Culprits, p.culprit(c.Resource, u))
	}
	main := p.mainSufferer(c.Resource, uses)
	most, c.MoreSufferers = largest(top[:0], uses, minWaited, func(u *use) float64 {
		if u == main {
			return 1 + u.waited // it is listed, however many wait longer
		}
		return u.waited
	})
	slices.SortStableFunc(most, func(a, b *use) int { return cmp.Compare(b.waited, a.waited) })
	for _, u := range most {
		c.Sufferers = append(c.Sufferers, p.sufferer(c.Resource, u))
	}
	p.judgeState(c, uses, node)
}

// mainSufferer is the use of the workload that waits longest of those that make this a
// contention; nil: none does.
func (p parties) mainSufferer(of SharedResource, uses []use) (main *use) {
	for i := range uses {
		u := &uses[i]
		if p.matters(of, u) && u.waited >= of.WaitedThreshold() && (main == nil || u.waited > main.waited) {
			main = u
		}
	}
	return main
}

// matters reports whether the waiting of a workload may make this a contention.
func (p parties) matters(of SharedResource, u *use) bool {
	return u.uncounted == "" && !p[u.workload].LowestClass(of)
}

func (p parties) culprit(of SharedResource, u *use) Culprit {
	c := Culprit{Party: p.party(u), Share: u.share, BytesPerSecond: u.bytes, RequestsPerSecond: u.requests}
	if of == SharedCPU {
		c.Cores, c.BytesPerSecond = u.bytes, 0
	}
	if p.matters(of, u) && u.waited >= minWaited {
		c.Waited = u.waited
	}
	return c
}

func (p parties) sufferer(of SharedResource, u *use) Sufferer {
	out := Sufferer{Party: p.party(u), Waited: u.waited, LowestClass: p[u.workload].LowestClass(of)}
	if u.uncounted == "" {
		out.Share = Some(u.share)
	}
	return out
}

// judgeState sets the state. It is busy only if every workload that matters was seen
// not to wait for others. That one waits does not hide that of another it is unknown.
func (p parties) judgeState(c *Contention, uses []use, node Opt[float64]) {
	threshold := c.Resource.WaitedThreshold()
	stall, known := node.Get()
	unseen := !known || stall >= threshold
	present, hidden := false, 0
	var longest *use
	for i := range uses {
		u := &uses[i]
		switch {
		case p[u.workload].LowestClass(c.Resource):
		case u.stallUnknown:
			hidden++
		case u.waited < threshold:
		case u.uncounted == "":
			present = true
		case longest == nil || u.waited > longest.waited:
			longest = u
		}
	}
	if longest != nil {
		c.Absent.Because("shareRatio", fmt.Sprintf("%s waits %.0f %% of the time, and whether for others or for itself is not counted: %s",
			p[longest.workload].Title(), 100*longest.waited, longest.uncounted))
	}
	switch {
	case !unseen:
	case len(p) == 0:
		c.Absent.Because("sufferers", "no workload is found")
	case hidden == 1:
		c.Absent.Because("sufferers", "the stall of one workload is unknown (needs cgroup v2, booted with psi=1)")
	case hidden > 0:
		c.Absent.Because("sufferers", fmt.Sprintf("the stall of %d workloads is unknown (needs cgroup v2, booted with psi=1)", hidden))
	}
	switch {
	case present:
		c.State = ContentionPresent
	case c.Unknown() != "":
		c.State = ContentionUnknown
	default:
		c.State = ContentionBusy
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

func (p parties) party(u *use) Party {
	w := &p[u.workload]
	return Party{w.Cgroup, w.Kind, w.Title(), w.PodUID}
}

// lastingKey is a sufferer at one resource.
type lastingKey struct {
	resource       SharedResource
	device, cgroup string
}

// continueWaits sets how long each sufferer has been one, from the snapshot before;
// nil: a new window, in which all waits begin. Of more sufferers than are listed those
// that are not listed begin anew when they are.
func (s *Snapshot) continueWaits(last *Snapshot) {
	before := map[lastingKey]float64{}
	if last != nil {
		passed := (s.Monotonic() - last.Monotonic()).Seconds()
		for i := range last.Contention {
			c := &last.Contention[i]
			for _, p := range c.Sufferers {
				lasted, _ := p.LastingSeconds.Get() // each of a History has it
				before[lastingKey{c.Resource, c.Device, p.Cgroup}] = lasted + passed
			}
		}
	}
	for i := range s.Contention {
		c := &s.Contention[i]
		for j := range c.Sufferers {
			p := &c.Sufferers[j]
			p.LastingSeconds = Some(before[lastingKey{c.Resource, c.Device, p.Cgroup}])
		}
	}
}
