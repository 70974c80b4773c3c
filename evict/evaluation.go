package evict

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// evaluation is the evaluation of a round: its input, with what follows from that for
// each verdict.
type evaluation struct {
	Input
	state State
	// credits are the credits that count, by verdictKey a verdict. covered are the
	// verdicts whose release target the credits cover, counted or not.
	credits    map[string][]Credit
	covered    map[string]bool
	suppressed map[string]suppression
}

// suppression is why a verdict allows no eviction; the zero value: it allows one.
type suppression struct {
	code Code
	why  string
	// alsoForced: it holds for forced candidates, too.
	alsoForced bool
}

// evaluate evaluates each verdict. m must be up to date (look).
func evaluate(in Input, m State, list []Considered) *evaluation {
	r := &evaluation{Input: in, state: m, credits: map[string][]Credit{}, covered: map[string]bool{}, suppressed: map[string]suppression{}}
	for _, v := range in.Levels.Verdicts {
		if !active(v) {
			continue
		}
		if in.clusterKnown() {
			credits := in.credits(m, v, list)
			r.covered[verdictKey(v)] = v.MetLevel > plugins.None && in.covers(v, credits)
			if !in.creditExpired(m, v, credits) {
				r.credits[verdictKey(v)] = credits
			}
		}
		r.suppressed[verdictKey(v)] = r.suppression(v)
	}
	return r
}

// active reports whether a verdict is met, or names pods without a threshold.
func active(v plugins.Verdict) bool { return v.Level > plugins.None || v.Named }

func (r *evaluation) allows(v plugins.Verdict) bool {
	return active(v) && r.suppressed[verdictKey(v)].code == ""
}

func (r *evaluation) suppression(v plugins.Verdict) suppression {
	switch {
	case v.Level < plugins.Hard && !v.Named:
		return suppression{code: CodeSoft, why: softReason(r.Input, v)}
	case v.MetLevel < v.Level:
		return suppression{code: CodeLatched, why: "the pressure is gone; the level stays on until it was clear for long enough"}
	case v.Absent != "" && !slices.ContainsFunc(v.Candidates, func(c plugins.Candidate) bool { return c.Forced }):
		return suppression{code: CodeNoCandidate, why: "a measurement is missing, so the plugin names no pod: " + v.Absent}
	}
	if s := evictsNothing(r.Input, r.state, v); s.code != "" {
		return s
	}
	return r.suppressionForNow(v)
}

func softReason(in Input, v plugins.Verdict) string {
	if why := unmarked(in, v); why != "" {
		return "soft level: no pod is evicted; the node is not marked: " + why
	}
	return "soft level: the node is marked, no pod is evicted"
}

// evictsNothing is why a verdict allows no eviction at all, not even a forced one.
func evictsNothing(in Input, m State, v plugins.Verdict) suppression {
	if in.Cluster != nil {
		if why := kubeletFirst(in, m, v.Resource); why != "" {
			return suppression{CodeKubelet, why, true}
		}
	}
	if why := in.excluded(v); why != "" {
		return suppression{CodeReportOnly, why, true}
	}
	if code, why := reportOnly(in, m.Rules, v); code != "" {
		return suppression{code, why, true}
	}
	return suppression{}
}

// suppressionForNow is why a verdict allows no eviction for a limited time.
func (r *evaluation) suppressionForNow(v plugins.Verdict) suppression {
	credits := r.credits[verdictKey(v)]
	pretended, pretends := r.state.DryRunEvicted[verdictKey(v)]
	settled := r.state.Cooldowns[verdictKey(v)]
	relief, relieved := reliefFor(r.Input, v)
	switch {
	case relieved:
		return suppression{code: CodeRelief, why: relief.reason()}
	case r.Time.Before(v.GraceEnds):
		return suppression{code: CodeGrace, why: "met since " + clock(v.Since) + "; eviction grace period until " + clock(v.GraceEnds)}
	case r.Config.DryRun && pretends:
		return suppression{code: CodeTerminating, why: fmt.Sprintf("dry run: %s/%s counts as evicted since %s",
			pretended.Namespace, pretended.Name, clock(pretended.Time))}
	case r.covers(v, credits):
		return suppression{code: CodeTerminating, why: creditReason(v, credits)}
	case !v.Urgent && r.Time.Before(settled):
		return suppression{code: CodeCooldown, why: "a pod terminated; cooldown until " + clock(settled)}
	}
	return suppression{}
}

// suppressions is why none of these verdicts allows an eviction: the reason of the one
// that is nearest to an eviction; zero if one allows it.
func (r *evaluation) suppressions(list []plugins.Verdict, forced bool) (nearest suppression) {
	order := []Code{"", CodeSoft, CodeLatched, CodeNoCandidate, CodeKubelet, CodeReportOnly, CodeGrace, CodeRelief, CodeTerminating, CodeCooldown}
	for _, v := range list {
		if !active(v) {
			continue
		}
		m := r.suppressed[verdictKey(v)]
		if m.code == "" || forced && !m.alsoForced {
			return suppression{}
		}
		if slices.Index(order, m.code) > slices.Index(order, nearest.code) {
			nearest = m
		}
	}
	return nearest
}

