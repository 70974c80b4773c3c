package evict

import (
	"cmp"
	"fmt"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Asked is what a candidate goes for: of the verdicts for which it may go now
// the one that weighs most. The controller is told it, so that it must never be
// one for which nobody may go: memory below its floor goes past a brake.
type Asked struct {
	Plugin   string
	Level    plugins.Level
	Resource plugins.Resource
	Urgent   bool
}

// String is what the controller is asked for, as Memory.Brakes has it. A refusal
// that holds whichever pod it is holds for that.
func (a Asked) String() string {
	text := a.Plugin + " at " + a.Level.String()
	if a.Urgent {
		text += ", below the floor"
	}
	return text
}

// forMemory: it is what is hard about memory.
func (a Asked) forMemory() bool { return a.Level == plugins.Hard && a.Resource == plugins.Memory }

// before orders what one pod may be asked for, totally, whatever the order of
// the verdicts. The controller lets memory at hard go where others wait.
func (a Asked) before(b Asked) int {
	return cmp.Or(
		first(a.Urgent, b.Urgent), cmp.Compare(b.Level, a.Level), first(a.Resource == plugins.Memory, b.Resource == plugins.Memory),
		first(a.Resource != "", b.Resource != ""), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Resource, b.Resource),
	)
}

// goesFor: somebody may go for a verdict, and it asks for this candidate, which
// does not stay at its level, and whose going would help.
func (r *sitting) goesFor(v plugins.Verdict, c *Considered) bool {
	relief, named := reliefBy(v, c)
	return named && r.free(v) && !r.stays(v, c) && r.enough(v, relief) || r.forcedBy(v, c)
}

// stays: whoever opted out, or tolerates our taint, goes for nothing soft, though
// something hard names it too.
func (r *sitting) stays(v plugins.Verdict, c *Considered) bool {
	return !hard(v) && c.Pod != nil && (c.Pod.OptedOut || r.tolerated(c.Pod) != "")
}

// forcedBy: a verdict wants the candidate gone regardless of what passes.
func (r *sitting) forcedBy(v plugins.Verdict, c *Considered) bool {
	if !calls(v) || r.muted[scopeOf(v)].firm {
		return false
	}
	for _, o := range v.Candidates {
		if o.Forced && o.Refused == "" && identity(o) == identity(c.Candidate) {
			return true
		}
	}
	return false
}

// ask says what the candidate is asked for, of the verdicts that count, and why
// it is not asked for now: the controller lets nobody go for any of them. What it
// refuses comes after all else, so that a plugin that is refused keeps no pod
// from going for another. m has the refusals until now.
func (r *sitting) ask(m Memory, c *Considered, counts func(plugins.Verdict) bool) (Code, string) {
	none := true
	for _, v := range r.Levels.Verdicts {
		if !counts(v) {
			continue
		}
		a := Asked{v.Plugin, v.Pressing, v.Resource, v.Urgent}
		if none || cmp.Or(first(!r.refuses(m, a, c), !r.refuses(m, c.Asked, c)), a.before(c.Asked)) < 0 {
			c.Asked, none = a, false
		}
	}
	w := m.Brakes[c.Asked.String()]
	if !r.refuses(m, c.Asked, c) || m.Pending(r.Time) == c.Pod.UID { // that request stands
		return "", ""
	}
	return CodeBrake, fmt.Sprintf("the controller refused evictions for %s; not requested again until %s: %s", c.Asked, clock(w.Until), w.Text)
}

// refuses: the controller lets nobody go for this now, unless the pod is the one
// that it is asked for with these words already.
func (r *sitting) refuses(m Memory, a Asked, c *Considered) bool {
	if r.Config.Via != ViaController || c.Pod == nil || !r.Time.Before(m.Brakes[a.String()].Until) {
		return false
	}
	return m.Pending(r.Time) != c.Pod.UID || m.last().For != a.String()
}
