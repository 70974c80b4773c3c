// Package advise evaluates the thresholds by recordings of days: how often and
// how long each would have been met, which of these alarms were false as far as
// a recording tells, and which thresholds to set, with the reason.
//
// # Usage
//
// A Watcher is given each moment of a replay (replay.Player.Watch) and makes an
// Advice. It proposes nothing without enough data, nor beyond the bounds within
// which real pressure is still detected in time.
//
// # Concurrency
//
// A Watcher belongs to one goroutine. An Advice never changes.
package advise

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Format is the first field of an Advice. The version changes when a field is
// removed or changes its meaning.
const Format = "plimsoll-advise/1"

// Advice is the result of a Watcher.
type Advice struct {
	Format string `json:"format"`
	// Config is the configuration file; empty: the defaults.
	Config     string             `json:"configFile,omitempty"`
	Recordings []replay.Recording `json:"recordings"`
	// Unreadable are segments of which samples are missing, and why.
	Unreadable []string `json:"unreadable,omitempty"`
	// Failed is where and why the replay stopped; empty: it reached the end.
	Failed string    `json:"failed,omitempty"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
	// ObservedSeconds are the part of Seconds without gaps.
	Seconds         float64 `json:"seconds"`
	ObservedSeconds float64 `json:"seenSeconds"`
	Samples         uint64  `json:"samples"`
	// OOMKills counts kills by the kernel; OOMKillsAtOwnLimit are those while the node was
	// not short of memory, OOMKillsWithoutLevel those of the others without a level of
	// memory in the minute before.
	OOMKills             uint64 `json:"oomKills"`
	OOMKillsAtOwnLimit   uint64 `json:"oomKillsAtOwnLimit"`
	OOMKillsWithoutLevel uint64 `json:"oomKillsNotAnnounced"`

	// Actions are what would have been done to workloads; ActionsOmitted counts what would
	// have been done to those beyond the first 10,000.
	Actions        []Action `json:"actions"`
	ActionsOmitted uint64   `json:"actionsOmitted,omitempty"`

	Scopes    []Scope    `json:"scopes"`
	Proposals []Proposal `json:"proposals"`
	// Configuration is YAML with the proposed changes only.
	Configuration string   `json:"configuration"`
	Limits        []string `json:"notKnown"`
}

// Scope is the alarms of one plugin and scope.
type Scope struct {
	Plugin          string  `json:"plugin"`
	Scope           string  `json:"scope"`
	ObservedSeconds float64 `json:"seenSeconds"`
	// UnjudgedSeconds is the part of it with a missing measurement and no level, Absent the
	// last reason.
	UnjudgedSeconds float64 `json:"unjudgedSeconds"`
	Absent          string  `json:"absent,omitempty"`
	Soft            Alarms  `json:"soft"`
	Hard            Alarms  `json:"hard"`
}

// Advice evaluates all samples so far, with the replay's report. No sample may
// be added afterwards.
func (w *Watcher) Advice(c plugins.Config, report *replay.Report) (*Advice, error) {
	for _, s := range w.alarms.list {
		s.end()
	}
	a := &Advice{
		Format: Format, Config: report.Config, Recordings: report.Recordings, Unreadable: report.Unreadable, Failed: report.Failed, Start: report.Start, End: report.End,
		Seconds: report.Seconds, ObservedSeconds: w.seconds, Samples: report.Samples, OOMKills: w.kills, OOMKillsAtOwnLimit: w.killsAtOwnLimit, OOMKillsWithoutLevel: w.killsWithoutLevel,
		Actions: w.actions.sorted(), ActionsOmitted: w.actions.omitted,
		Scopes: []Scope{}, Proposals: w.propose(c), Limits: limits(),
	}
	for i := range report.Scopes {
		s := &report.Scopes[i]
		scope := Scope{Plugin: s.Plugin, Scope: s.Scope, ObservedSeconds: s.NoneSeconds + s.SoftSeconds + s.HardSeconds, UnjudgedSeconds: s.UnjudgedSeconds, Absent: s.Absent}
		for level, to := range map[plugins.Level]*Alarms{plugins.Soft: &scope.Soft, plugins.Hard: &scope.Hard} {
			if seen := w.alarms.list[alarmKey{s.Plugin, s.Scope, level}]; seen != nil {
				*to = seen.Alarms
			}
		}
		a.Scopes = append(a.Scopes, scope)
	}
	var err error
	a.Configuration, err = configuration(a.Proposals)
	return a, err
}

func limits() []string {
	return []string{
		"Whether an application was really affected: a recording does not tell. An alarm counts as false without contention, when its rule was met for less than ten seconds, or when it exceeded its threshold by less than a tenth. An alarm that counts as real may be false too.",
		"What did not happen during the recording: a week without a backup tells nothing about backups.",
		"What a lower threshold would have caught: no threshold is lowered.",
	}
}

// byAwait is the disks of a kind, slowest first.
func (w *Watcher) byAwait(rotational bool) []*diskRecord {
	var list []*diskRecord
	for _, d := range w.disks {
		if d.rotational == rotational && d.awaits.n > 0 {
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b *diskRecord) int {
		return cmp.Compare(b.awaits.quantile(calmQuantile), a.awaits.quantile(calmQuantile))
	})
	return list
}
