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

// look updates the state by the clocks, the rules and the pods as they are now.
func (m Memory) look(in Input) Memory {
	boot := m.Budgets.Boot
	m = m.clone()
	m = m.bound(in)
	m.Budgets = m.Budgets.at(in.Boot, in.Uptime)
	m = m.lookAtRules(in, boot)
	for _, waits := range []map[string]Waiting{m.Waiting, m.Brakes} {
		maps.DeleteFunc(waits, func(_ string, w Waiting) bool { return in.Time.Sub(w.Until) > maxWait })
	}
	maps.DeleteFunc(m.Settle, func(_ string, until time.Time) bool { return !in.Time.Before(until) })
	maps.DeleteFunc(m.Kubelet, func(_ string, at time.Time) bool { return in.Time.Sub(at) >= in.Config.KubeletTurn })
	levels := levelsOf(in)
	maps.DeleteFunc(m.Pretended, func(scope string, _ Chosen) bool {
		level, judged := levels[scope] // others belong to the other part of the round
		return in.Config.DryRun && level < plugins.Hard || !in.Config.DryRun && judged
	})
	maps.DeleteFunc(m.Covered, func(scope string, since time.Time) bool {
		_, judged := levels[scope]
		return in.Time.Sub(since) >= coverKept || !judged && len(m.Covered) > rulesKept
	})
	if in.known() {
		m = m.lookAtEnding(in).lookAtVictims(in).lookAtFailed(in)
	}
	return m
}

// coverKept bounds how long the state has verdicts that are no longer judged.
// Their number is bounded as that of rules, however many names a plugin uses.
const coverKept = time.Hour

// lookAtEnding records which pods are terminating.
func (m Memory) lookAtEnding(in Input) Memory {
	ending := map[string]time.Time{}
	for _, p := range in.Cluster.Pods.Pods {
		if p.GoneBy.IsZero() {
			continue
		}
		ending[p.UID] = in.Time
		if since, seen := m.Ending[p.UID]; seen {
			ending[p.UID] = since
		}
	}
	m.Ending = ending
	return m
}

// bound limits how far times in the state lie ahead. Otherwise they would stay in
// force after the clock was set back.
func (m Memory) bound(in Input) Memory {
	for _, waits := range []map[string]Waiting{m.Waiting, m.Brakes} {
		for of, w := range waits {
			w.Until = earlier(w.Until, in.Time.Add(maxWait))
			waits[of] = w
		}
	}
	for scope, until := range m.Settle {
		m.Settle[scope] = earlier(until, in.Time.Add(in.Config.Settle))
	}
	for _, seen := range []map[string]time.Time{m.Kubelet, m.Ending, m.Covered} {
		for of, at := range seen {
			seen[of] = earlier(at, in.Time)
		}
	}
	m.Quiet = earlier(m.Quiet, in.Time.Add(in.Config.Settle))
	for i := range m.Victims {
		m.Victims[i].Time, m.Victims[i].Asked = earlier(m.Victims[i].Time, in.Time), earlier(m.Victims[i].Asked, in.Time)
	}
	return m
}

// lookAtVictims updates the victims by the pods as they are now.
func (m Memory) lookAtVictims(in Input) Memory {
	var kept []Chosen
	for _, l := range m.Victims {
		p, there := byUID(in.Cluster.Pods, l.UID)
		switch {
		case l.DryRun: // of an agent that was killed during the request
			continue
		case !l.GoneAt.IsZero():
		case !there || p.Phase == "Succeeded" || p.Phase == "Failed": // a finalizer may keep the terminated pod
			l.GoneAt = in.Time
			m.settle(&l, in.Time.Add(in.Config.Settle))
		case !p.GoneBy.Equal(l.GoneBy) && l.Outcome != Evicted: // the answer was lost
			l.Outcome = Evicted
			m.settle(&l, in.Time.Add(in.Config.Settle))
		case l.Outcome != Evicted && in.Time.Sub(later(l.Time, l.Asked)) >= unclear:
			// The pod still exists: a missing answer must not block other evictions.
			m.Waiting[p.UID] = m.Waiting[p.UID].again(Answer{Time: in.Time, Outcome: Blocked, Text: "no answer within " + unclear.String()})
			continue
		}
		kept = append(kept, l)
	}
	m.Victims = kept
	return m
}

// lookAtFailed records which pods the kubelet evicted for node pressure; such a
// pod does not terminate, it becomes Failed and stays listed. It starts the
// kubelet's cooldown.
func (m Memory) lookAtFailed(in Input) Memory {
	var failed []string
	for _, p := range in.Cluster.Pods.Pods {
		condition := evictedFor(p)
		if condition == "" {
			continue
		}
		failed = append(failed, p.UID)
		if !slices.Contains(m.Failed, p.UID) {
			m.Kubelet[condition] = in.Time
		}
	}
	slices.Sort(failed)
	m.Failed = failed
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

// kubelets is why the kubelet's own evictions for a resource come first; empty if
// they do not.
func (in Input) kubelets(m Memory, of plugins.Resource) string {
	own, known := kubeletCondition(of)
	for _, c := range in.Cluster.Node.KubeletPressure {
		if c == own || !known {
			return "the kubelet reports " + c + " and evicts pods itself"
		}
	}
	var last time.Time
	for condition, at := range m.Kubelet {
		if condition == own || !known {
			last = later(last, at)
		}
	}
	if until := last.Add(in.Config.KubeletTurn); in.Time.Before(until) {
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
