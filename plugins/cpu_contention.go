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

// CPUContention judges whether workloads wait for a CPU because of others. Who waits
// decides, by the pressure of its own cgroup: the node's stall and its queue are means
// over all CPUs, in which a few CPUs that many pods share are not seen on a node of
// many. A batch with more threads than CPUs waits for itself, and a pod at its quota
// would wait on any node: neither counts. CPUs that are used to the last while no
// workload waits are well used.
//
// It names no pod, and unless it is told to mark the node its level is only reported:
// the kernel shares CPUs by weight, so that contention slows and does not break.
type CPUContention struct {
	Enabled  bool          `yaml:"enabled" why:"Whether the rule is on."`
	Mark     bool          `yaml:"mark" why:"Whether the node gets the condition and the taint CPUContention. false: the level is only reported, on the page, in metrics and to the controller."`
	Waiting  float64       `yaml:"waiting" unit:"ratio" why:"Soft if a workload waited because of others for this share of the last 10s; what its own threads and its own quota cost it does not count."`
	For      time.Duration `yaml:"for" why:"How long the rule must be met, and its lower threshold without a break: a start of pods does not count."`
	ClearFor time.Duration `yaml:"clearFor" why:"How long the lower threshold must be clear before the level ends (hysteresis); a shorter time lets it flap."`
}

// DefaultCPUContention has the thresholds of a fresh install.
func DefaultCPUContention() CPUContention {
	return CPUContention{Enabled: true, Waiting: 0.5, For: time.Minute, ClearFor: 30 * time.Second}
}

// Validate says which values must not be used.
func (c CPUContention) Validate(at problems.Section) {
	at.Must(c.Waiting > 0, "0 would be met by a healthy node: to turn the rule off, set enabled: false", "waiting")
	at.Duration("for", c.For, 0, problems.MaxDuration)
	at.Duration("clearFor", c.ClearFor, minTick, problems.MaxDuration)
}

const (
	// cpuWindow is the window of waiting.
	cpuWindow = 10 * time.Second
	// lowerCPU is the lower threshold (hysteresis), as a share of the threshold.
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
		Resource: CPU, Scope: "node", Unit: "ratio", Operator: ">=", Threshold: snapshot.Some(c.Waiting), ReportOnly: !c.Mark,
		Partial: v.WarmingUp || v.Monotonic-v.Since < c.For,
	}
	if c.Mark {
		out.Condition = conditionCPUContention
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet, out.LowerSeen = was.Latched, was.LowerMet, was.LowerSeen
	w, covered := v.Over(cpuWindow)
	j, on := c.judge(v, w, covered)
	out.Observed = j.evidence[0].Observed
	lower := whether(out.Observed, ">=", c.Waiting*lowerCPU)
	if j.met || lower.met && was.RuleMetSince > 0 { // the upper threshold starts it, the lower one keeps it
		out.RuleMetSince = cmp.Or(was.RuleMetSince, v.Monotonic)
	}
	lasted := j.met && j.compare(Soft, "met for", snapshot.Some((v.Monotonic-out.RuleMetSince).Seconds()), ">=", c.For.Seconds(), "seconds", "")
	out.applyHysteresis(v, Soft, lasted && !v.WarmingUp, out.stillHeld(v, Soft, lower) && !v.WarmingUp, c.ClearFor)
	out.Evidence, out.Absent, j.unseen = j.evidence, j.absent, lower.unseen()
	out.Reason = j.reason(out.Level, v.WarmingUp) + c.who(w, on)
	return []Verdict{out}
}

// judge makes the comparison. Contention is derived only when a workload may wait for
// long enough.
func (c CPUContention) judge(v View, w snapshot.Window, covered bool) (j judgement, on *snapshot.Contention) {
	why := ""
	switch {
	case w.Pressure().CPU.Some.IsZero():
		why = cmp.Or(v.Pressure.Totals.Absent["cpu"], "a ratio needs two samples")
	case !covered:
		why = v.unseen(w, cpuWindow)
	}
	longest, atMost := snapshot.CPUWait(v.Workloads, w)
	waited := snapshot.Some(longest)
	if why == "" && atMost >= c.Waiting*lowerCPU {
		on = cpuOf(v.ContentionIn(w))
		waited, why = longestWait(on, c.Waiting)
	}
	if why != "" {
		waited = snapshot.Opt[float64]{}
	}
	j.met = j.compare(Soft, "a workload waits because of others over "+cpuWindow.String(), waited, ">=", c.Waiting, "ratio", why)
	j.absent = why
	return j, on
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
// others; absent with the reason where another one may wait for longer than that, and
// for longer than the threshold.
func longestWait(c *snapshot.Contention, threshold float64) (waited snapshot.Opt[float64], unknown string) {
	longest := 0.0
	for _, s := range c.Sufferers {
		if !s.LowestClass && !s.Share.IsZero() {
			longest = max(longest, s.Waited)
		}
	}
	switch why := c.Unknown(); {
	case longest >= threshold:
	case why != "":
		return waited, why
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
