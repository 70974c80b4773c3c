package plugins

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// MemoryStall judges whether the node is short of memory: tasks stall on it, little
// is available, and global reclaim scans pages. All three, because each alone is
// ordinary: a pod that thrashes inside its own limit stalls and refaults on an idle
// node, and a node full of page cache reclaims without stalls.
type MemoryStall struct {
	Enabled bool      `yaml:"enabled" why:"Whether the rule is on."`
	Soft    StallRule `yaml:"soft" why:"From here the node is marked; no pod is evicted."`
	Hard    StallRule `yaml:"hard" why:"From here pods are evicted at once; it must not be easier to reach than soft."`
	// KubeletEvictionHard gives the floors: soft 4 times, hard 2 times.
	KubeletEvictionHard uint64        `yaml:"kubeletEvictionHard" unit:"bytes" why:"The kubelet's evictionHard memory.available. The floors derive from it, soft at 4 times and hard at 2 times, so that this rule is met before the kubelet's. A floor counts only during global reclaim."`
	ClearFor            time.Duration `yaml:"clearFor" why:"How long the lower threshold must be clear before a level ends (hysteresis); a shorter time lets the taint flap."`
}

// StallRule is met if all tasks stalled for at least StallFull of the last Over
// while less than Available of the memory is available.
type StallRule struct {
	StallFull float64       `yaml:"stallFull" unit:"ratio" why:"Share of the window in which all tasks stalled on memory (PSI full): those of the node, for numaMemory those of a workload on the NUMA node. Use of memory alone is no pressure."`
	Window    time.Duration `yaml:"window" why:"The window over which the stall is averaged, so that a short reclaim does not count."`
	Available float64       `yaml:"available" unit:"ratio" why:"Less than this share of the memory must be available, for numaMemory of that on the NUMA node; with more, the stall has another cause."`
}

// DefaultMemoryStall has the thresholds of a fresh install.
func DefaultMemoryStall() MemoryStall {
	return MemoryStall{
		Enabled:             true,
		Soft:                StallRule{StallFull: 0.10, Window: 30 * time.Second, Available: 0.10},
		Hard:                StallRule{StallFull: 0.25, Window: 5 * time.Second, Available: 0.04},
		KubeletEvictionHard: 100 << 20,
		ClearFor:            30 * time.Second,
	}
}

// maxEvictionHard is more than any machine's memory.
const maxEvictionHard = 1 << 50

// Validate says which values must not be used.
func (m MemoryStall) Validate(at problems.Section) {
	validateStalls(at, m.Soft, m.Hard, m.ClearFor)
	at.Must(m.KubeletEvictionHard <= maxEvictionHard, "more than 1Pi of memory", "kubeletEvictionHard")
}

func validateStalls(at problems.Section, soft, hard StallRule, clearFor time.Duration) {
	at.Duration("soft.window", soft.Window, 0, problems.MaxDuration)
	at.Duration("hard.window", hard.Window, 0, problems.MaxDuration)
	at.Duration("clearFor", clearFor, 0, problems.MaxDuration)
	at.Must(soft.StallFull > 0, alwaysMet, "soft.stallFull")
	at.Must(hard.StallFull >= soft.StallFull, fmt.Sprintf("hard must not be easier to reach than soft: stallFull %g is less than %g",
		hard.StallFull, soft.StallFull), "hard.stallFull", "soft.stallFull")
	at.Must(hard.Available <= soft.Available, fmt.Sprintf("hard must not be easier to reach than soft: available %g is more than %g",
		hard.Available, soft.Available), "hard.available", "soft.available")
}

const (
	softFloor, hardFloor = 4, 2 // times KubeletEvictionHard
	// The lower thresholds (hysteresis): half the stall, and little more than the
	// share available, over the last lowerWindow.
	lowerStall, upperAvailable = 0.5, 1.25
	lowerWindow                = 5 * time.Second
)

// Name of the plugin.
func (MemoryStall) Name() string { return "memory-stall" }

