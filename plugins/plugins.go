// Package plugins judges Snapshots: which pressure there is, at which level, since
// when, and which workloads are candidates for eviction.
//
// # Usage
//
// A Set holds the inner plugins and is called once per tick; its result, Levels, is
// what everything else reads. inner.go explains how to add a plugin.
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

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Level is what a rule concludes.
type Level int

// The levels. Soft marks the node (condition and taint), Hard also evicts pods.
const (
	None Level = iota
	Soft
	Hard
)

// String is the level's name, as in JSON.
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

// ScopeNamed is the scope of pods that an outer plugin names without a threshold.
const ScopeNamed = "pods"

// ForcedTTL is how long a forced eviction stays wanted that the plugin does not repeat:
// short, so that an old request is not carried out after an outage.
const ForcedTTL = 5 * time.Minute

// Verdict is what one plugin concludes of one scope at one time. The plugin gets it
// back with the next View, so it is also all the state a plugin has.
type Verdict struct {
	Plugin   string   `json:"plugin"`
	Resource Resource `json:"resource"`
	// Scope is "node", or the device, mount or resource it is about.
	Scope string `json:"scope"`
	Level Level  `json:"level"`
	// Since is when the level changed last.
	Since time.Time `json:"since"`
	// MetLevel is the level whose threshold is met at this tick. Level may stay
	// above it (latched, hysteresis). No pod is evicted for a pressure that is
	// gone.
	MetLevel Level `json:"pressing"`
	// Urgent: memory is below its floor, and the kernel's OOM killer is next.
	// Evictions do not wait for milder measures.
	Urgent bool `json:"urgent,omitempty"`
	// Target is what must be released for the pressure to end, and Whole all of
	// the resource, both in the candidates' unit: they tell which evictions would
	// release enough. Absent: not known.
	Target snapshot.Opt[float64] `json:"releaseTarget,omitzero"`
	Whole  snapshot.Opt[float64] `json:"whole,omitzero"`
	// Observed, Operator and Threshold are the comparison that decided, or came
	// nearest to it, and Unit is its unit (ratio, bytes, seconds). They are for
	// people only.
	Observed  snapshot.Opt[float64] `json:"observed,omitzero"`
	Operator  string                `json:"operator,omitempty"`
	Threshold snapshot.Opt[float64] `json:"threshold,omitzero"`
	Unit      string                `json:"unit,omitempty"`
	// Condition of the Node, and key of its taint, without the prefix
	// "plimsoll.dev/".
	Condition string `json:"condition,omitempty"`
	// Reason is why the level is what it is, in one sentence.
	Reason string `json:"reason"`
	// Evidence is every comparison, met or not.
	Evidence []Evidence `json:"evidence,omitempty"`
	// Absent is which measurement is missing, and why; then no workload is named.
	Absent string `json:"absent,omitempty"`
	// Candidates for eviction, the best first; only while the threshold is met.
	Candidates []Candidate `json:"candidates,omitempty"`
	// GraceSeconds is the eviction grace period: how long the threshold must be
	// met before a pod is evicted for it. The coordinator waits. 0: no wait.
	GraceSeconds int64 `json:"graceSeconds,omitzero"`
	// GraceEnds is the end of the eviction grace period; zero without one.
	GraceEnds time.Time `json:"due,omitzero"`
	// PerWorkload: the rule is about what single workloads request or exceed, which
	// their owners decide. It is no pressure of the node: data mover loads do not wait
	// for it, and the controller does not count it.
	PerWorkload bool `json:"perWorkload,omitempty"`
	// ReportOnly: the level is only shown. It marks nothing, no data mover load waits
	// for it, and the controller does not count it.
	ReportOnly bool `json:"reportOnly,omitempty"`
	// Named: the candidates are to be evicted without a threshold, also at soft.
	Named bool `json:"named,omitempty"`
	// Effects of the taint that the plugin asks for, such as NoSchedule; none:
	// that of the level; NoEffect: no taint.
	Effects []string `json:"effects,omitempty"`
	// CNR: condition and taint belong on the node's CustomNodeResource, not on its
	// Node.
	CNR bool `json:"cnr,omitempty"`

	// Process identifies the process of an outer plugin: the report-only time of
	// its rule is that process's. Empty: the agent itself, or not known.
	Process string `json:"-"`
	// Beside limits the verdict of an outer plugin that another process may ask, too.
	Beside Beside `json:"beside,omitempty"`
	// Partial: not everything could be judged, because the agent or the node has
	// just started. Marks set before stay.
	Partial bool `json:"partial,omitempty"`
	// LowerMet is, for each level from Soft on, when its lower threshold was last met:
	// the state of the hysteresis.
	LowerMet [2]time.Duration `json:"-"`
	// LowerSeen is, for each level from Soft on, when its lower threshold was last seen to be
	// met, or the level was not on. LowerMet may be later, while a value is missing.
	LowerSeen [2]time.Duration `json:"-"`
	// Latched is, for each level from Soft on, whether it is on (latched).
	Latched [2]bool `json:"-"`
	// MetSince is, for a rule about single workloads that must be met for some time
	// (debounce), since when each has met it at every tick, by cgroup; for one with a
	// threshold for each level, since when each is met, by its name.
	MetSince map[string]time.Duration `json:"-"`
	// RuleMetSince is since when the rule has been met at every tick, for a rule that must
	// be met for some time (debounce); 0: it is not met.
	RuleMetSince time.Duration `json:"-"`
}

