package snapshot

import (
	"cmp"
	"slices"
)

// minCPUBusy is the share of all CPUs in use from which their contention is shown,
// even where no task waits.
const minCPUBusy = 0.5

// cpuContention returns the workloads that use the CPUs and that wait for one, while
// at least half of them is in use or tasks of the node wait. A workload that its
// own quota holds back does not wait for others.
func cpuContention(workloads []WorkloadState, w Window, of func(int) Opt[WorkloadRates]) (c Contention, some bool) {
	busy, known := w.CPUBusy().Get()
	stall := w.Pressure().CPU.Some
	waited, _ := stall.Get()
	if busy < minCPUBusy && waited < WaitedThreshold {
		return Contention{}, false
	}
	c = Contention{Resource: SharedCPU}
	cpus, _ := w.to.CPU.Online.Get()
	used := busy * float64(cpus)
	uses, all, why := cpuUses(workloads, of)
	if known && used > 0 {
		c.Coverage = Some(min(1, all/used))
	} else {
		c.Absent.Because("coverageRatio", "the CPU time of the node is unknown")
	}
	for i := range uses {
		uses[i].share = portion(uses[i].bytes, max(all, used))
	}
	parties(workloads).list(&c, uses, stall, why)
	return c, true
}

// cpuUses returns the uses, in CPUs, and their sum. why is why of some workloads it
// is unknown what their own quota holds back; their waiting is that of an uncounted
// use.
func cpuUses(workloads []WorkloadState, of func(int) Opt[WorkloadRates]) (uses []use, all float64, why string) {
	uses = make([]use, 0, len(workloads))
	nested := nestingOf(workloads)
	for i := range workloads {
		r, ok := of(i).Get()
		l := &workloads[i].Workload
		if !ok || l.Cgroup == "/" {
			continue
		}
		cores, counted := r.CPUCores.Get()
		stall, known := r.Pressure.CPU.Some.Get()
		held, told := heldByQuota(l, r)
		u := use{workload: i, bytes: cores, waited: max(0, stall-held), stallUnknown: !known, uncounted: !counted || !told}
		if u.uncounted && stall >= minWaited {
			why = cmp.Or(l.Absent["cpuMicrosecondsTotal"], l.Absent["throttledMicrosecondsTotal"], "its quota is read every ten seconds")
		}
		first := len(uses)
		uses = append(uses, u)
		nested.subtract(i, uses, first)
	}
	for _, u := range uses {
		all += u.bytes
	}
	return uses, all, why
}

// heldByQuota is how long a workload's own quota held it back, as a share of the
// time, summed over CPUs; false if that is unknown. A workload that never was held
// back is not held back now: the counter is read less often than the stall.
func heldByQuota(w *Workload, r WorkloadRates) (share float64, known bool) {
	if ratio, ok := r.ThrottledRatio.Get(); ok {
		return ratio, true
	}
	if total, ok := w.ThrottledMicroseconds.Get(); ok {
		return 0, total == 0
	}
	return 0, slices.Contains([]string{NoCPUController, NoCPUCgroup}, w.Absent["throttledMicrosecondsTotal"])
}

// Why a workload has no throttling to count: it cannot have a quota.
const (
	NoCPUController = "the cpu controller is not enabled for this cgroup"
	NoCPUCgroup     = "no cgroup of this path in the cpu hierarchy"
)
