package evict

import (
	"maps"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Grace holds, for each threshold of an outer plugin, since when it has been met
// (debounce): no pod is evicted before the eviction grace period has passed. The
// plugin sets the period, the coordinator waits. Grace is not saved: a restart
// starts the period again.
type Grace map[Threshold]Waited

// Threshold is the key of a timer. A plugin that changes its scope starts another
// one.
type Threshold struct{ Plugin, Scope string }

// Waited is since when a threshold has been met. Missed: the plugin did not answer
// the last time.
type Waited struct {
	Since  time.Time
	Missed bool
}

// Heard records a plugin's verdict and returns when the grace period ends; zero
// for a threshold that is not met. Soft and hard share one timer.
func (g Grace) Heard(v plugins.Verdict, now time.Time) (Grace, time.Time) {
	next := maps.Clone(g)
	if next == nil {
		next = Grace{}
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
	next[key] = Waited{Since: was.Since}
	return next, was.Since.Add(time.Duration(v.GraceSeconds) * time.Second)
}

// Without removes a plugin's timers: its name may now be another process's.
func (g Grace) Without(plugin string) Grace {
	next := maps.Clone(g)
	maps.DeleteFunc(next, func(t Threshold, _ Waited) bool { return t.Plugin == plugin })
	return next
}

// Missed records that a plugin did not answer. Once changes nothing; the second
// time removes its timers.
func (g Grace) Missed(plugin string) Grace {
	next := maps.Clone(g)
	for t, w := range next {
		switch {
		case t.Plugin != plugin:
		case w.Missed:
			delete(next, t)
		default:
			next[t] = Waited{Since: w.Since, Missed: true}
		}
	}
	return next
}
