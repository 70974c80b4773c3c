package evict

import (
	"fmt"
	"slices"
	"time"
)

// holdRound is why no pod is evicted in this round, whatever the candidates; empty if
// one may be. wait is that of waitForOthers.
func (r *evaluation) holdRound(list []Considered, wait suppression) (Code, string) {
	forced := slices.ContainsFunc(list, func(c Considered) bool { return c.Forced && c.Code == "" })
	muted := r.suppressions(r.Levels.Verdicts, forced)
	passes := slices.Contains([]Code{CodeGrace, CodeRelief, CodeTerminating, CodeCooldown}, muted.code)
	for _, why := range []func() (Code, string){
		r.holdByLevel,
		func() (Code, string) {
			if passes {
				return "", ""
			}
			return muted.code, muted.why
		},
		r.holdByAge, r.holdByCluster, r.holdByTaint,
		func() (Code, string) { return muted.code, muted.why },
	} {
		if code, reason := why(); code != "" {
			return code, reason
		}
	}
	if wait.code != "" {
		return wait.code, wait.why
	}
	uid := r.state.Pending(r.Time)
	if !r.Config.DryRun && slices.ContainsFunc(list, func(c Considered) bool { return c.Code == "" && c.Pod.UID == uid }) {
		return "", "" // its token was taken already
	}
	return nodeRateLimit(r.Input, r.state.RateLimits)
}

// waitForOthers is why every verdict waits for earlier evictions; zero if none does.
// Memory below its floor has no cooldown, and waits for an unknown outcome as for a pod
// that terminates (UrgentWait): then all other candidates alone wait, and have that reason.
// waiting is that of unknownOutcome.
func (r *evaluation) waitForOthers(list []Considered, waiting string) (wait suppression) {
	passes, awaited := true, ""
	switch {
	case waiting != "":
		l := r.state.pending(r.Time)
		wait = suppression{code: CodeTerminating, why: waiting}
		passes, awaited = r.Time.Sub(l.Time) >= r.Config.UrgentWait, l.UID
	case r.Time.Before(r.state.CooldownUntil):
		wait = suppression{code: CodeCooldown, why: "cooldown of all rules until " + clock(r.state.CooldownUntil) + ": " + cooldownOfAll}
	default:
		return wait
	}
	urgent := func(c Considered) bool {
		return c.Code == "" && c.For.Urgent && (awaited == "" || c.Pod.UID != awaited) // without a cluster it has no pod
	}
	if !passes || !slices.ContainsFunc(list, urgent) {
		return wait
	}
	for i := range list {
		if c := &list[i]; c.Code == "" && !urgent(*c) {
			c.Code, c.Reason = wait.code, wait.why
		}
	}
	return suppression{}
}

// cooldownOfAll is what starts the cooldown of all verdicts.
const cooldownOfAll = "the agent started without saved state, or the outcome of an eviction was unknown"

// clock is a time for people, with its date: some are set by others and far away.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

func (in Input) holdByLevel() (Code, string) {
	switch {
	case !slices.ContainsFunc(in.Levels.Verdicts, active):
		return CodeEnded, in.whyEnded()
	case in.Cluster == nil:
		return CodeStandalone, Standalone
	case !in.Config.Enabled:
		return CodeOff, "eviction.enabled is false"
	}
	return "", ""
}

// whyEnded is why no level is met any more.
func (in Input) whyEnded() string {
	if in.Before != nil {
		for _, was := range in.Before.Verdicts {
			i := slices.IndexFunc(in.Levels.Verdicts, sameScope(was))
			if active(was) && i >= 0 && in.Levels.Verdicts[i].NotJudged() != "" {
				return "whether the pressure has ended is not known: " + was.Plugin + " on " + was.Scope + ": " + in.Levels.Verdicts[i].NotJudged()
			}
		}
	}
	return "the pressure has ended"
}

// Standalone is why an agent without a cluster evicts no pod.
const Standalone = "standalone mode: evictions are disabled"

// holdByAge is why the measurements are too old: an agent that was frozen or
// starved wakes up with old ones, and a changed clock makes their age unknown.
func (in Input) holdByAge() (Code, string) {
	limit := in.Config.OldestMeasurement()
	switch age := in.Time.Sub(in.Levels.Time); {
	case age > limit:
		return CodeStale, "no measurement since " + clock(in.Levels.Time)
	case age < -limit:
		return CodeStale, "the clock was set back: the last measurement is dated " + clock(in.Levels.Time)
	}
	return "", ""
}

// clusterKnown reports whether pods and Node are up to date.
func (in Input) clusterKnown() bool {
	if in.Cluster == nil {
		return false
	}
	code, _ := in.holdByCluster()
	return code == ""
}

func (in Input) holdByCluster() (Code, string) {
	l := in.Cluster.Pods
	switch {
	case !l.Synced:
		return CodeStale, "the pods of this node have not been listed yet" + colonReason(l.StaleBecause)
	case !l.StaleSince.IsZero():
		return CodeStale, "no connection to the API server since " + clock(l.StaleSince) + colonReason(l.StaleBecause)
	case in.Cluster.Node.ReadError != "":
		return CodeStale, "cannot read the Node: " + in.Cluster.Node.ReadError
	}
	return "", ""
}

func (in Input) holdByTaint() (Code, string) {
	if in.Config.DryRun || in.Cluster.Unmarked == "" { // a dry run sets no taint
		return "", ""
	}
	return CodeTaint, "waiting for the taint, so that the pod is not scheduled here again: " + in.Cluster.Unmarked
}

func colonReason(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// unknownOutcome is the reason to wait for the last chosen pod while the outcome of
// its eviction is unknown: unless its eviction is requested again, no other pod is
// evicted in its place. Empty: no need to wait.
func (r *evaluation) unknownOutcome(list []Considered) string {
	l := r.state.pending(r.Time)
	if l == nil || !r.clusterKnown() || r.requestsAgain(l, list) {
		return ""
	}
	return fmt.Sprintf("waiting: the outcome of the eviction of %s/%s, chosen at %s, is not known yet", l.Namespace, l.Name, clock(l.Time))
}

// requestsAgain reports whether the eviction of a pod is requested again: it is a candidate
// still. Memory below its floor does so for UrgentWait, while it has others: what keeps one
// pod from going, such as a failing admission webhook, must not keep them all.
func (r *evaluation) requestsAgain(l *Chosen, list []Considered) bool {
	again, others := false, false
	for i := range list {
		switch c := &list[i]; {
		case c.Code != "":
		case c.Pod.UID == l.UID:
			again = true
		case c.For.Urgent:
			others = true
		}
	}
	return again && !r.Config.DryRun && !(others && r.Time.Sub(l.Time) >= r.Config.UrgentWait)
}
