package evict

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// reportsFor plays a round every 10 s, restarted after each, and says for how
// long nobody went because the rule was new.
func reportsFor(t *testing.T, in Input) time.Duration {
	t.Helper()
	began := in.Uptime
	for range 1000 {
		d, m := play(in, &api{})
		if d.Code != CodeReportOnly {
			require.Equal(t, CodeEvicted, d.Code, d.Reason)
			return in.Uptime - began
		}
		require.Equal(t, CodeReportOnly, d.Candidates[0].Code)
		in = then(in, 10, restarted(t, m))
	}
	t.Fatal("it never evicts")
	return 0
}

func newRule(first, lasts time.Duration) Input {
	in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
	in.Config.ReportOnly = first
	in.Rules = map[string]plugins.Rule{"memory-stall": {Hash: "one", Window: lasts}}
	return in
}

func TestReportOnly(t *testing.T) {
	t.Run("then evicts", reportOnlyThenEvicts)
	t.Run("not on fresh install", reportOnlyNotOnFreshInstall)
	t.Run("anew on own change", reportOnlyAnewOnOwnChange)
	t.Run("through reboot", reportOnlyThroughReboot)
	t.Run("other process", reportOnlyOtherProcess)
	t.Run("time ahead", reportOnlyTimeAhead)
}

func reportOnlyThenEvicts(t *testing.T) {
	assert.Equal(t, 10*time.Minute, reportsFor(t, newRule(10*time.Minute, time.Minute)))
	assert.Equal(t, 20*time.Minute, reportsFor(t, newRule(10*time.Minute, 20*time.Minute)), "as long as it takes to be met, where that is longer")
	assert.Zero(t, reportsFor(t, newRule(0, 0)))
	in := newRule(10*time.Minute, 0)
	d, _ := play(in, &api{})
	assert.Equal(t, "rule memory-stall is new or was changed: report-only until 2026-03-01 12:10:00 UTC", d.Reason)
	marks, _ := Mark(in)
	assert.Len(t, marks.Taints, 1, "conditions and taints are reports")
}

// Else a node that has just been installed, and runs out of memory, would be
// left alone for ten minutes.
func reportOnlyNotOnFreshInstall(t *testing.T) {
	in := newRule(10*time.Minute, 0)
	in.Rules["memory-stall"] = plugins.Rule{Hash: "fresh", Default: true}
	assert.Zero(t, reportsFor(t, in))

	in = newRule(10*time.Minute, 0)
	_, m := play(in, &api{})
	in = then(in, 60, restarted(t, m))
	in.Rules = map[string]plugins.Rule{"memory-stall": {Hash: "fresh", Default: true}}
	assert.Equal(t, 10*time.Minute, reportsFor(t, in), "it was changed to what a fresh install has")
}

func reportOnlyAnewOnOwnChange(t *testing.T) {
	in := newRule(time.Minute, 0)
	_, m := play(in, &api{})
	in = then(in, 60, restarted(t, m))
	a := api{}
	_, m = play(in, &a)
	require.Len(t, a.asked, 1)
	for what, row := range map[string]struct {
		change  func(*Input)
		reports time.Duration
	}{
		"a restart":                {func(*Input) {}, 0},
		"another boot":             {func(in *Input) { in.Boot, in.Uptime = "second", time.Second }, 0},
		"another rule was changed": {func(in *Input) { in.Rules["disk-contention"] = plugins.Rule{Hash: "new"} }, 0},
		"it was changed":           {func(in *Input) { in.Rules["memory-stall"] = plugins.Rule{Hash: "two"} }, time.Minute},
		"the clock is set forward": {func(in *Input) {
			in.Rules["memory-stall"] = plugins.Rule{Hash: "two"}
			in.Time, in.Levels.Time = in.Time.AddDate(1, 0, 0), in.Time.AddDate(1, 0, 0)
		}, time.Minute},
		"its memory is lost": {func(in *Input) { in.State.Rules = nil }, time.Minute},
	} {
		next := then(in, 120, restarted(t, m))
		next.State.RateLimits = RateLimits{Boot: next.Boot}
		next.State.Cooldowns, next.State.Victims = nil, nil
		next.Rules = map[string]plugins.Rule{"memory-stall": {Hash: "one"}}
		row.change(&next)
		if next.Boot != in.Boot {
			next.State.RateLimits = RateLimits{Boot: in.Boot}
			next.Config.Limits.PerMinute, next.Config.Limits.PerOwnerHour = 60, 3600
		}
		assert.Equal(t, row.reports, reportsFor(t, next), what)
	}
}

