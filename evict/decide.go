package evict

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Decide says who should go, and why each of the others is spared. Candidates
// with CodeNext may go: the actor asks for the first of them, takes in the
// answer (Decision.Answered), and lets Decision.More say who may go beside one
// that was granted. In a dry run it asks the API server to only say what it
// would. The Memory is what the next round must know, but for the answers to
// come.
func Decide(in Input) (Decision, Memory) {
	m := in.Memory.look(in)
	d := Decision{
		ID: strconv.FormatInt(in.Time.UnixNano(), 36), Time: in.Time, DryRun: in.Config.DryRun, Candidates: in.rank(m),
	}
	if in.Config.DryRun && in.leave != nil {
		d.ID += "-dry" // beside it one that counts is decided
	}
	r := sit(in, m, d.Candidates)
	d.Causes = r.causes()
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Code, c.Because = r.spare(c); c.Code == "" {
			c.Code, c.Because = r.ask(m, c, func(v plugins.Verdict) bool { return r.goesFor(v, c) })
		}
	}
	r.yield(d.Candidates)
	d.Code, d.Reason = r.hold(d.Candidates)
	m = r.settling(d.Candidates)
	if d.Code == "" {
		d.Code, d.Reason = CodeNext, "evict if no earlier candidate is evicted"
	}
	d.rest("", d.Code, d.Reason)
	if _, some := d.Next(); d.Code == CodeNext && !some {
		d.Code, d.Reason = CodeNobody, nobody(d.Candidates)
		if i := slices.IndexFunc(d.Candidates, func(c Considered) bool { return c.Code == CodeBrake }); i >= 0 {
			d.Code, d.Reason = CodeBrake, d.Candidates[i].Because
		}
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

// Victim is a candidate as the Evictor wants it: with the grace period that its
// plugin or else the pod asks for, within bounds. It is 0 only where a plugin
// asks for that and may: the API server forgets such a pod while it may still
// run.
func (d *Decision) Victim(i int, maxGrace time.Duration) Victim {
	c := &d.Candidates[i]
	grace, asked := c.GraceSeconds.Get()
	if !asked {
		grace = c.Pod.GraceSeconds
	}
	if !asked || grace != 0 {
		grace = max(1, min(grace, int64(maxGrace/time.Second)))
	}
	return Victim{UID: c.Pod.UID, Namespace: c.Pod.Namespace, Name: c.Pod.Name, GraceSeconds: grace}
}

// grant lets a candidate go, which spares those after it, unless More finds
// that they are needed too.
func (d *Decision) grant(i int) {
	c := &d.Candidates[i]
	code, prefix := CodeEvicted, ""
	if d.DryRun {
		code, prefix = CodeWouldEvict, "dry run: "
	}
	if d.granted() == 0 {
		d.Reason = prefix
	} else {
		d.Reason += "; "
	}
	c.Code, c.Because = code, c.Why
	d.Code = code
	d.Reason += fmt.Sprintf("%s/%s: %s", c.Pod.Namespace, c.Pod.Name, c.Why)
	d.rest(CodeNext, CodeNotNeeded, "waiting for the effect of an earlier eviction")
}

// granted is how many go.
func (d *Decision) granted() int { return len(d.Goers()) }

// end ends the round for those who were not asked for. It is the whole round's
// outcome where nobody goes.
func (d *Decision) end(code Code, reason string) {
	if d.granted() == 0 {
		d.Code, d.Reason = code, reason
	}
	d.rest(CodeNext, code, reason)
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
		c.Code, c.Because = CodeBudget, a.says()
	case Refused:
		c.Code, c.Because = CodeRefused, a.says()
	case Braked:
		c.Code, c.Because = CodeBrake, a.says()
		for j := range d.Candidates { // what is asked for something else is asked for still
			if o := &d.Candidates[j]; o.Code == CodeNext && o.Asked.String() == c.Asked.String() {
				o.Code, o.Because = CodeBrake, a.says()
			}
		}
		if _, some := d.Next(); !some {
			d.end(CodeBrake, a.says())
		}
	case Gone:
		c.Code, c.Because = CodeGone, "it had already terminated; its usage counts as released"
		reason := name + " had already terminated; its usage counts as released"
		if d.granted() == 0 {
			d.Code, d.Reason = CodeGone, reason
		}
		d.rest(CodeNext, CodeNotNeeded, reason)
	case Unanswered:
		reason := "eviction of " + name + ": outcome unknown: " + a.Text
		c.Code, c.Because = CodeUnanswered, reason
		d.end(CodeUnanswered, reason)
	}
}

// Postpone ends a round, granted or not: whom it did not ask for it leaves to
// later ones.
func (d *Decision) Postpone() {
	d.rest(CodeNext, CodeNext, "left for a later round, if still needed")
	if d.Code == CodeNext {
		d.Code, d.Reason = CodeNobody, nobody(d.Candidates)
	}
}

// Unsaved ends a round whose choice could not be kept: nobody is evicted who
// would be forgotten.
func (d *Decision) Unsaved(err error) {
	d.end(CodeState, "cannot save the eviction state, so no pod is evicted: "+err.Error())
}

// nobody says why no candidate goes, by the reason that most of them have.
func nobody(list []Considered) string {
	if len(list) == 0 {
		return "the plugin named no pod"
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
	return fmt.Sprintf("none of %d candidates is evicted; for %d of them: %s", len(list), count[most.Code], most.Because)
}
