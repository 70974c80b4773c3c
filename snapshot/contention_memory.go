package snapshot

import (
	"cmp"
	"os"
	"slices"
)

// pageBytes is the unit in which the kernel counts reclaim.
func pageBytes() float64 { return float64(os.Getpagesize()) }

// memoryContention returns the workloads that take memory and that wait for it,
// while global reclaim runs or tasks stall on memory. Otherwise there is no
// contention.
func memoryContention(workloads []WorkloadState, w Window, of func(int) Opt[WorkloadRates]) (c Contention, some bool) {
	scans, _ := w.Memory().ScansPerSecond.Get()
	host, _ := w.Pressure().Memory.Some.Get()
	if scans == 0 && host < minWaited {
		return Contention{}, false
	}
	c = Contention{Resource: SharedMemory}
	taken, known := w.memoryTaken().Get()
	uses, all := memoryUses(workloads, w, of)
	switch {
	case !known:
		c.Absent.Because("coverageRatio", "the node's memory growth is unknown")
	case taken <= 0:
		c.Absent.Because("coverageRatio", "memory did not grow")
	default:
		c.Coverage = Some(min(1, all/taken))
	}
	for i := range uses {
		uses[i].share = portion(uses[i].bytes, max(all, taken))
	}
	parties(workloads).list(&c, uses, w.most(w.Pressure().Memory.Some))
	return c, true
}

// memoryTaken is the growth of the node's memory in use plus what global
// reclaim freed, in bytes per second.
func (w Window) memoryTaken() Opt[float64] {
	now, was := w.to.Memory, w.points[w.from].Memory
	free, ok1 := now.FreeBytes.Get()
	before, ok2 := was.FreeBytes.Get()
	reclaimed, ok3 := w.rate(now.Reclaimed, was.Reclaimed).Get()
	if !ok1 || !ok2 || !ok3 || w.Elapsed() <= 0 {
		return Opt[float64]{}
	}
	return Some((float64(before)-float64(free))/w.Seconds() + reclaimed*pageBytes())
}

// memoryUses returns the uses and the sum of what they took. A workload at its
// own limit counts zero: it reclaims from itself and waits for itself.
func memoryUses(workloads []WorkloadState, w Window, of func(int) Opt[WorkloadRates]) (uses []use, all float64) {
	uses = make([]use, 0, len(workloads))
	nested := nestingOf(workloads)
	for i := range workloads {
		r, ok := of(i).Get()
		if !ok || workloads[i].Cgroup == "/" {
			continue
		}
		taken, _ := r.MemoryTakenPerSecond.Get()
		stall, known := r.Pressure.Memory.Some.Get()
		if hits, _ := r.LimitHits.Get(); hits > 0 {
			taken, stall = 0, 0
		}
		first := len(uses)
		uses = append(uses, use{workload: i, bytes: max(0, taken), waited: stall, stallUnknown: !known})
		uses[first].spread(portion(w.seen(&workloads[i].Workload), w.Seconds()))
		nested.subtract(i, uses, first)
	}
	for _, u := range uses {
		all += u.bytes
	}
	return uses, all
}

// MemoryGrowth is how much the memory of a workload has grown.
type MemoryGrowth struct {
	Workload       *WorkloadState
	Bytes          float64
	BytesPerSecond float64
	// Share of the growth of all workloads that grow, 0 to 1.
	Share float64
}

// MemoryGrowth returns those of a snapshot's workloads whose memory grew in the window, that
// which grew most first. What reclaim freed from a workload and it read again is no growth,
// unlike in a Contention.
func (w Window) MemoryGrowth(workloads []WorkloadState) (list []MemoryGrowth) {
	uses, all := make([]use, 0, len(workloads)), 0.0
	nested := nestingOf(workloads)
	for i := range workloads {
		was, ok := w.past(&workloads[i].Workload)
		if !ok || workloads[i].Cgroup == "/" {
			continue
		}
		grown, _ := increase(workloads[i].MemoryBytes, optCount(was.workloadPoint.memory)).Get() // 0 if it shrank, or is unknown
		first := len(uses)
		uses = append(uses, use{workload: i, bytes: float64(grown)})
		nested.subtract(i, uses, first)
	}
	for _, u := range uses {
		all += u.bytes
	}
	for _, u := range uses {
		l := &workloads[u.workload]
		was, _ := w.past(&l.Workload)
		if seconds := (l.At - was.at).Seconds(); u.bytes > 0 && seconds > 0 {
			list = append(list, MemoryGrowth{l, u.bytes, u.bytes / seconds, portion(u.bytes, all)})
		}
	}
	slices.SortStableFunc(list, func(a, b MemoryGrowth) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}