// Threshold judges hard and soft, each with its own hysteresis.
func (m MemoryStall) Threshold(v View) []Verdict {
	soft := m.judge(v, Soft, m.Soft, softFloor*m.KubeletEvictionHard)
	hard := m.judge(v, Hard, m.Hard, hardFloor*m.KubeletEvictionHard)
	if v.WarmingUp {
		soft.met, soft.lower = false, maybe{}
	}
	out := Verdict{Resource: Memory, Scope: "node", Condition: conditionMemoryContention, Unit: "ratio", Operator: ">="}
	out.Evidence = append(hard.evidence, soft.evidence...)
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet, out.LowerSeen = was.Latched, was.LowerMet, was.LowerSeen
	out.applyHysteresis(v, Soft, soft.met, out.stillHeld(v, Soft, soft.lower), m.ClearFor)
	out.applyHysteresis(v, Hard, hard.met, out.stillHeld(v, Hard, hard.lower), m.ClearFor)
	shown, rule := soft, m.Soft
	out.Absent = cmp.Or(hard.absent, soft.absent)
	if out.Level == Hard { // what soft lacks, such as samples of half a minute, does not matter
		shown, rule, out.Absent = hard, m.Hard, hard.absent
	}
	out.Observed, out.Threshold = shown.stall, snapshot.Some(rule.StallFull)
	out.Target, out.Whole = m.release(v)
	out.Partial = v.WarmingUp || v.Monotonic-v.Since < m.Soft.Window
	out.Urgent = hard.met && hard.belowFloor
	shown.unseen = shown.lower.unseen()
	out.Reason = shown.reason(out.Level, v.WarmingUp) + foreseen(v.Exhaustion.Memory())
	return []Verdict{out}
}

// release is the memory that must be released so that neither soft's share nor its
// floor is met, and all memory of the node that can be available.
func (m MemoryStall) release(v View) (target, whole snapshot.Opt[float64]) {
	spare, known := m.Spare(v.Snapshot)
	if !known {
		return target, whole
	}
	total, _ := v.Memory.OrdinaryBytes().Get()
	return snapshot.Some(max(0, -spare)), snapshot.Some(float64(total))
}

// Spare is how many bytes are available beyond soft's share and its floor; negative: so many
// must be released.
func (m MemoryStall) Spare(s *snapshot.Snapshot) (bytes float64, known bool) {
	total, ok1 := s.Memory.OrdinaryBytes().Get()
	available, ok2 := s.Memory.AvailableBytes.Get()
	enough := max(m.Soft.Available*float64(total), softFloor*float64(m.KubeletEvictionHard))
	return float64(available) - enough, ok1 && ok2
}

// stallJudgement is the result of one of the two rules for one snapshot.
type stallJudgement struct {
	judgement
	stall snapshot.Opt[float64]
	// lower is the rule with its lower thresholds (hysteresis).
	lower maybe
	// belowFloor: below the floor for the whole window, whatever the stall.
	belowFloor bool
}

func (m MemoryStall) judge(v View, level Level, rule StallRule, floor uint64) stallJudgement {
	w, covered := v.sinceInForce(rule.Window)
	full, own, why := nodeStall(v.Snapshot, w)
	j := stallJudgement{judgement: judgement{absent: why}, stall: full}
	if !covered && !v.Pressure.Totals.Memory.Full.IsZero() { // without a total it never will be covered
		j.absent = v.unseen(w, rule.Window)
	}
	scans := w.Memory().ScansPerSecond
	what := "memory stall, full, over " + rule.Window.String()
	if own > 0 {
		what += fmt.Sprintf(", without the %.1f %% of cgroups at their own limit,", 100*own)
	}
	stalls := j.compare(level, what, full, ">=", rule.StallFull, "ratio", why)
	little := j.compare(level, "memory available", v.Memory.AvailableRatio, "<", rule.Available, "ratio", "not in /proc/meminfo")
	swapless := level == Hard && j.swapExhausted(v.Snapshot, w).met
	moves := j.compare(level, "global reclaim, pages scanned per second", scans, ">", 0, "pages", "not in /proc/vmstat")
	j.belowFloor = j.compare(level, "memory available throughout "+rule.Window.String(), float(w.MaxAvailable()), "<", float64(floor), "bytes", "not in /proc/meminfo")
	j.met = covered && moves && (stalls && (little || swapless) || j.belowFloor)
	j.lower = m.lowerMet(v, level, rule, floor)
	if !j.met { // else what is missing does not matter
		j.absent = cmp.Or(j.absent, lackingOfMemory(v.Snapshot, w, floor))
	}
	return j
}

