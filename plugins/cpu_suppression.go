package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// CPUSuppression judges whether a low-QoS pod is starved of CPU: for a long time it
// got far less than its request while its tasks waited for a CPU most of the time.
// Both, because an idle pod gets little and lacks nothing. Throttling by its own
// quota is excluded: it would be the same on any node. A starved pod would run
// better elsewhere, so it is a candidate. The rule is off by default, since a pod
// on reclaimed resources may have agreed to wait.
type CPUSuppression struct {
	Enabled  bool          `yaml:"enabled" why:"Whether the rule is on."`
	Supply   float64       `yaml:"supply" unit:"ratio" why:"A pod may be starved if it gets less than this share of its CPU request."`
	Waiting  float64       `yaml:"waiting" unit:"ratio" why:"It is starved if its tasks also waited for a CPU for this share of the time, throttling by its own quota excluded."`
	For      time.Duration `yaml:"for" why:"How long both must be met without a break before the pod is evicted: a restart elsewhere costs it more than a few minutes of waiting."`
	ClearFor time.Duration `yaml:"clearFor" why:"How long no pod may have been starved before the level ends (hysteresis); a shorter time lets the taint flap."`
}

// DefaultCPUSuppression has the thresholds of a fresh install.
func DefaultCPUSuppression() CPUSuppression {
	return CPUSuppression{Supply: 0.5, Waiting: 0.5, For: 5 * time.Minute, ClearFor: 30 * time.Second}
}

// Validate says which values must not be used.
func (c CPUSuppression) Validate(at problems.Section) {
	at.Must(c.Supply > 0, "0 would never be met: to turn the rule off, set enabled: false", "supply")
	at.Must(c.Waiting > 0, "0 would be met by an idle pod", "waiting")
	at.Duration("for", c.For, minTick, problems.MaxDuration)
	at.Duration("clearFor", c.ClearFor, minTick, problems.MaxDuration)
}

// supplyWindow is the window over which supply and waiting are averaged.
const supplyWindow = 30 * time.Second

// Name of the plugin.
func (CPUSuppression) Name() string { return "cpu-suppression" }

// starved is a pod with little CPU.
type starved struct {
	*snapshot.WorkloadState
	cores, request, waited float64
}

func (s starved) supply() float64 { return s.cores / s.request }

// Threshold judges the pod that gets the least share of its request.
func (c CPUSuppression) Threshold(v View) []Verdict {
	out := Verdict{
		Resource: CPU, Scope: "node", PerWorkload: true, Condition: conditionCPUSuppression, Unit: "ratio", Operator: "<", Threshold: snapshot.Some(c.Supply),
		Partial: v.WarmingUp || v.Monotonic-v.Since < c.For,
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet = was.Latched, was.LowerMet
	list, worst, why := c.starved(v)
	met := make([]string, 0, len(list))
	for _, s := range list {
		met = append(met, s.Cgroup)
	}
	out.recordLasting(v, was, met)
	list = slices.DeleteFunc(list, func(s starved) bool { return !out.lastedFor(v, s.Cgroup, c.For) })
	long := len(list) > 0 && !v.WarmingUp
	out.applyHysteresis(v, Hard, long, long, c.ClearFor)
	out.Absent = why
	out.Reason = c.reason(v, &out, list, worst)
	if long {
		worst = &list[0]
	}
	if worst != nil {
		out.Observed = snapshot.Some(worst.supply())
	}
	return []Verdict{out}
}

// starved returns the pods that are starved now, those with the least share first.
// worst is the pod with the least share, starved or not; nil without any. why is
// why none of the low-QoS pods could be judged.
func (c CPUSuppression) starved(v View) (list []starved, worst *starved, why string) {
	if _, why := v.Pods(); why != "" {
		return nil, nil, why
	}
	w, _ := v.Over(min(supplyWindow, v.Monotonic-v.Since))
	unseen := ""
	for i := range v.Workloads {
		l := &v.Workloads[i]
		if l.Pod == nil || !l.Pod.LowQoS || l.Pod.Terminating || l.Pod.CPURequestMillicores == 0 {
			continue
		}
		s, why := supplyOf(w, l)
		if why != "" {
			unseen = cmp.Or(unseen, why)
			continue
		}
		if worst == nil || s.supply() < worst.supply() {
			worst = &s
		}
		if s.supply() < c.Supply && s.waited >= c.Waiting {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b starved) int { return cmp.Compare(a.supply(), b.supply()) })
	if worst == nil && unseen != "" {
		return nil, nil, "the CPU use of pods is unknown: " + unseen
	}
	return list, worst, ""
}

// supplyOf is the supply of a pod; why is why it is unknown.
func supplyOf(w snapshot.Window, l *snapshot.WorkloadState) (s starved, why string) {
	cores, waited := w.CPUSupply(&l.Workload)
	s = starved{WorkloadState: l, request: float64(l.Pod.CPURequestMillicores) / 1000}
	var ok1, ok2 bool
	s.cores, ok1 = cores.Get()
	s.waited, ok2 = waited.Get()
	if !ok1 || !ok2 {
		why = cmp.Or(l.Absent["cpuMicrosecondsTotal"], l.Pressure.Absent["cpu"], l.Absent["pressure"],
			l.Absent["throttledMicrosecondsTotal"], "a ratio needs two samples")
	}
	return s, why
}

// reason is the verdict in one sentence.
func (c CPUSuppression) reason(v View, out *Verdict, list []starved, worst *starved) string {
	needs := fmt.Sprintf("(needs < %.3g %% of its request and ≥ %.3g %% waiting, for %s)", 100*c.Supply, 100*c.Waiting, c.For)
	switch {
	case out.Absent != "":
		return "incomplete data: " + out.Absent
	case len(list) > 0 && !v.WarmingUp:
		return list[0].Title() + " " + c.why(v, out, list[0])
	case worst == nil:
		return "no low-QoS pod requests CPU"
	case out.Level > None:
		return "level stays on until clear for " + c.ClearFor.String() + ": " + worst.Title() + " " + c.why(v, out, *worst)
	}
	return worst.Title() + " " + c.why(v, out, *worst) + " " + needs
}

func (c CPUSuppression) why(v View, out *Verdict, s starved) string {
	text := fmt.Sprintf("gets %.2f of the %.4g CPUs that it requests (%.0f %%) and waits for CPU %.0f %% of the time", s.cores, s.request, 100*s.supply(), 100*s.waited)
	if since, met := out.MetSince[s.Cgroup]; met {
		text += ", for " + (v.Monotonic - since).Round(time.Second).String()
	}
	return text
}

// Top names the pods that have been starved for c.For, those with the least share
// of their request first.
func (c CPUSuppression) Top(v View, of Verdict, n int) []Candidate {
	starved, _, _ := c.starved(v)
	var list []Candidate
	for _, s := range starved {
		if of.lastedFor(v, s.Cgroup, c.For) {
			list = append(list, Candidate{
				Cgroup: s.Cgroup, Name: s.Title(), PodUID: s.PodUID, Relief: s.cores, Unit: "cores", Why: c.why(v, &of, s),
			})
		}
	}
	return list[:min(n, len(list))]
}
