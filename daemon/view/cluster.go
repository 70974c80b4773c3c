package view

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Cluster is what the agent says of the cluster; none when it runs standalone.
type Cluster struct {
	// DryRun: nothing outside is changed.
	DryRun bool `json:"dryRun"`
	// Pods of this node that are known; nothing is evicted before they were
	// listed once.
	Pods       int  `json:"pods"`
	PodsSynced bool `json:"podsSynced"`
	// PodOf finds the pod of a workload by the UID of its cgroup; nil: none is
	// known.
	PodOf func(cgroupUID string) (pods.Pod, bool) `json:"-"`
	// StaleSince is since when the API server is not heard.
	StaleSince   time.Time `json:"staleSince,omitzero"`
	StaleBecause string    `json:"staleBecause,omitempty"`
	// Node conditions.
	Conditions []evict.Condition `json:"conditions"`
	// StatusWrites counts, by reason, how often conditions were written.
	StatusWrites map[string]uint64 `json:"statusWrites"`
	// Heartbeat is nil when none is configured.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// NodeLease is the Node's own, nil when the agent does not renew that.
	NodeLease *Heartbeat `json:"nodeLease,omitempty"`
	// Loads is nil where nothing is done about data movers.
	Loads *Loads `json:"loads,omitempty"`
	// Evictions and Suppressed count what became of candidates.
	Evictions  map[evict.Result]uint64 `json:"-"`
	Suppressed map[evict.Code]uint64   `json:"-"`
}
