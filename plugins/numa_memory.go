package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// NUMAMemory judges whether a workload stalls because memory of one NUMA node is
// short, while others may have enough: memory-stall, which judges the whole node, does
// not see that. A NUMA node that is full is ordinary: the kernel then takes memory of
// another one, unless the workload is bound to it. So it takes a workload that has most
// of its memory there and stalls, little available there, and reclaim there. The rule is
// off by default: most machines have one NUMA node, and there are none to judge.
type NUMAMemory struct {
	Enabled  bool          `yaml:"enabled" why:"Whether the rule is on. The memory of NUMA nodes and that of workloads there is read only while it is."`
	Soft     StallRule     `yaml:"soft" why:"From here the node is marked; no pod is evicted."`
	Hard     StallRule     `yaml:"hard" why:"From here pods with memory on that NUMA node are evicted; it must not be easier to reach than soft."`
	ClearFor time.Duration `yaml:"clearFor" why:"How long the lower threshold must be clear before a level ends (hysteresis); a shorter time lets the taint flap."`
}

// DefaultNUMAMemory has the thresholds of a fresh install, those of memory-stall.
func DefaultNUMAMemory() NUMAMemory {
	m := DefaultMemoryStall()
	return NUMAMemory{Soft: m.Soft, Hard: m.Hard, ClearFor: m.ClearFor}
}

// Validate says which values must not be used.
func (r NUMAMemory) Validate(at problems.Section) { validateStalls(at, r.Soft, r.Hard, r.ClearFor) }

// Name of the plugin.
func (NUMAMemory) Name() string { return "numa-memory" }

// Threshold judges each NUMA node.
func (r NUMAMemory) Threshold(v View) []Verdict {
	list := make([]Verdict, 0, len(v.NUMANodes))
	for i := range v.NUMANodes {
		list = append(list, r.judgeNode(v, &v.NUMANodes[i]))
	}
	return list
}

func scopeNUMA(id int) string { return fmt.Sprintf("NUMA %d", id) }

