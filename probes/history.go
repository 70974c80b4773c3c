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

	points []*Sample // contiguous, oldest first
	seq    uint64    // of the newest point
	gaps   uint64
	gap    string // why the window was dropped last
}

// Add takes the next Sample and derives the Snapshot at it. The Sample itself
// is not changed: a copy gets its disk times unwrapped and each device and
// workload the number of the sample at which its unbroken series began.
func (h *History) Add(raw *Sample) *Snapshot {
	s := *raw
	s.Disks, s.NICs, s.Workloads = slices.Clone(raw.Disks), slices.Clone(raw.NICs), slices.Clone(raw.Workloads)
	h.seq++
	last := h.newest()
	why, related := broken(last, &s, h.MaxGap)
	if !related {
		last = nil
	}
	s.link(last, h.seq)
	if why != "" {
		h.points, h.gap = nil, why
		h.gaps++
	}
	h.points = append(h.trimmed(s.Monotonic), &s)
	return newSnapshot(h.points, h.seq, h.Window, h.gaps, h.gap)
}

func (h *History) newest() *Sample {
	if len(h.points) == 0 {
		return nil
	}
	return h.points[len(h.points)-1]
}

// broken says why no window may reach from s back to last. The two are still
// related, so that a device's wrapping times go on, unless the counters began
// anew.
func broken(last, s *Sample, maxGap time.Duration) (why string, related bool) {
	switch {
	case last == nil:
		return "", false
	case s.BootID != last.BootID:
		return "the machine was booted anew", false
	case s.Monotonic <= last.Monotonic, s.Boottime < last.Boottime:
		return "the clock did not move on", false
	case hostReset(last, s):
		return "a counter of the host went back", false
	case s.Boottime-last.Boottime > maxGap:
		return fmt.Sprintf("%s without a sample (suspended, paused or starved)", (s.Boottime - last.Boottime).Round(100*time.Millisecond)), true
	}
	return "", true
}

// hostReset says whether a counter of the host went back, which none does while
// it runs.
func hostReset(last, s *Sample) bool {
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
func (h *History) trimmed(now time.Duration) []*Sample {
	first := 0
	for first < len(h.points) && h.points[first].Monotonic < now-h.Keep {
		first++
	}
	kept := make([]*Sample, 0, len(h.points)-first+1)
	return append(kept, h.points[first:]...)
}

// link joins each object of s with itself in the sample before: same identity
// and no counter that went back continue the series, all else starts one.
func (s *Sample) link(last *Sample, seq uint64) {
	for i := range s.Disks {
		d := &s.Disks[i]
		d.series = seq
		if was := last.disk(d.Name); was != nil {
			d.follow(was)
		}
	}
	for i := range s.NICs {
		n := &s.NICs[i]
		n.series = seq
		if was := last.nic(n.Name); was != nil && n.follows(was) {
			n.series = was.series
		}
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		w.series = seq
		if was := last.Workload(w.Cgroup); was != nil && w.follows(was) {
			w.series = was.series
		}
	}
}

// follow continues the series of was, and unwraps the times that the kernel
// keeps in 32 bits: the difference modulo 2³² is right as long as less than
// 2³² ms were added between two samples.
func (d *Disk) follow(was *Disk) {
	if d.Number != was.Number || d.Sequence != was.Sequence {
		return
	}
	if _, ok := d.minus(was.DiskCounters); !ok {
		return
	}
	d.series = was.series
	unwrap := func(now *uint64, was uint64) { *now = was + uint64(uint32(*now)-uint32(was)) }
	unwrap(&d.ReadMs, was.ReadMs)
	unwrap(&d.WriteMs, was.WriteMs)
	unwrap(&d.BusyMs, was.BusyMs)
	unwrap(&d.WeightedMs, was.WeightedMs)
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

// disk, nic and Workload find an object by name; the lists are sorted by it.
// On a nil Sample nothing is found.
func (s *Sample) disk(name string) *Disk {
	if s == nil {
		return nil
	}
	return find(s.Disks, func(d *Disk) int { return compare(d.Name, name) })
}

func (s *Sample) nic(name string) *NIC {
	if s == nil {
		return nil
	}
	return find(s.NICs, func(n *NIC) int { return compare(n.Name, name) })
}

// Workload finds a workload by the path of its cgroup; nil when there is none.
func (s *Sample) Workload(cgroup string) *Workload {
	if s == nil {
		return nil
	}
	return find(s.Workloads, func(w *Workload) int { return compare(w.Cgroup, cgroup) })
}

// sort puts the lists in the order that finding relies on; what was read from
// a kernel is, what was read from a file need not be.
func (s *Sample) sort() {
	slices.SortFunc(s.Disks, func(a, b Disk) int { return compare(a.Name, b.Name) })
	slices.SortFunc(s.NICs, func(a, b NIC) int { return compare(a.Name, b.Name) })
	slices.SortFunc(s.Workloads, func(a, b Workload) int { return compare(a.Cgroup, b.Cgroup) })
}