// stateAfter is the state with what this round observed. The cooldown of all verdicts is
// that of the part in force: a dry run beside it waits too, and lengthens nothing.
// waiting is that of unknownOutcome.
func (r *evaluation) stateAfter(waiting string) State {
	m := r.withCooldowns(r.state)
	if !r.besideOthers() && waiting != "" {
		m.CooldownUntil = later(m.CooldownUntil, r.Time.Add(r.Config.Cooldown))
	}
	return m
}

// withCooldowns updates the state by the credits of now: while they cover a verdict's
// release target, and for the cooldown after, no pod is chosen for it. Pods may be
// deleted one after the other with gaps, so Covered runs on until one cooldown has
// ended, or the level has. While the pods are not known, its end is not either.
func (r *evaluation) withCooldowns(m State) State {
	m = m.clone()
	for _, v := range r.Levels.Verdicts {
		scope := verdictKey(v)
		if v.MetLevel > plugins.None && r.covers(v, r.credits[scope]) {
			m.Cooldowns[scope] = r.Time.Add(r.Config.Cooldown)
		}
		since, before := r.state.Covered[scope]
		switch {
		case r.covered[scope] && before:
			m.Covered[scope] = since
		case r.covered[scope]:
			m.Covered[scope] = r.Time
		case v.Level == plugins.None, r.clusterKnown() && v.MetLevel > plugins.None && !r.Time.Before(m.Cooldowns[scope]):
			delete(m.Covered, scope)
		}
	}
	return m
}

// evictableFor reports whether a verdict allows evictions now, names this candidate,
// and the candidate's eviction would release enough.
func (r *evaluation) evictableFor(v plugins.Verdict, c *Considered) bool {
	relief, named := reliefBy(v, c)
	return named && r.allows(v) && !r.optedOutOf(v, c) && enough(&r.Config, v, relief) || r.forcedBy(v, c)
}

// optedOutOf reports whether the candidate opted out, or tolerates our taint, and the
// verdict is not hard for it. A hard verdict beside it does not change that.
func (r *evaluation) optedOutOf(v plugins.Verdict, c *Considered) bool {
	return levelFor(v, c) < plugins.Hard && c.Pod != nil && (c.Pod.OptedOut != "" || tolerated(r.Levels, c.Pod) != "")
}

// levelFor is the level of a verdict for one of its candidates.
func levelFor(v plugins.Verdict, c *Considered) plugins.Level {
	return candidateLevel(v, v.Level, forces(v, c))
}

// candidateLevel is a level of a verdict as it holds for one of its candidates: one that
// is named without a threshold and not forced is at soft, whatever others are forced.
func candidateLevel(v plugins.Verdict, level plugins.Level, forced bool) plugins.Level {
	if v.Named && !forced {
		return min(level, plugins.Soft)
	}
	return level
}

// forcedBy reports whether a verdict forces the candidate's eviction, whatever
// temporary reasons there are to wait.
func (r *evaluation) forcedBy(v plugins.Verdict, c *Considered) bool {
	return active(v) && !r.suppressed[verdictKey(v)].alsoForced && forces(v, c)
}

// forces reports whether a verdict names the candidate as forced.
func forces(v plugins.Verdict, c *Considered) bool {
	return slices.ContainsFunc(v.Candidates, func(o plugins.Candidate) bool {
		return o.Forced && o.Refused == "" && workloadKey(o) == workloadKey(c.Candidate)
	})
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
		a := VerdictRef{v.Plugin, candidateLevel(v, v.MetLevel, forces(v, c)), v.Resource, v.Urgent}
		if none || cmp.Or(trueFirst(!r.refusedByController(m, a, c), !r.refusedByController(m, c.For, c)), a.before(c.For)) < 0 {
			c.For, none = a, false
		}
	}
	w := m.Refusals[c.For.String()]
	if !r.refusedByController(m, c.For, c) || m.Pending(r.Time) == c.Pod.UID { // this request is already pending
		return "", ""
	}
	by := "the controller"
	if r.Config.Via == ViaRequest {
		by = "the API server"
	}
	return CodeBrake, fmt.Sprintf("%s refused evictions for %s; not requested again until %s: %s", by, c.For, clock(w.Until), w.Text)
}

// refusedByController reports whether a refusal for every pod holds for this verdict. It
// does not hold for the pod whose request for it is pending.
func (r *evaluation) refusedByController(m State, a VerdictRef, c *Considered) bool {
	if c.Pod == nil || !m.Refusals[a.String()].holds(r.Time, r.Config.Via) {
		return false
	}
	l := m.pending(r.Time)
	return l == nil || l.UID != c.Pod.UID || l.For != a.String()
}
