package evict

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

func TestUnevictable(t *testing.T) {
	considered := func(code Code, plugins ...string) Considered { return Considered{Code: code, Plugins: plugins} }
	forced := considered(CodePDB, "p")
	forced.Forced = true
	for what, row := range map[string]struct {
		decision Decision
		want     map[string]int
	}{
		"reasons of the pods": {
			Decision{Code: CodeNone, Candidates: []Considered{
				considered(CodePDB, "p"), considered(CodeRefused, "p", "q"), considered(Code(pods.DaemonSet), "p"),
				considered(CodeOptedOut, "p"), considered(CodeNotAllowed, "p"), considered(CodeRateLimit, "p"),
			}},
			map[string]int{"p": 6, "q": 1},
		},
		"reasons of the round": {
			Decision{Code: CodeRateLimit, Candidates: []Considered{
				considered(CodeRateLimit, "p"), considered(CodeCooldown, "p"), considered(CodeReportOnly, "p"), considered(CodeEvicted, "p"),
				considered(CodeNotNeeded, "p"), considered(CodeTerminating, "p"), considered(CodeBrake, "p"),
			}},
			map[string]int{},
		},
		"a pod that is forced":        {Decision{Candidates: []Considered{forced}}, map[string]int{}},
		"a pod that a rule names too": {Decision{Candidates: []Considered{considered(CodePDB, "memory-stall", "p")}}, map[string]int{"p": 1}},
	} {
		t.Run(what, func(t *testing.T) { assert.Equal(t, row.want, Unevictable([]Decision{row.decision})) })
	}
	t.Run("of both parts of a round", func(t *testing.T) {
		dry := Decision{DryRun: true, Candidates: []Considered{considered(CodePDB, "p")}}
		assert.Equal(t, map[string]int{"p": 1, "q": 1}, Unevictable([]Decision{dry, {Candidates: []Considered{considered(CodePDB, "q")}}}))
	})
	t.Run("of a decision", func(t *testing.T) {
		v := plugins.Verdict{Plugin: "p", Scope: "s", Level: plugins.Hard, MetLevel: plugins.Hard, Candidates: []plugins.Candidate{named("x", 0), named("a", 0)}}
		d, _ := Decide(round(0, []pods.Pod{pod("x", protected(pods.Protection{Code: pods.DaemonSet})), pod("a")}, v))
		assert.Equal(t, map[string]int{"p": 1}, Unevictable([]Decision{d}))
	})
}
