package evict

import (
	"maps"
	"sync"
)

// Counters counts the outcomes of candidates since the agent started.
type Counters struct {
	mu        sync.Mutex // guards both
	evictions map[Result]uint64
	skipped   map[Code]uint64
}

// Result is the outcome of an eviction request.
type Result struct {
	// Plugin that named it first.
	Plugin string
	Code   Code
}

// Count adds a decision that is stored.
func (t *Counters) Count(d *Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.evictions == nil {
		t.evictions, t.skipped = map[Result]uint64{}, map[Code]uint64{}
	}
	for _, c := range d.Candidates {
		if len(c.Answers) > 0 {
			t.evictions[Result{c.Plugins[0], c.Code}]++
		} else {
			t.skipped[c.Code]++
		}
	}
}

// Counts returns copies of the counters: requested evictions, and candidates that
// were skipped without a request, by reason.
func (t *Counters) Counts() (evictions map[Result]uint64, suppressed map[Code]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.evictions), maps.Clone(t.skipped)
}
