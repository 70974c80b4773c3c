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

// look brings the memory up to date with the clocks, the rules and the pods as
// they are now.
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
		level, judged := levels[scope] // what is not, belongs to the other part of the round
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

// coverKept bounds for how long verdicts that are judged no more are remembered;
// there are no more of them than rules, however many names a plugin takes.
const coverKept = time.Hour

// lookAtEnding sees which pods are being deleted.
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

// bound keeps what is remembered from reaching further ahead than it ever is
// set, or a clock that was set back would make it last for as long as that.
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

// lookAtVictims sees what has become of them.
func (m Memory) lookAtVictims(in Input) Memory {
	var kept []Chosen
	for _, l := range m.Victims {
		p, there := byUID(in.Cluster.Pods, l.UID)
		switch {
		case l.DryRun: // of an agent that was killed while it asked
			continue
		case !l.GoneAt.IsZero():
		case !there || p.Phase == "Succeeded" || p.Phase == "Failed": // or a finalizer keeps what is left of it
			l.GoneAt = in.Time
			m.settle(&l, in.Time.Add(in.Config.Settle))
		case !p.GoneBy.Equal(l.GoneBy) && l.Outcome != Evicted: // the answer was lost
			l.Outcome = Evicted
			m.settle(&l, in.Time.Add(in.Config.Settle))
		case l.Outcome != Evicted && in.Time.Sub(later(l.Time, l.Asked)) >= unclear:
			// It is still there: whoever does not answer for it keeps no other from going.
			m.Waiting[p.UID] = m.Waiting[p.UID].again(Answer{Time: in.Time, Outcome: Blocked, Text: "no answer within " + unclear.String()})
			continue
		}
		kept = append(kept, l)
	}
	m.Victims = kept
	return m
}

// lookAtFailed sees whom the kubelet evicted for want of something: such a pod
// is not ending, it fails and stays listed. It was the kubelet's turn, and is
// for a while.
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

// evictedFor is the condition that the kubelet reports for what it evicted a
// pod for; empty of one that it did not evict because the node was short of
// something. The words, and those of evictions for a limit of the pod's own, are
// in kubernetes/pkg/kubelet/eviction/helpers.go. After the resource its message
// names what an owner has named: only its beginning is read.
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

// kubelets is why it is the kubelet's turn for a resource; empty when it is not.
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
