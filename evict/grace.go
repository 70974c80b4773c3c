package evict

import (
	"maps"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Grace is since when each threshold has been met that must be met for some
// time before anybody is asked for: pressure is smoothed by it. A plugin owns
// its grace, the coordinator the waiting. It is not kept over a restart, which
// starts the waiting anew.
type Grace map[Threshold]Waited

// Threshold is what a timer is of: a plugin that changes its scope speaks of
// something else.
type Threshold struct{ Plugin, Scope string }

// Waited is since when a threshold has been met. Missed: the plugin's last word
// about it was none.
type Waited struct {
	Since  time.Time
	Missed bool
}

// Heard takes in what a plugin said of a threshold, and says when the grace is
// over; zero for a threshold that is not met. Soft and hard share one timer:
// which it is, the plugin says.
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

// Without a plugin's timers: who has its name now may be another.
func (g Grace) Without(plugin string) Grace {
	next := maps.Clone(g)
	maps.DeleteFunc(next, func(t Threshold, _ Waited) bool { return t.Plugin == plugin })
	return next
}

// Missed takes in that a plugin did not say: once that changes nothing.
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
