package evict

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

func TestIsDryRunList(t *testing.T) {
	for _, row := range []struct {
		list []string
		want bool
	}{
		{nil, false},
		{[]string{"a"}, true},
		{[]string{"b"}, false},
		{[]string{"-a"}, false},
		{[]string{"*"}, true},
		{[]string{"*", "-a"}, false},
		{[]string{"-a", "*"}, false},
		{[]string{"*", "-b"}, true},
		{[]string{"b", "-a"}, false},
	} {
		assert.Equal(t, row.want, IsDryRun(row.list, "a"), row.list)
	}
}

// both plays the parts of a round and gives their decisions.
func both(t *testing.T, in Input, a *api) (decisions []Decision, m State) {
	t.Helper()
	_, m = Mark(in)
	for _, part := range Split(in) {
		part.State = m
		var d Decision
		d, m = play(part, a)
		decisions = append(decisions, d)
	}
	return decisions, m
}

// Another process may ask this plugin, too, and may evict for it.
func TestBesideRival(t *testing.T) {
	for beside, want := range map[plugins.Beside]struct {
		code  Code
		marks int
	}{
		"":                   {CodeEvicted, 1},
		plugins.BesideMark:   {CodeReportOnly, 1},
		plugins.BesideReport: {CodeWouldEvict, 0},
	} {
		t.Run("beside "+string(beside), func(t *testing.T) {
			v := namingTop("a")
			v.Condition, v.Beside = "C", beside
			forced := forcing("b")
			forced.Beside = beside
			in := round(0, []pods.Pod{pod("a"), pod("b")}, v, forced)
			in.Levels, in.State = RecallNamed(in)
			marks, _ := Mark(in)
			assert.Len(t, marks.Taints, want.marks)
			a := api{}
			list, m := both(t, in, &a)
			d := list[len(list)-1]
			assert.Equal(t, want.code, d.Code, d.Reason)

			in = then(in, 5, restarted(t, m)) // the plugin has gone; what it forced is recalled
			in.Levels.Verdicts, in.Cluster.Pods.Pods = nil, []pods.Pod{pod("b")}
			in.State.Cooldowns, in.State.DryRunEvicted, in.State.Victims = nil, nil, nil
			in.Levels, in.State = RecallNamed(in)
			for _, d := range first(both(t, in, &a)) {
				assert.Equal(t, want.code == CodeEvicted, d.Code == CodeEvicted, d.Reason)
			}
		})
	}
}

func first[T any](list []T, _ State) []T { return list }

func TestDryRunPluginDecidedApart(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30)), disk(plugins.Hard, named("b", 20)))
	in.Config.DryRunPlugins = []string{"disk-contention"}
	a := api{}
	list, m := both(t, in, &a)
	require.Len(t, list, 2)
	assert.Equal(t, CodeEvicted, list[0].Code)
	assert.False(t, list[0].DryRun)
	assert.Equal(t, CodeWouldEvict, list[1].Code)
	assert.True(t, list[1].DryRun)
	assert.NotEqual(t, list[0].ID, list[1].ID)
	assert.Equal(t, 1, a.dryRuns)
	for i, plugin := range []string{"memory-stall", "disk-contention"} {
		require.Len(t, list[i].Causes, 1)
		assert.Equal(t, plugin, list[i].Causes[0].Plugin)
	}
	assert.Len(t, m.Victims, 1, "what would be done is not done")
	assert.Equal(t, 59, in.Config.Limits.nodeBucket().left(m.RateLimits.Node, in.Uptime), "and costs no budget")

	marks, _ := Mark(in)
	assert.Equal(t, map[string]corev1.TaintEffect{memoryKey: corev1.TaintEffectNoSchedule}, effects(marks))
	require.Len(t, marks.Conditions, 1)

	list, m = both(t, then(in, 5, restarted(t, m)), &a)
	assert.Equal(t, CodeTerminating, list[0].Code)
	assert.Equal(t, CodeTerminating, list[1].Code)
	assert.Contains(t, list[1].Reason, "dry run: shop/web-b counts as evicted")
	assert.Len(t, a.asked, 2)

	in.Levels.Verdicts[0] = memoryAt(plugins.None)
	in = then(in, 60, m)
	in.Config.DryRunPlugins = nil
	list, _ = both(t, in, &a)
	require.Len(t, list, 1)
	assert.Equal(t, CodeEvicted, list[0].Code, "from now on it counts, and no dry run holds it back")
}

func TestDryRunPluginHoldsNoRealOne(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b")}, memoryAt(plugins.None), disk(plugins.Hard, named("b", 20)))
	in.Config.DryRunPlugins = []string{"*", "-memory-stall"}
	a := api{}
	list, m := both(t, in, &a)
	assert.Equal(t, []Code{CodeEnded, CodeWouldEvict}, []Code{list[0].Code, list[1].Code})
	assert.Empty(t, list[0].Causes)
	in.Levels.Verdicts[0] = pressing(named("b", 30))
	list, _ = both(t, then(in, 5, m), &a)
	assert.Equal(t, []Code{CodeEvicted, CodeTerminating}, []Code{list[0].Code, list[1].Code})
	assert.Equal(t, "b", a.asked[1].UID)
}

