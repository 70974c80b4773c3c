package evict

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// rank joins the candidates of the met verdicts, one for each workload, in eviction
// order.
func rank(in Input, m State) []Considered {
	joined := map[string]*ranked{}
	for _, v := range in.Levels.Verdicts {
		if !active(v) {
			continue
		}
		for i, c := range v.Candidates {
			r := joined[workloadKey(c)]
			if r == nil {
				r = &ranked{Considered: Considered{Candidate: c}, rank: i}
				r.Forced = false // join sets it
				joined[workloadKey(c)] = r
				r.identify(in.Cluster)
			}
			r.join(v, i, c)
		}
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
	severity plugins.Level
	rank     int
}

// identify finds the pod of a workload.
func (r *ranked) identify(cluster *Cluster) {
	if cluster == nil {
		return
	}
	if p, ok := cluster.Pods.ByCgroupUID(r.PodUID); ok {
		r.Pod = &p
		r.Name = p.Namespace + "/" + p.Name
	}
}

// join merges another verdict's candidate for the same workload.
func (r *ranked) join(v plugins.Verdict, rank int, c plugins.Candidate) {
	if !strings.Contains(r.Why, c.Why) {
		r.Why += "; " + c.Why
	}
	if !slices.Contains(r.Plugins, v.Plugin) {
		r.Plugins = append(r.Plugins, v.Plugin)
	}
	if c.Refused != "" {
		return // the plugin may not name it, so it adds nothing
	}
	r.Refused, r.Forced = "", r.Forced || c.Forced
	if c.NamedAt.IsZero() { // of two, the newer one counts
		r.NamedAt = c.NamedAt
	} else if !r.NamedAt.IsZero() {
		r.NamedAt = later(r.NamedAt, c.NamedAt)
	}
	if was, _ := r.GraceSeconds.Get(); asksFor(c) > was { // the longest one wins
		r.GraceSeconds = c.GraceSeconds
	}
	r.severity = max(r.severity, v.MetLevel)
	r.rank = min(r.rank, rank)
	if c.Unit == r.Unit { // other units do not compare
		r.Relief = max(r.Relief, c.Relief)
	}
}

func asksFor(c plugins.Candidate) int64 {
	seconds, _ := c.GraceSeconds.Get()
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
