package evict

import (
	"cmp"
	"fmt"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// VerdictRef is the verdict that a candidate is evicted for: of those that allow its
// eviction now the one that weighs most. The controller is told it, so it must
// never be a verdict that allows no eviction: memory below its floor passes a
// brake.
type VerdictRef struct {
	Plugin   string
	Level    plugins.Level
	Resource plugins.Resource
	Urgent   bool
}

// String is the key of Memory.Refusals: a refusal by the controller that does not
// depend on the pod holds for this verdict.
func (a VerdictRef) String() string {
	text := a.Plugin + " at " + a.Level.String()
	if a.Urgent {
		text += ", below the floor"
	}
	return text
}

// hardMemory reports whether it is a hard verdict about memory.
func (a VerdictRef) hardMemory() bool { return a.Level == plugins.Hard && a.Resource == plugins.Memory }

// before is a total order of the verdicts that one pod may be evicted for. Hard
// memory comes first, because the controller approves it where others wait.
func (a VerdictRef) before(b VerdictRef) int {
	return cmp.Or(
		trueFirst(a.Urgent, b.Urgent), cmp.Compare(b.Level, a.Level), trueFirst(a.Resource == plugins.Memory, b.Resource == plugins.Memory),
		trueFirst(a.Resource != "", b.Resource != ""), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Resource, b.Resource),
	)
}

// evictableFor reports whether a verdict allows evictions now, names this candidate,
// and the candidate's eviction would release enough.
func (r *evaluation) evictableFor(v plugins.Verdict, c *Considered) bool {
	relief, named := reliefBy(v, c)
	return named && r.allows(v) && !r.optedOutOf(v, c) && r.enough(v, relief) || r.forcedBy(v, c)
}

// optedOutOf reports whether the candidate opted out, or tolerates our taint, and the
// verdict is not hard. A hard verdict beside it does not change that.
func (r *evaluation) optedOutOf(v plugins.Verdict, c *Considered) bool {
	return !hard(v) && c.Pod != nil && (c.Pod.OptedOut != "" || r.tolerated(c.Pod) != "")
}

// forcedBy reports whether a verdict forces the candidate's eviction, whatever
// temporary reasons there are to wait.
func (r *evaluation) forcedBy(v plugins.Verdict, c *Considered) bool {
	if !active(v) || r.suppressed[verdictKey(v)].alsoForced {
		return false
	}
	for _, o := range v.Candidates {
		if o.Forced && o.Refused == "" && workloadKey(o) == workloadKey(c.Candidate) {
			return true
		}
	}
	return false
}

// chooseVerdict chooses the verdict for which the eviction is requested, and returns why it
// is not requested now: the controller refuses every one of them. A refused
// verdict is chosen last, so that the refusal of one plugin does not block
// another. m has the refusals of this round, too.
func (r *evaluation) chooseVerdict(m State, c *Considered, counts func(plugins.Verdict) bool) (Code, string) {
	none := true
	for _, v := range r.Levels.Verdicts {
		if !counts(v) {
			continue
		}
		a := VerdictRef{v.Plugin, v.MetLevel, v.Resource, v.Urgent}
		if none || cmp.Or(trueFirst(!r.refusedByController(m, a, c), !r.refusedByController(m, c.For, c)), a.before(c.For)) < 0 {
			c.For, none = a, false
		}
	}
	w := m.Refusals[c.For.String()]
	if !r.refusedByController(m, c.For, c) || m.Pending(r.Time) == c.Pod.UID { // this request is already pending
		return "", ""
	}
	return CodeBrake, fmt.Sprintf("the controller refused evictions for %s; not requested again until %s: %s", c.For, clock(w.Until), w.Text)
}

// refusedByController reports whether a refusal by the controller holds for this verdict. It
// does not hold for the pod whose request for it is pending.
func (r *evaluation) refusedByController(m State, a VerdictRef, c *Considered) bool {
	if r.Config.Via != ViaController || c.Pod == nil || !r.Time.Before(m.Refusals[a.String()].Until) {
		return false
	}
	return m.Pending(r.Time) != c.Pod.UID || m.last().For != a.String()
}
