package evict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// observe updates the state by the clocks, the rules and the pods as they are now.
func (m State) observe(in Input) State {
	boot := m.RateLimits.Boot
	m = m.clone()
	m = m.clampTimes(in)
	m.RateLimits = m.RateLimits.onBoot(in.Boot, in.Uptime)
	m.Rules = observeRules(m.Rules, in, boot)
	for _, waits := range []map[string]Backoff{m.Backoffs, m.Refusals} {
		maps.DeleteFunc(waits, func(_ string, w Backoff) bool { return in.Time.Sub(w.Until) > maxBackoff })
	}
	maps.DeleteFunc(m.Cooldowns, func(_ string, until time.Time) bool { return !in.Time.Before(until) })
	maps.DeleteFunc(m.KubeletEvictions, func(_ string, at time.Time) bool { return in.Time.Sub(at) >= in.Config.KubeletCooldown })
	levels := levelsOf(in)
	maps.DeleteFunc(m.DryRunEvicted, func(scope string, _ Chosen) bool {
		level, judged := levels[scope] // others belong to the other part of the round
		return in.Config.DryRun && level < plugins.Hard || !in.Config.DryRun && judged
	})
	maps.DeleteFunc(m.Covered, func(scope string, since time.Time) bool {
		judges := func(v plugins.Verdict) bool { return verdictKey(v) == scope }
		return in.Time.Sub(since) >= coveredMaxAge || len(m.Covered) > maxRules && !in.judged(judges)
	})
	if in.clusterKnown() {
		m = m.observeTerminating(in).observeElsewhere(in).observeVictims(in).observeKubeletEvictions(in)
	}
	return m
}

// coveredMaxAge bounds how long the state has verdicts that are no longer judged.
// Their number is bounded as that of rules, however many names a plugin uses.
const coveredMaxAge = time.Hour

// observeTerminating records which pods are terminating.
func (m State) observeTerminating(in Input) State {
	ending := map[string]time.Time{}
	for _, p := range in.Cluster.Pods.Pods {
		if p.TerminatesBy.IsZero() {
			continue
		}
		ending[p.UID] = in.Time
		if since, seen := m.Terminating[p.UID]; seen {
			ending[p.UID] = since
		}
	}
	m.Terminating = ending
	return m
}

// observeElsewhere records which pods another component evicts.
func (m State) observeElsewhere(in Input) State {
	seen := map[string]time.Time{}
	for _, p := range in.Cluster.Pods.Pods {
		since, before := m.Elsewhere[p.UID]
		switch {
		case before:
			seen[p.UID] = since
		case p.EvictedElsewhere != "":
			seen[p.UID] = in.Time
		}
	}
	m.Elsewhere = seen
	return m
}

// clampTimes limits how far times in the state lie ahead. Otherwise they would stay in
// force after the clock was set back.
func (m State) clampTimes(in Input) State {
	for _, waits := range []map[string]Backoff{m.Backoffs, m.Refusals} {
		for of, w := range waits {
			w.Until = earlier(w.Until, in.Time.Add(maxBackoff))
			waits[of] = w
		}
	}
	for scope, until := range m.Cooldowns {
		m.Cooldowns[scope] = earlier(until, in.Time.Add(in.Config.Cooldown))
	}
	for _, seen := range []map[string]time.Time{m.KubeletEvictions, m.Terminating, m.Elsewhere, m.Covered} {
		for of, at := range seen {
			seen[of] = earlier(at, in.Time)
		}
	}
	m.CooldownUntil = earlier(m.CooldownUntil, in.Time.Add(in.Config.Cooldown))
	for i := range m.Victims {
		m.Victims[i].Time, m.Victims[i].Requested = earlier(m.Victims[i].Time, in.Time), earlier(m.Victims[i].Requested, in.Time)
	}
	return m
}

