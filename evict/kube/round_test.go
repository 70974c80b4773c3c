package kube

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// month is a termination grace that keeps a pod on its node.
const month = 30 * 24 * 3600

func at(second int) time.Time {
	return time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC)
}

// named is a candidate of a plugin whose eviction gives back relief.
func named(uid string, relief float64) plugins.Candidate {
	return plugins.Candidate{
		Cgroup: "/kubepods/" + uid, Name: "cgroup of " + uid, PodUID: uid,
		Relief: relief, Unit: "bytes", Why: fmt.Sprintf("%s holds %g", uid, relief),
	}
}

// pressing is a hard verdict on memory: 10 of 100 must be given back.
func pressing(list ...plugins.Candidate) plugins.Verdict {
	return plugins.Verdict{
		Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Condition: "MemoryContention",
		Level: plugins.Hard, MetLevel: plugins.Hard, Since: at(-5), Reason: "memory is short",
		Target: snapshot.Some(10.0), Whole: snapshot.Some(100.0), Candidates: list,
	}
}

func round(second int, listed []pods.Pod, verdicts ...plugins.Verdict) evict.Input {
	in := evict.Input{
		Time: at(second), Uptime: 100*time.Hour + time.Duration(second)*time.Second, Boot: "boot", State: seasoned(),
		Levels: &plugins.Levels{Time: at(second), Verdicts: verdicts}, Config: evict.DefaultConfig(),
		Cluster: &evict.Cluster{Pods: pods.List{Pods: listed, Synced: true}},
	}
	in.Config.DryRun, in.Config.ReportOnly = false, 0
	in.Config.Limits = evict.Limits{PerRound: 1, PerMinute: 60, PerOwnerHour: 600}
	return in
}

// seasoned is the state of an agent that has run for long and evicted no pod.
func seasoned() evict.State { return evict.State{RateLimits: evict.RateLimits{Boot: "boot"}} }

// codes of a decision's candidates by the pod's UID.
func codes(d evict.Decision) map[string]evict.Code {
	all := map[string]evict.Code{}
	for _, c := range d.Candidates {
		all[c.PodUID] = c.Code
	}
	return all
}
