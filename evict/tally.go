package evict

import (
	"maps"
	"sync"
)

// Tally counts, since the agent started, what became of candidates.
type Tally struct {
	mu         sync.Mutex // guards both
	evictions  map[Result]uint64
	suppressed map[Code]uint64
}

// Result is what the API server said of a pod that a plugin named.
type Result struct {
	// Plugin that named it first.
	Plugin string
	Code   Code
}

// Count takes in a decision that is kept.
func (t *Tally) Count(d *Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.evictions == nil {
		t.evictions, t.suppressed = map[Result]uint64{}, map[Code]uint64{}
	}
	for _, c := range d.Candidates {
		if len(c.Answers) > 0 {
			t.evictions[Result{c.Plugins[0], c.Code}]++
		} else {
			t.suppressed[c.Code]++
		}
	}
}

// Counts are copies of the counters: pods that the API server was asked for,
// and candidates that were spared without asking, by reason.
func (t *Tally) Counts() (evictions map[Result]uint64, suppressed map[Code]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.evictions), maps.Clone(t.suppressed)
}
