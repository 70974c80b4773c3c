package evict

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Credit is what a pod that is ending, whoever ended it, counts as having given
// back already.
type Credit struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Relief is in the unit of the verdict; absent: not known, it counts as all
	// that is missing.
	Relief *float64 `json:"relief,omitempty"`
	// Until is when it counts no more, gone or not.
	Until time.Time `json:"until"`
}

// scopeOf names what a verdict judges: the plugin and its scope.
func scopeOf(v plugins.Verdict) string { return v.Plugin + "/" + v.Scope }

// late tells of a pod that should have ended by a time.
func (in Input) late(goneBy time.Time) bool { return !in.Time.Before(goneBy.Add(in.Config.Late)) }

// endsBy is until when a pod that is being deleted counts as ending. Its own
// grace period is its owner's choice, of 30 days too, and counts no further than
// the one that we would have given it from when it was seen to end.
func (in Input) endsBy(m Memory, p *pods.Pod) time.Time {
	return earlier(p.GoneBy, m.Ending[p.UID].Add(in.Config.MaxGrace)).Add(in.Config.Late)
}

// creditUntil is until when one that ends since then counts for a verdict:
// memory below its floor waits for no grace period.
func (in Input) creditUntil(v plugins.Verdict, since, ends time.Time) time.Time {
	if v.Urgent {
		return earlier(ends, since.Add(in.Config.UrgentWait))
	}
	return ends
}

// credits of a verdict: pods that it names and that are ending or have just gone,
// and victims of ours, also before their end is seen in the pod.
func (in Input) credits(m Memory, v plugins.Verdict, list []Considered) []Credit {
	var all []Credit
	add := func(c Credit, since time.Time) {
		c.Until = in.creditUntil(v, since, c.Until)
		counted := slices.ContainsFunc(all, func(o Credit) bool { return o.UID == c.UID })
		if in.Time.Before(c.Until) && !counted {
			all = append(all, c)
		}
	}
	for i := range list {
		c := &list[i]
		if relief, named := reliefBy(v, c); named && c.Pod != nil && !c.Pod.GoneBy.IsZero() {
			add(Credit{Name: c.Pod.Namespace + "/" + c.Pod.Name, UID: c.Pod.UID, Relief: &relief, Until: in.endsBy(m, c.Pod)}, m.Ending[c.Pod.UID])
		}
	}
	for i := range in.gone {
		c := &in.gone[i]
		if relief, named := reliefBy(v, c); named {
			add(Credit{Name: c.Pod.Namespace + "/" + c.Pod.Name, UID: c.Pod.UID, Relief: &relief, Until: in.Time.Add(in.Config.Late)}, in.Time)
		}
	}
	for i := range m.Victims {
		l := &m.Victims[i]
		until, ending := in.victimEnds(m, l)
		if relief, of := l.relief(v, list); ending && of {
			add(Credit{Name: l.Namespace + "/" + l.Name, UID: l.UID, Relief: relief, Until: until}, later(l.Time, m.Ending[l.UID]))
		}
	}
	return all
}

// victimEnds says until when a victim of ours counts as ending, if it does.
func (in Input) victimEnds(m Memory, l *Chosen) (until time.Time, ending bool) {
	if l.DryRun || l.Outcome != Evicted || !l.GoneAt.IsZero() || !in.known() {
		return until, false
	}
	until = l.Time.Add(time.Duration(l.GraceSeconds)*time.Second + in.Config.Late)
	if p, there := byUID(in.Cluster.Pods, l.UID); there && !p.GoneBy.IsZero() {
		until = later(until, in.endsBy(m, &p))
	}
	return until, in.Time.Before(until)
}

// outlasted: what is ending has been all that a verdict misses for as long as one
// pod may take, and the pressure is still there. What has not fallen by then does
// not count: one pod after the other that is deleted would else hold it for ever.
func (in Input) outlasted(m Memory, v plugins.Verdict) bool {
	since, covered := m.Covered[scopeOf(v)]
	bound := in.Config.MaxGrace + in.Config.Late
	if v.Urgent {
		bound = in.Config.UrgentWait
	}
	return covered && in.Time.Sub(since) >= bound
}

// relief that a verdict may still expect of a victim: by what it says of it now,
// else by what it said when it was chosen. nil: not known.
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
	was, of := l.Relief[scopeOf(v)]
	return &was, of
}

// covers says whether what counts as released is all that a verdict misses:
// by amount where that is known, else one that helps at all is.
func (in Input) covers(v plugins.Verdict, credits []Credit) bool {
	target, known := v.Target.Get()
	sum := 0.0
	for _, c := range credits {
		if c.Relief == nil || !known && in.enough(v, *c.Relief) {
			return true
		}
		sum += *c.Relief
	}
	return known && len(credits) > 0 && sum >= target
}

// sayCredits is who is ending and counts, for people.
func sayCredits(v plugins.Verdict, credits []Credit) string {
	c := credits[0]
	text := fmt.Sprintf("%s is terminating until %s; its usage counts as released", c.Name, clock(c.Until))
	if len(credits) > 1 {
		text = fmt.Sprintf("%s and %d more are terminating; their usage counts as released", c.Name, len(credits)-1)
	}
	if target, known := v.Target.Get(); known && target > 0 {
		text += ", which is all that must be released"
	}
	return text
}