// observeVictims updates the victims by the pods as they are now.
func (m State) observeVictims(in Input) State {
	var kept []Chosen
	for _, l := range m.Victims {
		p, there := byUID(in.Cluster.Pods, l.UID)
		switch {
		case l.DryRun: // of an agent that was killed during the request
			continue
		case !l.TerminatedAt.IsZero():
		case !there || p.Phase == "Succeeded" || p.Phase == "Failed": // a finalizer may keep the terminated pod
			if l.Outcome != Evicted { // the answer was lost
				m.Named = withoutNames(m.Named, &l)
			}
			l.TerminatedAt = in.Time
			m.startCooldown(&l, in.Time.Add(in.Config.Cooldown))
		case endedByUs(in, &l, &p) && l.Outcome != Evicted: // the answer was lost
			l.Outcome = Evicted
			m.Named = withoutNames(m.Named, &l)
			m.startCooldown(&l, in.Time.Add(in.Config.Cooldown))
		case l.Outcome == Refused: // Follow records it in the decision
		case l.Outcome == InProgress && in.Time.Before(in.inProgressUntil(&l)):
		case l.Outcome == InProgress:
			l.Outcome = Refused
			m.Backoffs[p.UID] = m.Backoffs[p.UID].next(Answer{Time: in.Time, Outcome: Refused, Text: in.notCarriedOut()}, in.Config.Via)
		case l.Outcome != Evicted && in.Time.Sub(later(l.Time, l.Requested)) >= requestTimeout:
			// The pod still exists: a missing answer must not block other evictions.
			m.Backoffs[p.UID] = m.Backoffs[p.UID].next(Answer{Time: in.Time, Outcome: Blocked, Text: "no answer for " + requestTimeout.String() + ", or the request was withdrawn"}, in.Config.Via)
			continue
		}
		kept = append(kept, l)
	}
	m.Victims = kept
	return m
}

// endedByUs reports whether a victim may terminate by its eviction. One that was terminating
// when it was chosen does only if it ends as soon as it would by that: a user who may delete it
// may do so again and again, each time with a little less of a long period.
func endedByUs(in Input, l *Chosen, p *pods.Pod) bool {
	if p.TerminatesBy.IsZero() || p.TerminatesBy.Equal(l.TerminatesBy) {
		return false
	}
	evicted := in.Time.Add(time.Duration(l.GraceSeconds)*time.Second + in.Config.OverdueAfter)
	return l.TerminatesBy.IsZero() || !p.TerminatesBy.After(evicted)
}

// observeKubeletEvictions records which pods the kubelet evicted for node pressure; such a
// pod does not terminate, it becomes Failed and stays listed. It starts the
// kubelet's cooldown.
func (m State) observeKubeletEvictions(in Input) State {
	var failed []string
	for _, p := range in.Cluster.Pods.Pods {
		condition := evictedFor(p)
		if condition == "" {
			continue
		}
		failed = append(failed, p.UID)
		if !slices.Contains(m.KubeletEvicted, p.UID) {
			m.KubeletEvictions[condition] = in.Time
		}
	}
	slices.Sort(failed)
	m.KubeletEvicted = failed
	return m
}

// evictedFor is the kubelet's pressure condition for which it evicted a pod; empty
// for other pods. The messages, and those of evictions for a limit of the pod's
// own, are in kubernetes/pkg/kubelet/eviction/helpers.go. Only the beginning is
// read: after the resource there are names that the pod's owner chose.
func evictedFor(p pods.Pod) string {
	of, low := strings.CutPrefix(p.StatusMessage, "The node was low on resource: ")
	if p.StatusReason != "Evicted" || !low {
		return ""
	}
	switch resource, _, _ := strings.Cut(of, "."); resource {
	case "memory":
		return string(corev1.NodeMemoryPressure)
	case "ephemeral-storage", "inodes":
		return string(corev1.NodeDiskPressure)
	case "pids":
		return string(corev1.NodePIDPressure)
	}
	return ""
}

// kubeletFirst is why the kubelet's own evictions for a resource come first; empty if
// they do not.
func kubeletFirst(in Input, m State, of plugins.Resource) string {
	own, known := kubeletCondition(of)
	for _, c := range in.Cluster.Node.KubeletPressure {
		if c == own || !known {
			return "the kubelet reports " + c + " and evicts pods itself"
		}
	}
	var last time.Time
	for condition, at := range m.KubeletEvictions {
		if condition == own || !known {
			last = later(last, at)
		}
	}
	if until := last.Add(in.Config.KubeletCooldown); in.Time.Before(until) {
		return fmt.Sprintf("the kubelet evicted a pod at %s; cooldown until %s", clock(last), clock(until))
	}
	return ""
}

func byUID(l pods.List, uid string) (pods.Pod, bool) {
	for _, p := range l.Pods {
		if p.UID == uid {
			return p, true
		}
	}
	return pods.Pod{}, false
}
