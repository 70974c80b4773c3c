package evict

import "time"

// saveTimeout is how long no pod is evicted while the state cannot be saved. A
// workload that stalls or fills the disk may prevent that, and must not escape
// eviction by it.
const saveTimeout = time.Minute

// EvictUnsaved reports whether candidate i is evicted although the state could not be
// saved, for the time unkept so far. The cost is one pod too many if the agent is
// killed before the API server has answered. Memory below its floor does not wait
// for the disk.
func (d *Decision) EvictUnsaved(i int, unkept time.Duration) bool {
	return unkept >= saveTimeout || d.Candidates[i].For.Urgent
}
