// Package view holds what the agent shows: one State, published whole once
// per tick, that the page, the API, the metrics and `plimsoll top` all read.
// A State never changes and may be shared.
package view

import (
	"encoding/json"
	"io"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// State of the agent at one tick.
type State struct {
	Agent    Agent
	Snapshot *probes.Snapshot
	Levels   *plugins.Levels
	// Cluster is nil for an agent that runs standalone.
	Cluster *Cluster
	// Outer plugins; nil where none are asked.
	Outer *Outer
	// LastEviction is the newest one that is kept, nil for none.
	LastEviction *Eviction
}

// Beside is the same state with what is known of outer plugins, and what they
// said last.
func (s *State) Beside(o *Outer) *State {
	if s == nil || o == nil {
		return s
	}
	with := *s
	with.Outer = o
	if s.Levels != nil {
		with.Levels = s.Levels.Beside(o.verdicts())
	}
	return &with
}

// With is the same state with what the cluster is like now and the newest
// eviction among the decisions, which come newest first.
func (s *State) With(c *Cluster, decisions []evict.Decision) *State {
	if s == nil {
		return nil
	}
	with := *s
	with.Cluster, with.LastEviction = c, newestEviction(decisions)
	return &with
}

// Agent is what the agent says of itself.
type Agent struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Mode is "cluster", or why nothing is evicted: "standalone".
	Mode string `json:"mode"`
	// CgroupFlavour is v1, v2 or hybrid; empty when none was found.
	CgroupFlavour string `json:"cgroupFlavour,omitempty"`

	// TickSeconds is the period that is wanted, TickDurationSeconds what the
	// last one cost, TicksMissed how many were left out because one before
	// took too long.
	TickSeconds         float64 `json:"tickSeconds"`
	TickDurationSeconds float64 `json:"tickDurationSeconds"`
	TicksMissed         uint64  `json:"ticksMissed"`
	// Triggers wake samples between the ticks; absent where nothing samples in
	// a rhythm.
	Triggers *Triggers `json:"triggers,omitempty"`

	// ConfigFile is empty when the defaults are in force. ConfigError is why
	// the last reload left the last good configuration in force.
	ConfigFile  string `json:"configFile,omitempty"`
	ConfigError string `json:"configError,omitempty"`

	// Notes are said once: what this agent may not read or do, and why.
	Notes []string `json:"notes,omitempty"`
}

// Triggers is what the kernel was asked to wake the agent for.
type Triggers struct {
	// Armed is how many, each over a window of WindowSeconds.
	Armed         int     `json:"armed"`
	WindowSeconds float64 `json:"windowSeconds,omitempty"`
	// FiredTotal counts by resource, WokenTotal the samples that were taken
	// before their tick for it; Woken says whether this one was.
	FiredTotal map[string]uint64 `json:"firedTotal,omitempty"`
	WokenTotal uint64            `json:"samplesWokenTotal"`
	Woken      bool              `json:"woken"`
	// Absent tells for a place and resource why none is armed there.
	Absent probes.Absent `json:"absent,omitempty"`
}

// Pressure is /api/v1/pressure: how this node is judged, and on what.
type Pressure struct {
	Time  time.Time `json:"time"`
	Agent Agent     `json:"agent"`
	// Levels is the highest level of each resource that a plugin judges.
	Levels map[plugins.Resource]plugins.Level `json:"levels"`
	// WindowSeconds and Stall are the window and the node's stall in it.
	WindowSeconds float64           `json:"windowSeconds"`
	Stall         probes.Ratios     `json:"stall"`
	Verdicts      []plugins.Verdict `json:"verdicts"`
	// Contention is who hurts whom, as in the snapshot, but for its order and
	// the names of pods, which are those of the API server.
	Contention []probes.Contention `json:"contention,omitempty"`
	// Cluster is absent for an agent that runs standalone.
	Cluster      *Cluster  `json:"cluster,omitempty"`
	LastEviction *Eviction `json:"lastEviction,omitempty"`
}

// Pressure of the state.
func (s *State) Pressure() Pressure {
	p := Pressure{
		Time: s.Levels.Time, Agent: s.Agent, Levels: map[plugins.Resource]plugins.Level{},
		WindowSeconds: s.Snapshot.WindowSeconds, Stall: s.Snapshot.Pressure.Ratios, Verdicts: s.Levels.Verdicts, Contention: s.Contention(),
		Cluster: s.Cluster, LastEviction: s.LastEviction,
	}
	for _, v := range s.Levels.Verdicts {
		if v.Resource != "" { // an outer plugin's may be about anything
			p.Levels[v.Resource] = s.Levels.Of(v.Resource)
		}
	}
	return p
}

// State of the agent that sent the snapshot and the pressure.
func (p Pressure) State(s *probes.Snapshot) *State {
	named := *s
	named.Contention = p.Contention
	return &State{
		Agent: p.Agent, Snapshot: &named, Levels: &plugins.Levels{Time: p.Time, Verdicts: p.Verdicts},
		Cluster: p.Cluster, LastEviction: p.LastEviction,
	}
}

// WriteJSON is how everything of ours writes JSON: indented, and with < and >
// as they are, for the eyes of people.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
