package evict

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Rule is since when a plugin's rule has been unchanged. A new or changed rule is
// report-only at first: a typo that parses must not evict pods on every node. The
// default rules are in force at once, unless others were in force before. For an
// outer plugin another process is another rule, whatever its name.
type Rule struct {
	// Hash of its configuration, or which process it is.
	Hash string `json:"hash"`
	// Since is when it was seen first, on the clock of Budgets.
	Since time.Duration `json:"since"`
	// Armed: the report-only time is over; a restart or reboot does not change
	// that.
	Armed bool `json:"armed,omitempty"`
}

// rulesKept bounds the number of rules in the state once plugins are removed.
const rulesKept = 64

// lookAtRules records which rules are new or were changed, and for which the
// report-only time is over.
func (m Memory) lookAtRules(in Input, boot string) Memory {
	m.Rules = maps.Clone(m.Rules)
	if m.Rules == nil {
		m.Rules = map[string]Rule{}
	}
	judging := in.hashes()
	for name, hash := range judging {
		r, known := m.Rules[name]
		switch {
		case !known || hash != "" && r.Hash != hash:
			r = Rule{Hash: hash, Since: in.Uptime, Armed: !known && in.Rules[name].Default}
		case boot != in.Boot:
			r.Since = 0
		}
		r.Since = min(r.Since, in.Uptime)
		r.Armed = r.Armed || in.Uptime-r.Since >= in.reports(name)
		m.Rules[name] = r
	}
	for name := range m.Rules {
		if _, judges := judging[name]; len(m.Rules) > rulesKept && !judges {
			delete(m.Rules, name)
		}
	}
	return m
}

// hashes of the rules that judge in this round, by plugin. An empty hash counts as
// unchanged, as for pods that a removed plugin forced.
func (in Input) hashes() map[string]string {
	judging := map[string]string{}
	for _, v := range in.Levels.Verdicts {
		judging[v.Plugin] = cmp.Or(v.Process, judging[v.Plugin], in.Rules[v.Plugin].Hash)
	}
	return judging
}

// reports is the report-only time of a plugin.
func (in Input) reports(plugin string) time.Duration {
	return max(in.Rules[plugin].Lasts, in.Config.ReportFirst)
}

// reporting is why a verdict is report-only; empty if it is in force.
func (in Input) reporting(m Memory, v plugins.Verdict) (Code, string) {
	r := m.Rules[v.Plugin]
	if r.Armed {
		return "", ""
	}
	return CodeReporting, fmt.Sprintf("rule %s is new or was changed: report-only until %s", v.Plugin,
		in.clockIn(r.Since+in.reports(v.Plugin)-in.Uptime))
}
