package evict

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
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

// credits of a verdict: pods that it names and that are ending, and victims of
// ours, also before their end is seen in the pod.
func (in Input) credits(m Memory, v plugins.Verdict, list []Considered) []Credit {
	var all []Credit
	for i := range list {
		c := &list[i]
		relief, named := reliefBy(v, c)
		if c.Pod == nil || c.Pod.GoneBy.IsZero() || !named || in.late(c.Pod.GoneBy) {
			continue
		}
		all = append(all, Credit{
			Name: c.Pod.Namespace + "/" + c.Pod.Name, UID: c.Pod.UID, Relief: &relief, Until: c.Pod.GoneBy.Add(in.Config.Late),
		})
	}
	for i := range m.Victims {
		l := &m.Victims[i]
		until, ending := in.victimEnds(l)
		counted := slices.ContainsFunc(all, func(c Credit) bool { return c.UID == l.UID })
		if relief, of := l.relief(v, list); ending && of && !counted {
			all = append(all, Credit{Name: l.Namespace + "/" + l.Name, UID: l.UID, Relief: relief, Until: until})
		}
	}
	return all
}

// victimEnds says until when a victim of ours counts as ending, if it does.
func (in Input) victimEnds(l *Chosen) (until time.Time, ending bool) {
	if l.DryRun || l.Outcome != Evicted || !l.GoneAt.IsZero() || !in.known() {
		return until, false
	}
	p, _ := byUID(in.Cluster.Pods, l.UID)
	until = later(p.GoneBy, l.Time.Add(time.Duration(l.GraceSeconds)*time.Second))
	return until.Add(in.Config.Late), !in.late(until)
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
	text := fmt.Sprintf("%s is ending until %s: its load counts as released", c.Name, clock(c.Until))
	if len(credits) > 1 {
		text = fmt.Sprintf("%s and %d more are ending: their load counts as released", c.Name, len(credits)-1)
	}
	if target, known := v.Target.Get(); known && target > 0 {
		text += ", and that is all that is missing"
	}
	return text
}
