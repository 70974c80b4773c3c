package evict

import (
	"cmp"

	"github.com/plimsoll-dev/plimsoll/counters"
)

// Counters counts the outcomes of candidates since the agent started; its methods may
// be called from any goroutine.
type Counters struct{ group counters.Group[counts] }

type counts struct {
	evictions counters.By[Result]
	skipped   counters.By[Code]
}

// Clone copies the counts.
func (c counts) Clone() counts { return counts{c.evictions.Clone(), c.skipped.Clone()} }

// Result is the outcome of an eviction request.
type Result struct {
	// Plugin that it was requested for.
	Plugin string
	Code   Code
}

// Count adds a decision that is stored.
func (t *Counters) Count(d *Decision) {
	t.group.Change(func(n *counts) {
		for _, c := range d.Candidates {
			if len(c.Answers) > 0 {
				n.evictions.Add(Result{cmp.Or(c.For.Plugin, c.Plugins[0]), c.Code})
			} else {
				n.skipped.Add(c.Code)
			}
		}
	})
}

// Counts returns copies of the counters: requested evictions, and candidates that
// were skipped without a request, by reason.
func (t *Counters) Counts() (evictions map[Result]uint64, skipped map[Code]uint64) {
	c := t.group.Counts()
	return c.evictions, c.skipped
}
