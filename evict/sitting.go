package evict

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// sitting is the evaluation of a round: its input, with what follows from that for
// each verdict.
type sitting struct {
	Input
	memory Memory
	// credited are the credits that count, by scopeOf a verdict. covered are the
	// verdicts whose release target the credits cover, counted or not.
	credited map[string][]Credit
	covered  map[string]bool
	muted    map[string]mute
}

// mute is why a verdict allows no eviction; the zero value: it allows one.
type mute struct {
	code Code
	why  string
	// firm: it holds for forced candidates, too.
	firm bool
}

// sit evaluates each verdict. m must be up to date (look).
func sit(in Input, m Memory, list []Considered) *sitting {
	r := &sitting{Input: in, memory: m, credited: map[string][]Credit{}, covered: map[string]bool{}, muted: map[string]mute{}}
	for _, v := range in.Levels.Verdicts {
		if !calls(v) {
			continue
		}
		if in.known() {
			credits := in.credits(m, v, list)
			r.covered[scopeOf(v)] = v.Pressing > plugins.None && in.covers(v, credits)
			if !in.outlasted(m, v) {
				r.credited[scopeOf(v)] = credits
			}
		}
		r.muted[scopeOf(v)] = r.mute(v)
	}
	return r
}

// calls reports whether a verdict is met, or names pods without a threshold.
func calls(v plugins.Verdict) bool { return v.Level > plugins.None || v.Named }

func (r *sitting) free(v plugins.Verdict) bool { return calls(v) && r.muted[scopeOf(v)].code == "" }

func (r *sitting) mute(v plugins.Verdict) mute {
	switch {
	case v.Level < plugins.Hard && !v.Named:
		return mute{code: CodeSoft, why: "soft level: the node is marked, no pod is evicted"}
	case v.Pressing < v.Level:
		return mute{code: CodeHeld, why: "the pressure is gone; the level stays on until it was clear for long enough"}
	case v.Absent != "":
		return mute{code: CodeUnnamed, why: "a measurement is missing, so the plugin names no pod: " + v.Absent}
	}
	if r.Cluster != nil {
		if why := r.kubelets(r.memory, v.Resource); why != "" {
			return mute{CodeKubelet, why, true}
		}
	}
	if code, why := r.reporting(r.memory, v); code != "" {
		return mute{code, why, true}
	}
	return r.waits(v)
}

// waits is why a verdict allows no eviction for a limited time.
func (r *sitting) waits(v plugins.Verdict) mute {
	credits := r.credited[scopeOf(v)]
	pretended, pretends := r.memory.Pretended[scopeOf(v)]
	settled := r.memory.Settle[scopeOf(v)]
	relief, relieved := r.relief(v)
	switch {
	case relieved:
		return mute{code: CodeRelief, why: relief.say()}
	case r.Time.Before(v.Due):
		return mute{code: CodeGrace, why: "met since " + clock(v.Since) + "; eviction grace period until " + clock(v.Due)}
	case r.Config.DryRun && pretends:
		return mute{code: CodeInFlight, why: fmt.Sprintf("dry run: %s/%s counts as evicted since %s",
			pretended.Namespace, pretended.Name, clock(pretended.Time))}
	case r.covers(v, credits):
		return mute{code: CodeInFlight, why: sayCredits(v, credits)}
	case !v.Urgent && r.Time.Before(settled):
		return mute{code: CodeSettle, why: "a pod terminated; cooldown until " + clock(settled)}
	}
	return mute{}
}

// mutes is why none of these verdicts allows an eviction: the reason of the one
// that is nearest to an eviction; zero if one allows it.
func (r *sitting) mutes(list []plugins.Verdict, forced bool) (nearest mute) {
	order := []Code{"", CodeSoft, CodeHeld, CodeUnnamed, CodeKubelet, CodeReporting, CodeGrace, CodeRelief, CodeInFlight, CodeSettle}
	for _, v := range list {
		if !calls(v) {
			continue
		}
		m := r.muted[scopeOf(v)]
		if m.code == "" || forced && !m.firm {
			return mute{}
		}
		if slices.Index(order, m.code) > slices.Index(order, nearest.code) {
			nearest = m
		}
	}
	return nearest
}

// settling is the state with what this round observed.
func (r *sitting) settling(list []Considered) Memory {
	m := r.settled(r.memory)
	if r.unconfirmed(list) != "" {
		m.Quiet = later(m.Quiet, r.Time.Add(r.Config.Settle))
	}
	return m
}

// settled updates the state by the credits of now: while they cover a verdict's
// release target, and for the cooldown after, no pod is chosen for it. Pods may be
// deleted one after the other with gaps, so Covered runs on until one cooldown has
// ended, or the level has. While the pods are not known, its end is not either.
func (r *sitting) settled(m Memory) Memory {
	m = m.clone()
	for _, v := range r.Levels.Verdicts {
		scope := scopeOf(v)
		if v.Pressing > plugins.None && r.covers(v, r.credited[scope]) {
			m.Settle[scope] = r.Time.Add(r.Config.Settle)
		}
		since, before := r.memory.Covered[scope]
		switch {
		case r.covered[scope] && before:
			m.Covered[scope] = since
		case r.covered[scope]:
			m.Covered[scope] = r.Time
		case v.Level == plugins.None, r.known() && v.Pressing > plugins.None && !r.Time.Before(m.Settle[scope]):
			delete(m.Covered, scope)
		}
	}
	return m
}
