package agent

import (
	"context"
	"time"
)

// minSampleGap is the least time from a sample to one that a trigger wakes (rate
// limit): a tick costs a few milliseconds, and sampling must not add to the
// pressure on a node that stalls.
const minSampleGap = 200 * time.Millisecond

// pace decides when the next sample is taken: at the tick, whose rhythm never
// changes, or earlier, when a trigger fired.
type pace struct {
	woken chan struct{} // a trigger fired

	lastWoken time.Time // when a trigger last woke a sample
	count     uint64    // samples that triggers woke
	// woke tells whether a trigger woke the current sample.
	woke bool
}

// next waits for the tick or a trigger and returns false when ctx is done. A
// stall that lasts fires triggers all the time, so triggers wake at most one
// sample per trigger window, and none sooner than minSampleGap after this call. A
// trigger that must wait is not lost, but an earlier tick serves it; likewise a
// sample that was woken serves a tick right after it.
func (p *pace) next(ctx context.Context, tick <-chan time.Time, window time.Duration) bool {
	served, apart := p.woke, time.Now().Add(minSampleGap)
	soonest := apart
	if again := p.lastWoken.Add(window); again.After(apart) {
		soonest = again
	}
	p.woke = false
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
			p.woke, p.lastWoken = true, time.Now()
			p.count++
			return true
		case <-p.woken:
			if due == nil {
				due = time.After(time.Until(soonest))
			}
		}
	}
}
