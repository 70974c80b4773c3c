package agent

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// cnr writes the marks to Katalyst's CustomNodeResource. Its failures block
// nothing: if there is none, or the agent may not write it, the Node is marked
// and pods are evicted all the same. It is owned by the round's goroutine.
type cnr struct {
	marker   *kube.CNRMarker
	last     *kube.CNR // as last read or written; nil if that failed
	lastRead time.Time // time of the last read or attempt
	// adopted: the taints of an earlier agent are known. They are read when a
	// plugin first asks for a mark there, or where that agent may have left some, so
	// that clusters without Katalyst see no request.
	adopted     bool
	marked      bool   // it may carry marks of Plimsoll
	loggedError string // last error logged; empty: none
}

// cnrReread is how long a read is used, and how soon a failed one is repeated.
const cnrReread = time.Minute

// adopt returns the eviction state with the taints that an earlier agent put on
// the CustomNodeResource.
func (c *cnr) adopt(ctx context.Context, in evict.Input) evict.State {
	asked := slices.ContainsFunc(in.Levels.Verdicts, func(v plugins.Verdict) bool { return v.CNR })
	in.State.CNRMarked = c.marked || !c.adopted && (asked || in.State.CNRMarked)
	if c.adopted || in.Time.Sub(c.lastRead) < cnrReread || !in.State.CNRMarked {
		return in.State
	}
	c.lastRead = in.Time
	found, err := c.marker.Get(ctx)
	if apierrors.IsNotFound(err) && !asked { // nothing is left to remove
		in.State.CNRMarked = false
		return in.State
	}
	if c.logError(err); err != nil {
		return in.State
	}
	c.last, c.adopted, c.marked = found, true, true
	return in.State.Adopt(in.Time, found.Owned())
}

// mark writes the wanted marks, or removes all of Plimsoll.
func (c *cnr) mark(ctx context.Context, now time.Time, want *evict.Marks) {
	failed := c.last == nil && now.Sub(c.lastRead) < cnrReread
	if want == nil && !c.marked || failed {
		return
	}
	if now.Sub(c.lastRead) >= cnrReread {
		c.last, c.lastRead = nil, now
	}
	marks := evict.Marks{}
	if want != nil {
		marks = *want
	}
	var err error
	c.last, err = c.marker.Apply(ctx, c.last, marks)
	c.logError(err)
	c.marked = err != nil || want != nil
}

// logError logs an error once until it changes.
func (c *cnr) logError(err error) {
	words := ""
	if err != nil {
		words = err.Error()
	}
	if words != c.loggedError && err != nil {
		c.marker.Log.Warn("failed to mark the CustomNodeResource; retrying", "error", err)
	}
	c.loggedError = words
}
