package scenes

import (
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// DryRun is a node of a cluster that is short of memory, under an agent that
// only observes.
func DryRun() *view.State {
	s := inCluster(memoryPressure())
	return s.WithCluster(&view.Cluster{
		DryRun: true, Pods: 3, PodsSynced: true, StatusWrites: map[string]uint64{"report": 2},
		Evictions: map[evict.Result]uint64{{Plugin: "memory-stall", Code: evict.CodeWouldEvict}: 1},
	}, Decisions(true))
}

// Evicted is a node of a cluster whose pressure an eviction has ended.
func Evicted() *view.State {
	s, decisions := inCluster(Calm()), Decisions(false)
	s.Levels.Verdicts[0].Since = decisions[0].Time
	return s.WithCluster(&view.Cluster{
		Pods: 2, PodsSynced: true, StatusWrites: map[string]uint64{"changed": 3, "report": 40},
		Conditions: []evict.Condition{
			{Type: names.Prefix + "DiskContention", Status: corev1.ConditionUnknown, Reason: "NotSeen", Message: "a baseline is not learned yet"},
			{Type: names.Prefix + "MemoryContention", Status: corev1.ConditionTrue, Reason: "Settling", Message: "over; the mark stays until 2026-03-01 12:05:00 UTC: memory stall, full, over 30s 0.1 % (threshold >= 10 %)"},
			{Type: names.Prefix + "NetworkContention", Status: corev1.ConditionFalse, Reason: "Clear", Message: "no link is near its speed"},
		},
		Evictions: map[evict.Result]uint64{
			{Plugin: "memory-stall", Code: evict.CodeEvicted}: 1, {Plugin: "memory-stall", Code: evict.CodePDB}: 1,
		},
		Suppressed: map[evict.Code]uint64{evict.CodeNotAPod: 3, pods.DaemonSet: 3, evict.CodeSoft: 2},
	}, decisions)
}

// Disconnected is the node of Evicted without a connection to the API server.
func Disconnected() *view.State {
	s := *Evicted()
	c := *s.Cluster
	c.StaleSince, c.StaleReason = s.Snapshot.Time.Add(-95*time.Second), "dial tcp 10.0.0.1:6443: connect: connection refused"
	s.Cluster = &c
	return &s
}

func inCluster(s *view.State) *view.State {
	s.Agent.Mode = "cluster"
	return s
}

// Decisions of rounds about the made-up pods, newest first: a
// PodDisruptionBudget forbids the first candidate's eviction, the second one is
// evicted, and the pressure ends. In a dry run the pressure stays.
func Decisions(dryRun bool) []evict.Decision {
	hard := memoryPressure()
	if !dryRun {
		hard.Levels.Time = hard.Levels.Time.Add(-70 * time.Second)
		hard.Levels.Verdicts[0].Since = hard.Levels.Time.Add(-time.Second)
	}
	soft := &plugins.Levels{Time: hard.Levels.Time.Add(-40 * time.Second), Verdicts: slices.Clone(hard.Levels.Verdicts)}
	v := &soft.Verdicts[0]
	v.Level, v.MetLevel, v.Since, v.Observed, v.Threshold = plugins.Soft, plugins.Soft, soft.Time, snapshot.Some(0.148), snapshot.Some(0.1)
	v.Reason = "memory stall, full, over 30s 14.8 % (≥ 10 %); memory available 6.1 % (< 10 %)"

	config := evict.DefaultConfig()
	config.DryRun = dryRun
	first, memory := evict.Decide(withContention(hard, input(soft, nil, config, evict.State{})))
	second, memory := evict.Decide(withContention(hard, input(hard.Levels, soft, config, memory)))
	answerRequests(&second)
	list := []evict.Decision{second, first}
	if dryRun {
		return list
	}
	calm := Calm().Levels
	calm.Time = hard.Levels.Time.Add(50 * time.Second)
	calm.Verdicts[0].Since = calm.Time
	second.TerminatedAt = second.Time.Add(14 * time.Second)
	for i := range second.Candidates {
		if c := &second.Candidates[i]; c.Code == evict.CodeEvicted {
			c.TerminatedAt = second.TerminatedAt
		}
	}
	after := calm.Verdicts[0]
	second.After = []evict.Cause{{
		Plugin: after.Plugin, Scope: after.Scope, Level: after.Level, Since: after.Since,
		Observed: after.Observed, Operator: after.Operator, Threshold: after.Threshold, Unit: after.Unit, Reason: after.Reason,
	}}
	ended, _ := evict.Decide(input(calm, hard.Levels, config, memory))
	return []evict.Decision{ended, second, first}
}

// TwoEvicted are Decisions without the last one, where the pod that a PodDisruptionBudget
// blocks is evicted as well: it terminates after 5 s, and the other one has not terminated.
func TwoEvicted() []evict.Decision {
	list := Decisions(false)[1:]
	d := &list[0]
	d.TerminatedAt, d.After = time.Time{}, nil
	for i := range d.Candidates {
		d.Candidates[i].TerminatedAt = time.Time{}
	}
	first := &d.Candidates[0]
	first.Code, first.Reason, first.TerminatedAt = evict.CodeEvicted, first.Why, d.Time.Add(5*time.Second)
	first.Answers = []evict.Answer{{Time: d.Time.Add(20 * time.Millisecond), Outcome: evict.Evicted, Code: http.StatusCreated}}
	return list
}

// answerRequests has the API server refuse the first candidate and take the second.
func answerRequests(d *evict.Decision) {
	for i, a := range []evict.Answer{
		{Outcome: evict.Blocked, Code: http.StatusTooManyRequests, Text: "Cannot evict pod as it would violate the pod's disruption budget.: The disruption budget report needs 1 healthy pods and has 1 currently"},
		{Outcome: evict.Evicted, Code: http.StatusCreated},
	} {
		next, some := d.Next()
		if !some {
			return
		}
		a.Time, a.DryRun = d.Time.Add(time.Duration(20*(i+1))*time.Millisecond), d.DryRun
		d.RecordAnswer(next, a)
	}
}

// withContention is the input with the contention of a state.
func withContention(s *view.State, in evict.Input) evict.Input {
	in.Contention = s.Snapshot.Contention
	return in
}

// sceneBoot is the boot ID of the made-up machine, which is up for long.
const sceneBoot = "scene"

func input(now, before *plugins.Levels, config evict.Config, m evict.State) evict.Input {
	if m.RateLimits.Boot == "" { // the agent has been running for long, without an eviction
		m.RateLimits.Boot = sceneBoot
	}
	config.ReportOnly = 0
	return evict.Input{
		Time: now.Time, Uptime: now.Time.Sub(Start().Add(-90 * 24 * time.Hour)), Boot: sceneBoot, Levels: now, Before: before, Config: config, State: m,
		Cluster: &evict.Cluster{Pods: pods.List{Synced: true, Pods: nodePods()}, Node: evict.ReadNode(&corev1.Node{}, nil)},
	}
}

// memoryPressure is a node that is short of memory, where a DaemonSet's pod is named
// as well.
func memoryPressure() *view.State {
	s := MemoryHard()
	v := &s.Levels.Verdicts[0]
	v.Candidates = append(v.Candidates, plugins.Candidate{
		Cgroup: "/kubepods.slice/pod-d.slice", Name: "pod 77c0ffee", PodUID: "77c0ffee-0000-4000-8000-00000000000d",
		Relief: 700 << 20, Unit: "bytes", Why: "working set 700 MiB",
	})
	return s
}

// nodePods are the pods of the made-up workloads.
func nodePods() []pods.Pod {
	pod := func(uid, namespace, name, kind, owner string) pods.Pod {
		return pods.Pod{
			UID: uid, CgroupUID: uid, Namespace: namespace, Name: name, Owner: pods.Owner{Kind: kind, Name: owner},
			QoS: "Burstable", Created: Start().Add(-26 * time.Hour), GraceSeconds: 30, Phase: "Running",
		}
	}
	report := pod("8d1c2f6e-0000-4000-8000-00000000000b", "batch", "report-28f7c-x2k9p", "ReplicaSet", "report-28f7c")
	report.QoS, report.LowQoS = "BestEffort", true
	cart := pod("41aa9e07-0000-4000-8000-00000000000a", "shop", "cart-66b8d-mm4qz", "ReplicaSet", "cart-66b8d")
	cart.Priority, cart.MemoryRequestBytes = 100, 1<<30
	logs := pod("77c0ffee-0000-4000-8000-00000000000d", "logging", "collector-9xw2l", "DaemonSet", "collector")
	logs.Protections = []pods.Protection{{Code: pods.DaemonSet, Why: "DaemonSet collector would recreate it on this node"}}
	return []pods.Pod{report, cart, logs}
}
