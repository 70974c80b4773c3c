package probes

import (
	"fmt"
	"slices"
	"time"
)

// History turns Samples into Snapshots. It belongs to one goroutine.
type History struct {
	// Window is how far back the rates of a Snapshot reach.
	Window time.Duration
	// Keep is how far back Snapshot.Over can reach.
	Keep time.Duration
	// MaxGap between two Samples, by a clock that runs through suspend: beyond
	// it the window is dropped and nothing is judged on it.
	MaxGap time.Duration

	points []*point // contiguous, oldest first
	newest *Snapshot
	seq    uint64 // of the newest
	gaps   uint64
	gap    string // why the window was dropped last

	disks, nics, workloads slots
}

// Add takes the next Sample and derives the Snapshot at it. The Sample itself
// is not changed: the Snapshot has its disk times unwrapped, and of each
// device and workload the number of the sample at which its unbroken series
// began.
func (h *History) Add(raw *Sample) *Snapshot {
	h.seq++
	why, related := broken(h.newest, raw, h.MaxGap)
	s := emptySnapshot(raw, h.seq)
	last := h.newest
	if !related {
		last = &Snapshot{}
		h.disks, h.nics, h.workloads = slots{}, slots{}, slots{}
	}
	if why != "" {
		h.points, h.gap = nil, why
		h.gaps++
	}
	h.link(s, last)
	h.points = append(h.trimmed(raw.Monotonic), newPoint(raw, s))
	s.points, s.Gaps = h.points, h.gaps
	s.derive(h.Window, h.gap)
	h.newest = s
	return s
}

// broken says why no window may reach from s back to last. The two are still
// related, so that a device's wrapping times go on, unless the counters began
// anew.
func broken(newest *Snapshot, s *Sample, maxGap time.Duration) (why string, related bool) {
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

// hostReset says whether a counter of the host went back, which none does while
// it runs.
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
	return d.broken
}

// trimmed drops the points that no window can reach from now. It copies, since
// Snapshots share the old slice.
func (h *History) trimmed(now time.Duration) []*point {
	first := 0
	for first < len(h.points) && h.points[first].Monotonic < now-h.Keep {
		first++
	}
	kept := make([]*point, 0, len(h.points)-first+1)
	return append(kept, h.points[first:]...)
}

// link joins each object of s with itself in the snapshot before: same
// identity and no counter that went back continue the series, all else starts
// one.
func (h *History) link(s, last *Snapshot) {
	link(s.Disks, last.Disks, &h.disks, s.Sequence, func(d *DiskState) (string, *series) { return d.Name, &d.series },
		func(d, was *DiskState) bool { return d.follow(&was.Disk) })
	link(s.NICs, last.NICs, &h.nics, s.Sequence, func(n *NICState) (string, *series) { return n.Name, &n.series },
		func(n, was *NICState) bool { return n.follows(&was.NIC) })
	link(s.Workloads, last.Workloads, &h.workloads, s.Sequence, func(w *WorkloadState) (string, *series) { return w.Cgroup, &w.series },
		func(w, was *WorkloadState) bool { return w.follows(&was.Workload) })
}

// link goes through two lists that are sorted by name side by side.
func link[T any](now, last []T, free *slots, seq uint64, of func(*T) (string, *series), follows func(now, was *T) bool) {
	var begin []*series
	for i := range now {
		name, to := of(&now[i])
		last = endBefore(name, last, free, of)
		if len(last) > 0 {
			if was, its := of(&last[0]); was == name && follows(&now[i], &last[0]) {
				*to, last = *its, last[1:]
				continue
			}
		}
		begin = append(begin, to)
	}
	endBefore("", last, free, of)
	// Only now: no slot is given back and taken in one sample before all that
	// ended is known.
	for _, to := range begin {
		*to = series{began: seq, slot: free.take()}
	}
}

// endBefore gives back the slots of those that stand before a name, of all
// when it is "", and returns the others.
func endBefore[T any](name string, last []T, free *slots, of func(*T) (string, *series)) []T {
	for len(last) > 0 {
		was, ended := of(&last[0])
		if name != "" && was >= name {
			break
		}
		free.give(ended.slot)
		last = last[1:]
	}
	return last
}

// follow continues the series of was, and unwraps the times that the kernel
// keeps in 32 bits: the difference modulo 2³² is right as long as less than
// 2³² ms were added between two samples.
func (d *Disk) follow(was *Disk) bool {
	if d.Number != was.Number || d.Sequence != was.Sequence {
		return false
	}
	if _, ok := d.minus(was.DiskCounters); !ok {
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
	_, ok := n.minus(was.NICCounters)
	return ok
}

func (w *Workload) follows(was *Workload) bool {
	if w.Inode != was.Inode {
		return false
	}
	var d differ
	d.opt(w.CPUMicroseconds, was.CPUMicroseconds)
	d.opt(w.Pressure.Memory.Some, was.Pressure.Memory.Some)
	d.opt(w.Pressure.IO.Some, was.Pressure.IO.Some)
	return !d.broken
}

// sort puts the lists in the order that finding relies on; what was read from
// a kernel is, what was read from a file need not be.
func (s *Sample) sort() {
	slices.SortFunc(s.Disks, func(a, b Disk) int { return compare(a.Name, b.Name) })
	slices.SortFunc(s.NICs, func(a, b NIC) int { return compare(a.Name, b.Name) })
	slices.SortFunc(s.Workloads, func(a, b Workload) int { return compare(a.Cgroup, b.Cgroup) })
}
