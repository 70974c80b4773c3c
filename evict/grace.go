package evict

import (
	"maps"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// GraceTimers holds, for each threshold of an outer plugin, since when it has been met
// (debounce): no pod is evicted before the eviction grace period has passed. The
// plugin sets the period, the coordinator waits. Grace is not saved: a restart
// starts the period again.
type GraceTimers map[Threshold]GraceTimer

// Threshold is the key of a timer. A plugin that changes its scope starts another
// one.
type Threshold struct{ Plugin, Scope string }

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
	key := Threshold{v.Plugin, v.Scope}
	was, waits := next[key]
	next = next.Without(v.Plugin) // of its other scopes
	if v.Level == plugins.None {
		return next, time.Time{}
	}
	if !waits || was.Since.After(now) { // a clock that was set back
		was.Since = now
	}
	next[key] = GraceTimer{Since: was.Since}
	return next, was.Since.Add(time.Duration(v.GraceSeconds) * time.Second)
}

// Without removes a plugin's timers: its name may now be another process's.
func (g GraceTimers) Without(plugin string) GraceTimers {
	next := maps.Clone(g)
	maps.DeleteFunc(next, func(t Threshold, _ GraceTimer) bool { return t.Plugin == plugin })
	return next
}

// MissedAnswer records that a plugin did not answer. Once changes nothing; the second
// time removes its timers.
func (g GraceTimers) MissedAnswer(plugin string) GraceTimers {
	next := maps.Clone(g)
	for t, w := range next {
		switch {
		case t.Plugin != plugin:
		case w.Missed:
			delete(next, t)
		default:
			next[t] = GraceTimer{Since: w.Since, Missed: true}
		}
	}
	return next
}
