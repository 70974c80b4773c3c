package agent

import (
	"log/slog"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/state"
)

// decisionStore store decisions across restarts; a decision that changes is stored
// again.
type decisionStore struct {
	ring   state.Ring[evict.Decision]
	writer state.Writer // of ring
}

// maxQueuedRecords is how many decisions are queued while the disk hangs: those
// of some minutes.
const maxQueuedRecords = 64

// writesPerDecision is how often a decision is usually stored, at most: when it is
// made, when its pods terminate, when the node settles.
const writesPerDecision = 4

func newRecords(c config.State) *decisionStore {
	return &decisionStore{ring: state.Ring[evict.Decision]{
		Dir: filepath.Join(c.Dir, "decisions"), Max: writesPerDecision * c.Decisions, MaxBytes: int64(min(c.DecisionsSize, 1<<40)),
	}, writer: state.Writer{MaxQueued: maxQueuedRecords}}
}

// load returns the decisions of earlier agents, oldest first.
func (r *decisionStore) load(log *slog.Logger) []evict.Decision {
	list, spoiled, err := r.ring.Load()
	if err != nil {
		log.Warn("cannot read saved decisions; starting without them", "reason", err)
	}
	if spoiled > 0 {
		log.Warn("dropped unreadable saved decisions", "lost", spoiled, "read", len(list), "dir", r.ring.Dir)
	}
	return list
}

// append stores a decision. It waits no longer than saveTimeout: a decision that
// is not stored is still in memory, in the log and in the Events.
func (r *decisionStore) append(d evict.Decision, log *slog.Logger) {
	add, err := r.ring.Prepare(d)
	if err == nil {
		err = r.writer.Do(saveTimeout, add)
	}
	if err != nil {
		log.Warn("cannot save a decision; a restart will forget it", "id", d.ID, "reason", err)
	}
}
