package agent

import (
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/state"
)

// decisionStore stores decisions across restarts; a decision that changes is stored
// again. As in evict.Log, those that requested an eviction are not pushed out by others.
type decisionStore struct {
	requests, others state.Ring[evict.Decision]
	writer           state.Writer // of both
}

// maxQueuedRecords is how many decisions are queued while the disk hangs: those
// of some minutes.
const maxQueuedRecords = 64

// writesPerDecision is how often a decision is usually stored, at most: when it is
// made, when its pods terminate, when the node settles.
const writesPerDecision = 4

func newRecords(c config.State) *decisionStore {
	ring := func(dir string) state.Ring[evict.Decision] {
		return state.Ring[evict.Decision]{
			Dir: filepath.Join(c.Dir, dir), Max: writesPerDecision * c.Decisions, MaxBytes: int64(min(c.DecisionsSize, 1<<40) / 2),
		}
	}
	return &decisionStore{requests: ring("evictions"), others: ring("decisions"), writer: state.Writer{MaxQueued: maxQueuedRecords}}
}

// savedDecisions are those of a ring, and how many could not be read.
type savedDecisions struct {
	list    []evict.Decision
	spoiled int
}

// load returns the decisions of earlier agents, oldest first. It waits no longer than wait
// for each half of them.
func (r *decisionStore) load(wait time.Duration, log *slog.Logger) (all []evict.Decision) {
	for _, ring := range []*state.Ring[evict.Decision]{&r.others, &r.requests} {
		saved, err := state.Read(&r.writer, wait, func() (s savedDecisions, err error) {
			s.list, s.spoiled, err = ring.Load()
			return s, err
		})
		if err != nil {
			log.Warn("cannot read saved decisions; starting without them", "reason", err)
		}
		if saved.spoiled > 0 {
			log.Warn("dropped unreadable saved decisions", "lost", saved.spoiled, "read", len(saved.list), "dir", ring.Dir)
		}
		all = append(all, saved.list...)
	}
	slices.SortStableFunc(all, func(a, b evict.Decision) int { return a.Time.Compare(b.Time) })
	return all
}

// append stores a decision. It waits no longer than saveTimeout: a decision that
// is not stored is still in memory, in the log and in the Events.
func (r *decisionStore) append(d evict.Decision, log *slog.Logger) {
	ring := &r.others
	if d.Requested() {
		ring = &r.requests
	}
	add, err := ring.Prepare(d)
	if err == nil {
		err = r.writer.Do(saveTimeout, add)
	}
	if err != nil {
		log.Warn("cannot save a decision; a restart will forget it", "id", d.ID, "reason", err)
	}
}
