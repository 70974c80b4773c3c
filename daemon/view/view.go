// Package view holds the State that the agent publishes once per tick, and
// how its values are written. The status page, the API, the metrics and
// `plimsoll top` all read it. A State is immutable and may be shared.
package view

import (
	"encoding/json"
	"io"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/recording"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// State of the agent at one tick.
type State struct {
	Agent    Agent
	Snapshot *snapshot.Snapshot
	Levels   *plugins.Levels
	// Cluster is nil for an agent that runs standalone.
	Cluster *Cluster
	// Outer plugins; nil where outer plugins are disabled.
	Outer *OuterPlugins
	// LastEviction is the newest stored one, nil for none.
	LastEviction *Eviction
	// Sampled is Snapshot.Time with the monotonic clock of the agent's process, by which ages
	// are right when the wall clock is set; zero elsewhere.
	Sampled time.Time
	// SampleAge is how old the sample was when the agent answered, by the agent's clock;
	// zero where the agent was not asked.
	SampleAge time.Duration
}

// sampled is when the sample was taken, with the monotonic clock where that is known.
func (s *State) sampled() time.Time {
	if s.Sampled.IsZero() {
		return s.Snapshot.Time
	}
	return s.Sampled
}

// Old is how old the sample is at a time.
func (s *State) Old(now time.Time) time.Duration { return now.Sub(s.sampled()) }

// Answered is a copy of the state as the agent answers at a time.
func (s *State) Answered(now time.Time) *State {
	at := *s
	at.SampleAge = max(0, s.Old(now))
	return &at
}

// lateSample is how long after its tick a sample may come.
const lateSample = 5 * time.Second

// Stale reports that the sample was old already when the agent answered: it takes no new
// one.
func (s *State) Stale() bool {
	return s.SampleAge > time.Duration(s.Agent.TickSeconds*float64(time.Second))+lateSample
}

// WithOuter is a copy of the state with the outer plugins and their last verdicts.
func (s *State) WithOuter(o *OuterPlugins) *State {
	if s == nil || o == nil {
		return s
	}
	with := *s
	with.Outer = o
	if s.Levels != nil {
		with.Levels = s.Levels.With(o.verdicts())
	}
	return &with
}

// WithCluster is a copy of the state with the cluster's current state and the newest
// eviction among the decisions, which are sorted newest first.
func (s *State) WithCluster(c *Cluster, decisions []evict.Decision) *State {
	if s == nil {
		return nil
	}
	with := *s
	with.Cluster, with.LastEviction = c, latestEviction(decisions)
	return &with
}

// Agent is the agent's own state.
type Agent struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Mode is "cluster", or "standalone", in which evictions are disabled.
	Mode string `json:"mode"`
	// CgroupFlavour is v1, v2 or hybrid; empty when none was found.
	CgroupFlavour string `json:"cgroupFlavour,omitempty"`

	// TickSeconds is the configured period, TickDurationSeconds how long the
	// last tick took, TicksMissed how many were skipped because the one before
	// took too long, and MissedAt when that was last.
	TickSeconds         float64   `json:"tickSeconds"`
	TickDurationSeconds float64   `json:"tickDurationSeconds"`
	TicksMissed         uint64    `json:"ticksMissed"`
	MissedAt            time.Time `json:"lastMissed,omitzero"`
	// Triggers are the PSI triggers that wake samples between two ticks; absent
	// where samples are not periodic.
	Triggers *Triggers `json:"triggers,omitempty"`
	// Recording is absent where nothing is recorded.
	Recording *recording.Status `json:"recording,omitempty"`

	// ConfigFile is empty when the defaults are in force. ConfigError is why the
	// last reload failed; the previous configuration then stays in force.
	ConfigFile  string `json:"configFile,omitempty"`
	ConfigError string `json:"configError,omitempty"`

	// Restrictions are permanent restrictions: what this agent cannot read or do, and why.
	Restrictions []string `json:"notes,omitempty"`
}

