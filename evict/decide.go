package evict

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Decide says who should go, and why each of the others is spared. Candidates
// with CodeNext may go: the actor asks for the first of them, and for the next
// only when that one is not granted (Decision.Next, Decision.Answered). In a
// dry run it asks the API server to only say what it would. The Memory is what
// the next round must know, but for the answers to come.
func Decide(in Input) (Decision, Memory) {
	m := in.Memory.look(in)
	d := Decision{
		ID: strconv.FormatInt(in.Time.UnixNano(), 36), Time: in.Time, DryRun: in.Config.DryRun,
		Causes: causesOf(in.Before, in.Levels), Candidates: in.rank(m),
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		c.Code, c.Because = in.spare(m, c)
	}
	m, ending := m.credit(in, d.Candidates)
	d.Code, d.Reason = in.hold(m, ending)
	if d.Code == "" {
		d.Code, d.Reason = CodeNext, "goes, unless one before it does"
	}
	d.rest("", d.Code, d.Reason)
	if _, some := d.Next(); d.Code == CodeNext && !some {
		d.Code, d.Reason = CodeNobody, nobody(d.Candidates)
	}
	return d, m
}

// rest gives all candidates of one code another, and its reason.
func (d *Decision) rest(from, to Code, because string) {
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Code == from {
			c.Code, c.Because = to, because
		}
	}
}

// Next is the candidate to ask for now; false when nobody is left.
func (d *Decision) Next() (int, bool) {
	i := slices.IndexFunc(d.Candidates, func(c Considered) bool { return c.Code == CodeNext })
	return i, i >= 0
}

// Victim is a candidate as the Evictor wants it: with the grace period that
// the pod asks for, or less. It is never 0: the API server would forget the pod
// while it may still run.
func (d *Decision) Victim(i int, maxGrace time.Duration) Victim {
	p := d.Candidates[i].Pod
	return Victim{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name,
		GraceSeconds: max(1, min(p.GraceSeconds, int64(maxGrace/time.Second))),
	}
}

// grant lets a candidate go, which spares those after it.
func (d *Decision) grant(i int) {
	c := &d.Candidates[i]
	code, prefix := CodeEvicted, ""
	if d.DryRun {
		code, prefix = CodeWouldEvict, "dry run: "
	}
	c.Code, c.Because = code, c.Why
	d.Code, d.Reason = code, fmt.Sprintf("%s%s/%s: %s", prefix, c.Pod.Namespace, c.Pod.Name, c.Why)
	d.rest(CodeNext, CodeNotNeeded, "one before it goes: its relief is seen first")
}

// Answered takes in what the API server said to candidate i.
func (d *Decision) Answered(i int, a Answer) {
	c := &d.Candidates[i]
	c.Answers = append(c.Answers, a)
	name := c.Pod.Namespace + "/" + c.Pod.Name
	switch a.Outcome {
	case Evicted:
		d.grant(i)
	case Blocked:
		c.Code, c.Because = CodeBudget, "the API server: "+a.Text
	case Refused:
		c.Code, c.Because = CodeRefused, "the API server: "+a.Text
	case Gone:
		c.Code, c.Because = CodeGone, "it had ended already: its load counts as released"
		d.Code, d.Reason = CodeGone, name+" had ended already: its load counts as released"
		d.rest(CodeNext, CodeNotNeeded, d.Reason)
	case Unanswered:
		d.Code, d.Reason = CodeUnanswered, "nobody knows whether "+name+" is evicted: "+a.Text
		d.rest(CodeNext, CodeUnanswered, d.Reason)
	}
}

// Postpone ends a round, granted or not: whom it did not ask for it leaves to
// later ones.
func (d *Decision) Postpone() {
	d.rest(CodeNext, CodeNext, "asked for in a later round, if it is still needed")
	if d.Code == CodeNext {
		d.Code, d.Reason = CodeNobody, nobody(d.Candidates)
	}
}

// Unsaved ends a round whose choice could not be kept: nobody is evicted who
// would be forgotten.
func (d *Decision) Unsaved(err error) {
	d.Code, d.Reason = CodeState, "the choice cannot be kept, so nobody is evicted: "+err.Error()
	d.rest(CodeNext, d.Code, d.Reason)
}

// nobody says why no candidate goes, by the reason that most of them have.
func nobody(list []Considered) string {
	if len(list) == 0 {
		return "no workload causes this: the plugin names none"
	}
	count := map[Code]int{}
	for _, c := range list {
		count[c.Code]++
	}
	most := list[0]
	for _, c := range list {
		if count[c.Code] > count[most.Code] {
			most = c
		}
	}
	return fmt.Sprintf("none of %d candidates goes; of %d: %s", len(list), count[most.Code], most.Because)
}

// causesOf are the verdicts that are met, and those that ended since before.
func causesOf(before, now *plugins.Levels) []Cause {
	list := ended(before, now)
	for _, v := range now.Verdicts {
		if v.Level > plugins.None || levelOf(before, v) > plugins.None {
			list = append(list, causeOf(v))
		}
	}
	return list
}

func causeOf(v plugins.Verdict) Cause {
	return Cause{
		Plugin: v.Plugin, Scope: v.Scope, Level: v.Level, Since: v.Since,
		Observed: v.Observed, Operator: v.Operator, Threshold: v.Threshold, Unit: v.Unit, Reason: v.Reason,
	}
}

// SwitchedOff is why a level ended whose plugin is asked no more.
const SwitchedOff = "the plugin was switched off"

// Unjudged is why a level ended whose plugin no longer judges that scope.
const Unjudged = "no longer judged by its plugin, such as a device that is gone"

// ended is what was met and is not judged any more.
func ended(before, now *plugins.Levels) []Cause {
	if before == nil {
		return nil
	}
	var list []Cause
	for _, was := range before.Verdicts {
		if was.Level == plugins.None || slices.ContainsFunc(now.Verdicts, sameAs(was)) {
			continue
		}
		why := SwitchedOff
		if slices.ContainsFunc(now.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == was.Plugin }) {
			why = Unjudged
		}
		list = append(list, Cause{Plugin: was.Plugin, Scope: was.Scope, Level: plugins.None, Since: now.Time, Reason: why})
	}
	return list
}

func levelOf(l *plugins.Levels, v plugins.Verdict) plugins.Level {
	if l == nil {
		return plugins.None
	}
	if i := slices.IndexFunc(l.Verdicts, sameAs(v)); i >= 0 {
		return l.Verdicts[i].Level
	}
	return plugins.None
}

// sameAs tells the verdicts of the same plugin about the same scope.
func sameAs(v plugins.Verdict) func(plugins.Verdict) bool {
	return func(o plugins.Verdict) bool { return o.Plugin == v.Plugin && o.Scope == v.Scope }
}
