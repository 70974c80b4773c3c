package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// ReclaimedOvercommit judges whether the low-QoS pods together request more than
// the reclaimed resources of this node. These shrink when other pods use their
// requests, and the pods that were scheduled by them stay. The rule is off by
// default: it needs a system that reports reclaimed resources.
type ReclaimedOvercommit struct {
	Enabled    bool          `yaml:"enabled" why:"Whether the rule is on."`
	CPURate    int           `yaml:"cpuRate" unit:"percent" why:"Hard if low-QoS pods request more than this percentage of the reclaimed CPUs; above 100, because the amount varies."`
	MemoryRate int           `yaml:"memoryRate" unit:"percent" why:"The same for memory."`
	CPU        int           `yaml:"cpu" unit:"millicores" why:"The reclaimed CPUs where no CustomNodeResource of Katalyst reports them. 0: unknown, not judged."`
	Memory     uint64        `yaml:"memory" unit:"bytes" why:"The reclaimed memory where no CustomNodeResource reports it. 0: unknown, not judged."`
	For        time.Duration `yaml:"for" why:"How long the rule must be met without a break: the reclaimed amount is recomputed every few seconds."`
	ClearFor   time.Duration `yaml:"clearFor" why:"How long the rule must not be met before the level ends (hysteresis); a shorter time lets the taint flap."`
}

// DefaultReclaimedOvercommit has the thresholds of a fresh install.
func DefaultReclaimedOvercommit() ReclaimedOvercommit {
	return ReclaimedOvercommit{CPURate: 120, MemoryRate: 110, For: time.Minute, ClearFor: 30 * time.Second}
}

const (
	maxRate       = 10_000      // percent: a hundred times the request
	maxMillicores = 100_000_000 // a hundred thousand CPUs
)

// Validate says which values must not be used.
func (r ReclaimedOvercommit) Validate(at problems.Section) {
	at.Int("cpuRate", r.CPURate, 1, maxRate)
	at.Int("memoryRate", r.MemoryRate, 1, maxRate)
	at.Int("cpu", r.CPU, 0, maxMillicores)
	at.Duration("for", r.For, 0, problems.MaxDuration)
	at.Duration("clearFor", r.ClearFor, minTick, problems.MaxDuration)
}

// Name of the plugin.
func (ReclaimedOvercommit) Name() string { return "reclaimed-overcommit" }

// reclaimed is one of the reclaimed resources.
type reclaimed struct {
	scope    string
	resource Resource
	unit     string
	per      float64 // counted amounts per unit
	rate     int
	reported snapshot.Opt[uint64]
	// configured is used if nothing is reported; 0: none.
	configured uint64
	request    func(*snapshot.Pod) uint64
}

func (r ReclaimedOvercommit) resources(v View) []reclaimed {
	reported, _ := v.Reclaimable()
	return []reclaimed{
		{"reclaimed cpu", CPU, "cores", 1000, r.CPURate, reported.CPUMillicores, uint64(r.CPU), func(p *snapshot.Pod) uint64 { return p.CPURequestMillicores }},
		{"reclaimed memory", Memory, "bytes", 1, r.MemoryRate, reported.MemoryBytes, r.Memory, func(p *snapshot.Pod) uint64 { return p.MemoryRequestBytes }},
	}
}

// Threshold judges CPUs and memory separately.
func (r ReclaimedOvercommit) Threshold(v View) []Verdict {
	var list []Verdict
	for _, of := range r.resources(v) {
		list = append(list, r.judge(v, of))
	}
	return list
}

func (r ReclaimedOvercommit) judge(v View, of reclaimed) Verdict {
	out := Verdict{
		Resource: of.resource, Scope: of.scope, PerWorkload: true, Condition: conditionReclaimedOvercommit, Unit: of.unit, Operator: ">",
		Partial: v.WarmingUp || v.Monotonic-v.Since < r.For,
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet, out.RuleMetSince = was.Latched, was.LowerMet, was.RuleMetSince
	pods, why := v.Pods()
	all, known := of.available(v)
	if why == "" {
		why = known
	}
	j := judgement{absent: why}
	var asked snapshot.Opt[float64]
	line := float64(of.rate) / 100 * all
	if why == "" {
		asked = snapshot.Some(of.requested(pods))
		out.Threshold, out.Whole = snapshot.Some(line), asked
	}
	what := fmt.Sprintf("%s requested by low-QoS pods (%s reclaimed, limit %d %%)", of.what(), of.amount(all), of.rate)
	over := j.compare(Hard, what, asked, ">", line, of.unit, why)
	j.met = out.metFor(v, &j, over, r.For) && !v.WarmingUp
	out.applyHysteresis(v, Hard, j.met, j.met, r.ClearFor)
	if n, ok := asked.Get(); ok && over {
		out.Target = snapshot.Some(n - line)
	}
	out.Observed = asked
	out.Evidence, out.Absent, out.Reason = j.evidence, why, j.reason(out.Level, v.WarmingUp)
	return out
}

func (l reclaimed) what() string {
	if l.resource == CPU {
		return "CPUs"
	}
	return "memory"
}

func (l reclaimed) amount(n float64) string {
	if l.resource == CPU {
		return fmt.Sprintf("%.4g", n)
	}
	return fmt.Sprintf("%.0f MiB", n/(1<<20))
}

// available is the reclaimed amount, reported or else configured; why is why it is
// unknown.
func (l reclaimed) available(v View) (all float64, why string) {
	if n, ok := l.reported.Get(); ok {
		return float64(n) / l.per, ""
	}
	if l.configured > 0 {
		return float64(l.configured) / l.per, ""
	}
	_, why = v.Reclaimable()
	return 0, "the reclaimed amount is unknown: " + cmp.Or(why, "not reported") + ", and none is configured"
}

// requested is the total request of all low-QoS pods that are not terminating.
func (l reclaimed) requested(pods []snapshot.Pod) (all float64) {
	for i := range pods {
		if pods[i].LowQoS && !pods[i].Terminating {
			all += float64(l.request(&pods[i])) / l.per
		}
	}
	return all
}

// Top names the low-QoS pods that request the resource: lowest priority first, and
// of these the largest request.
func (r ReclaimedOvercommit) Top(v View, of Verdict, n int) []Candidate {
	resources := r.resources(v)
	about := resources[slices.IndexFunc(resources, func(l reclaimed) bool { return l.scope == of.Scope })]
	var pods []*snapshot.WorkloadState
	for i := range v.Workloads {
		if l := &v.Workloads[i]; l.Pod != nil && l.Pod.LowQoS && !l.Pod.Terminating && about.request(l.Pod) > 0 {
			pods = append(pods, l)
		}
	}
	slices.SortStableFunc(pods, func(a, b *snapshot.WorkloadState) int {
		return cmp.Or(cmp.Compare(a.Pod.Priority, b.Pod.Priority), cmp.Compare(about.request(b.Pod), about.request(a.Pod)))
	})
	var list []Candidate
	for _, l := range pods {
		asks := float64(about.request(l.Pod)) / about.per
		list = append(list, Candidate{
			Cgroup: l.Cgroup, Name: l.Title(), PodUID: l.PodUID, Relief: asks, Unit: about.unit,
			Why: fmt.Sprintf("requests %s %s, priority %d", about.amount(asks), about.what(), l.Pod.Priority),
		})
	}
	return list[:min(n, len(list))]
}
