package snapshot

import (
	"cmp"
	"slices"
)

// minCPUBusy is the share of all CPUs in use from which their contention is shown,
// even where no task waits.
const minCPUBusy = 0.5

// cpuContention returns the workloads that use the CPUs and that wait for one, while
// at least half of them is in use, or tasks of the node or of one workload wait: few
// CPUs for which many pods wait are a small part of a large node.
func cpuContention(workloads []WorkloadState, w Window, of func(int) Opt[WorkloadRates]) (c Contention, some bool) {
	busy, known := w.CPUBusy().Get()
	stall := w.Pressure().CPU.Some
	waited, _ := stall.Get()
	cpus, _ := w.to.CPU.Online.Get()
	if busy < minCPUBusy && waited < WaitedThreshold && !anyWaitsForCPU(workloads, of, cpus) {
		return Contention{}, false
	}
	c = Contention{Resource: SharedCPU}
	used := busy * float64(cpus)
	uses, all := cpuUses(workloads, w, of, cpus)
	if known && used > 0 {
		c.Coverage = Some(min(1, all/used))
	} else {
		c.Absent.Because("coverageRatio", "the CPU time of the node is unknown")
	}
	for i := range uses {
		uses[i].share = portion(uses[i].bytes, max(all, used))
	}
	parties(workloads).list(&c, uses, w.most(stall))
	return c, true
}

// anyWaitsForCPU reports whether a workload waits so long that it may make this a
// contention. It allocates nothing.
func anyWaitsForCPU(workloads []WorkloadState, of func(int) Opt[WorkloadRates], cpus int) bool {
	for i := range workloads {
		if r, ok := of(i).Get(); ok && cpuWaitOf(&workloads[i].Workload, &r, cpus).most >= CPUWaitedThreshold {
			return true
		}
	}
	return false
}

// cpuUses returns the uses, in CPUs, and their sum. What a workload used that has just
// appeared is spread over the window; how long it waits, for others alone, is not.
func cpuUses(workloads []WorkloadState, w Window, of func(int) Opt[WorkloadRates], cpus int) (uses []use, all float64) {
	uses = make([]use, 0, len(workloads))
	nested := nestingOf(workloads)
	for i := range workloads {
		r, ok := of(i).Get()
		l := &workloads[i].Workload
		if !ok || l.Cgroup == "/" {
			continue
		}
		cores, counted := r.CPUCores.Get()
		wait := cpuWaitOf(l, &r, cpus)
		u := use{workload: i, bytes: cores * portion(w.seen(l), w.Seconds()), waited: wait.most, stallUnknown: !wait.known, forOthers: true, uncounted: wait.why}
		if !counted {
			u.uncounted = cmp.Or(wait.why, l.Absent["cpuMicrosecondsTotal"], "its CPU time is unknown")
		}
		first := len(uses)
		uses = append(uses, u)
		nested.subtract(i, uses, first)
	}
	for _, u := range uses {
		all += u.bytes
	}
	return uses, all
}

// CPUWait is the longest time that a workload above the lowest class waited for CPUs
// that others had, as a share of the window, and what it may be at most, where that is
// unknown of some. It is cheap, for each tick.
func CPUWait(workloads []WorkloadState, w Window) (longest, atMost float64) {
	cpus, _ := w.to.CPU.Online.Get()
	node, _ := w.most(w.Pressure().CPU.Some).Get()
	for i := range workloads {
		l := &workloads[i]
		if l.Cgroup == "/" || l.LowestClass(SharedCPU) {
			continue
		}
		r, ok := w.cpuRates(l)
		if !ok {
			continue
		}
		switch wait := cpuWaitOf(&l.Workload, &r, cpus); {
		case !wait.known:
			atMost = max(atMost, node)
		case wait.why != "":
			atMost = max(atMost, wait.most)
		default:
			longest = max(longest, wait.most)
		}
	}
	return longest, max(longest, atMost)
}

// cpuWait is how long a workload waited for CPUs that others had.
type cpuWait struct {
	most  float64 // share of the time
	known bool    // false: the kernel does not report it
	why   string  // why it may have waited for itself instead; empty: it did not
}

// cpuWaitOf takes the time in which tasks of the workload waited while none of them ran,
// on the CPUs where it has any (PSI full of its cgroup): then others ran, or its own
// quota held it back, which is subtracted. While one of its own tasks runs the others
// wait for that one.
func cpuWaitOf(w *Workload, r *WorkloadRates, cpus int) cpuWait {
	full, told := r.Pressure.CPU.Full.Get()
	if !told {
		some, known := r.Pressure.CPU.Some.Get()
		return cpuWait{most: some, known: known, why: whyNoCPUFull}
	}
	held, known := heldByQuota(w, r, cpus)
	wait := cpuWait{most: max(0, full-held), known: true}
	if !known {
		wait.why = cmp.Or(w.Absent["throttledMicrosecondsTotal"], "its quota is read every ten seconds")
	}
	return wait
}

// whyNoCPUFull is why some and not full is known.
const whyNoCPUFull = "the kernel does not count it (cpu.pressure has no line full before 5.13)"

// heldByQuota is how long a workload's own quota held it back, as a share of the
// time; false if that is unknown. The kernel sums it over the CPUs. A workload that
// never was held back is not held back now: the counter is read less often than the
// stall.
func heldByQuota(w *Workload, r *WorkloadRates, cpus int) (share float64, known bool) {
	if throttled, ok := r.ThrottledRatio.Get(); ok {
		return throttled / spread(r, cpus), true
	}
	if total, ok := w.ThrottledMicroseconds.Get(); ok {
		return 0, total == 0
	}
	return 0, slices.Contains([]string{NoCPUController, NoCPUCgroup}, w.Absent["throttledMicrosecondsTotal"])
}

// minRuns bounds the error of spread: of a workload that runs for less than this share
// of the time, that share is within the errors of measurement.
const minRuns = 0.05

// spread is on how many CPUs at least a workload has tasks: it used its CPU time in the
// part of the time in which it did not wait as a whole. If tasks also slept there, they
// are more, so that what its quota held back is rather too large than too small.
func spread(r *WorkloadRates, cpus int) float64 {
	cores, _ := r.CPUCores.Get()
	full, _ := r.Pressure.CPU.Full.Get()
	return max(1, min(cores/max(minRuns, 1-full), float64(cpus)))
}

// Why a workload has no throttling to count: it cannot have a quota.
const (
	NoCPUController = "the cpu controller is not enabled for this cgroup"
	NoCPUCgroup     = "no cgroup of this path in the cpu hierarchy"
)
