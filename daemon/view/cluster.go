package view

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Cluster is the agent's state in its cluster; nil for a standalone agent.
type Cluster struct {
	// DryRun of evictions: no condition, taint or eviction is written. Throttles and
	// DataMovers have their own.
	DryRun bool `json:"dryRun"`
	// ConditionsOff and EvictionsOff: conditions.enabled and eviction.enabled are false.
	// Without conditions no pod is evicted.
	ConditionsOff bool `json:"conditionsOff,omitempty"`
	EvictionsOff  bool `json:"evictionsOff,omitempty"`
	// Pods of this node; no pod is evicted before they were listed once.
	Pods       int  `json:"pods"`
	PodsSynced bool `json:"podsSynced"`
	// PodOf finds the pod of a workload by the UID of its cgroup; may be nil.
	PodOf func(cgroupUID string) (pods.Pod, bool) `json:"-"`
	// StaleSince is when the connection to the API server was lost; zero while
	// the list of pods is current.
	StaleSince  time.Time `json:"staleSince,omitzero"`
	StaleReason string    `json:"staleBecause,omitempty"`
	// RoundsStuckSeconds is how long ago the last round ended, if that is too long, else
	// 0. What rounds decide, Conditions and DataMovers among it, is as old.
	RoundsStuckSeconds float64 `json:"roundsStuckSeconds,omitempty"`
	// UnsavedSeconds is for how long the eviction state could not be saved, else 0, and
	// UnsavedReason why.
	UnsavedSeconds float64 `json:"unsavedSeconds,omitempty"`
	UnsavedReason  string  `json:"unsavedReason,omitempty"`
	// Conditions are the desired ones of the Node; nil before the first round.
	Conditions []evict.Condition `json:"conditions"`
	// StatusWrites counts, by reason, how often conditions were written.
	StatusWrites map[string]uint64 `json:"statusWrites"`
	// Heartbeat is the agent's Lease, nil when none is configured.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// NodeLease is the Node's own, nil when the agent does not renew that.
	NodeLease *Heartbeat `json:"nodeLease,omitempty"`
	// DataMovers is nil where data movers are not managed.
	DataMovers *DataMovers `json:"loads,omitempty"`
	// Throttles is nil before the first round.
	Throttles *Throttles `json:"throttles,omitempty"`
	// Evictions counts requested, Suppressed skipped candidates.
	Evictions  map[evict.Result]uint64 `json:"-"`
	Suppressed map[evict.Code]uint64   `json:"-"`
}
