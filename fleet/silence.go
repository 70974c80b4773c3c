package fleet

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State of an agent.
type State string

// The states.
const (
	Alive  State = "alive"  // heard within half the grace period
	Late   State = "late"   // not heard for longer, and not silent yet
	Silent State = "silent" // not heard for the grace period, and that was said
)

const (
	// massLeast: so few silent agents are never a mass, or the only agent of a
	// small cluster could not be missed. Kubernetes' own node lifecycle controller
	// has the same bound.
	massLeast = 3
	// statusEvery is the longest time between two reports of an unchanged status.
	// An agent without a Lease has no other sign of life.
	statusEvery = 5 * time.Minute
)

// Sighting is what Judge decides by.
type Sighting struct {
	Time     time.Time
	Settings Settings
	Agents   []Agent
	Memory   Memory
}

// Memory is what is remembered from one sighting to the next. A new leader has
// none: its clocks start anew.
type Memory struct {
	// Silent are the agents whose silence was said, with when they had been heard
	// last.
	Silent map[string]time.Time
	// Blind: the silence of many is taken for our own blindness.
	Blind bool
	// Cleared is when the last blindness ended: nobody was silent before.
	Cleared time.Time
}

// Judgement is what follows of a sighting.
type Judgement struct {
	Blind bool
	// Late counts those of Of agents that miss their beats now; agents that were
	// silent long before count in neither.
	Late, Of int
	Agents   []Judged
	Memory   Memory
}

// Judged is what is thought of one agent, and to be done.
type Judged struct {
	*Agent
	State State
	// Silence is how long nothing was heard.
	Silence time.Duration
	// Mark: its conditions must become Unknown. Lift: its taints must go.
	Mark, Lift bool
	// Why its taints stay, or that they go; empty for one that is heard.
	Why string
}

// Judge says who is silent. Mass silence is seen before the first agent is
// silent for the whole grace period, for it is looked for after half of it.
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

// said tells whether the agent's silence was said, and it was not heard since.
func (s *Sighting) said(a *Agent) bool {
	heard, was := s.Memory.Silent[a.Name]
	return was && !a.Heard.After(heard)
}

// state of an agent by its silence alone.
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

// act says what is to be done about an agent.
func (s *Sighting) act(a *Judged, j *Judgement) {
	if a.State != Silent {
		return
	}
	if j.Blind || s.Memory.Blind { // when it ends, the clocks start anew
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
