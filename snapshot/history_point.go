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
	workloads           []place // of a workloadPoint
	// written are the chunks that were filled when this point was made, and oldest the
	// first ones that it may refer to.
	written, oldest chunkNumbers
}

// workloadPoint has those counters of a workload that change at nearly every reading while
// it works, and where the others are; noCount marks an absent one. Nothing of it is a
// pointer, so that the garbage collector does not look at a hundred points.
type workloadPoint struct {
	readAt      time.Duration // 0: when the point was made, so that what rests stays the same
	cpu, memory uint64
	cpuStall    stallCount
	stalls      place // of a stallPoint
	detail      place // of a detailPoint
	io          place // of devices ioPoints
	devices     uint32
}

type stallCount struct{ some, full uint64 }

// stallPoint is the stall on memory and IO: most workloads have none.
type stallPoint struct{ memory, io stallCount }

// detailPoint has what is read less often than every tick, or hardly ever changes.
type detailPoint struct {
	throttledAt        time.Duration // 0: as of the point
	statAt             time.Duration
	throttled          uint64
	hits, kills        uint64
	reclaimed, charged uint64
	network            WorkloadNetwork // At is 0 if it was absent
}

// ioPoint has the counters of a workload on one device, an index in columns.devices.
type ioPoint struct {
	device                            uint32
	reads, writes, readBytes, written uint64
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

func pastStall(s Stall) stallCount { return stallCount{rawCount(s.Some), rawCount(s.Full)} }

// newPoint copies the counters of a snapshot whose objects have their slots. last is the
// point before; nil: there is none.
func (c *columns) newPoint(raw *Sample, s *Snapshot, last *point, oldest chunkNumbers) *point {
	p := &point{
		Monotonic: raw.Monotonic, Boottime: raw.Boottime, BootID: raw.BootID,
		CPU: raw.CPU, Memory: raw.Memory, Pressure: raw.Pressure, Network: raw.Network, NUMANodes: raw.NUMANodes, written: c.last(), oldest: oldest,
	}
	for i := range s.Disks {
		put(&p.disks, len(s.Disks), s.Disks[i].series, s.Disks[i].DiskCounters)
	}
	for i := range s.NICs {
		put(&p.nics, len(s.NICs), s.NICs[i].series, s.NICs[i].NICCounters)
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		var before *place
		if last != nil && w.series.began < s.Sequence {
			before = &last.workloads[w.series.slot]
		}
		put(&p.workloads, len(s.Workloads), w.series, c.pointOf(&w.Workload, p.Monotonic, before, oldest))
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