// judgeNode judges hard and soft of a NUMA node, each with its own hysteresis.
func (r NUMAMemory) judgeNode(v View, n *snapshot.NUMANode) Verdict {
	out := Verdict{
		Resource: Memory, Scope: scopeNUMA(n.ID), Condition: conditionNUMAMemoryContention, Unit: "ratio", Operator: ">=",
		Partial: v.WarmingUp || v.Monotonic-v.Since < r.Soft.Window,
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet = was.Latched, was.LowerMet
	soft, hard := r.judge(v, n, Soft, r.Soft), r.judge(v, n, Hard, r.Hard)
	for _, of := range []struct {
		level Level
		numaJudgement
	}{{Soft, soft}, {Hard, hard}} {
		out.applyHysteresis(v, of.level, of.met && !v.WarmingUp, of.held && !v.WarmingUp, r.ClearFor)
	}
	out.Evidence = append(hard.evidence, soft.evidence...)
	shown, rule := soft, r.Soft
	out.Absent = cmp.Or(hard.absent, soft.absent)
	if out.Level == Hard { // what soft lacks, such as samples of half a minute, does not matter
		shown, rule, out.Absent = hard, r.Hard, hard.absent
	}
	out.Observed, out.Threshold = shown.stall, snapshot.Some(rule.StallFull)
	out.Target, out.Whole = r.release(n)
	out.Reason = shown.reason(out.Level, v.WarmingUp)
	return out
}

// release is the memory that must be released for soft not to be met, and all memory of
// the NUMA node that can be available.
func (r NUMAMemory) release(n *snapshot.NUMANode) (target, whole snapshot.Opt[float64]) {
	total, ok1 := n.OrdinaryBytes().Get()
	available, ok2 := n.AvailableBytes.Get()
	if !ok1 || !ok2 {
		return target, whole
	}
	return snapshot.Some(max(0, r.Soft.Available*float64(total)-float64(available))), snapshot.Some(float64(total))
}

// numaJudgement is the result of one of the two rules for one NUMA node.
type numaJudgement struct {
	judgement
	stall snapshot.Opt[float64]
}

func (r NUMAMemory) judge(v View, n *snapshot.NUMANode, level Level, rule StallRule) numaJudgement {
	w, covered := v.sinceInForce(rule.Window)
	waits := longestNUMAStall(v.Snapshot, w, n.ID)
	available, why := numaAvailable(n)
	j := numaJudgement{judgement: judgement{absent: cmp.Or(waits.absent, why)}, stall: waits.full}
	if !covered && j.absent == "" {
		j.absent = fmt.Sprintf("%s of the last %s seen so far", min(w.Elapsed(), v.Monotonic-v.Since).Round(time.Second), rule.Window)
	}
	on := " on " + scopeNUMA(n.ID)
	stalls := j.compare(level, "memory stall, full, over "+rule.Window.String()+waits.of(), waits.full, ">=", rule.StallFull, "ratio", waits.absent)
	little := j.compare(level, "memory available"+on, available, "<", rule.Available, "ratio", why)
	reclaims := j.compareReclaim(level, rule, w, n)
	if !stalls {
		j.absent = cmp.Or(j.absent, waits.unknown)
	}
	j.met = covered && stalls && little && reclaims
	j.held = r.lowerMet(v, n, rule)
	return j
}

// compareReclaim reports whether the kernel reclaimed from this NUMA node in the window:
// global reclaim scanned pages, and little more was free here than the kernel keeps free.
// The kernels that are in use count scans for the whole host only.
func (j *numaJudgement) compareReclaim(level Level, rule StallRule, w snapshot.Window, n *snapshot.NUMANode) bool {
	scans := w.Memory().ScansPerSecond
	moves := j.compare(level, "global reclaim, pages scanned per second", scans, ">", 0, "pages", "not in /proc/vmstat")
	reserve, known := n.ReserveBytes.Get()
	least, why := float(w.MinNUMAFree(n.ID)), cmp.Or(n.Absent["meminfo"], n.Absent["freeBytes"], "not measured throughout")
	what := fmt.Sprintf("least memory free on %s over %s", scopeNUMA(n.ID), rule.Window)
	if known {
		what += fmt.Sprintf(" (the kernel keeps %d MiB free)", reserve>>20)
	} else {
		least, why = snapshot.Opt[float64]{}, cmp.Or(n.Absent["meminfo"], n.Absent["availableBytes"], "not measured")
	}
	low := j.compare(level, what, least, "<", float64(reserve)*reclaimMargin, "bytes", why)
	if scans.IsZero() {
		j.absent = cmp.Or(j.absent, "pages scanned: not in /proc/vmstat")
	}
	if least.IsZero() {
		j.absent = cmp.Or(j.absent, "least memory free on "+scopeNUMA(n.ID)+": "+why)
	}
	return moves && low
}

// reclaimMargin: reclaim ends a little above the reserve, since it frees pages in batches.
const reclaimMargin = 1.25

// lowerMet is the rule with its lower thresholds (hysteresis), over lowerWindow.
func (r NUMAMemory) lowerMet(v View, n *snapshot.NUMANode, rule StallRule) bool {
	w, _ := v.Over(lowerWindow)
	stall, ok1 := longestNUMAStall(v.Snapshot, w, n.ID).full.Get()
	available, _ := numaAvailable(n)
	ratio, ok2 := available.Get()
	scans, _ := w.Memory().ScansPerSecond.Get() // absent: then nothing was met either
	return ok1 && ok2 && scans > 0 && stall >= rule.StallFull*lowerStall && ratio < rule.Available*upperAvailable
}

// numaAvailable is the available share of a NUMA node's memory, or the reason why it is
// unknown.
func numaAvailable(n *snapshot.NUMANode) (ratio snapshot.Opt[float64], why string) {
	total, ok1 := n.OrdinaryBytes().Get()
	available, ok2 := n.AvailableBytes.Get()
	if !ok1 || !ok2 || total == 0 {
		return ratio, "memory of " + scopeNUMA(n.ID) + ": " + cmp.Or(n.Absent["meminfo"], n.Absent["totalBytes"], n.Absent["availableBytes"], "not measured")
	}
	return snapshot.Some(float64(available) / float64(total)), ""
}

// numaStall is the longest stall of a workload on a NUMA node, as a share of the window.
type numaStall struct {
	full snapshot.Opt[float64]
	// workload that has it; empty: none has most of its memory there, or none stalls.
	workload string
	absent   string // why it is unknown
	unknown  string // why that of some workload that has most of its memory there is
}

// of names the workload in the text of a comparison.
func (s numaStall) of() string {
	if s.workload == "" {
		return ""
	}
	return ", of " + s.workload
}

// longestNUMAStall is the longest stall (PSI memory full of its cgroup) of those
// workloads that wait on a NUMA node. It is unknown if it is of all of them.
func longestNUMAStall(s *snapshot.Snapshot, w snapshot.Window, id int) (longest numaStall) {
	limited := atOwnLimit(s, w)
	most, located, judged := 0.0, false, false
	for i := range s.Workloads {
		l := &s.Workloads[i]
		_, all := numaShare(&l.Workload, id)
		located = located || all > 0
		if !mayWaitOn(l, id, limited) {
			continue
		}
		stall, _ := w.MemoryStall(&l.Workload)
		full, known := stall.Full.Get()
		switch {
		case !known:
			longest.unknown = cmp.Or(longest.unknown, l.Pressure.Absent["memory"], l.Absent["pressure"])
		case full > most:
			most, longest.workload = full, l.Title()
		}
		judged = judged || known
	}
	if longest.unknown != "" {
		longest.unknown = "the stall of workloads on " + scopeNUMA(id) + " is unknown: " + longest.unknown
	}
	switch {
	case !located:
		longest.absent = whyNotLocated(s)
		return longest
	case !judged && longest.unknown != "":
		longest.absent = longest.unknown
		return longest
	}
	longest.full = snapshot.Some(most)
	return longest
}

// mayWaitOn reports whether the stall of a workload tells of a NUMA node: it has most of
// its memory there. Those at their own limit, and those that contain one, stall for
// another reason; that of the lowest class is no contention.
func mayWaitOn(l *snapshot.WorkloadState, id int, limited map[string]bool) bool {
	here, all := numaShare(&l.Workload, id)
	return 2*here > all && !l.LowestClass(snapshot.SharedMemory) && !limited[l.Cgroup] && !containsAny(l.Cgroup, limited)
}

// whyNotLocated is why it is not known of any workload where its memory is.
func whyNotLocated(s *snapshot.Snapshot) string {
	why := ""
	for i := range s.Workloads {
		why = cmp.Or(why, s.Workloads[i].Absent["numaMemory"])
	}
	return "the memory of workloads on NUMA nodes is unknown: " + cmp.Or(why, "not measured")
}

// numaShare is the memory of a workload on a NUMA node, and on all of them.
func numaShare(l *snapshot.Workload, id int) (here, all uint64) {
	for _, n := range l.NUMA {
		all += n.Bytes
		if n.Node == id {
			here = n.Bytes
		}
	}
	return here, all
}

// Top names the workloads with the most memory on the NUMA node above their request: the
// request itself was promised to them, wherever it is. Without known requests those with
// the most memory there come first. Relief is their memory there. Where the pod with the
// most memory there stalls itself, it alone is named.
func (r NUMAMemory) Top(v View, of Verdict, n int) []Candidate {
	at := slices.IndexFunc(v.NUMANodes, func(n snapshot.NUMANode) bool { return scopeNUMA(n.ID) == of.Scope })
	if at < 0 {
		return nil
	}
	_, unknown := v.Pods()
	users := memoryUsers(v, unknown == "")
	list := users[:0]
	id := v.NUMANodes[at].ID
	alone := r.largestWaits(v, of.Level, id)
	for _, u := range users {
		here, _ := numaShare(&u.Workload, id)
		u.held, u.aboveRequest = here, min(u.aboveRequest, here)
		if here > 0 && (alone == "" || u.PodUID == alone) {
			list = append(list, u)
		}
	}
	if unknown != "" {
		slices.SortStableFunc(list, func(a, b memoryUser) int { return cmp.Compare(b.held, a.held) })
	} else {
		slices.SortStableFunc(list, memoryUser.before)
	}
	out := make([]Candidate, 0, len(list))
	for _, u := range list {
		out = append(out, Candidate{
			Cgroup: u.Cgroup, Name: u.Title(), PodUID: u.PodUID, Relief: float64(u.held), Unit: "bytes", Why: u.whyOn(of.Scope, unknown == ""),
		})
	}
	return out[:min(n, len(out))]
}

// largestWaits is the UID of the pod with the most memory on a NUMA node if it stalls there
// itself; else empty. The owner of a pod chooses on which NUMA node its memory is and how it
// uses it, so its stall may be of its own making. Such a stall must not have the pods of
// other owners evicted.
func (r NUMAMemory) largestWaits(v View, level Level, id int) string {
	var largest *snapshot.WorkloadState
	most := uint64(0)
	for i := range v.Workloads {
		l := &v.Workloads[i]
		if here, _ := numaShare(&l.Workload, id); l.PodUID != "" && here > most {
			most, largest = here, l
		}
	}
	w, _ := v.Over(lowerWindow)
	rule := r.Soft
	if level == Hard {
		rule = r.Hard
	}
	if largest == nil || !mayWaitOn(largest, id, atOwnLimit(v.Snapshot, w)) || workloadStall(w, &largest.Workload) < rule.StallFull*lowerStall {
		return ""
	}
	return largest.PodUID
}

// whyOn is why with what it has on one NUMA node.
func (t memoryUser) whyOn(scope string, requests bool) string {
	text := fmt.Sprintf("%.0f MiB on %s", float64(t.held)/(1<<20), scope)
	if requests && t.Pod != nil {
		text += fmt.Sprintf(", %.0f MiB of it above its request of %.0f MiB", float64(t.aboveRequest)/(1<<20), float64(t.request())/(1<<20))
	}
	if t.stall >= shownStall {
		text += fmt.Sprintf(", stalls %.0f %% of the time", 100*t.stall)
	}
	return text
}