// Beside is what the verdict of an outer plugin is good for that another process may
// ask, too. Empty: everything.
type Beside string

// The limits.
const (
	BesideReport Beside = "report" // it is a dry run
	BesideMark   Beside = "mark"   // it marks the node and evicts no pod
)

// NoEffect as the effect of a taint: the condition has none.
const NoEffect = "-"

// Evidence is one comparison of a rule.
type Evidence struct {
	// Rule is the level whose rule has this comparison.
	Rule      Level                 `json:"rule"`
	What      string                `json:"what"`
	Observed  snapshot.Opt[float64] `json:"observed,omitzero"`
	Operator  string                `json:"operator"`
	Threshold float64               `json:"threshold"`
	Unit      string                `json:"unit"`
	Met       bool                  `json:"met"`
	// Absent is why there is no observed value.
	Absent string `json:"absent,omitempty"`
}

// Candidate is a workload that a plugin names for eviction.
type Candidate struct {
	Cgroup string `json:"cgroup"`
	Name   string `json:"name"`
	PodUID string `json:"podUid,omitempty"`
	// Relief is what its eviction would release, in Unit.
	Relief float64 `json:"relief"`
	Unit   string  `json:"unit"`
	// Why it is named, with its numbers.
	Why string `json:"why"`
	// NamedAt is when its plugin named it last, for one that was named in an earlier
	// round and stays named. Zero: in this round.
	NamedAt time.Time `json:"namedAt,omitzero"`
	// Forced: it is to be evicted whatever the levels. Protections and rate limits
	// hold all the same.
	Forced bool `json:"forced,omitempty"`
	// Refused is why the plugin may not name it, such as a pod that it was not
	// shown. The candidate is then only recorded.
	Refused string `json:"refused,omitempty"`
	// GraceSeconds is the termination grace period that the plugin asks for.
	// Absent: the pod's own.
	GraceSeconds snapshot.Opt[int64] `json:"graceSeconds,omitzero"`
}

// Levels has the verdicts of all inner plugins of one tick.
type Levels struct {
	Time     time.Time `json:"time"`
	Verdicts []Verdict `json:"verdicts"`
	// Disks has what each disk carries, as far as it is learned.
	Disks []DiskCapacity `json:"disks,omitempty"`
}

// With adds verdicts, of outer plugins, which are asked at another interval.
func (l *Levels) With(more []Verdict) *Levels {
	if len(more) == 0 {
		return l
	}
	return &Levels{Time: l.Time, Verdicts: append(slices.Clip(l.Verdicts), more...), Disks: l.Disks}
}

// Rose reports whether a verdict is at a higher level than before, and at to or
// above.
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

// NodePressure is the level of each resource that is under pressure, without rules
// that are about single workloads or only report.
func (l *Levels) NodePressure() map[Resource]Level {
	pressure := map[Resource]Level{}
	for _, v := range l.Verdicts {
		if v.Resource != "" && v.Level > None && !v.PerWorkload && !v.ReportOnly {
			pressure[v.Resource] = max(pressure[v.Resource], v.Level)
		}
	}
	return pressure
}

// Reported is the level of each resource by rules that only report.
func (l *Levels) Reported() map[Resource]Level {
	reported := map[Resource]Level{}
	for _, v := range l.Verdicts {
		if v.ReportOnly && v.Level > None {
			reported[v.Resource] = max(reported[v.Resource], v.Level)
		}
	}
	return reported
}

// Of returns the highest level of a resource.
func (l *Levels) Of(r Resource) Level {
	highest := None
	for _, v := range l.Verdicts {
		if v.Resource == r {
			highest = max(highest, v.Level)
		}
	}
	return highest
}