// A real eviction whose outcome is unknown is requested again in the next round, whatever
// a plugin in a dry run says meanwhile.
func TestDryRunPluginKeepsRealRequest(t *testing.T) {
	for _, level := range []plugins.Level{plugins.None, plugins.Soft, plugins.Hard} {
		t.Run(level.String(), func(t *testing.T) {
			in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30)), disk(level, named("b", 20)))
			in.Config.DryRunPlugins = []string{"disk-contention"}
			a := api{answer: always(UnknownOutcome)}
			for n := range 4 {
				list, m := both(t, in, &a)
				require.Len(t, list, 2)
				assert.Equal(t, CodeUnknownOutcome, list[0].Code, list[0].Reason)
				assert.Zero(t, m.CooldownUntil)
				assert.Equal(t, slices.Repeat([]string{"a"}, n+1), a.uids(), "the dry run waits for the outcome")
				in = then(in, 5, restarted(t, m))
			}
		})
	}
}

// A dry run that names the same pod, and waits for no outcome, leaves the real request as it
// is: with its time, and with the one token that it took.
func TestDryRunPluginUrgentKeepsRealRequest(t *testing.T) {
	v := pressing(named("a", 30))
	v.Urgent = true
	in := round(0, []pods.Pod{pod("a")}, v, disk(plugins.Hard, named("a", 20)))
	in.Config.DryRunPlugins = []string{"memory-stall"}
	a := api{answer: always(UnknownOutcome)}
	var spent RateLimits
	for n := range 5 {
		_, m := both(t, in, &a)
		require.Len(t, m.Victims, 1)
		assert.False(t, m.Victims[0].DryRun)
		assert.Equal(t, at(0), m.Victims[0].Time)
		if n == 0 {
			spent = m.RateLimits
		}
		assert.Equal(t, spent, m.RateLimits)
		in = then(in, 5, restarted(t, m))
	}
	assert.Equal(t, slices.Repeat([]string{"a"}, 5), a.uids(), "in the dry run it is waited for")
}

// A plugin in a dry run that names the condition of a real one removes no mark of its,
// while the real one is away for a moment.
func TestDryRunPluginKeepsOtherMark(t *testing.T) {
	for what, dry := range map[string]func(*Input, *plugins.Verdict){
		"by configuration": func(in *Input, _ *plugins.Verdict) { in.Config.DryRunPlugins = []string{"a"} },
		"beside a rival":   func(_ *Input, v *plugins.Verdict) { v.Beside = plugins.BesideReport },
	} {
		t.Run(what, func(t *testing.T) {
			judging, next := naming("p", "C", plugins.Hard), naming("a", "C", plugins.None)
			in := round(0, nil, next, judging) // it was the first to name the condition
			dry(&in, &in.Levels.Verdicts[0])
			marks, m := Mark(in)
			want := effects(marks)
			require.Len(t, want, 1)
			in = then(in, 5, restarted(t, m))
			in.Levels.Verdicts = in.Levels.Verdicts[:1]
			marks, m = Mark(in)
			assert.Equal(t, want, effects(marks))
			assert.Equal(t, at(0), m.Marks["C"].TaintedAt)
		})
	}
}

// However many plugins are in a dry run, the rules in force stay so.
func TestDryRunPluginsKeepRulesInForce(t *testing.T) {
	in := round(0, nil, pressing(), files())
	for i := range maxRules {
		v := pressing()
		v.Plugin = fmt.Sprint("dry-", i)
		in.Levels.Verdicts = append(in.Levels.Verdicts, v)
	}
	in.Config.DryRunPlugins, in.Config.ReportOnly = []string{"*", "-memory-stall", "-files"}, time.Hour
	in.Rules = map[string]plugins.Rule{"memory-stall": {Hash: "changed"}}
	in.State.Rules = map[string]Rule{
		"memory-stall": {Hash: "changed", InForce: true}, "files": {InForce: true}, "disk-contention": {Hash: "disabled", InForce: true},
	}
	for range 3 {
		in.State.Rules["gone"] = Rule{InForce: true}
		_, m := both(t, in, &api{})
		for _, name := range []string{"memory-stall", "files", "disk-contention"} {
			assert.True(t, m.Rules[name].InForce, name)
		}
		assert.NotContains(t, m.Rules, "gone")
		in = then(in, 5, restarted(t, m))
	}
	in.State.Covered = map[string]time.Time{}
	for _, v := range in.Levels.Verdicts {
		in.State.Covered[verdictKey(v)] = at(-1)
	}
	for _, part := range Split(in) {
		assert.Equal(t, in.State.Covered, part.State.observe(part).Covered)
	}
}

func TestAllDryRun(t *testing.T) {
	for list, want := range map[string]bool{"": false, "*": true, "memory-stall": false, "* disk-contention": true, "* -memory-stall": false} {
		c := Config{DryRunPlugins: strings.Fields(list)}
		assert.Equal(t, want, c.AllDryRun(), list)
		c.DryRun = true
		assert.True(t, c.AllDryRun(), list)
	}
}

func TestDryRunPluginLosesMark(t *testing.T) {
	other := memoryAt(plugins.Soft)
	other.Plugin = "outer"
	in := round(0, nil, memoryAt(plugins.Hard), other)
	_, m := Mark(in)
	in.Config.DryRunPlugins = []string{"memory-stall"}
	marks, _ := Mark(then(in, 5, m))
	assert.Equal(t, map[string]corev1.TaintEffect{memoryKey: corev1.TaintEffectNoSchedule}, effects(marks), "for the transition period")
	in.Config.DryRunPlugins = []string{"*"}
	marks, m = Mark(then(in, 5, m))
	assert.Empty(t, marks.Taints)
	assert.Empty(t, marks.Conditions)
	assert.Empty(t, m.Marks)
}
