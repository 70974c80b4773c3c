package evict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Credit is the usage of a terminating pod that counts as already released,
// whether we evicted the pod or not.
type Credit struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Relief is in the unit of the verdict. Absent: not known; it counts as all
	// that must be released.
	Relief *float64 `json:"relief,omitempty"`
	// Until is when the credit ends, even if the pod still exists.
	Until time.Time `json:"until"`
	// InProgress: the pod is not terminating yet, another component evicts it.
	InProgress bool `json:"inProgress,omitempty"`
}

// verdictKey is the key of a verdict: its plugin and scope.
func verdictKey(v plugins.Verdict) string { return keyOf(v.Plugin, v.Scope) }

// keyOf is the key of a plugin's verdict about a scope, also in saved states. Both may
// contain a slash, and no name of a plugin contains a percent sign: the first slash
// ends the name.
func keyOf(plugin, scope string) string {
	return strings.ReplaceAll(plugin, "/", "%2F") + "/" + scope
}

// pluginOf is the plugin of a verdict's key.
func pluginOf(key string) string {
	plugin, _, _ := strings.Cut(key, "/")
	return strings.ReplaceAll(plugin, "%2F", "/")
}

// overdue reports whether a pod that should have terminated by goneBy is overdue.
func (in Input) overdue(goneBy time.Time) bool {
	return !in.Time.Before(goneBy.Add(in.Config.OverdueAfter))
}

// terminatesBy is until when a terminating pod counts as such. Its owner may choose a
// termination grace period of 30 days; it counts only up to MaxTerminationGrace after the
// deletion was seen. The API server's clock may be behind this one: the period counts from
// then, too.
func (in Input) terminatesBy(m State, p *pods.Pod) time.Time {
	seen, longest := m.Terminating[p.UID], in.Config.MaxTerminationGrace
	grace := time.Duration(min(p.DeletionGraceSeconds, int64(longest/time.Second))) * time.Second
	return earlier(later(p.TerminatesBy, seen.Add(grace)), seen.Add(longest)).Add(in.Config.OverdueAfter)
}

// evictedElsewhereUntil is until when a pod that another component evicts counts as
// released; false: none does, or not any more.
func (in Input) evictedElsewhereUntil(m State, p *pods.Pod) (until time.Time, counts bool) {
	if p.EvictedElsewhere == "" {
		return until, false
	}
	until = m.Elsewhere[p.UID].Add(in.Config.InProgressWait)
	return until, in.Time.Before(until)
}

// inProgressUntil is until when an eviction of ours that is in progress counts.
func (in Input) inProgressUntil(l *Chosen) time.Time { return l.Time.Add(in.Config.InProgressWait) }

// notCarriedOut is why an eviction that was in progress counts as refused.
func (in Input) notCarriedOut() string {
	return fmt.Sprintf("its eviction was in progress for %s, and the pod still exists", in.Config.InProgressWait)
}

// creditUntil is until when a pod that terminates since then is credited to a
// verdict: memory below its floor does not wait for a termination grace period.
func (in Input) creditUntil(v plugins.Verdict, since, ends time.Time) time.Time {
	if v.Urgent {
		return earlier(ends, since.Add(in.Config.UrgentWait))
	}
	return ends
}

// credits returns the credits of a verdict: pods that it names and that are
// terminating or have just terminated, and evicted pods whose deletion is not yet
// in the watch.
func (in Input) credits(m State, v plugins.Verdict, list []Considered) []Credit {
	var all []Credit
	add := func(c Credit, since time.Time) {
		c.Until = in.creditUntil(v, since, c.Until)
		counted := slices.ContainsFunc(all, func(o Credit) bool { return o.UID == c.UID })
		if in.Time.Before(c.Until) && !counted {
			all = append(all, c)
		}
	}
	for i := range list {
		if c, since, counts := in.creditOf(m, v, &list[i]); counts {
			add(c, since)
		}
	}
	for i := range in.terminated {
		c := &in.terminated[i]
		if relief, named := reliefBy(v, c); named {
			add(Credit{Name: c.Pod.Namespace + "/" + c.Pod.Name, UID: c.Pod.UID, Relief: &relief, Until: in.Time.Add(in.Config.OverdueAfter)}, in.Time)
		}
	}
	for i := range m.Victims {
		l := &m.Victims[i]
		until, ending := in.victimTerminates(m, l)
		if relief, of := l.relief(v, list); ending && of {
			add(Credit{Name: l.Namespace + "/" + l.Name, UID: l.UID, Relief: relief, Until: until, InProgress: l.Outcome == InProgress}, later(l.Time, m.Terminating[l.UID]))
		}
	}
	return all
}

