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
// the reclaimed resources of this node, or of one of its NUMA nodes where Katalyst
// reports those. These shrink when other pods use their requests, and the pods that
// were scheduled by them stay. The rule is off by default: it needs a system that
// reports reclaimed resources.
type ReclaimedOvercommit struct {
	Enabled        bool          `yaml:"enabled" why:"Whether the rule is on."`
	CPURate        int           `yaml:"cpuRate" unit:"percent" why:"Hard if low-QoS pods request more than this percentage of the reclaimed CPUs; above 100, because the amount varies."`
	MemoryRate     int           `yaml:"memoryRate" unit:"percent" why:"The same for memory."`
	SoftCPURate    int           `yaml:"softCpuRate" unit:"percent" why:"Soft if they request more than this percentage of the reclaimed CPUs: no pod is evicted, and the taint keeps more from coming. 0: there is no soft level."`
	SoftMemoryRate int           `yaml:"softMemoryRate" unit:"percent" why:"The same for memory."`
	CPU            int           `yaml:"cpu" unit:"millicores" why:"The reclaimed CPUs where no CustomNodeResource of Katalyst reports them. 0: unknown, not judged."`
	Memory         uint64        `yaml:"memory" unit:"bytes" why:"The reclaimed memory where no CustomNodeResource reports it. 0: unknown, not judged."`
	For            time.Duration `yaml:"for" why:"How long the rule must be met without a break: the reclaimed amount is recomputed every few seconds."`
	ClearFor       time.Duration `yaml:"clearFor" why:"How long the rule must not be met before the level ends (hysteresis); a shorter time lets the taint flap."`
}

// DefaultReclaimedOvercommit has the thresholds of a fresh install.
func DefaultReclaimedOvercommit() ReclaimedOvercommit {
	return ReclaimedOvercommit{
		CPURate: 120, MemoryRate: 110, SoftCPURate: 110, SoftMemoryRate: 105, For: time.Minute, ClearFor: 30 * time.Second,
	}
}

const (
	maxRate       = 10_000      // percent: a hundred times the request
	maxMillicores = 100_000_000 // a hundred thousand CPUs
)

// Validate says which values must not be used.
func (r ReclaimedOvercommit) Validate(at problems.Section) {
	at.Int("cpuRate", r.CPURate, 1, maxRate)
	at.Int("memoryRate", r.MemoryRate, 1, maxRate)
	at.Int("softCpuRate", r.SoftCPURate, 0, maxRate)
	at.Int("softMemoryRate", r.SoftMemoryRate, 0, maxRate)
	at.Must(r.SoftCPURate <= r.CPURate, fmt.Sprintf("hard must not be easier to reach than soft: cpuRate %d is less than softCpuRate %d",
		r.CPURate, r.SoftCPURate), "cpuRate", "softCpuRate")
	at.Must(r.SoftMemoryRate <= r.MemoryRate, fmt.Sprintf("hard must not be easier to reach than soft: memoryRate %d is less than softMemoryRate %d",
		r.MemoryRate, r.SoftMemoryRate), "memoryRate", "softMemoryRate")
	at.Int("cpu", r.CPU, 0, maxMillicores)
	at.Duration("for", r.For, 0, problems.MaxDuration)
	at.Duration("clearFor", r.ClearFor, minTick, problems.MaxDuration)
}

// Name of the plugin.
func (ReclaimedOvercommit) Name() string { return "reclaimed-overcommit" }

// reclaimed is one of the reclaimed resources, of the node or of a NUMA node.
type reclaimed struct {
	scope    string
	resource Resource
	unit     string
	per      float64 // counted amounts per unit
	rate     int     // of hard
	softRate int     // 0: none
	reported snapshot.Opt[uint64]
	// configured is used if nothing is reported; 0: none.
	configured uint64
	request    func(*snapshot.Pod) uint64
}

