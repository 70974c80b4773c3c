// Package evict turns verdicts into decisions: who should go, and why each of
// the others is spared.
//
// # Concurrency
//
// Decide is a pure function. A Log belongs to one goroutine that adds; List
// may be called from any.
package evict

import (
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

// Decide judges one round: a Decision for each verdict whose level changed
// since the round before. Previous is nil in the first round, which records
// only what is met.
func Decide(previous, now *plugins.Levels) []Decision {
	var list []Decision
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

func levelOf(l *plugins.Levels, v plugins.Verdict) plugins.Level {
	if l == nil {
		return plugins.None
	}
	for _, was := range l.Verdicts {
		if was.Plugin == v.Plugin && was.Scope == v.Scope {
			return was.Level
		}
	}
	return plugins.None
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
	for i := len(l.list) - 1; i >= 0; i-- {
		out = append(out, l.list[i])
	}
	return out
}
