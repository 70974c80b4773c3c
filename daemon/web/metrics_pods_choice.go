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

// choose chooses the workloads by the newest sample and the last choice. The
// cache of the others is dropped. The caller holds mu.
func (p *PodSeries) choose(s *snapshot.Snapshot) {
	p.rank(s)
	in := make(map[workloadKey]*podEntry, min(len(p.ranks), p.maxKept()))
	used := 0
	for place, r := range p.ranks {
		e, was := p.entries[r.key]
		if !p.fits(was, place, used+r.series) {
			p.dropped += uint64(r.series)
			continue
		}
		used += r.series
		if !was {
			e = &podEntry{}
		}
		in[r.key] = e
	}
	for key, e := range p.entries {
		if _, stays := in[key]; !stays {
			p.releaseName(key, e)
		}
	}
	p.entries = in
}

// maxKept is the most workloads that have series.
func (p *PodSeries) maxKept() int { return p.top + p.top/2 }

// fits reports whether the workload at a place, from 0, is chosen when it and
// all before it have so many series. A chosen one has more room (hysteresis):
// two of about the same load would otherwise alternate, and each change begins
// new series.
func (p *PodSeries) fits(was bool, place, series int) bool {
	if was {
		return place < p.maxKept() && series <= p.max
	}
	return place < p.top && series <= p.max-p.max/3
}

// rank orders the workloads that have any series.
func (p *PodSeries) rank(s *snapshot.Snapshot) {
	p.ranks = p.ranks[:0]
	link := fastest(s.NICs)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if n := p.seriesOf(w); n > 0 {
			p.ranks = append(p.ranks, podRank{keyOf(w), max(p.usage(s, w), linkUsage(w, link)), n})
		}
	}
	slices.SortFunc(p.ranks, func(a, b podRank) int {
		return cmp.Or(cmp.Compare(b.usage, a.usage), cmp.Compare(a.key.cgroup, b.key.cgroup), cmp.Compare(a.key.inode, b.key.inode))
	})
}

// usage is a workload's use or pressure: the largest of its share of the CPUs,
// of the memory, of the time of a disk, and of its stalls; the network's is
// apart. All are from 0 to about 1; absent counts as 0.
func (p *PodSeries) usage(s *snapshot.Snapshot, w *snapshot.WorkloadState) float64 {
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
		load = max(load, p.diskUsage(&r.IO[i]))
	}
	return max(load, view.Stall(r.Pressure.CPU), view.Stall(r.Pressure.Memory), view.Stall(r.Pressure.IO))
}

// diskUsage is the workload's share of the device's busy time, by its share of
// the requests.
func (p *PodSeries) diskUsage(io *snapshot.WorkloadIORates) float64 {
	d, known := p.devices[io.Number]
	if !known {
		return 0
	}
	r, _ := d.Rates.Get() // zero without rates
	all := r.ReadsPerSecond + r.WritesPerSecond
	if all <= 0 {
		return 0
	}
	return min(1, (io.ReadsPerSecond+io.WritesPerSecond)/all) * r.BusyRatio
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