func reportOnlyThroughReboot(t *testing.T) {
	in := newRule(10*time.Minute, 0)
	_, m := play(in, &api{})
	in = then(in, 300, restarted(t, m))
	in.Boot, in.Uptime = "second", 30*time.Second
	assert.Equal(t, 570*time.Second, reportsFor(t, in), "from the boot")
}

func TestRulesStateBounded(t *testing.T) {
	in := newRule(time.Minute, 0)
	m := in.State
	for i := range 500 {
		v := pressing()
		v.Plugin = fmt.Sprint("outer-", i)
		in.Levels = &plugins.Levels{Time: in.Time, Verdicts: []plugins.Verdict{v}}
		_, m = play(then(in, 1, m), &api{})
		require.LessOrEqual(t, len(m.Rules), maxRules)
		require.Contains(t, m.Rules, v.Plugin)
	}
}

// Who ends a plugin and takes its name would else evict by what that has earned.
func reportOnlyOtherProcess(t *testing.T) {
	from := func(in Input, process string) Input {
		for i := range in.Levels.Verdicts {
			in.Levels.Verdicts[i].Process = process
		}
		return in
	}
	in := newRule(10*time.Minute, 0)
	in.Rules = nil
	in = from(in, "first")
	assert.Equal(t, 10*time.Minute, reportsFor(t, in))
	_, m := play(in, &api{})
	m.Rules["memory-stall"] = Rule{Hash: "first", InForce: true}
	again := then(in, 60, restarted(t, m))
	d, _ := play(again, &api{})
	assert.Equal(t, CodeEvicted, d.Code, "the same, after the agent was restarted")
	d, m = play(from(again, ""), &api{})
	assert.Equal(t, CodeEvicted, d.Code, "what it forced before it ended")
	require.Equal(t, "first", m.Rules["memory-stall"].Hash)
	other := from(then(in, 60, restarted(t, m)), "second")
	d, m = play(other, &api{})
	assert.Equal(t, CodeReportOnly, d.Code)
	d, _ = play(from(then(in, 90, restarted(t, m)), "first"), &api{})
	assert.Equal(t, CodeReportOnly, d.Code, "that it was before is no merit")
}

func reportOnlyTimeAhead(t *testing.T) {
	in := newRule(10*time.Minute, 0)
	in.State.Rules = map[string]Rule{"memory-stall": {Hash: "one", Since: in.Uptime + 1000*time.Hour}}
	before := restarted(t, in.State)
	assert.Equal(t, 10*time.Minute, reportsFor(t, in))
	assert.Equal(t, before, restarted(t, in.State), "what was given is not changed")
}

func TestRulesOfSilentPluginsBounded(t *testing.T) {
	in := newRule(time.Minute, 0)
	in.State.Rules = map[string]Rule{}
	for i := range maxRules - 1 {
		in.State.Rules[fmt.Sprint("gone", i)] = Rule{InForce: true}
	}
	assert.Len(t, observeRules(in.State.Rules, in, in.Boot), maxRules)
	in.State.Rules["gone too"] = Rule{InForce: true}
	rules := observeRules(in.State.Rules, in, in.Boot)
	assert.Len(t, rules, maxRules)
	assert.Contains(t, rules, "memory-stall")
}

func TestRuleHashOfAnyVerdict(t *testing.T) {
	one, two := files(named("a", 30)), files(named("b", 30))
	one.Process, two.Scope = "first", "another"
	for _, list := range [][]plugins.Verdict{{one, two}, {two, one}} {
		assert.Equal(t, map[string]string{"files": "first"}, hashes(round(0, nil, list...)))
	}
}