// Triggers are the PSI triggers by which the kernel wakes the agent.
type Triggers struct {
	// Armed is how many, each over a window of WindowSeconds.
	Armed         int     `json:"armed"`
	WindowSeconds float64 `json:"windowSeconds,omitempty"`
	// FiredTotal counts by resource. WokenTotal counts the samples taken before
	// their tick because a trigger fired; Woken: this sample was.
	FiredTotal     map[string]uint64 `json:"firedTotal,omitempty"`
	WokenTotal     uint64            `json:"samplesWokenTotal"`
	WokenByTrigger bool              `json:"woken"`
	// Absent is, by place and resource, why no trigger is armed there.
	Absent snapshot.Absent `json:"absent,omitempty"`
}

// Pressure is /api/v1/pressure: the verdicts about this node and their evidence.
type Pressure struct {
	Time time.Time `json:"time"`
	// AgeSeconds is how old the sample was when the agent answered. It is much more than
	// agent.tickSeconds where sampling hangs.
	AgeSeconds float64 `json:"ageSeconds"`
	Agent      Agent   `json:"agent"`
	// Levels is the highest level of each resource that a plugin judges.
	Levels map[plugins.Resource]plugins.Level `json:"levels"`
	// Unjudged is what no level tells about, with the reason: where it is empty
	// and all levels are none, the node is known to be without pressure.
	Unjudged []plugins.Unjudged `json:"unjudged,omitempty"`
	// Headline is that of the page.
	Headline string `json:"headline"`
	// WindowSeconds and Stall are the window and the node's stall in it.
	WindowSeconds float64           `json:"windowSeconds"`
	Stall         snapshot.Ratios   `json:"stall"`
	Verdicts      []plugins.Verdict `json:"verdicts"`
	// Contention as in the snapshot, but sorted by concern and with the pods'
	// names from the API server.
	Contention []snapshot.Contention `json:"contention,omitempty"`
	// Disks has what each disk carries, as far as it is learned.
	Disks []plugins.DiskCapacity `json:"disks,omitempty"`
	// Exhaustion has an estimate for each resource that shrinks steadily.
	Exhaustion []snapshot.Exhaustion `json:"exhaustion,omitempty"`
	// Cluster is absent for an agent that runs standalone.
	Cluster      *Cluster  `json:"cluster,omitempty"`
	LastEviction *Eviction `json:"lastEviction,omitempty"`
}

// Pressure of the state.
func (s *State) Pressure() Pressure {
	p := Pressure{
		Time: s.Levels.Time, AgeSeconds: s.SampleAge.Seconds(), Agent: s.Agent, Levels: map[plugins.Resource]plugins.Level{},
		WindowSeconds: s.Snapshot.WindowSeconds, Stall: s.Snapshot.Pressure.Ratios, Verdicts: s.Levels.Verdicts, Contention: Contention(s),
		Disks: s.Levels.Disks, Exhaustion: s.Snapshot.Exhaustion, Cluster: s.Cluster, LastEviction: s.LastEviction,
	}
	p.Unjudged = s.Unjudged()
	p.Headline, _ = s.Headline()
	for _, v := range s.Levels.Verdicts {
		if v.Resource != "" { // outer plugins need not name one
			p.Levels[v.Resource] = s.Levels.Of(v.Resource)
		}
	}
	return p
}

// State rebuilds the agent's state from its answers.
func (p Pressure) State(s *snapshot.Snapshot) *State {
	named := *s
	named.Contention = p.Contention
	return &State{
		Agent: p.Agent, Snapshot: &named, Levels: &plugins.Levels{Time: p.Time, Verdicts: p.Verdicts, Disks: p.Disks},
		Cluster: p.Cluster, LastEviction: p.LastEviction, SampleAge: time.Duration(p.AgeSeconds * float64(time.Second)),
	}
}

// WriteJSON writes indented JSON, with < and > unescaped for human readers.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
