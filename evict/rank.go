package evict

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// mention is a candidate as one verdict names it, at that place of the verdict's list.
type mention struct {
	plugins.Candidate
	plugin string
	level  plugins.Level
	place  int
	weight weight
}

// weight is what a mention counts for: beside a heavier one of the same workload it only
// adds its plugin and its reason.
type weight int

const (
	weightRefused weight = iota // the plugin may not name it
	weightIdle                  // the verdict allows no eviction at all
	weightFull
)

// mentions are the candidates of the met verdicts, the heaviest first. m must be up to
// date (observe).
func mentions(in Input, m State) []mention {
	var list []mention
	for _, v := range in.Levels.Verdicts {
		if !active(v) {
			continue
		}
		of := weightFull
		if evictsNothing(in, m, v).code != "" {
			of = weightIdle
		}
		for i, c := range v.Candidates {
			n := mention{c, v.Plugin, candidateLevel(v, v.MetLevel, c.Forced), i, of}
			if c.Refused != "" {
				n.weight, n.Forced = weightRefused, false
			}
			list = append(list, n)
		}
	}
	slices.SortStableFunc(list, func(a, b mention) int { return cmp.Compare(b.weight, a.weight) })
	return list
}

// rank joins the candidates of the met verdicts, one for each workload, in eviction
// order.
func rank(in Input, m State) []Considered {
	joined := map[string]*ranked{}
	for _, n := range mentions(in, m) {
		r := joined[workloadKey(n.Candidate)]
		if r == nil {
			r = &ranked{Considered: Considered{Candidate: n.Candidate}, weight: n.weight, severity: n.level, rank: n.place}
			joined[workloadKey(n.Candidate)] = r
			r.identify(in.Cluster)
		}
		r.join(n)
	}
	list := make([]*ranked, 0, len(joined))
	for _, r := range joined {
		r.pending = r.Pod != nil && r.Pod.UID == m.Pending(in.Time)
		list = append(list, r)
	}
	slices.SortFunc(list, (*ranked).before)
	out := make([]Considered, 0, len(list))
	for _, r := range list {
		out = append(out, r.Considered)
	}
	return out
}

// workloadKey is the key of a workload: a pod's UID, or its cgroup. By UID two cgroups
// of a pod are one candidate.
func workloadKey(c plugins.Candidate) string { return cmp.Or(c.PodUID, c.Cgroup) }

// ranked is a candidate with its sort keys.
type ranked struct {
	Considered
	pending  bool
	weight   weight
	severity plugins.Level
	rank     int
}

// identify finds the pod of a workload, by the UID of its cgroup, or by the pod's own, as
// outer plugins name it: a static pod has two.
func (r *ranked) identify(cluster *Cluster) {
	if cluster == nil {
		return
	}
	p, ok := cluster.Pods.ByCgroupUID(r.PodUID)
	if !ok {
		p, ok = byUID(cluster.Pods, r.PodUID)
	}
	if ok {
		r.Pod = &p
		r.Name = p.Namespace + "/" + p.Name
	}
}

// join merges another mention of the same workload.
func (r *ranked) join(n mention) {
	if !strings.Contains(r.Why, n.Why) {
		r.Why += "; " + n.Why
	}
	if !slices.Contains(r.Plugins, n.plugin) {
		r.Plugins = append(r.Plugins, n.plugin)
	}
	if n.weight < r.weight {
		return
	}
	r.Forced = r.Forced || n.Forced
	if n.NamedAt.IsZero() { // of two, the newer one counts
		r.NamedAt = n.NamedAt
	} else if !r.NamedAt.IsZero() {
		r.NamedAt = later(r.NamedAt, n.NamedAt)
	}
	if r.asksFor(n.Candidate) > r.asksFor(r.Candidate) { // the longest one wins
		r.GraceSeconds = n.GraceSeconds
	}
	r.severity = max(r.severity, n.level)
	r.rank = min(r.rank, n.place)
	if n.Unit == r.Unit { // other units do not compare
		r.Relief = max(r.Relief, n.Relief)
	}
}

// asksFor is the termination grace period of a mention in seconds: the pod's own where the
// plugin asks for none.
func (r *ranked) asksFor(c plugins.Candidate) int64 {
	seconds, asked := c.GraceSeconds.Get()
	if !asked && r.Pod != nil {
		return r.Pod.GraceSeconds
	}
	return seconds
}

// before is a total order of candidates: the pending one, forced ones, low QoS,
// lower priority, severity, the plugin's own order, larger relief, name. What is
// not a pod comes last.
func (r *ranked) before(o *ranked) int {
	return cmp.Or(
		trueFirst(r.pending, o.pending), trueFirst(r.Forced, o.Forced), trueFirst(r.Pod != nil, o.Pod != nil), r.beforeByPod(o),
		cmp.Compare(o.severity, r.severity), cmp.Compare(r.rank, o.rank), cmp.Compare(o.Relief, r.Relief),
		strings.Compare(r.Name, o.Name), strings.Compare(r.Cgroup, o.Cgroup),
	)
}

func (r *ranked) beforeByPod(o *ranked) int {
	if r.Pod == nil || o.Pod == nil {
		return 0
	}
	return cmp.Or(trueFirst(r.Pod.LowQoS, o.Pod.LowQoS), cmp.Compare(r.Pod.Priority, o.Pod.Priority))
}

// trueFirst sorts true before false.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