// resources are those of the node, then those of each NUMA node that are reported.
func (r ReclaimedOvercommit) resources(v View) []reclaimed {
	cpu := reclaimed{
		scope: "reclaimed cpu", resource: CPU, unit: "cores", per: 1000, rate: r.CPURate, softRate: r.SoftCPURate, configured: uint64(r.CPU),
		request: func(p *snapshot.Pod) uint64 { return p.CPURequestMillicores },
	}
	memory := reclaimed{
		scope: "reclaimed memory", resource: Memory, unit: "bytes", per: 1, rate: r.MemoryRate, softRate: r.SoftMemoryRate, configured: r.Memory,
		request: func(p *snapshot.Pod) uint64 { return p.MemoryRequestBytes },
	}
	reported, _ := v.Reclaimable()
	list := []reclaimed{cpu.of("", reported.CPUMillicores, cpu.request), memory.of("", reported.MemoryBytes, memory.request)}
	for _, zone := range reported.Zones {
		allocations := make(map[string]snapshot.ZoneAllocation, len(zone.Allocations))
		for _, a := range zone.Allocations {
			allocations[a.PodUID] = a
		}
		name := ", " + scopeNUMA(zone.ID)
		if !zone.CPUMillicores.IsZero() {
			list = append(list, cpu.of(name, zone.CPUMillicores, func(p *snapshot.Pod) uint64 { return allocations[p.UID].CPUMillicores }))
		}
		if !zone.MemoryBytes.IsZero() {
			list = append(list, memory.of(name, zone.MemoryBytes, func(p *snapshot.Pod) uint64 { return allocations[p.UID].MemoryBytes }))
		}
	}
	return list
}

// of is the resource of a part of the node.
func (l reclaimed) of(zone string, reported snapshot.Opt[uint64], request func(*snapshot.Pod) uint64) reclaimed {
	l.scope, l.reported, l.request = l.scope+zone, reported, request
	return l
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
	out.Latched, out.LowerMet = was.Latched, was.LowerMet
	pods, why := v.Pods()
	all, known := of.available(v)
	why = cmp.Or(why, known)
	var asked snapshot.Opt[float64]
	if why == "" {
		asked = snapshot.Some(of.requested(pods))
		out.Whole = asked
	}
	out.Observed, out.Absent = asked, why
	levels := of.compare(asked, all, why)
	var over []string
	for _, l := range levels {
		if l.over {
			over = append(over, l.level.String())
		}
	}
	out.recordLasting(v, was, over)
	for i := range levels {
		l := &levels[i]
		if l.over {
			lasted := snapshot.Some((v.Monotonic - out.MetSince[l.level.String()]).Seconds())
			l.met = l.compare(l.level, "met without a break for", lasted, ">=", r.For.Seconds(), "seconds", "") && !v.WarmingUp
		}
		out.applyHysteresis(v, l.level, l.met, l.met, r.ClearFor)
		out.Evidence = append(out.Evidence, l.evidence...)
	}
	shown := levels[len(levels)-1] // soft, or hard where there is no soft
	if out.Level == Hard {
		shown = levels[0]
	}
	if n, ok := asked.Get(); ok {
		out.Threshold = snapshot.Some(shown.line)
		if shown.over {
			out.Target = snapshot.Some(n - shown.line)
		}
	}
	out.Reason = shown.reason(out.Level, v.WarmingUp)
	return out
}

// overcommitJudgement is the result for one level.
type overcommitJudgement struct {
	judgement
	level Level
	line  float64
	over  bool
}

// compare compares what is requested with the threshold of hard, and of soft if there is
// one.
func (l reclaimed) compare(asked snapshot.Opt[float64], all float64, why string) []overcommitJudgement {
	rates := []struct {
		level Level
		rate  int
	}{{Hard, l.rate}, {Soft, l.softRate}}
	list := make([]overcommitJudgement, 0, len(rates))
	for _, at := range rates {
		if at.rate == 0 {
			continue
		}
		o := overcommitJudgement{judgement: judgement{absent: why}, level: at.level, line: float64(at.rate) / 100 * all}
		what := fmt.Sprintf("%s requested by low-QoS pods (%s reclaimed, limit %d %%)", l.what(), l.amount(all), at.rate)
		o.over = o.judgement.compare(at.level, what, asked, ">", o.line, l.unit, why)
		list = append(list, o)
	}
	return list
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
