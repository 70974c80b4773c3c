package outer

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/backoff"
)

const (
	// failuresToOpen is how many failed rounds in a row open the circuit
	// breaker: a single one may be chance, and each costs the round its whole
	// deadline.
	failuresToOpen = 3
	firstOpen      = 30 * time.Second
	maxOpen        = 5 * time.Minute
)

// breaker is a circuit breaker: a plugin that fails repeatedly is called only
// for a probe now and then, with exponential backoff. The zero breaker is
// closed.
type breaker struct {
	failures int       // in a row
	until    time.Time // time of the next probe
}

// open returns until when the plugin is not called; zero if it may be.
func (b breaker) open(now time.Time) time.Time {
	if now.Before(b.until) {
		return b.until
	}
	return time.Time{}
}

// after returns the breaker after a round. A failed probe doubles the time it
// stays open.
func (b breaker) after(failed bool, now time.Time) breaker {
	if !failed {
		return breaker{}
	}
	b.failures++
	if over := b.failures - failuresToOpen; over >= 0 {
		b.until = now.Add(backoff.Exponential{First: firstOpen, Longest: maxOpen}.Doubled(over))
	}
	return b
}

// state is closed, open, or half-open if the next call is a probe.
func (b breaker) state(now time.Time) string {
	switch {
	case b.failures < failuresToOpen:
		return "closed"
	case now.Before(b.until):
		return "open"
	}
	return "half-open"
}
