package evict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// skip is why a candidate is skipped, whatever holds for the round; empty if it
// may be evicted. It uses the agent's own copy of the pod, not the plugin's.
func (r *evaluation) skip(c *Considered) (Code, string) {
	if c.Refused != "" {
		return CodeNotAllowed, "the plugin may not name it: " + c.Refused
	}
	if r.Cluster == nil {
		return "", ""
	}
	if code, why := r.skipByPod(c); code != "" {
		return code, why
	}
	w := r.state.Backoffs[backoffKey(r.Config.DryRun, c.Pod.UID)]
	ours := slices.IndexFunc(r.state.Victims, func(l Chosen) bool {
		_, ending := r.victimTerminates(r.state, &l)
		return l.UID == c.Pod.UID && ending
	})
	switch {
	case ours >= 0 && r.state.Victims[ours].Outcome == InProgress:
		return CodeTerminating, "its eviction has been in progress since " + clock(r.state.Victims[ours].Time)
	case ours >= 0: // its deletion is not in the watch yet
		return CodeTerminating, "already evicted at " + clock(r.state.Victims[ours].Time)
	case w.holds(r.Time, r.Config.Via):
		return w.Code, fmt.Sprintf("not requested again until %s: %s", clock(w.Until), w.Text)
	case c.Pod.OptedOut != "" && (r.onlySoft(c) || r.Config.optOutHoldsAtHard(c.Pod.Namespace)):
		return CodeOptedOut, "its owner opted out: " + c.Pod.OptedOut
	}
	if key := tolerated(r.Levels, c.Pod); key != "" && r.onlySoft(c) {
		return CodeTolerates, "it tolerates the taint " + key + ", so it could be scheduled here again"
	}
	if code, why := r.skipByVerdicts(c); code != "" {
		return code, why
	}
	if r.state.Pending(r.Time) == c.Pod.UID { // its token was taken already
		return "", ""
	}
	return r.ownerRateLimit(r.state.RateLimits, c)
}

// ownerRateLimit is why the eviction rate limit of a pod's owner allows no eviction now; empty
// when it allows one. Where memory is below its floor an owner
// whose bucket is not stored has one token in advance: else no pod could be evicted in the first
// minutes of a node, when all pods start. The node's own bucket bounds all of them.
func (r *evaluation) ownerRateLimit(b RateLimits, c *Considered) (Code, string) {
	owner := ownerOf(c.Pod)
	k, empty := r.Config.Limits.ownerBucket(), b.emptyOf(owner)
	_, stored := b.Owners[owner]
	if k.left(empty, r.Uptime) > 0 || !stored && r.urgent(c) {
		return "", ""
	}
	return CodeRateLimit, fmt.Sprintf("eviction rate limit of %s on this node reached (%d per hour); next eviction possible at %s",
		owner, k.size, clock(r.Time.Add(k.next(empty, r.Uptime))))
}

// urgent reports whether a candidate may be evicted because memory is below its floor.
func (r *evaluation) urgent(c *Considered) bool {
	return slices.ContainsFunc(r.Levels.Verdicts, func(v plugins.Verdict) bool { return v.Urgent && r.evictableFor(v, c) })
}

func (c *Config) optOutHoldsAtHard(namespace string) bool {
	return slices.Contains(c.OptOutHard, namespace) || slices.Contains(c.OptOutHard, "*")
}

// onlySoft reports whether only verdicts that are soft for the candidate name it, and none
// forces it.
func (r *evaluation) onlySoft(c *Considered) bool {
	return !c.Forced && !slices.ContainsFunc(r.Levels.Verdicts, func(v plugins.Verdict) bool {
		_, named := reliefBy(v, c)
		return named && levelFor(v, c) == plugins.Hard
	})
}

// tolerated is the key of a taint of ours, present or about to be set, that the pod
// tolerates. The pod's owner controls that, so it counts as an opt-out.
func tolerated(levels *plugins.Levels, p *pods.Pod) string {
	for _, v := range levels.Verdicts {
		key := names.Prefix + v.Condition
		if v.Level > plugins.None && v.Condition != "" && p.Tolerates(corev1.Taint{Key: key, Effect: corev1.TaintEffectPreferNoSchedule}) {
			return key
		}
	}
	return ""
}

