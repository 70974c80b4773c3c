package outer

import "time"

const (
	// failuresToOpen a breaker: one may be chance, and each costs the round its
	// whole deadline.
	failuresToOpen = 3
	firstOpen      = 30 * time.Second
	maxOpen        = 5 * time.Minute
)

// breaker keeps a plugin that fails again and again from being asked, but for a
// probe now and then. The zero breaker is closed.
type breaker struct {
	failures int       // in a row
	until    time.Time // when the next probe may be made
}

// open says until when the plugin is not asked; zero: it is.
func (b breaker) open(now time.Time) time.Time {
	if now.Before(b.until) {
		return b.until
	}
	return time.Time{}
}

// after a round with the plugin. A probe that fails opens it for twice as long.
func (b breaker) after(failed bool, now time.Time) breaker {
	if !failed {
		return breaker{}
	}
	b.failures++
	if over := b.failures - failuresToOpen; over >= 0 {
		b.until = now.Add(min(firstOpen<<min(over, 10), maxOpen))
	}
	return b
}

// State is closed, open, or half-open when the next call is a probe.
func (b breaker) state(now time.Time) string {
	switch {
	case b.failures < failuresToOpen:
		return "closed"
	case now.Before(b.until):
		return "open"
	}
	return "half-open"
}
