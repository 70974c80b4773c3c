package agents

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State of an agent.
type State string

// The states.
const (
	Alive  State = "alive"  // a heartbeat within half the monitor grace period
	Late   State = "late"   // no heartbeat for longer, and not silent yet
	Silent State = "silent" // no heartbeat for the monitor grace period
)

const (
	// minDisrupted is the number of late agents from which on there may be full
	// disruption, or the only agent of a small cluster would always count as such.
	// Kubernetes' node lifecycle controller has the same bound.
	minDisrupted = 3
	// statusInterval is the longest time between two reports of an unchanged status,
	// the only heartbeat of an agent without a Lease.
	statusInterval = 5 * time.Minute
)

// Observation is the input of Judge.
type Observation struct {
	Time     time.Time
	Settings Settings
	Agents   []Agent
	Previous JudgeState
}

// JudgeState is the state kept from one round to the next. A new leader starts without
// it, and so restarts all timeouts.
type JudgeState struct {
	// Silent are the agents that were declared silent.
	Silent map[string]DeclaredSilence
	// FullDisruption: full disruption, so many agents are late that the controller suspects
	// itself.
	FullDisruption bool
	// DisruptionEnded is when the last full disruption ended: timeouts start from it.
	DisruptionEnded time.Time
}

// DeclaredSilence is that of an agent that was declared silent.
type DeclaredSilence struct {
	// LastHeartbeat is the last one before it. Since is when the agent's timeouts started: with
	// that heartbeat, or with the end of a full disruption after it.
	LastHeartbeat, Since time.Time
}

// Judgement is the decision about all agents.
type Judgement struct {
	FullDisruption bool
	// Late of Total agents miss their heartbeats now. Agents that were silent before, also
	// by an earlier leader's word, count in neither.
	Late, Total int
	Agents      []Judged
	Next        JudgeState
}

// Judged is the decision about one agent.
type Judged struct {
	*Agent
	State State
	// Silence is the time since the last heartbeat, or since the end of a full disruption
	// after it.
	Silence time.Duration
	// Declare: its silence is new, so log and publish it; else an earlier round or an earlier
	// leader did. SetUnknown: set its conditions to Unknown. RemoveTaints: remove its taints.
	Declare, SetUnknown, RemoveTaints bool
	// Why its taints stay or are removed; empty for an agent with a heartbeat.
	Why string
}

// Judge finds silent agents. Full disruption is detected before the first agent is
// silent, because lateness counts from half the monitor grace period.
func Judge(s Observation) Judgement {
	j := Judgement{Agents: make([]Judged, 0, len(s.Agents)), Next: JudgeState{Silent: map[string]DeclaredSilence{}, DisruptionEnded: s.Previous.DisruptionEnded}}
	for i := range s.Agents {
		if a := &s.Agents[i]; a.hasAgent() {
			j.Agents = append(j.Agents, s.state(a))
		}
	}
	for _, a := range j.Agents {
		if !s.declaredSilent(a.Agent) && !a.knownSilent() {
			j.Total++
			if a.State != Alive {
				j.Late++
			}
		}
	}
	j.FullDisruption = j.Late >= minDisrupted && float64(j.Late) > s.Settings.MassSilence*float64(j.Total)
	j.Next.FullDisruption = j.FullDisruption
	if s.Previous.FullDisruption && !j.FullDisruption {
		j.Next.DisruptionEnded = s.Time
	}
	for i := range j.Agents {
		s.act(&j.Agents[i], &j)
	}
	return j
}

// declaredSilent tells whether the agent was declared silent, without a heartbeat since.
func (s *Observation) declaredSilent(a *Agent) bool {
	declared, was := s.Previous.Silent[a.Name]
	return was && !a.LastHeartbeat.After(declared.LastHeartbeat)
}

// silentSince is when an agent's timeouts started. A full disruption restarts them, except
// those of an agent that was declared silent before.
func (s *Observation) silentSince(a *Agent) time.Time {
	switch {
	case s.declaredSilent(a):
		return s.Previous.Silent[a.Name].Since
	case s.Previous.DisruptionEnded.After(a.LastHeartbeat):
		return s.Previous.DisruptionEnded
	}
	return a.LastHeartbeat
}

// state derives an agent's state from the time since its heartbeat alone.
func (s *Observation) state(a *Agent) Judged {
	grace := s.Settings.Grace
	late := grace / 2
	if a.renewTime() == nil {
		late, grace = late+statusInterval, grace+statusInterval
	}
	judged := Judged{Agent: a, State: Alive, Silence: s.Time.Sub(s.silentSince(a))}
	switch {
	case judged.Silence >= grace, s.declaredSilent(a): // a Lease that is gone is no heartbeat
		judged.State = Silent
	case judged.Silence >= late:
		judged.State = Late
	}
	return judged
}

// act decides what to do about a silent agent.
func (s *Observation) act(a *Judged, j *Judgement) {
	if a.State != Silent {
		return
	}
	if j.FullDisruption || s.Previous.FullDisruption { // timeouts restart when it ends
		a.Why = "full disruption: too many agents are silent, so nothing is changed"
		if !s.declaredSilent(a.Agent) {
			a.State = Late
			return
		}
		j.Next.Silent[a.Name] = DeclaredSilence{a.LastHeartbeat, s.silentSince(a.Agent)}
		return
	}
	j.Next.Silent[a.Name] = DeclaredSilence{a.LastHeartbeat, s.silentSince(a.Agent)}
	a.Declare = !s.declaredSilent(a.Agent) && !a.allUnknown()
	a.SetUnknown = a.needsUnknown()
	switch left := s.Settings.TaintsStay - a.Silence; {
	case !a.tainted():
		a.Why = "node has no taints of the agent"
	case left > 0:
		a.Why = fmt.Sprintf("taints stay for at least another %s", left.Round(time.Second))
	case a.readyStatus() != corev1.ConditionTrue:
		a.Why = fmt.Sprintf("taints stay while the node's Ready condition is %s", a.readyStatus())
	default:
		a.RemoveTaints, a.Why = true, fmt.Sprintf("taints removed: no heartbeat for %s", a.Silence.Round(time.Second))
	}
}
