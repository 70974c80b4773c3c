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
	// massLeast is the number of late agents from which on there may be full
	// disruption, or the only agent of a small cluster would always count as such.
	// Kubernetes' node lifecycle controller has the same bound.
	massLeast = 3
	// statusEvery is the longest time between two reports of an unchanged status,
	// the only heartbeat of an agent without a Lease.
	statusEvery = 5 * time.Minute
)

// Sighting is the input of Judge.
type Sighting struct {
	Time     time.Time
	Settings Settings
	Agents   []Agent
	Memory   Memory
}

// Memory is the state kept from one round to the next. A new leader starts without
// it, and so restarts all timeouts.
type Memory struct {
	// Silent are the agents that were declared silent, with their last heartbeat.
	Silent map[string]time.Time
	// Blind: full disruption, so many agents are late that the controller suspects
	// itself.
	Blind bool
	// Cleared is when the last full disruption ended: timeouts start from it.
	Cleared time.Time
}

// Judgement is the decision about all agents.
type Judgement struct {
	Blind bool
	// Late of Of agents miss their heartbeats now. Agents that were declared silent
	// before count in neither.
	Late, Of int
	Agents   []Judged
	Memory   Memory
}

// Judged is the decision about one agent.
type Judged struct {
	*Agent
	State State
	// Silence is the time since the last heartbeat.
	Silence time.Duration
	// Mark: set its conditions to Unknown. Lift: remove its taints.
	Mark, Lift bool
	// Why its taints stay or are removed; empty for an agent with a heartbeat.
	Why string
}

// Judge finds silent agents. Full disruption is detected before the first agent is
// silent, because lateness counts from half the monitor grace period.
func Judge(s Sighting) Judgement {
	j := Judgement{Agents: make([]Judged, 0, len(s.Agents)), Memory: Memory{Silent: map[string]time.Time{}, Cleared: s.Memory.Cleared}}
	for i := range s.Agents {
		if a := &s.Agents[i]; a.member() {
			j.Agents = append(j.Agents, s.state(a))
		}
	}
	for _, a := range j.Agents {
		if !s.said(a.Agent) {
			j.Of++
			if a.State != Alive {
				j.Late++
			}
		}
	}
	j.Blind = j.Late >= massLeast && float64(j.Late) > s.Settings.MassSilence*float64(j.Of)
	j.Memory.Blind = j.Blind
	if s.Memory.Blind && !j.Blind {
		j.Memory.Cleared = s.Time
	}
	for i := range j.Agents {
		s.act(&j.Agents[i], &j)
	}
	return j
}

// said tells whether the agent was declared silent, without a heartbeat since.
func (s *Sighting) said(a *Agent) bool {
	heard, was := s.Memory.Silent[a.Name]
	return was && !a.Heard.After(heard)
}

// state derives an agent's state from the time since its heartbeat alone.
func (s *Sighting) state(a *Agent) Judged {
	since := a.Heard
	if !s.said(a) && s.Memory.Cleared.After(since) {
		since = s.Memory.Cleared
	}
	grace := s.Settings.Grace
	late := grace / 2
	if a.Lease == nil {
		late, grace = late+statusEvery, grace+statusEvery
	}
	judged := Judged{Agent: a, State: Alive, Silence: s.Time.Sub(since)}
	switch {
	case judged.Silence >= grace:
		judged.State = Silent
	case judged.Silence >= late:
		judged.State = Late
	}
	return judged
}

// act decides what to do about a silent agent.
func (s *Sighting) act(a *Judged, j *Judgement) {
	if a.State != Silent {
		return
	}
	if j.Blind || s.Memory.Blind { // timeouts restart when it ends
		a.Why = "full disruption: too many agents are silent, so nothing is changed"
		if !s.said(a.Agent) {
			a.State = Late
			return
		}
		j.Memory.Silent[a.Name] = a.Heard
		return
	}
	j.Memory.Silent[a.Name] = a.Heard
	a.Mark = a.unmarked()
	switch left := s.Settings.TaintsStay - a.Silence; {
	case !a.tainted():
		a.Why = "node has no taints of the agent"
	case left > 0:
		a.Why = fmt.Sprintf("taints stay for at least another %s", left.Round(time.Second))
	case a.ready() != corev1.ConditionTrue:
		a.Why = fmt.Sprintf("taints stay while the node's Ready condition is %s", a.ready())
	default:
		a.Lift, a.Why = true, fmt.Sprintf("taints removed: no heartbeat for %s", a.Silence.Round(time.Second))
	}
}
