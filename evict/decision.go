// Package evict turns verdicts into decisions: who should go, and why each of
// the others is spared.
//
// # Concurrency
//
// Decide is a pure function. A Log belongs to one goroutine that adds; List
// may be called from any.
package evict

import (
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Decision is what one round decided about one verdict, with its reasons.
type Decision struct {
	Time      time.Time           `json:"time"`
	Plugin    string              `json:"plugin"`
	Scope     string              `json:"scope"`
	Level     plugins.Level       `json:"level"`
	Since     time.Time           `json:"since"`
	Observed  probes.Opt[float64] `json:"observed,omitzero"`
	Operator  string              `json:"operator,omitempty"`
	Threshold probes.Opt[float64] `json:"threshold,omitzero"`
	Unit      string              `json:"unit,omitempty"`
	Reason    string              `json:"reason"`
	// Spared is every candidate that was not evicted, in the plugin's order.
	Spared []Spared `json:"spared,omitempty"`
}

// Spared is a candidate that was not evicted, and why.
type Spared struct {
	plugins.Candidate
	SparedBecause string `json:"sparedBecause"`
}

// Standalone is why an agent without a cluster evicts nobody.
const Standalone = "standalone: without a cluster nothing is evicted"

// SwitchedOff is why a level ended whose plugin is asked no more.
const SwitchedOff = "the plugin was switched off"

// Gone is why a level ended whose plugin no longer judges that scope.
const Gone = "no longer judged by its plugin, such as a device that is gone"

// Decide judges one round: a Decision for each verdict whose level changed
// since the round before, and one of level none for each that was met and is
// given no more. Previous is nil in the first round, which records only what
// is met.
func Decide(previous, now *plugins.Levels) []Decision {
	list := ended(previous, now)
	for _, v := range now.Verdicts {
		if v.Level == levelOf(previous, v) {
			continue
		}
		d := Decision{
			Time: now.Time, Plugin: v.Plugin, Scope: v.Scope, Level: v.Level, Since: v.Since,
			Observed: v.Observed, Operator: v.Operator, Threshold: v.Threshold, Unit: v.Unit, Reason: v.Reason,
		}
		for _, c := range v.Candidates {
			d.Spared = append(d.Spared, Spared{Candidate: c, SparedBecause: Standalone})
		}
		list = append(list, d)
	}
	return list
}

// ended is what was met and is not judged any more.
func ended(previous, now *plugins.Levels) []Decision {
	if previous == nil {
		return nil
	}
	var list []Decision
	for _, was := range previous.Verdicts {
		if was.Level == plugins.None || slices.ContainsFunc(now.Verdicts, sameAs(was)) {
			continue
		}
		why := SwitchedOff
		if slices.ContainsFunc(now.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == was.Plugin }) {
			why = Gone
		}
		list = append(list, Decision{
			Time: now.Time, Plugin: was.Plugin, Scope: was.Scope, Level: plugins.None, Since: now.Time, Reason: why,
		})
	}
	return list
}

func levelOf(l *plugins.Levels, v plugins.Verdict) plugins.Level {
	if l == nil {
		return plugins.None
	}
	if i := slices.IndexFunc(l.Verdicts, sameAs(v)); i >= 0 {
		return l.Verdicts[i].Level
	}
	return plugins.None
}

// sameAs tells the verdicts of the same plugin about the same scope.
func sameAs(v plugins.Verdict) func(plugins.Verdict) bool {
	return func(o plugins.Verdict) bool { return o.Plugin == v.Plugin && o.Scope == v.Scope }
}

// Log is a bounded ring of the newest decisions.
type Log struct {
	// Max is how many are kept.
	Max int

	mu   sync.Mutex // guards list
	list []Decision
}

// Add appends decisions and drops the oldest beyond Max.
func (l *Log) Add(d ...Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, d...)
	if over := len(l.list) - l.Max; over > 0 {
		l.list = append([]Decision(nil), l.list[over:]...)
	}
}

// List returns the decisions, newest first.
func (l *Log) List() []Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Decision, 0, len(l.list))
	for _, d := range slices.Backward(l.list) {
		out = append(out, d)
	}
	return out
}