// lackingOfMemory is which input beside the stall is missing, and why; empty: none is.
func lackingOfMemory(s *snapshot.Snapshot, w snapshot.Window, floor uint64) string {
	const gap = "not measured throughout the window"
	absent := s.Memory.Absent
	available, _ := s.Memory.AvailableBytes.Get()
	switch {
	case s.Memory.AvailableRatio.IsZero():
		return "memory available: " + cmp.Or(absent["meminfo"], absent["availableBytes"], absent["totalBytes"], "not measured")
	case w.Memory().ScansPerSecond.IsZero():
		return "pages scanned: " + cmp.Or(absent["vmstat"], gap)
	case available < floor && w.MaxAvailable().IsZero(): // with more now it was not below throughout
		return "memory available: " + gap
	}
	return ""
}

// swapFree is the share of free swap below which it counts as full.
const swapFree = 0.10

// swapExhausted reports whether the swap is nearly full and pages are swapped in: pages
// that are reclaimed next cannot be swapped out, however much seems available.
func (j *stallJudgement) swapExhausted(s *snapshot.Snapshot, w snapshot.Window) maybe {
	total, ok1 := s.Memory.SwapTotalBytes.Get()
	free, ok2 := s.Memory.SwapFreeBytes.Get()
	if !ok1 || !ok2 || total == 0 {
		return maybe{}
	}
	ins := w.Memory().SwapInsPerSecond
	full := j.compare(Hard, "swap free", snapshot.Some(float64(free)/float64(total)), "<", swapFree, "ratio", "")
	back := j.compare(Hard, "pages swapped in per second", ins, ">", 0, "pages", "not in /proc/vmstat")
	return maybe{met: full && back, may: full && (back || ins.IsZero())}
}

// lowerMet is the rule with its lower thresholds (hysteresis), over lowerWindow.
func (MemoryStall) lowerMet(v View, level Level, rule StallRule, floor uint64) maybe {
	w, _ := v.Over(lowerWindow)
	full, _, _ := nodeStall(v.Snapshot, w)
	moves := whether(w.Memory().ScansPerSecond, ">", 0)
	stalls := whether(full, ">=", rule.StallFull*lowerStall)
	little := whether(v.Memory.AvailableRatio, "<", rule.Available*upperAvailable)
	if level == Hard {
		little = little.or((&stallJudgement{}).swapExhausted(v.Snapshot, w))
	}
	under := whether(float(v.Memory.AvailableBytes), "<", float64(floor)*upperAvailable)
	return moves.and(stalls.and(little).or(under))
}

// nodeStall is PSI memory full of the host without the stall of cgroups at their
// own limit: that is their pressure, not the node's. The stall of a workload
// without a limit is kept, so that a real shortage is seen beside a pod that
// thrashes by itself. own is the stall of cgroups at their limit, also of those that are gone.
func nodeStall(s *snapshot.Snapshot, w snapshot.Window) (full snapshot.Opt[float64], own float64, why string) {
	host, ok := w.Pressure().Memory.Full.Get()
	if !ok {
		why, known := s.Pressure.Totals.Absent["memory"]
		if !known {
			why = "a ratio needs two samples"
		}
		return full, 0, why
	}
	if host == 0 { // the usual case: no task stalled
		return snapshot.Some(host), 0, ""
	}
	own = w.EndedMemoryStall()
	others := 0.0
	limited := atOwnLimit(s, w)
	for i := range s.Workloads {
		l := &s.Workloads[i].Workload
		stall := workloadStall(w, l)
		switch {
		case limited[l.Cgroup]:
			own += stall
		case !containsAny(l.Cgroup, limited):
			others = max(others, stall)
		}
	}
	return snapshot.Some(min(host, max(others, host-own))), own, ""
}

// atOwnLimit returns the cgroups that hit their own limit in the window, and those
// that the agent throttled.
func atOwnLimit(s *snapshot.Snapshot, w snapshot.Window) map[string]bool {
	limited := map[string]bool{}
	for i := range s.Workloads {
		l := &s.Workloads[i]
		_, hits := w.MemoryStall(&l.Workload)
		if hits, ok := hits.Get(); ok && hits > 0 || w.Throttled(l) {
			limited[l.Cgroup] = true
		}
	}
	return limited
}

// workloadStall is the share of the window in which the whole workload stalled. An
// unknown one is zero, since it is only subtracted from the host's or compared with
// it.
func workloadStall(w snapshot.Window, l *snapshot.Workload) float64 {
	stall, _ := w.MemoryStall(l)
	full, _ := stall.Full.Get()
	return full
}

// containsAny reports whether parent contains one of the cgroups: its stall then
// includes theirs.
func containsAny(parent string, limited map[string]bool) bool {
	for child := range limited {
		if strings.HasPrefix(child, strings.TrimSuffix(parent, "/")+"/") {
			return true
		}
	}
	return false
}
