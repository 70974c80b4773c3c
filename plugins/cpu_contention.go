package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// CPUContention judges whether workloads wait for a CPU because of others: tasks of
// the node wait for most of the time, more tasks want to run than there are CPUs,
// and a workload waits that is neither the cause nor held back by its own quota.
// All three, because each alone is ordinary: on a node of many CPUs some task nearly
// always waits for a moment, a batch with more threads than CPUs waits for itself,
// and a pod at its quota would wait on any node. CPUs that are used to the last while
// no workload waits are well used.
//
// It names no pod, and unless it is told to mark the node its level is only reported:
// the kernel shares CPUs by weight, so that contention slows and does not break.
type CPUContention struct {
	Enabled  bool          `yaml:"enabled" why:"Whether the rule is on."`
	Mark     bool          `yaml:"mark" why:"Whether the node gets the condition and the taint CPUContention. false: the level is only reported, on the page, in metrics and to the controller."`
	Stall    float64       `yaml:"stall" unit:"ratio" why:"Soft if tasks of the node waited for a CPU for this share of the last 10s (PSI some)."`
	Runnable int           `yaml:"runnable" unit:"percent" why:"And on average so many tasks ran or waited, in percent of the CPUs: with many CPUs some task nearly always waits, although nearly all of them run."`
	Waiting  float64       `yaml:"waiting" unit:"ratio" why:"And a workload waited because of others for this share of the time; what its own threads and its own quota cost it does not count."`
	For      time.Duration `yaml:"for" why:"How long the rule must be met, and its lower threshold without a break: a start of pods does not count."`
	ClearFor time.Duration `yaml:"clearFor" why:"How long the lower threshold must be clear before the level ends (hysteresis); a shorter time lets it flap."`
}

// DefaultCPUContention has the thresholds of a fresh install.
func DefaultCPUContention() CPUContention {
	return CPUContention{
		Enabled: true, Stall: 0.5, Runnable: 125, Waiting: 0.5, For: time.Minute, ClearFor: 30 * time.Second,
	}
}

// maxRunnable is in percent: a thousand tasks for each CPU.
const maxRunnable = 100_000

// Validate says which values must not be used.
func (c CPUContention) Validate(at problems.Section) {
	const healthy = "0 would be met by a healthy node: to turn the rule off, set enabled: false"
	at.Must(c.Stall > 0, healthy, "stall")
	at.Int("runnable", c.Runnable, 100, maxRunnable)
	at.Must(c.Waiting > 0, healthy, "waiting")
	at.Duration("for", c.For, 0, problems.MaxDuration)
	at.Duration("clearFor", c.ClearFor, minTick, problems.MaxDuration)
}

const (
	// cpuWindow is the window of stall, runnable tasks and waiting.
	cpuWindow = 10 * time.Second
	// lowerCPU is the lower threshold (hysteresis), as a share of stall and waiting.
	lowerCPU = 0.7
	// minStolen is the share of all CPUs from which the reason mentions what the
	// hypervisor gave to others.
	minStolen = 0.05
)

// Name of the plugin.
func (CPUContention) Name() string { return "cpu-contention" }

