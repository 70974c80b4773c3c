package web

import (
	"cmp"
	"slices"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// podRank is a workload in the order of choice.
type podRank struct {
	key    workloadKey
	usage  float64
	series int
}

// podChoice chooses the workloads that have series.
type podChoice struct {
	top, max int // workloads, and their series together
	metrics  podMetrics

	ranks  []podRank     // scratch of one choice
	chosen []workloadKey // its result, valid until the next one
}

// choose chooses the workloads by the newest sample and the last choice, and counts the
// series of those that are left out.
func (c *podChoice) choose(s *snapshot.Snapshot, disks podDisks, chosen func(workloadKey) bool) (list []workloadKey, dropped uint64) {
	c.rank(s, disks)
	c.chosen = c.chosen[:0]
	used := 0
	for place, r := range c.ranks {
		if !c.fits(chosen(r.key), place, used+r.series) {
			dropped += uint64(r.series)
			continue
		}
		used += r.series
		c.chosen = append(c.chosen, r.key)
	}
	return c.chosen, dropped
}

// maxKept is the most workloads that have series.
func (c *podChoice) maxKept() int { return c.top + c.top/2 }

// fits reports whether the workload at a place, from 0, is chosen when it and
// all before it have so many series. A chosen one has more room (hysteresis):
// two of about the same load would otherwise alternate, and each change begins
// new series.
func (c *podChoice) fits(was bool, place, series int) bool {
	if was {
		return place < c.maxKept() && series <= c.max
	}
	return place < c.top && series <= c.max-c.max/3
}

// rank orders the workloads that have any series.
func (c *podChoice) rank(s *snapshot.Snapshot, disks podDisks) {
	c.ranks = c.ranks[:0]
	link := fastest(s.NICs)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if n := c.metrics.seriesOf(w); n > 0 {
			c.ranks = append(c.ranks, podRank{keyOf(w), max(usageOf(s, w, disks), linkUsage(w, link)), n})
		}
	}
	slices.SortFunc(c.ranks, func(a, b podRank) int {
		return cmp.Or(cmp.Compare(b.usage, a.usage), cmp.Compare(a.key.cgroup, b.key.cgroup), cmp.Compare(a.key.inode, b.key.inode))
	})
}

// usageOf is a workload's use or pressure: the largest of its share of the CPUs,
// of the memory, of the time of a disk, and of its stalls; the network's is
// apart. All are from 0 to about 1; absent counts as 0.
func usageOf(s *snapshot.Snapshot, w *snapshot.WorkloadState, disks podDisks) float64 {
	load := 0.0
	memory, ok := w.WorkingSetBytes.Get()
	if !ok {
		memory, _ = w.MemoryBytes.Get() // fallback
	}
	if total, _ := s.Memory.TotalBytes.Get(); total > 0 {
		load = float64(memory) / float64(total)
	}
	r, ok := w.Rates.Get()
	if !ok {
		return load
	}
	if online, _ := s.CPU.Online.Get(); online > 0 {
		cores, _ := r.CPUCores.Get()
		load = max(load, cores/float64(online))
	}
	for i := range r.IO {
		load = max(load, disks.usage(&r.IO[i]))
	}
	return max(load, view.Stall(r.Pressure.CPU), view.Stall(r.Pressure.Memory), view.Stall(r.Pressure.IO))
}

// linkUsage is the share of a link's speed that the busier direction of a
// workload's traffic takes; 0 where the speed is unknown.
func linkUsage(w *snapshot.WorkloadState, bytesPerSecond uint64) float64 {
	r, _ := w.Rates.Get() // without rates there is no network either
	n, ok := r.Network.Get()
	if !ok || bytesPerSecond == 0 {
		return 0
	}
	return max(n.ReceiveBytesPerSecond, n.TransmitBytesPerSecond) / float64(bytesPerSecond)
}

// fastest is the speed of the fastest physical link; 0 where unknown.
func fastest(nics []snapshot.NICState) uint64 {
	most := uint64(0)
	for i := range nics {
		if speed, ok := nics[i].SpeedBytesPerSecond.Get(); ok && nics[i].Physical {
			most = max(most, speed)
		}
	}
	return most
}