// creditOf is the credit of a candidate that is terminating, or that another component
// evicts, and since when.
func (in Input) creditOf(m State, v plugins.Verdict, c *Considered) (credit Credit, since time.Time, counts bool) {
	relief, named := reliefBy(v, c)
	if !named || c.Pod == nil {
		return credit, since, false
	}
	credit = Credit{Name: c.Pod.Namespace + "/" + c.Pod.Name, UID: c.Pod.UID, Relief: &relief}
	if !c.Pod.TerminatesBy.IsZero() {
		credit.Until = in.terminatesBy(m, c.Pod)
		return credit, m.Terminating[c.Pod.UID], true
	}
	credit.InProgress = true
	credit.Until, counts = in.evictedElsewhereUntil(m, c.Pod)
	return credit, m.Elsewhere[c.Pod.UID], counts
}

// victimTerminates is until when a pod that we evicted counts as terminating.
func (in Input) victimTerminates(m State, l *Chosen) (until time.Time, ending bool) {
	if l.DryRun || l.Outcome != Evicted && l.Outcome != InProgress || !l.TerminatedAt.IsZero() || !in.clusterKnown() {
		return until, false
	}
	if l.Outcome == InProgress {
		until = in.inProgressUntil(l)
		return until, in.Time.Before(until)
	}
	until = l.Time.Add(time.Duration(l.GraceSeconds)*time.Second + in.Config.OverdueAfter)
	if p, there := byUID(in.Cluster.Pods, l.UID); there && !p.TerminatesBy.IsZero() {
		until = later(until, in.terminatesBy(m, &p))
	}
	return until, in.Time.Before(until)
}

// creditExpired reports whether credits have covered a verdict's release target for
// as long as one pod may take to go, and the pressure is still there. Then
// credits no longer count: pods that are deleted one after the other would block
// evictions for ever.
func (in Input) creditExpired(m State, v plugins.Verdict, credits []Credit) bool {
	since, covered := m.Covered[verdictKey(v)]
	bound := in.Config.MaxTerminationGrace + in.Config.OverdueAfter
	if slices.ContainsFunc(credits, func(c Credit) bool { return c.InProgress }) {
		bound = max(bound, in.Config.InProgressWait)
	}
	if v.Urgent {
		bound = in.Config.UrgentWait
	}
	return covered && in.Time.Sub(since) >= bound
}

// relief is what a verdict may still expect from an evicted pod: its value of now,
// else that of the choice. nil: not known.
func (l *Chosen) relief(v plugins.Verdict, list []Considered) (relief *float64, expects bool) {
	for i := range list {
		if list[i].PodUID == l.UID || list[i].Pod != nil && list[i].Pod.UID == l.UID {
			if now, named := reliefBy(v, &list[i]); named {
				return &now, true
			}
		}
	}
	if l.Relief == nil {
		return nil, true
	}
	was, of := l.Relief[verdictKey(v)]
	return &was, of
}

// covers reports whether the credits are all that a verdict must release: by
// amount where the target is known, else one pod that releases enough is.
func (in Input) covers(v plugins.Verdict, credits []Credit) bool {
	target, known := v.Target.Get()
	sum := 0.0
	for _, c := range credits {
		if c.Relief == nil || !known && enough(&in.Config, v, *c.Relief) {
			return true
		}
		sum += *c.Relief
	}
	return known && len(credits) > 0 && sum >= target
}

// creditReason names the terminating pods that count, for people.
func creditReason(v plugins.Verdict, credits []Credit) string {
	c := credits[0]
	text := fmt.Sprintf("%s is terminating until %s; its usage counts as released", c.Name, clock(c.Until))
	if c.InProgress {
		text = fmt.Sprintf("the eviction of %s is in progress; its usage counts as released until %s", c.Name, clock(c.Until))
	}
	if len(credits) > 1 {
		text = fmt.Sprintf("%s and %d more are terminating; their usage counts as released", c.Name, len(credits)-1)
	}
	if target, known := v.Target.Get(); known && target > 0 {
		text += ", which is all that must be released"
	}
	return text
}