func (r *evaluation) skipByPod(c *Considered) (Code, string) {
	switch {
	case c.PodUID == "":
		return CodeNotAPod, "not a pod"
	case c.Pod == nil:
		return CodeUnknownPod, "the API server lists no such pod on this node"
	case len(c.Pod.Protections) > 0:
		return protection(c.Pod)
	case c.Pod.Phase == "Succeeded" || c.Pod.Phase == "Failed":
		return CodeFinished, "it has terminated: phase " + c.Pod.Phase
	case c.Pod.TerminatesBy.IsZero():
		if until, counts := r.evictedElsewhereUntil(r.state, c.Pod); counts && r.Time.Before(r.waitUntil(c, r.state.Elsewhere[c.Pod.UID], until)) {
			return CodeTerminating, fmt.Sprintf("another component evicts it (%s): counted until %s", c.Pod.EvictedElsewhere, clock(until))
		}
		return "", ""
	case r.Time.Before(r.terminatesBy(r.state, c.Pod)) && !r.hastens(c):
		return CodeTerminating, "it is terminating until " + clock(c.Pod.TerminatesBy)
	case r.overdue(c.Pod.TerminatesBy):
		return CodeOverdue, fmt.Sprintf("it should have terminated by %s; its usage no longer counts as released", clock(c.Pod.TerminatesBy))
	}
	return "", "" // its termination grace period exceeds MaxTerminationGrace: evicting it shortens that
}

// waitUntil is until when a candidate is left to others that end it since then. Each verdict
// that allows its eviction waits for as long as it credits the candidate.
func (r *evaluation) waitUntil(c *Considered, since, ends time.Time) time.Time {
	until := ends
	for _, v := range r.Levels.Verdicts {
		if _, named := reliefBy(v, c); named && r.allows(v) {
			until = earlier(until, r.creditUntil(v, since, ends))
		}
	}
	return until
}

// hastens reports whether a terminating candidate is not waited for any more, and would
// terminate earlier by its eviction: its owner may choose a long termination grace period.
func (r *evaluation) hastens(c *Considered) bool {
	ends := r.terminatesBy(r.state, c.Pod)
	evicted := r.Time.Add(time.Duration(c.grace(r.Config.MaxTerminationGrace)) * time.Second)
	return c.Pod.TerminatesBy.After(evicted) && !r.Time.Before(r.waitUntil(c, r.state.Terminating[c.Pod.UID], ends))
}

func protection(p *pods.Pod) (Code, string) {
	var whys []string
	for _, o := range p.Protections {
		whys = append(whys, o.Why)
	}
	return Code(p.Protections[0].Code), "protected: " + strings.Join(whys, "; ")
}

// skipByVerdicts is why no verdict that names the candidate allows its eviction.
func (r *evaluation) skipByVerdicts(c *Considered) (Code, string) {
	var naming []plugins.Verdict
	for _, v := range r.Levels.Verdicts {
		if r.evictableFor(v, c) {
			return "", ""
		}
		if _, named := reliefBy(v, c); named && !(r.allows(v) && r.optedOutOf(v, c)) {
			naming = append(naming, v)
		}
	}
	if m := r.suppressions(naming, false); m.code != "" {
		return m.code, m.why
	}
	return CodeTooSmall, "evicting it would release too little: " + c.Why
}

// reliefBy is the relief that a verdict expects of a candidate's eviction; named is
// false if it does not name it.
func reliefBy(v plugins.Verdict, c *Considered) (relief float64, named bool) {
	for _, o := range v.Candidates {
		if o.Refused == "" && workloadKey(o) == workloadKey(c.Candidate) {
			relief, named = max(relief, o.Relief), true
		}
	}
	return relief, named
}

// enough reports whether an eviction that releases so much is worth it.
func enough(c *Config, v plugins.Verdict, relief float64) bool {
	target, known := v.Target.Get()
	whole, measured := v.Whole.Get()
	return !known && !measured || known && relief >= target || measured && relief >= c.MinRelief*whole
}
