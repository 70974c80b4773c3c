package katalyst

import (
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

// Disruption is what the PodDisruptionBudgets that select a pod report.
type Disruption struct {
	// HasPDB is false for a pod that none selects.
	HasPDB                                                bool
	Allowed, CurrentHealthy, DesiredHealthy, ExpectedPods int32
}

// Records are the eviction records of pods, in order. A pod for which nothing is known
// has none, as in Katalyst: the wire has no other way to say so, and zeros would read as
// figures. They have no buckets (earlier evictions of the pod's workload), since an agent
// knows only those of its own node.
func Records(uids []string, known map[string]Disruption) []*wire.EvictionRecord {
	var list []*wire.EvictionRecord
	for _, uid := range uids {
		if d, is := known[uid]; is {
			list = append(list, &wire.EvictionRecord{
				Uid: uid, HasPdb: d.HasPDB, DisruptionsAllowed: d.Allowed,
				CurrentHealthy: d.CurrentHealthy, DesiredHealthy: d.DesiredHealthy, ExpectedPods: d.ExpectedPods,
			})
		}
	}
	return list
}
