package daemon

import (
	"context"
	"time"
)

// minApart is how long after a sample another may be woken: a tick costs a few
// milliseconds, and a node that stalls must not be kept busy with watching it.
const minApart = 200 * time.Millisecond

// pace is when the next sample is taken: with the ticker, whose rhythm it never
// changes, or before, when a trigger fired.
type pace struct {
	woken chan struct{} // a trigger fired

	early time.Time // when the last sample was woken
	count uint64    // of the samples that were woken
	// now says whether the sample that is being taken was woken.
	now bool
}

// next waits for the tick or for a trigger, and returns false when ctx is done.
// A stall that lasts fires triggers all the time: at most one sample in every
// window of theirs is woken, and none sooner than minApart after this call. A
// trigger that must wait so is not lost; a tick that comes before serves it, as
// a sample that was woken serves the tick right after it.
func (p *pace) next(ctx context.Context, tick <-chan time.Time, window time.Duration) bool {
	served, apart := p.now, time.Now().Add(minApart)
	soonest := apart
	if again := p.early.Add(window); again.After(apart) {
		soonest = again
	}
	p.now = false
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			if served && time.Now().Before(apart) {
				continue
			}
			return true
		case <-due:
			p.now, p.early = true, time.Now()
			p.count++
			return true
		case <-p.woken:
			if due == nil {
				due = time.After(time.Until(soonest))
			}
		}
	}
}
