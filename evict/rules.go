package evict

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Rule is how long a plugin's rule has been what it is. A rule that is new or
// was changed only reports at first: a typo that parses must not arm a fleet.
// The rules of a fresh install hold no typo of anybody's: they count from the
// first moment where no other was in force before. Of a plugin in a process of
// its own another process is another rule, whatever name it has.
type Rule struct {
	// Hash of its configuration, or which process it is.
	Hash string `json:"hash"`
	// Since is when it was seen first, on the clock of Budgets.
	Since time.Duration `json:"since"`
	// Armed: it has reported for long enough, and a restart or another boot
	// changes nothing of that.
	Armed bool `json:"armed,omitempty"`
}

// rulesKept bounds what is remembered of plugins that are asked no more.
const rulesKept = 64

// lookAtRules sees which rules are new or were changed, and which have reported
// for long enough.
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

// hashes of the rules that judge in this round, by plugin; empty where nothing
// says that it is another than before, as of pods that a plugin forced which has
// gone.
func (in Input) hashes() map[string]string {
	judging := map[string]string{}
	for _, v := range in.Levels.Verdicts {
		judging[v.Plugin] = cmp.Or(v.Process, judging[v.Plugin], in.Rules[v.Plugin].Hash)
	}
	return judging
}

// reports is how long a plugin only reports at first.
func (in Input) reports(plugin string) time.Duration {
	return max(in.Rules[plugin].Lasts, in.Config.ReportFirst)
}

// reporting is why a verdict evicts nobody yet.
func (in Input) reporting(m Memory, v plugins.Verdict) (Code, string) {
	r := m.Rules[v.Plugin]
	if r.Armed {
		return "", ""
	}
	return CodeReporting, fmt.Sprintf("rule %s is new or was changed: report-only until %s", v.Plugin,
		in.clockIn(r.Since+in.reports(v.Plugin)-in.Uptime))
}
