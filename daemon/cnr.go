package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// cnr keeps the marks on Katalyst's CustomNodeResource. Nobody else waits for
// it: where there is none, or the agent may not touch it, the Node is marked and
// pods are evicted all the same. It belongs to the round's goroutine.
type cnr struct {
	marker *evict.CNRMarker
	last   *evict.CNR // as it was read or written, nil when that failed
	looked time.Time  // when it was last read, or that was tried
	// adopted: the taints of an agent before this one are known. It is asked for
	// them when a plugin first speaks of it, so that nobody asks where Katalyst is
	// not.
	adopted bool
	marked  bool   // it may carry marks of ours
	said    string // the last error that was logged, empty when all is well
}

// cnrReread is how long what was read counts, and how soon it is tried again.
const cnrReread = time.Minute

// adopt returns what is remembered, with what an agent before this one put on
// the CustomNodeResource.
func (c *cnr) adopt(ctx context.Context, in evict.Input) evict.Memory {
	about := func(v plugins.Verdict) bool { return v.CNR }
	if c.adopted || in.Time.Sub(c.looked) < cnrReread || !slices.ContainsFunc(in.Levels.Verdicts, about) {
		return in.Memory
	}
	c.looked = in.Time
	found, err := c.marker.Get(ctx)
	if c.say(err); err != nil {
		return in.Memory
	}
	c.last, c.adopted, c.marked = found, true, true
	return in.Memory.Adopt(in.Time, found.Owned())
}

// mark makes it carry what is wanted, or nothing of ours.
func (c *cnr) mark(ctx context.Context, now time.Time, want *evict.Marks) {
	failed := c.last == nil && now.Sub(c.looked) < cnrReread
	if want == nil && !c.marked || failed {
		return
	}
	if now.Sub(c.looked) >= cnrReread {
		c.last, c.looked = nil, now
	}
	marks := evict.Marks{}
	if want != nil {
		marks = *want
	}
	var err error
	c.last, err = c.marker.Apply(ctx, c.last, marks)
	c.say(err)
	c.marked = err != nil || want != nil
}

// say logs an error once, until it is another or none.
func (c *cnr) say(err error) {
	words := ""
	if err != nil {
		words = err.Error()
	}
	if words != c.said && err != nil {
		c.marker.Log.Warn("failed to mark the CustomNodeResource; retrying", "error", err)
	}
	c.said = words
}
