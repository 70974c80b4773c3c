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
	maps.DeleteFunc(m.Waiting, func(_ string, w Waiting) bool { return in.Time.Sub(w.Until) > maxWait })
	maps.DeleteFunc(m.Settle, func(_ string, until time.Time) bool { return !in.Time.Before(until) })
	maps.DeleteFunc(m.Kubelet, func(_ string, at time.Time) bool { return in.Time.Sub(at) >= in.Config.KubeletTurn })
	levels := levelsOf(in)
	maps.DeleteFunc(m.Pretended, func(scope string, _ Chosen) bool {
		level, judged := levels[scope] // what is not, belongs to the other part of the round
		return in.Config.DryRun && level < plugins.Hard || !in.Config.DryRun && judged
	})
	if in.known() {
		m = m.lookAtVictims(in).lookAtFailed(in)
	}
	return m
}

// bound keeps what is remembered from reaching further ahead than it ever is
// set, or a clock that was set back would make it last for as long as that.
func (m Memory) bound(in Input) Memory {
	for uid, w := range m.Waiting {
		w.Until = earlier(w.Until, in.Time.Add(maxWait))
		m.Waiting[uid] = w
	}
	for scope, until := range m.Settle {
		m.Settle[scope] = earlier(until, in.Time.Add(in.Config.Settle))
	}
	for condition, at := range m.Kubelet {
		m.Kubelet[condition] = earlier(at, in.Time)
	}
	m.Quiet = earlier(m.Quiet, in.Time.Add(in.Config.Settle))
	m.Brake.Until = earlier(m.Brake.Until, in.Time.Add(maxWait))
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
		case !there:
			l.GoneAt = in.Time
			m.settle(&l, in.Time.Add(in.Config.Settle))
		case !p.GoneBy.IsZero() && l.Outcome != Evicted: // the answer was lost
			l.Outcome = Evicted
			m.settle(&l, in.Time.Add(in.Config.Settle))
		case l.Outcome != Evicted && in.Time.Sub(later(l.Time, l.Asked)) >= unclear:
			// It is still there: whoever does not answer for it keeps no other from going.
			m.Waiting[p.UID] = m.Waiting[p.UID].again(Answer{Time: in.Time, Outcome: Blocked, Text: "no answer for " + unclear.String()})
			continue
		}
		kept = append(kept, l)
	}
	m.Victims = kept
	return m
}

// lookAtFailed sees whom the kubelet evicted: such a pod is not ending, it
// fails and stays listed. It was the kubelet's turn, and is for a while.
func (m Memory) lookAtFailed(in Input) Memory {
	var failed []string
	for _, p := range in.Cluster.Pods.Pods {
		if p.StatusReason != "Evicted" {
			continue
		}
		failed = append(failed, p.UID)
		if !slices.Contains(m.Failed, p.UID) {
			m.Kubelet[evictedFor(p)] = in.Time
		}
	}
	slices.Sort(failed)
	m.Failed = failed
	return m
}

// evictedFor is the condition that the kubelet reports for what it evicted a
// pod for; empty where it does not tell. Its words are those of
// kubernetes/pkg/kubelet/eviction/helpers.go.
func evictedFor(p pods.Pod) string {
	for sign, condition := range map[string]corev1.NodeConditionType{
		"resource: memory": corev1.NodeMemoryPressure, "resource: ephemeral-storage": corev1.NodeDiskPressure,
		"resource: inodes": corev1.NodeDiskPressure, "resource: pids": corev1.NodePIDPressure,
	} {
		if strings.Contains(p.StatusMessage, sign) {
			return string(condition)
		}
	}
	return ""
}

// kubelets is why it is the kubelet's turn for a resource; empty when it is not.
func (in Input) kubelets(m Memory, of plugins.Resource) string {
	own, known := kubeletCondition(of)
	for _, c := range in.Cluster.Node.KubeletPressure {
		if c == own || !known {
			return "the kubelet reports " + c + " and evicts by itself"
		}
	}
	last := m.Kubelet[""]
	for condition, at := range m.Kubelet {
		if condition == own || !known {
			last = later(last, at)
		}
	}
	if until := last.Add(in.Config.KubeletTurn); in.Time.Before(until) {
		return fmt.Sprintf("the kubelet evicted a pod at %s: its relief is seen first, until %s", clock(last), clock(until))
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
