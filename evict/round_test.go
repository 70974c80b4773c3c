package evict

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// at is a moment, so many seconds after noon.
func at(second int) time.Time {
	return time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC)
}

// named is a pod that a plugin names, whose going gives back relief.
func named(uid string, relief float64) plugins.Candidate {
	return plugins.Candidate{
		Cgroup: "/kubepods/" + uid, Name: "cgroup of " + uid, PodUID: uid,
		Relief: relief, Unit: "bytes", Why: fmt.Sprintf("%s holds %g", uid, relief),
	}
}

// pressing is memory that is short at this very moment: 10 of 100 must be
// given back.
func pressing(list ...plugins.Candidate) plugins.Verdict {
	return plugins.Verdict{
		Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Condition: "MemoryContention",
		Level: plugins.Hard, MetLevel: plugins.Hard, Since: at(-5), Reason: "memory is short",
		Target: snapshot.Some(10.0), Whole: snapshot.Some(100.0), Candidates: list,
	}
}

// disk is another plugin's verdict at a level, pressing as hard.
func disk(level plugins.Level, list ...plugins.Candidate) plugins.Verdict {
	return plugins.Verdict{
		Plugin: "disk-contention", Resource: plugins.Disk, Scope: "sda", Condition: "DiskContention",
		Level: level, MetLevel: level, Since: at(-5), Reason: "the disk is " + level.String(), Candidates: list,
	}
}

// pod of the node with that UID, as the API server lists it.
func pod(uid string, changes ...func(*pods.Pod)) pods.Pod {
	p := pods.Pod{
		UID: uid, CgroupUID: uid, Namespace: "shop", Name: "web-" + uid, QoS: "Burstable", Priority: 1000,
		Phase: "Running", GraceSeconds: 20, Created: at(-3600), Owner: pods.Owner{Kind: "ReplicaSet", Name: "web", UID: "r"},
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

// round is one in which the API server is heard and evictions are for real.
func round(second int, listed []pods.Pod, verdicts ...plugins.Verdict) Input {
	in := Input{
		Time: at(second), Uptime: up(second), Boot: "boot", State: seasoned(), Levels: &plugins.Levels{Time: at(second), Verdicts: verdicts}, Config: DefaultConfig(),
		Cluster: &Cluster{Pods: pods.List{Pods: listed, Synced: true}},
	}
	in.Config.DryRun, in.Config.ReportOnly = false, 0
	in.Config.Limits = Limits{PerRound: 1, PerMinute: 60, PerOwnerHour: 600} // its own tests say more
	return in
}

// up is how long the machine is up at a moment.
func up(second int) time.Duration { return 100*time.Hour + time.Duration(second)*time.Second }

// seasoned is the memory of an agent that has run for long and evicted nobody.
func seasoned() State { return State{RateLimits: RateLimits{Boot: "boot"}} }

// then is the round some seconds after another, with the memory that it left.
func then(in Input, seconds int, m State) Input {
	before := in.Levels
	in.Time = in.Time.Add(time.Duration(seconds) * time.Second)
	in.Uptime += time.Duration(seconds) * time.Second
	in.Levels = &plugins.Levels{Time: in.Time, Verdicts: before.Verdicts}
	in.Before, in.State = before, m
	return in
}

// api answers for evictions and keeps who was asked for.
type api struct {
	answer  func(v Victim) Answer
	asked   []Victim
	dryRuns int
}

func (a *api) evict(now time.Time, v Victim, dryRun bool) Answer {
	a.asked = append(a.asked, v)
	if dryRun {
		a.dryRuns++
	}
	answer := Answer{Outcome: Evicted}
	if a.answer != nil {
		answer = a.answer(v)
	}
	answer.Time, answer.DryRun = now, dryRun
	return answer
}

// uids of the pods that were asked for.
func (a *api) uids() []string {
	list := []string{}
	for _, v := range a.asked {
		list = append(list, v.UID)
	}
	return list
}

// always is the same answer to everything.
func always(o Outcome) func(Victim) Answer {
	return func(Victim) Answer { return Answer{Outcome: o, Text: "so it says"} }
}

// asks is how many candidates a round asks for at most.
const asks = 5

// play is a whole round, as the daemon does it.
func play(in Input, a *api) (Decision, State) {
	_, in.State = Mark(in)
	d, m := Decide(in)
	for range asks + in.Config.Limits.PerRound - 1 {
		i, some := d.Next()
		if !some {
			break
		}
		var v Victim
		m, v = m.RecordChoice(in, &d, i)
		answer := a.evict(in.Time, v, d.DryRun)
		d.RecordAnswer(i, answer)
		m = m.RecordAnswer(answer, in.Config)
		d.More(in, m)
	}
	d.Postpone()
	return d, m
}

// restarted is a memory as the next agent reads it.
func restarted(t testing.TB, m State) State {
	t.Helper()
	b, err := json.Marshal(m)
	require.NoError(t, err)
	var back State
	require.NoError(t, json.Unmarshal(b, &back))
	return back
}

// codes are the codes of a decision's candidates by UID or, of no pod, cgroup.
func codes(d Decision) map[string]Code {
	all := map[string]Code{}
	for _, c := range d.Candidates {
		all[workloadKey(c.Candidate)] = c.Code
	}
	return all
}

// order is a decision's candidates in a word each.
func order(d Decision) []string {
	list := []string{}
	for _, c := range d.Candidates {
		list = append(list, workloadKey(c.Candidate))
	}
	return list
}

var errDisk = errors.New("no space left on device")
