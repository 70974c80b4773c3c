package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// OOMStorm judges whether the kernel OOM-kills processes of one workload again and
// again: a container that is restarted all the time costs the node more than a
// running one. The rule is off by default: most such workloads hit a limit of their
// own, which their owner has to raise.
type OOMStorm struct {
	Enabled   bool          `yaml:"enabled" why:"Whether the rule is on."`
	Kills     int           `yaml:"kills" unit:"kills" why:"Soft from this many OOM kills in one workload within the window; one or two are an accident."`
	HardKills int           `yaml:"hardKills" unit:"kills" why:"Hard from this many: the workload is a candidate for eviction. 0: never."`
	Window    time.Duration `yaml:"window" why:"The window in which kills are counted. The kubelet waits 10s, 20s, 40s and so on between restarts; a longer window needs a longer history."`
	ClearFor  time.Duration `yaml:"clearFor" why:"How long there must be less than half of the kills before the level ends (hysteresis); a shorter time lets the taint flap."`
}

// DefaultOOMStorm has the thresholds of a fresh install.
func DefaultOOMStorm() OOMStorm {
	return OOMStorm{Kills: 3, Window: 90 * time.Second, ClearFor: 30 * time.Second}
}

const maxKills = 1000

// Validate says which values must not be used.
func (o OOMStorm) Validate(at problems.Section) {
	at.Int("kills", o.Kills, 1, maxKills)
	at.Int("hardKills", o.HardKills, 0, maxKills)
	at.Must(o.HardKills == 0 || o.HardKills >= o.Kills, fmt.Sprintf("hard must not be easier to reach than soft: hardKills %d is less than kills %d",
		o.HardKills, o.Kills), "hardKills", "kills")
	at.Duration("window", o.Window, minTick, problems.MaxDuration)
	at.Duration("clearFor", o.ClearFor, minTick, problems.MaxDuration)
}

// Name of the plugin.
func (OOMStorm) Name() string { return "oom-storm" }

// Threshold judges the workload with the most kills.
func (o OOMStorm) Threshold(v View) []Verdict {
	out := Verdict{
		Resource: Memory, Scope: "node", PerWorkload: true, Condition: conditionOOMStorm, Unit: "kills", Operator: ">=", Threshold: snapshot.Some(float64(o.Kills)),
		Partial: v.WarmingUp || v.Monotonic-v.Since < o.Window,
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet = was.Latched, was.LowerMet
	list, why := o.killed(v)
	j := judgement{absent: why}
	most, what := snapshot.Opt[float64]{}, "OOM kills of any workload"
	if why == "" {
		most = snapshot.Some(0.0)
	}
	if len(list) > 0 {
		most, what = snapshot.Some(float64(list[0].kills)), "OOM kills of "+list[0].Name
	}
	what += " within " + o.Window.String()
	hard := o.HardKills > 0 && j.compare(Hard, what, most, ">=", float64(o.HardKills), "kills", why)
	soft := j.compare(Soft, what, most, ">=", float64(o.Kills), "kills", why)
	n, _ := most.Get()
	half := func(kills int) bool { return kills > 0 && 2*n >= float64(kills) }
	up := !v.WarmingUp
	out.applyHysteresis(v, Soft, up && soft, up && half(o.Kills), o.ClearFor)
	out.applyHysteresis(v, Hard, up && hard, up && half(o.HardKills), o.ClearFor)
	if out.Level == Hard {
		out.Threshold = snapshot.Some(float64(o.HardKills))
	}
	j.met = up && (hard || out.Level < Hard && soft)
	out.Observed = most
	out.Evidence, out.Absent, out.Reason = j.evidence, j.absent, j.reason(out.Level, v.WarmingUp)
	return []Verdict{out}
}

// victim is a workload of which processes were killed.
type victim struct {
	*snapshot.WorkloadState
	kills uint64
}

// killed returns the workloads with OOM kills within the window, those with the most
// first; why is why none could be counted. A parent cgroup counts its children's
// kills and is left out.
func (o OOMStorm) killed(v View) (list []victim, why string) {
	w, _ := v.Over(min(o.Window, v.Monotonic-v.Since))
	why = "no workload found"
	with := map[string]bool{}
	for i := range v.Workloads {
		l := &v.Workloads[i]
		kills, ok := w.OOMKills(&l.Workload).Get()
		if !ok {
			if why != "" {
				why = cmp.Or(l.Absent["oomKillsTotal"], "a difference needs two samples")
			}
			continue
		}
		why = ""
		if kills > 0 {
			list, with[l.Cgroup] = append(list, victim{l, kills}), true
		}
	}
	list = slices.DeleteFunc(list, func(k victim) bool { return containsAny(k.Cgroup, with) })
	slices.SortStableFunc(list, func(a, b victim) int { return cmp.Compare(b.kills, a.kills) })
	return list, why
}

// Top names the workloads with enough kills for the verdict's level.
func (o OOMStorm) Top(v View, of Verdict, n int) []Candidate {
	least := o.Kills
	if of.Level == Hard {
		least = o.HardKills
	}
	killed, _ := o.killed(v)
	var list []Candidate
	for _, k := range killed {
		set, ok := k.WorkingSetBytes.Get()
		if !ok || k.kills < uint64(least) {
			continue
		}
		list = append(list, Candidate{
			Cgroup: k.Cgroup, Name: k.Name, PodUID: k.PodUID, Relief: float64(set), Unit: "bytes",
			Why: fmt.Sprintf("%d OOM kills within %s, working set %.0f MiB", k.kills, o.Window, float64(set)/(1<<20)),
		})
	}
	return list[:min(n, len(list))]
}
