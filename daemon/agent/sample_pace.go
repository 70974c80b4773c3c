package agent

import (
	"context"
	"time"
)

// minSampleGap is the least time from a sample to one before its tick (rate limit): a tick costs a few milliseconds, and sampling must not add to the
// pressure on a node that stalls.
const minSampleGap = 200 * time.Millisecond

// shortPoll is how often it is looked, between two samples, whether memory has become short.
const shortPoll = 100 * time.Millisecond

// pace decides when the next sample is taken: at the tick, whose rhythm never
// changes, or earlier, when a trigger fired or memory has become short.
type pace struct {
	woken chan struct{} // a trigger fired

	lastWoken time.Time // when a trigger last woke a sample
	count     uint64    // samples that triggers woke
	// woke tells whether a trigger woke the current sample, short whether memory that became
	// short did, and early whether it was taken before its tick for any reason.
	woke, short, early bool
}

// looks ticks each shortPoll; never where there is nothing to ask.
func looks(isShort func() bool) (at <-chan time.Time, stop func()) {
	if isShort == nil {
		return nil, func() {}
	}
	t := time.NewTicker(shortPoll)
	return t.C, t.Stop
}

// next waits for the tick, a trigger, or until isShort, which is asked each shortPoll (nil: it
// is not), and returns false when ctx is done. A stall that lasts fires triggers all the time,
// so triggers wake at most one sample per trigger window, and none sooner than minSampleGap
// after this call. A trigger that must wait is not lost, but an earlier tick serves it;
// likewise a sample that was taken early serves a tick right after it.
func (p *pace) next(ctx context.Context, tick <-chan time.Time, window time.Duration, isShort func() bool) bool {
	served, apart := p.early, time.Now().Add(minSampleGap)
	soonest := apart
	if again := p.lastWoken.Add(window); again.After(apart) {
		soonest = again
	}
	p.woke, p.short, p.early = false, false, false
	var due <-chan time.Time
	look, stop := looks(isShort)
	defer stop()
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
			p.woke, p.early, p.lastWoken = true, true, time.Now()
			p.count++
			return true
		case <-look:
			if p.short = !time.Now().Before(apart) && isShort(); p.short {
				p.early = true
				return true
			}
		case <-p.woken:
			if due == nil {
				due = time.After(time.Until(soonest))
			}
		}
	}
}
