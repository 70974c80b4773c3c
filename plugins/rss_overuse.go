package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// RSSOveruse judges whether a pod's RSS, which reclaim does not release, is far
// above its memory request: memory that the scheduler promised to other pods is
// then missing as soon as they use it. The pod's own use is the cause, so the node
// is not marked. The rule is off by default: a limit above the request allows such
// use.
type RSSOveruse struct {
	Enabled  bool          `yaml:"enabled" why:"Whether the rule is on."`
	Rate     int           `yaml:"rate" unit:"percent" why:"The RSS that a pod may have, in percent of its memory request. A pod can override it: annotation katalyst.kubewharf.io/memory_enhancement, {\"rss_overuse_threshold\":\"1.2\"}. 0: only pods with the annotation are judged."`
	For      time.Duration `yaml:"for" why:"How long the RSS must be above that without a break: a job that is about to end may exceed it."`
	ClearFor time.Duration `yaml:"clearFor" why:"How long no pod may have been above that before the level ends (hysteresis)."`
}

// DefaultRSSOveruse has the thresholds of a fresh install.
func DefaultRSSOveruse() RSSOveruse {
	return RSSOveruse{Rate: 150, For: time.Minute, ClearFor: 30 * time.Second}
}

// Validate says which values must not be used.
func (r RSSOveruse) Validate(at problems.Section) {
	at.Int("rate", r.Rate, 0, maxRate)
	at.Duration("for", r.For, 0, problems.MaxDuration)
	at.Duration("clearFor", r.ClearFor, minTick, problems.MaxDuration)
}

// Name of the plugin.
func (RSSOveruse) Name() string { return "rss-overuse" }

// overuser is a pod with its RSS and request in bytes, and its limit as a multiple
// of the request.
type overuser struct {
	*snapshot.WorkloadState
	rss, request, rate float64
}

// overuse is the RSS as a share of its limit.
func (o overuser) overuse() float64 { return o.rss / (o.request * o.rate) }

// Threshold judges the pod that is furthest above its limit.
func (r RSSOveruse) Threshold(v View) []Verdict {
	out := Verdict{
		Resource: Memory, Scope: "node", PerWorkload: true, Unit: "ratio", Operator: ">",
		Partial: v.WarmingUp || v.Monotonic-v.Since < r.For,
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet = was.Latched, was.LowerMet
	list, why := r.overusers(v)
	met := make([]string, 0, len(list))
	for _, o := range list {
		if o.overuse() > 1 {
			met = append(met, o.Cgroup)
		}
	}
	out.recordLasting(v, was, met)
	long := slices.IndexFunc(list, func(o overuser) bool { return out.lastedFor(v, o.Cgroup, r.For) })
	on := long >= 0 && !v.WarmingUp
	out.applyHysteresis(v, Hard, on, on, r.ClearFor)
	out.Absent = why
	shown := max(0, long)
	if len(list) > 0 {
		out.Observed, out.Threshold = snapshot.Some(list[shown].rss/list[shown].request), snapshot.Some(list[shown].rate)
	}
	switch {
	case why != "":
		out.Reason = "incomplete data: " + why
	case len(list) == 0:
		out.Reason = "no judged pod requests memory"
	case on:
		out.Reason = list[shown].Title() + " " + r.reason(v, &out, list[shown])
	case out.Level > None:
		out.Reason = "level stays on until clear for " + r.ClearFor.String() + ": " + list[0].Title() + " " + r.reason(v, &out, list[0])
	default:
		out.Reason = fmt.Sprintf("%s %s (needs more than the limit, for %s)", list[0].Title(), r.reason(v, &out, list[0]), r.For)
	}
	return []Verdict{out}
}

// overusers returns the judged pods, those furthest above their limit first; why is
// why the RSS of none of them is known.
func (r RSSOveruse) overusers(v View) (list []overuser, why string) {
	if _, why := v.Pods(); why != "" {
		return nil, why
	}
	for i := range v.Workloads {
		l := &v.Workloads[i]
		if l.Pod == nil || l.Pod.Terminating || l.Pod.MemoryRequestBytes == 0 {
			continue
		}
		rate := cmp.Or(l.Pod.RSSOveruse, float64(r.Rate)/100)
		rss, ok := l.RSSBytes.Get()
		switch {
		case rate == 0:
		case !ok:
			why = cmp.Or(why, l.Absent["rssBytes"], l.Absent["memory"], "not measured")
		default:
			list = append(list, overuser{l, float64(rss), float64(l.Pod.MemoryRequestBytes), rate})
		}
	}
	if len(list) > 0 {
		why = ""
	} else if why != "" {
		why = "the RSS of pods is unknown: " + why
	}
	slices.SortStableFunc(list, func(a, b overuser) int { return cmp.Compare(b.overuse(), a.overuse()) })
	return list, why
}

func (r RSSOveruse) reason(v View, out *Verdict, o overuser) string {
	whose := ""
	if o.Pod.RSSOveruse > 0 {
		whose = " (its annotation)"
	}
	text := fmt.Sprintf("has %.0f MiB of RSS, %.0f %% of the %.0f MiB that it requests, limit %.0f %%%s",
		o.rss/(1<<20), 100*o.rss/o.request, o.request/(1<<20), 100*o.rate, whose)
	if since, met := out.MetSince[o.Cgroup]; met {
		text += ", exceeded for " + (v.Monotonic - since).Round(time.Second).String()
	}
	return text
}

// Top names the pods that have been above their limit for r.For, those furthest
// above first.
func (r RSSOveruse) Top(v View, of Verdict, n int) []Candidate {
	all, _ := r.overusers(v)
	var list []Candidate
	for _, o := range all {
		if of.lastedFor(v, o.Cgroup, r.For) {
			list = append(list, Candidate{
				Cgroup: o.Cgroup, Name: o.Title(), PodUID: o.PodUID, Relief: o.rss, Unit: "bytes", Why: r.reason(v, &of, o),
			})
		}
	}
	return list[:min(n, len(list))]
}
