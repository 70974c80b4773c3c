// Package plugins judges Snapshots: which pressure is on, how hard, since
// when, and which workloads deserve to go.
//
// # Usage
//
// A Set holds the inner plugins and is asked once per tick; its answer,
// Levels, is what everything else reads. How to add a plugin is told in
// inner.go.
//
// # Concurrency
//
// A Set belongs to one goroutine. Levels and Verdicts never change and may be
// shared.
package plugins

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// Level says how hard a threshold is met.
type Level int

// The levels. Soft leads to a condition and a taint, Hard to evictions too.
const (
	None Level = iota
	Soft
	Hard
)

// String is the level as people and JSON read it.
func (l Level) String() string {
	switch l {
	case None:
		return "none"
	case Soft:
		return "soft"
	case Hard:
		return "hard"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Level) UnmarshalText(b []byte) error {
	for _, known := range []Level{None, Soft, Hard} {
		if known.String() == string(b) {
			*l = known
			return nil
		}
	}
	return fmt.Errorf("level %q: want none, soft or hard", b)
}

// Resource that a verdict is about.
type Resource string

// The resources.
const (
	Memory     Resource = "memory"
	Disk       Resource = "disk"
	NetworkIO  Resource = "network"
	Filesystem Resource = "filesystem"
	CPU        Resource = "cpu"
)

// ScopeNamed is the scope of what a plugin of another process names regardless
// of a threshold; it has none of its own.
const ScopeNamed = "pods"

// Verdict is a plugin's answer to "is your threshold met?". The next question
// to the plugin carries it, so it is all the state a plugin has.
type Verdict struct {
	Plugin   string   `json:"plugin"`
	Resource Resource `json:"resource"`
	// Scope is "node", or the device it is about.
	Scope string `json:"scope"`
	Level Level  `json:"level"`
	// Since the level is what it is.
	Since time.Time `json:"since"`
	// Pressing is the level whose rule is met at this very tick; Level stays
	// above it until the pressure has been gone for a while. Nobody is evicted
	// for a pressure that is gone.
	Pressing Level `json:"pressing"`
	// Urgent: it is about to be the kernel's turn. What is tried before anybody is
	// evicted is not waited for.
	Urgent bool `json:"urgent,omitempty"`
	// Target is what must be given back for the pressure to end, and Whole all
	// there is of the resource, both in the candidates' unit: they say which
	// candidate's going would help at all. Absent: not known.
	Target probes.Opt[float64] `json:"releaseTarget,omitzero"`
	Whole  probes.Opt[float64] `json:"whole,omitzero"`
	// Observed, Operator and Threshold are the one comparison that decided, or
	// came nearest to it, and Unit is its unit (ratio, bytes, seconds). They
	// are for people: nobody compares them again.
	Observed  probes.Opt[float64] `json:"observed,omitzero"`
	Operator  string              `json:"operator,omitempty"`
	Threshold probes.Opt[float64] `json:"threshold,omitzero"`
	Unit      string              `json:"unit,omitempty"`
	// Condition on the Node and taint key, "plimsoll.dev/" + its name.
	Condition string `json:"condition,omitempty"`
	// Reason is one sentence: why this level.
	Reason string `json:"reason"`
	// Evidence is every comparison that was made, met or not.
	Evidence []Evidence `json:"evidence,omitempty"`
	// Absent is what the plugin could not see, and why; nobody is named then.
	Absent string `json:"absent,omitempty"`
	// Candidates are the workloads that should go, the most deserving first;
	// only while the threshold is met.
	Candidates []Candidate `json:"candidates,omitempty"`
	// GraceSeconds is how long the threshold must have been met before anybody
	// is chosen for it: the coordinator waits, the plugin only says how long. 0:
	// not at all.
	GraceSeconds int64 `json:"graceSeconds,omitzero"`
	// Due is when the grace is over, zero where there is none to wait for: until
	// then nobody is chosen.
	Due time.Time `json:"due,omitzero"`
	// Named: the candidates are to go regardless of a threshold, those of a
	// soft verdict too.
	Named bool `json:"named,omitempty"`
	// Effects of the taint that the plugin asks for, as Kubernetes writes them;
	// none: those of the level.
	Effects []string `json:"effects,omitempty"`
	// CNR: the condition and the taint belong on the node's
	// CustomNodeResource, not on its Node.
	CNR bool `json:"cnr,omitempty"`

	// Process is which one said it, of a plugin in a process of its own: what the
	// rule of its name has earned is that process's. Empty: of the agent itself, or
	// not known.
	Process string `json:"-"`
	// Partial: not all that could be met was judged, because the agent or the
	// node has just started. What was met before may still be.
	Partial bool `json:"-"`
	// Held is, for each level from Soft on, when it was last worth keeping:
	// what hysteresis remembers.
	Held [2]time.Duration `json:"-"`
	// Met is, for each level from Soft on, whether it is on.
	Met [2]bool `json:"-"`
	// Lasting is, of a rule about single workloads that must be met for some
	// time, since when it has been met at every tick, by cgroup.
	Lasting map[string]time.Duration `json:"-"`
	// Begun is since when the rule has been met at every tick, for a rule that
	// must be met for some time; 0: it is not.
	Begun time.Duration `json:"-"`
}

// Evidence is one comparison of a rule.
type Evidence struct {
	// Rule is the level that the comparison is part of.
	Rule      Level               `json:"rule"`
	What      string              `json:"what"`
	Observed  probes.Opt[float64] `json:"observed,omitzero"`
	Operator  string              `json:"operator"`
	Threshold float64             `json:"threshold"`
	Unit      string              `json:"unit"`
	Met       bool                `json:"met"`
	// Absent is why there is no observed value.
	Absent string `json:"absent,omitempty"`
}

// Candidate is a workload that a plugin names, the most deserving first.
type Candidate struct {
	Cgroup string `json:"cgroup"`
	Name   string `json:"name"`
	PodUID string `json:"podUid,omitempty"`
	// Relief is what its going would give back, in Unit.
	Relief float64 `json:"relief"`
	Unit   string  `json:"unit"`
	// Why it is named, with its numbers.
	Why string `json:"why"`
	// Forced: it has to go whatever the levels are. What protects a pod, and
	// how many may go, holds all the same.
	Forced bool `json:"forced,omitempty"`
	// Refused is why the agent does not take the plugin's word for it, such as a
	// pod that it was not shown. It is kept for the record alone.
	Refused string `json:"refused,omitempty"`
	// GraceSeconds that the plugin asks for to let the pod end by itself.
	// Absent: what the pod asks for.
	GraceSeconds probes.Opt[int64] `json:"graceSeconds,omitzero"`
}

// Levels is what all inner plugins said at one tick.
type Levels struct {
	Time     time.Time `json:"time"`
	Verdicts []Verdict `json:"verdicts"`
}

// Beside are these levels and further verdicts, of plugins that are asked at
// another pace.
func (l *Levels) Beside(more []Verdict) *Levels {
	if len(more) == 0 {
		return l
	}
	return &Levels{Time: l.Time, Verdicts: append(slices.Clip(l.Verdicts), more...)}
}

// Rose says whether some verdict is at a higher level than it was before, and at
// this one or above.
func (l *Levels) Rose(before *Levels, to Level) bool {
	for _, v := range l.Verdicts {
		for _, was := range before.Verdicts {
			if was.Plugin == v.Plugin && was.Scope == v.Scope && v.Level > was.Level && v.Level >= to {
				return true
			}
		}
	}
	return false
}

// Of is the highest level of a resource.
func (l *Levels) Of(r Resource) Level {
	highest := None
	for _, v := range l.Verdicts {
		if v.Resource == r {
			highest = max(highest, v.Level)
		}
	}
	return highest
}
