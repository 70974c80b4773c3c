package evict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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
	// InForce: the report-only time is over; a restart or reboot does not change
	// that.
	InForce bool `json:"armed,omitempty"`
}

// maxRules bounds the number of rules in the state once outer plugins are removed.
const maxRules = 64

// observeRules records which rules are new or were changed, and for which the
// report-only time is over.
func observeRules(rules map[string]Rule, in Input, boot string) map[string]Rule {
	rules = cloned(rules)
	for name, hash := range hashes(in) {
		r, known := rules[name]
		switch {
		case !known || hash != "" && r.Hash != hash:
			r = Rule{Hash: hash, Since: in.Uptime, InForce: !known && in.Rules[name].Default}
		case boot != in.Boot:
			r.Since = 0
		}
		r.Since = min(r.Since, in.Uptime)
		r.InForce = r.InForce || in.Uptime-r.Since >= reportOnlyFor(in, name)
		rules[name] = r
	}
	maps.DeleteFunc(rules, func(name string, _ Rule) bool {
		return len(rules) > maxRules && !slices.Contains(plugins.Names(), name) &&
			!in.judged(func(v plugins.Verdict) bool { return v.Plugin == name })
	})
	return rules
}

// hashes of the rules that judge in this round, by plugin. An empty hash counts as
// unchanged, as for pods that a removed plugin forced.
func hashes(in Input) map[string]string {
	judging := map[string]string{}
	for _, v := range in.Levels.Verdicts {
		judging[v.Plugin] = cmp.Or(v.Process, judging[v.Plugin], in.Rules[v.Plugin].Hash)
	}
	return judging
}

// reportOnlyFor is the report-only time of a plugin.
func reportOnlyFor(in Input, plugin string) time.Duration {
	return max(in.Rules[plugin].Window, in.Config.ReportOnly)
}

// reportOnly is why a verdict is report-only; empty if it is in force.
func reportOnly(in Input, rules map[string]Rule, v plugins.Verdict) (Code, string) {
	r := rules[v.Plugin]
	if r.InForce {
		return "", ""
	}
	return CodeReportOnly, fmt.Sprintf("rule %s is new or was changed: report-only until %s", v.Plugin,
		clock(in.Time.Add(r.Since+reportOnlyFor(in, v.Plugin)-in.Uptime)))
}
