package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// History turns Samples into Snapshots. It belongs to one goroutine.
type History struct {
	// Window is the length of the sliding window of a Snapshot's rates.
	Window time.Duration
	// Keep is how far back Snapshot.Over can reach.
	Keep time.Duration
	// MaxGap is the longest time between two Samples, on CLOCK_BOOTTIME, which
	// includes suspend. After a longer gap the window starts again.
	MaxGap time.Duration

	points []*point // contiguous, oldest first
	newest *Snapshot
	seq    uint64 // of the newest
	gaps   uint64
	gap    string // reason of the last dropped window
	broken string // why the next sample begins a new window; empty: it need not

	columns                columns
	disks, nics, workloads slots
	ended                  []endedWorkload // oldest first
	shrinking              exhaustions
}

// Add takes the next Sample and returns its Snapshot. It does not change the
// Sample: the Snapshot has the disk times unwrapped, and for each device and
// workload the number of the sample at which its series began.
func (h *History) Add(raw *Sample) *Snapshot {
	h.seq++
	why, related := gapReason(h.newest, raw, h.MaxGap)
	if h.newest != nil {
		why = cmp.Or(h.broken, why)
	}
	h.broken = ""
	s := emptySnapshot(raw, h.seq)
	last := h.newest
	if !related {
		last = &Snapshot{}
		h.disks, h.nics, h.workloads, h.ended = slots{}, slots{}, slots{}, nil
	}
	if why != "" {
		h.points, h.gap, h.shrinking = nil, why, nil
		h.gaps++
	}
	if h.shrinking == nil {
		h.shrinking = exhaustions{}
	}
	h.dropEnded(raw.Monotonic)
	h.link(s, last, raw.Monotonic)
	h.points = h.trimmed(raw.Monotonic)
	h.addPoint(raw, s)
	s.points, s.columns, s.ended, s.Gaps = h.points, h.columns, h.ended, h.gaps
	s.derive(h.Window, h.gap)
	s.Exhaustion = h.shrinking.add(s, raw.Monotonic)
	before := h.newest
	if why != "" {
		before = nil
	}
	s.continueWaits(before)
	h.newest = s
	return s
}

// Break says that what comes next was observed by another agent, or after a time
// that no agent observed: no rate reaches across.
func (h *History) Break(why string) { h.broken = why }

// gapReason returns the reason why no window may reach from s back to newest.
// related is true if devices continue from the old counters, so that 32-bit
// times are unwrapped across the gap.
func gapReason(newest *Snapshot, s *Sample, maxGap time.Duration) (why string, related bool) {
	if newest == nil {
		return "", false
	}
	last := newest.points[len(newest.points)-1]
	switch {
	case s.BootID != last.BootID:
		return "the machine rebooted", false
	case s.Monotonic <= last.Monotonic, s.Boottime < last.Boottime:
		return "the clock did not advance", false
	case hostReset(last, s):
		return "a counter of the host decreased", false
	case s.Boottime-last.Boottime > maxGap:
		return fmt.Sprintf("no sample for %s (suspended, paused or starved)", (s.Boottime - last.Boottime).Round(100*time.Millisecond)), true
	}
	return "", true
}

// hostReset reports whether a PSI total of the host decreased, which never
// happens while it runs.
func hostReset(last *point, s *Sample) bool {
	var d differ
	for _, of := range []func(Pressure) Stall{
		func(p Pressure) Stall { return p.CPU },
		func(p Pressure) Stall { return p.Memory },
		func(p Pressure) Stall { return p.IO },
	} {
		d.opt(of(s.Pressure).Some, of(last.Pressure).Some)
		d.opt(of(s.Pressure).Full, of(last.Pressure).Full)
	}
	return d.decreased
}

// addPoint adds the point of a snapshot, and drops what no point refers to. A point refers
// to nothing that is older by more than a quarter of the points: what never changes is
// kept again that often, so that old chunks can be dropped.
func (h *History) addPoint(raw *Sample, s *Snapshot) {
	oldest, last := h.columns.last(), (*point)(nil)
	if n := len(h.points); n > 0 {
		h.columns.dropBefore(h.points[0].oldest)
		oldest, last = h.points[n*3/4].written, h.points[n-1]
	}
	h.points = append(h.points, h.columns.newPoint(raw, s, last, oldest))
}

// trimmed drops the points older than Keep. It copies, since Snapshots share
// the old slice.
func (h *History) trimmed(now time.Duration) []*point {
	first := 0
	for first < len(h.points) && h.points[first].Monotonic < now-h.Keep {
		first++
	}
	kept := make([]*point, 0, len(h.points)-first+1)
	return append(kept, h.points[first:]...)
}

