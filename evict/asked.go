package evict

import (
	"cmp"
	"fmt"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Asked is the verdict that a candidate is evicted for: of those that allow its
// eviction now the one that weighs most. The controller is told it, so it must
// never be a verdict that allows no eviction: memory below its floor passes a
// brake.
type Asked struct {
	Plugin   string
	Level    plugins.Level
	Resource plugins.Resource
	Urgent   bool
}

// String is the key of Memory.Brakes: a refusal by the controller that does not
// depend on the pod holds for this verdict.
func (a Asked) String() string {
	text := a.Plugin + " at " + a.Level.String()
	if a.Urgent {
		text += ", below the floor"
	}
	return text
}

// forMemory reports whether it is a hard verdict about memory.
func (a Asked) forMemory() bool { return a.Level == plugins.Hard && a.Resource == plugins.Memory }

// before is a total order of the verdicts that one pod may be evicted for. Hard
// memory comes first, because the controller approves it where others wait.
func (a Asked) before(b Asked) int {
	return cmp.Or(
		first(a.Urgent, b.Urgent), cmp.Compare(b.Level, a.Level), first(a.Resource == plugins.Memory, b.Resource == plugins.Memory),
		first(a.Resource != "", b.Resource != ""), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Resource, b.Resource),
	)
}

// goesFor reports whether a verdict allows evictions now, names this candidate,
// and the candidate's eviction would release enough.
func (r *sitting) goesFor(v plugins.Verdict, c *Considered) bool {
	relief, named := reliefBy(v, c)
	return named && r.free(v) && !r.stays(v, c) && r.enough(v, relief) || r.forcedBy(v, c)
}

// stays reports whether the candidate opted out, or tolerates our taint, and the
// verdict is not hard. A hard verdict beside it does not change that.
func (r *sitting) stays(v plugins.Verdict, c *Considered) bool {
	return !hard(v) && c.Pod != nil && (c.Pod.OptedOut || r.tolerated(c.Pod) != "")
}

// forcedBy reports whether a verdict forces the candidate's eviction, whatever
// temporary reasons there are to wait.
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

// ask chooses the verdict for which the eviction is requested, and returns why it
// is not requested now: the controller refuses every one of them. A refused
// verdict is chosen last, so that the refusal of one plugin does not block
// another. m has the refusals of this round, too.
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
	if !r.refuses(m, c.Asked, c) || m.Pending(r.Time) == c.Pod.UID { // this request is already pending
		return "", ""
	}
	return CodeBrake, fmt.Sprintf("the controller refused evictions for %s; not requested again until %s: %s", c.Asked, clock(w.Until), w.Text)
}

// refuses reports whether a refusal by the controller holds for this verdict. It
// does not hold for the pod whose request for it is pending.
func (r *sitting) refuses(m Memory, a Asked, c *Considered) bool {
	if r.Config.Via != ViaController || c.Pod == nil || !r.Time.Before(m.Brakes[a.String()].Until) {
		return false
	}
	return m.Pending(r.Time) != c.Pod.UID || m.last().For != a.String()
}
