package evict

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// hold is why nobody goes in this round, whoever is a candidate; empty when
// somebody may.
func (in Input) hold(m Memory, ending string) (Code, string) {
	for _, why := range []func() (Code, string){in.holdByLevel, in.holdByAge, in.holdByCluster} {
		if code, reason := why(); code != "" {
			return code, reason
		}
	}
	l := m.Last
	switch {
	case l != nil && l.DryRun && l.Outcome == Evicted: // look forgets it when it is for real
		return CodeInFlight, fmt.Sprintf("dry run: %s/%s counts as evicted since %s", l.Namespace, l.Name, clock(l.Time))
	case !in.Config.DryRun && in.Cluster.Marked != "": // a dry run wants no taint
		return CodeTaint, "waits for the taint, or the pod would come back here: " + in.Cluster.Marked
	case ending != "":
		return CodeInFlight, ending
	case in.Time.Before(m.Quiet):
		return CodeSettle, "a pod has gone: the node settles until " + clock(m.Quiet)
	}
	return "", ""
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }

func (in Input) holdByLevel() (Code, string) {
	switch {
	case !slices.ContainsFunc(in.Levels.Verdicts, met):
		return CodeEnded, "no pressure any more"
	case in.Cluster == nil:
		return CodeStandalone, Standalone
	case !in.Config.Enabled:
		return CodeOff, "eviction.enabled is false"
	}
	return in.mutes(in.Levels.Verdicts)
}

func met(v plugins.Verdict) bool { return v.Level > plugins.None }

func hard(v plugins.Verdict) bool { return v.Level == plugins.Hard }

// Standalone is why an agent without a cluster evicts nobody.
const Standalone = "standalone: without a cluster nothing is evicted"

// mute is why nobody goes for one verdict; empty when somebody may.
func (in Input) mute(v plugins.Verdict) (Code, string) {
	own := kubeletCondition(v.Resource)
	switch {
	case v.Level < plugins.Hard:
		return CodeSoft, "soft: the node is marked, nobody has to go"
	case v.Pressing < plugins.Hard:
		return CodeHeld, "the level lasts until it was clear for long enough; its pressure is gone"
	case v.Absent != "":
		return CodeUnnamed, "a measurement is absent, so nobody is named: " + v.Absent
	case slices.Contains(in.Cluster.Node.KubeletPressure, own):
		return CodeKubelet, "the kubelet reports " + own + " and evicts by itself"
	}
	return "", ""
}

// mutes is why nobody goes for any of these verdicts, by the first of those that
// come nearest to it; empty when somebody may go for one of them.
func (in Input) mutes(list []plugins.Verdict) (nearest Code, reason string) {
	order := []Code{"", CodeSoft, CodeHeld, CodeUnnamed, CodeKubelet}
	for _, v := range list {
		code, why := in.mute(v)
		if code == "" {
			return "", ""
		}
		if slices.Index(order, code) > slices.Index(order, nearest) {
			nearest, reason = code, why
		}
	}
	return nearest, reason
}

// fresh is how old levels may be, at the least, to say anything about now: a
// program that was frozen or starved wakes up with what it saw last.
const fresh = 15 * time.Second

func (in Input) holdByAge() (Code, string) {
	if in.Time.Sub(in.Levels.Time) > max(fresh, 3*in.Config.Round) {
		return CodeStale, "nothing was measured since " + clock(in.Levels.Time)
	}
	return "", ""
}

// known: the pods and the Node are known as they are now.
func (in Input) known() bool {
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
		return CodeStale, "the node's pods were not listed yet" + because(l.StaleBecause)
	case !l.StaleSince.IsZero():
		return CodeStale, "the API server is not heard since " + clock(l.StaleSince) + because(l.StaleBecause)
	case in.Cluster.Node.Unknown != "":
		return CodeStale, "the Node is not known: " + in.Cluster.Node.Unknown
	}
	return "", ""
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// credit looks for pods that are ending, whoever ended them: their load counts
// as released, and when they are gone the node is given time to settle.
func (m Memory) credit(in Input, list []Considered) (Memory, string) {
	ending := ""
	if in.known() {
		ending = cmp.Or(m.ownEnding(in), m.unconfirmed(in, list))
	}
	for i := range list {
		c := &list[i]
		if c.Pod != nil && in.Time.Before(c.Pod.GoneBy.Add(late)) && in.helps(c, hard) {
			ending = fmt.Sprintf("%s/%s is ending until %s: its load counts as released", c.Pod.Namespace, c.Pod.Name, clock(c.Pod.GoneBy))
		}
	}
	if ending != "" {
		m.Quiet = later(m.Quiet, in.Time.Add(in.Config.Settle))
	}
	return m, ending
}

// unconfirmed is the pod that was chosen last while nobody knows whether its
// eviction came through: where it cannot be asked for again, no other goes in
// its place.
func (m Memory) unconfirmed(in Input, list []Considered) string {
	uid := m.pending(in.Time)
	again := slices.ContainsFunc(list, func(c Considered) bool { return c.Pod != nil && c.Pod.UID == uid && c.Code == "" })
	if uid == "" || again && !in.Config.DryRun {
		return ""
	}
	return fmt.Sprintf("nobody knows yet whether %s/%s is evicted, which was chosen at %s", m.Last.Namespace, m.Last.Name, clock(m.Last.Time))
}

// ownEnding is our own last victim while it ends, also before its end is seen
// in the pod.
func (m Memory) ownEnding(in Input) string {
	l := m.Last
	if l == nil || l.DryRun || l.Outcome != Evicted || !l.GoneAt.IsZero() {
		return ""
	}
	p, _ := byUID(in.Cluster.Pods, l.UID)
	until := later(p.GoneBy, l.Time.Add(time.Duration(l.GraceSeconds)*time.Second))
	if !in.Time.Before(until.Add(late)) {
		return ""
	}
	return fmt.Sprintf("%s/%s was evicted at %s and is ending: its load counts as released", l.Namespace, l.Name, clock(l.Time))
}