// Threshold judges the node.
func (c CPUContention) Threshold(v View) []Verdict {
	out := Verdict{
		Resource: CPU, Scope: "node", Unit: "ratio", Operator: ">=", Threshold: snapshot.Some(c.Stall), ReportOnly: !c.Mark,
		Partial: v.WarmingUp || v.Monotonic-v.Since < c.For,
	}
	if c.Mark {
		out.Condition = conditionCPUContention
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet = was.Latched, was.LowerMet
	w, covered := v.Over(cpuWindow)
	j, on := c.judge(v, w)
	j.met, j.held = j.met && covered, j.held && covered
	if j.met || j.held && was.RuleMetSince > 0 { // the upper thresholds start it, the lower ones keep it
		out.RuleMetSince = cmp.Or(was.RuleMetSince, v.Monotonic)
	}
	lasted := j.met && j.compare(Soft, "met for", snapshot.Some((v.Monotonic-out.RuleMetSince).Seconds()), ">=", c.For.Seconds(), "seconds", "")
	out.applyHysteresis(v, Soft, lasted && !v.WarmingUp, j.held && !v.WarmingUp, c.ClearFor)
	out.Observed, out.Evidence, out.Absent = w.Pressure().CPU.Some, j.evidence, j.absent
	out.Reason = j.reason(out.Level, v.WarmingUp) + c.who(w, on)
	return []Verdict{out}
}

// judge makes the comparisons. Contention is only derived, and only missed, while the
// node's own stall leaves it open: no workload waits longer than the node.
func (c CPUContention) judge(v View, w snapshot.Window) (j judgement, on *snapshot.Contention) {
	over := " over " + cpuWindow.String()
	stall, why := cpuStall(v.Snapshot, w)
	stalls := j.compare(Soft, "CPU stall, some,"+over, stall, ">=", c.Stall, "ratio", why)
	const noQueue = "the number of runnable tasks is not in /proc/stat"
	runnable := w.Runnable()
	queued := j.compare(Soft, "tasks that run or wait, of the CPUs,"+over, runnable, ">=", float64(c.Runnable)/100, "ratio", noQueue)
	if share, known := stall.Get(); !known || share < c.Stall*lowerCPU {
		j.absent = why
		return j, nil
	}
	on = cpuOf(v.ContentionIn(w))
	longest, unknown := longestWait(on)
	waits := j.compare(Soft, "a workload waits because of others"+over, longest, ">=", c.Waiting, "ratio", unknown)
	waited, _ := longest.Get()
	j.met, j.held = stalls && queued && waits, waited >= c.Waiting*lowerCPU
	switch {
	case !stalls:
	case runnable.IsZero():
		j.absent = noQueue
	case queued:
		j.absent = unknown
	}
	return j, on
}

func cpuStall(s *snapshot.Snapshot, w snapshot.Window) (stall snapshot.Opt[float64], why string) {
	stall = w.Pressure().CPU.Some
	if stall.IsZero() {
		why = cmp.Or(s.Pressure.Totals.Absent["cpu"], "a ratio needs two samples")
	}
	return stall, why
}

// cpuOf is the contention for the CPUs; of a node on which no workload uses or waits
// for one it is empty.
func cpuOf(list []snapshot.Contention) *snapshot.Contention {
	i := slices.IndexFunc(list, func(c snapshot.Contention) bool { return c.Resource == snapshot.SharedCPU })
	if i < 0 {
		return &snapshot.Contention{Resource: snapshot.SharedCPU, State: snapshot.ContentionBusy}
	}
	return &list[i]
}

// longestWait is how long the main sufferer of more than the lowest class waits for
// others; absent with the reason where that is unknown.
func longestWait(c *snapshot.Contention) (waited snapshot.Opt[float64], unknown string) {
	if why := c.Unknown(); why != "" {
		return waited, why
	}
	longest := 0.0
	for _, s := range c.Sufferers {
		if !s.LowestClass && !s.Share.IsZero() {
			longest = max(longest, s.Waited)
		}
	}
	if longest == 0 && c.MoreSufferers > 0 && c.State == snapshot.ContentionPresent {
		return waited, "more workloads wait than are listed, and those of low QoS wait longest"
	}
	return snapshot.Some(longest), ""
}

// who names the main sufferers and culprits, for people.
func (c CPUContention) who(w snapshot.Window, on *snapshot.Contention) string {
	if on == nil {
		return ""
	}
	var text strings.Builder
	for _, s := range on.Sufferers[:min(2, len(on.Sufferers))] {
		if s.Significant(c.Waiting * lowerCPU) {
			fmt.Fprintf(&text, "; %s waits %.0f %% of the time", s.Name, 100*s.Waited)
		}
	}
	for _, u := range on.Culprits[:min(2, len(on.Culprits))] {
		fmt.Fprintf(&text, "; %s uses %.0f %% of the CPU time in use", u.Name, 100*u.Share)
	}
	if stolen, _ := w.CPUStolen().Get(); stolen >= minStolen {
		fmt.Fprintf(&text, "; the hypervisor gave %.0f %% of the CPU time to others (steal)", 100*stolen)
	}
	return text.String()
}

// Top names no workload.
func (CPUContention) Top(View, Verdict, int) []Candidate { return nil }
