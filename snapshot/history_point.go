package snapshot

import (
	"math"
	"time"
)

// series is a time in which an object's identity was the same and no counter
// decreased.
type series struct {
	began uint64 // sequence number of its first sample
	slot  int    // index of its counters in each point
}

// slots hands out indexes into the points' lists, and reuses those that are
// given back. An older point may have another object's counters in a reused
// slot; no window of the new series reaches back to it.
type slots struct {
	free []int
	next int
}

func (s *slots) take() int {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	s.next++
	return s.next - 1
}

func (s *slots) give(slot int) { s.free = append(s.free, slot) }

// point has the counters of a sample, from which later samples take
// differences, and nothing else: a busy node has some hundred workloads, and a
// window a hundred points.
type point struct {
	Monotonic, Boottime time.Duration
	BootID              string
	CPU                 CPU
	Memory              Memory
	Pressure            Pressure
	Network             Network
	NUMANodes           []NUMANode
	disks               []DiskCounters // by slot, as the others
	nics                []NICCounters
	workloads           []workloadPoint
}

// workloadPoint has the counters of a workload; noCount marks an absent one.
type workloadPoint struct {
	at, throttledAt, detailAt time.Duration
	cpu, throttled            uint64
	hits, kills               uint64
	memory, reclaimed         uint64
	charged                   uint64
	pressure                  [3]struct{ some, full uint64 } // cpu, memory, io
	network                   WorkloadNetwork                // At is 0 if it was absent
	io                        []WorkloadIO
}

const noCount = math.MaxUint64

func rawCount(o Opt[uint64]) uint64 {
	if v, ok := o.Get(); ok {
		return v
	}
	return noCount
}

func optCount(n uint64) Opt[uint64] {
	if n == noCount {
		return Opt[uint64]{}
	}
	return Some(n)
}

func pastStall(s Stall) struct{ some, full uint64 } {
	return struct{ some, full uint64 }{rawCount(s.Some), rawCount(s.Full)}
}

// newPoint copies the counters of a snapshot whose objects have their slots.
func newPoint(raw *Sample, s *Snapshot) *point {
	p := &point{
		Monotonic: raw.Monotonic, Boottime: raw.Boottime, BootID: raw.BootID,
		CPU: raw.CPU, Memory: raw.Memory, Pressure: raw.Pressure, Network: raw.Network, NUMANodes: raw.NUMANodes,
	}
	for i := range s.Disks {
		put(&p.disks, len(s.Disks), s.Disks[i].series, s.Disks[i].DiskCounters)
	}
	for i := range s.NICs {
		put(&p.nics, len(s.NICs), s.NICs[i].series, s.NICs[i].NICCounters)
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		put(&p.workloads, len(s.Workloads), w.series, pointOf(&w.Workload))
	}
	return p
}

// put stores v in its slot. Most lists have no empty slots, and grow once.
func put[T any](list *[]T, about int, at series, v T) {
	for len(*list) <= at.slot {
		if *list == nil {
			*list = make([]T, 0, max(about, at.slot+1))
		}
		var none T
		*list = append(*list, none)
	}
	(*list)[at.slot] = v
}

func pointOf(w *Workload) workloadPoint {
	p := workloadPoint{
		at: w.At, throttledAt: w.ThrottledAt, detailAt: w.DetailAt,
		memory: rawCount(w.MemoryBytes), reclaimed: rawCount(w.Reclaimed), charged: rawCount(w.Charged),
		cpu: rawCount(w.CPUMicroseconds), throttled: rawCount(w.ThrottledMicroseconds), hits: rawCount(w.LimitHits), kills: rawCount(w.OOMKills),
		io: w.IO,
	}
	p.pressure[0], p.pressure[1], p.pressure[2] = pastStall(w.Pressure.CPU), pastStall(w.Pressure.Memory), pastStall(w.Pressure.IO)
	p.network, _ = w.Network.Get()
	return p
}
