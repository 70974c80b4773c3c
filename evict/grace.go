package evict

import (
	"maps"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// GraceTimers holds, for each outer plugin, since when its threshold has been met
// (debounce): no pod is evicted before the eviction grace period has passed. The
// plugin sets the period, the coordinator waits. A plugin may report another scope in
// each round: as in Katalyst, that does not start the period again. Grace is not
// saved: a restart starts the period again.
type GraceTimers map[string]GraceTimer

// GraceTimer is since when a threshold has been met. Missed: the plugin did not answer
// the last time.
type GraceTimer struct {
	Since  time.Time
	Missed bool
}

// Observe records a plugin's verdict and returns when the grace period ends; zero
// for a threshold that is not met. Soft and hard share one timer.
func (g GraceTimers) Observe(v plugins.Verdict, now time.Time) (GraceTimers, time.Time) {
	next := maps.Clone(g)
	if next == nil {
		next = GraceTimers{}
	}
	was, waits := next[v.Plugin]
	if v.Level == plugins.None {
		delete(next, v.Plugin)
		return next, time.Time{}
	}
	if !waits || was.Since.After(now) { // a clock that was set back
		was.Since = now
	}
	next[v.Plugin] = GraceTimer{Since: was.Since}
	return next, was.Since.Add(time.Duration(v.GraceSeconds) * time.Second)
}

// Without removes a plugin's timer: its name may now be another process's.
func (g GraceTimers) Without(plugin string) GraceTimers {
	next := maps.Clone(g)
	delete(next, plugin)
	return next
}

// MissedAnswer records that a plugin did not answer. Once changes nothing; the second
// time removes its timer.
func (g GraceTimers) MissedAnswer(plugin string) GraceTimers {
	next := maps.Clone(g)
	switch was, waits := next[plugin]; {
	case !waits:
	case was.Missed:
		delete(next, plugin)
	default:
		next[plugin] = GraceTimer{Since: was.Since, Missed: true}
	}
	return next
}
