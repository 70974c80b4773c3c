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
// the last time. Process reported it (plugins.Verdict.Process), last at Reported.
type GraceTimer struct {
	Since, Reported time.Time
	Missed          bool
	Process         string
}

const (
	// reconnectTime is how long a process that only connects anew may be away: so long is
	// its last answer used.
	reconnectTime = 15 * time.Second
	// timerTTL is longer than the calls of a round may take. A timer that is older is of a
	// plugin that is gone, such as one under ever new names.
	timerTTL = 10 * time.Minute
)

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
	next[v.Plugin] = GraceTimer{Since: was.Since, Reported: now, Process: v.Process}
	return next, was.Since.Add(time.Duration(v.GraceSeconds) * time.Second)
}

// Registered removes the timer of a plugin that has just been registered, unless it is the
// process that had the name before and has only connected anew.
func (g GraceTimers) Registered(plugin, process string, now time.Time) GraceTimers {
	next := maps.Clone(g)
	maps.DeleteFunc(next, func(name string, t GraceTimer) bool {
		age := now.Sub(t.Reported).Abs()
		return age >= timerTTL || name == plugin && (t.Process != process || age >= reconnectTime)
	})
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
		was.Missed = true
		next[plugin] = was
	}
	return next
}