// link continues the series of each object that has the same identity in the
// previous snapshot and no decreased counter, and starts a series for all
// others.
func (h *History) link(s, last *Snapshot, now time.Duration) {
	link(s.Disks, last.Disks, &h.disks, s.Sequence, func(d *DiskState) (string, *series) { return d.Name, &d.series },
		func(d, was *DiskState) bool { return d.follow(&was.Disk) }, func(d *DiskState) { h.disks.give(d.series.slot) })
	link(s.NICs, last.NICs, &h.nics, s.Sequence, func(n *NICState) (string, *series) { return n.Name, &n.series },
		func(n, was *NICState) bool { return n.follows(&was.NIC) }, func(n *NICState) { h.nics.give(n.series.slot) })
	link(s.Workloads, last.Workloads, &h.workloads, s.Sequence, func(w *WorkloadState) (string, *series) { return w.Cgroup, &w.series },
		func(w, was *WorkloadState) bool { return w.follows(was) }, func(w *WorkloadState) { h.end(w, now) })
	for i := range s.Workloads {
		s.Workloads[i].seeThrottles(now, h.Window, h.Keep)
	}
}

// link merges two lists that are sorted by name. end takes those that are gone.
func link[T any](now, last []T, free *slots, seq uint64, of func(*T) (string, *series), follows func(now, was *T) bool, end func(*T)) {
	var begin []*series
	for i := range now {
		name, to := of(&now[i])
		last = endBefore(name, last, end, of)
		if len(last) > 0 {
			if was, its := of(&last[0]); was == name && follows(&now[i], &last[0]) {
				*to, last = *its, last[1:]
				continue
			}
		}
		begin = append(begin, to)
	}
	endBefore("", last, end, of)
	// After all ended series are known, so that a slot is not freed and reused
	// while an old object still has it.
	for _, to := range begin {
		*to = series{began: seq, slot: free.take()}
	}
}

// endBefore ends the objects sorted before name, or all if name is "", and returns the rest.
func endBefore[T any](name string, last []T, end func(*T), of func(*T) (string, *series)) []T {
	for len(last) > 0 {
		if was, _ := of(&last[0]); name != "" && was >= name {
			break
		}
		end(&last[0])
		last = last[1:]
	}
	return last
}

// endedWorkload is a workload that is gone and met its own memory limit, or was throttled, as
// far as the history reaches: how long it stalled is still in what the node did.
type endedWorkload struct {
	Workload
	at time.Duration // of the first sample without it
}

// maxEnded is how many of them are kept. A node has room for so many pods.
const maxEnded = 256

// end frees the slot of a workload that is gone, at once or when the history does not reach
// back to it any more.
func (h *History) end(w *WorkloadState, now time.Duration) {
	if len(h.points) > 0 && len(h.ended) < maxEnded {
		over, _ := h.newest.Over(h.Keep)
		_, hits := over.MemoryStall(&w.Workload)
		if n, _ := hits.Get(); n > 0 || over.Throttled(w) {
			h.ended = append(h.ended, endedWorkload{w.Workload, now})
			return
		}
	}
	h.workloads.give(w.series.slot)
}

// dropEnded drops the workloads that ended before the history, and all where it begins anew.
func (h *History) dropEnded(now time.Duration) {
	for len(h.ended) > 0 && (len(h.points) == 0 || h.ended[0].at < now-h.Keep) {
		h.workloads.give(h.ended[0].series.slot)
		h.ended = h.ended[1:]
	}
}

// follow continues the series of was, and unwraps the times that the kernel
// keeps in 32 bits: the difference modulo 2³² is right as long as less than 2³²
// ms were added between two samples.
func (d *Disk) follow(was *Disk) bool {
	if d.Number != was.Number || d.Sequence != was.Sequence {
		return false
	}
	if _, ok := d.Minus(was.DiskCounters); !ok {
		return false
	}
	unwrap := func(now *uint64, was uint64) { *now = was + uint64(uint32(*now)-uint32(was)) }
	unwrap(&d.ReadMs, was.ReadMs)
	unwrap(&d.WriteMs, was.WriteMs)
	unwrap(&d.BusyMs, was.BusyMs)
	unwrap(&d.WeightedMs, was.WeightedMs)
	return true
}

func (n *NIC) follows(was *NIC) bool {
	if n.Index != was.Index || n.Address != was.Address {
		return false
	}
	_, ok := n.Minus(was.NICCounters)
	return ok
}

func (w *WorkloadState) follows(was *WorkloadState) bool {
	if w.Inode != was.Inode {
		return false
	}
	w.throttles = was.throttles // what it waited is in a window still, also when its counters begin anew
	var d differ
	d.opt(w.CPUMicroseconds, was.CPUMicroseconds)
	d.opt(w.Pressure.Memory.Some, was.Pressure.Memory.Some)
	d.opt(w.Pressure.IO.Some, was.Pressure.IO.Some)
	return !d.decreased
}

// Sort orders the lists as link needs them; a kernel's are ordered, those of a
// recording may not be.
func (s *Sample) Sort() {
	slices.SortFunc(s.Disks, func(a, b Disk) int { return compare(a.Name, b.Name) })
	slices.SortFunc(s.NICs, func(a, b NIC) int { return compare(a.Name, b.Name) })
	slices.SortFunc(s.Workloads, func(a, b Workload) int { return compare(a.Cgroup, b.Cgroup) })
}
