package view

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
)

// Cluster is what the agent says of the cluster; none when it runs standalone.
type Cluster struct {
	// DryRun: nothing outside is changed.
	DryRun bool `json:"dryRun"`
	// Pods of this node that are known; nothing is evicted before they were
	// listed once.
	Pods       int  `json:"pods"`
	PodsSynced bool `json:"podsSynced"`
	// StaleSince is since when the API server is not heard.
	StaleSince   time.Time `json:"staleSince,omitzero"`
	StaleBecause string    `json:"staleBecause,omitempty"`
	// Conditions that the Node should carry.
	Conditions []evict.Condition `json:"conditions"`
	// StatusWrites counts, by reason, how often conditions were written.
	StatusWrites map[string]uint64 `json:"statusWrites"`
	// Evictions and Suppressed count what became of candidates.
	Evictions  map[evict.Result]uint64 `json:"-"`
	Suppressed map[evict.Code]uint64   `json:"-"`
}
