package evict

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func some(f float64) snapshot.Opt[float64] { return snapshot.Some(f) }

func none() snapshot.Opt[float64] { return snapshot.Opt[float64]{} }

func forced(c plugins.Candidate) plugins.Candidate {
	c.Forced = true
	return c
}

// asking is a plugin that names pods regardless of a threshold.
func asking(list ...plugins.Candidate) plugins.Verdict {
	return plugins.Verdict{Plugin: "outer", Scope: "pods", Named: true, Reason: "it says so", Candidates: list}
}

// Seven forced pods at a limit of three a round: three, three, one, in order;
// and none more once the plugin names none.
func TestForcedInOrderWithinLimits(t *testing.T) {
	start := func() Input {
		var listed []pods.Pod
		var list []plugins.Candidate
		for i := range 7 {
			uid := fmt.Sprint("f", i)
			listed, list = append(listed, pod(uid, priority(int32(i)))), append(list, forced(named(uid, 0)))
		}
		in := round(0, listed, asking(list...))
		in.Config.Limits.PerRound = 3
		return in
	}
	in, a := start(), api{}
	for i, want := range []int{3, 6, 7, 7} {
		_, m := play(in, &a)
		require.Len(t, a.asked, want, i)
		for i := range in.Cluster.Pods.Pods[:want] {
			in.Cluster.Pods.Pods[i].TerminatesBy = in.Time.Add(20 * time.Second)
		}
		in = then(in, 5, restarted(t, m))
	}
	assert.Equal(t, []string{"f0", "f1", "f2", "f3", "f4", "f5", "f6"}, a.uids())

	in, a = start(), api{}
	_, m := play(in, &a)
	in = then(in, 5, m)
	in.Levels.Verdicts[0].Candidates = nil
	play(in, &a)
	assert.Equal(t, []string{"f0", "f1", "f2"}, a.uids())

	in, a = start(), api{}
	in.Config.Limits.PerMinute = 2
	d, _ := play(in, &a)
	assert.Len(t, a.asked, 2, "the rate limit holds for them too")
	assert.Equal(t, CodeRateLimit, d.Candidates[2].Code)
}

func TestForcedSkipsWaitsNotProtection(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*Input)
		code   Code
	}{
		"nothing":              {func(*Input) {}, CodeEvicted},
		"a level is soft":      {func(in *Input) { in.Levels.Verdicts[0].Level, in.Levels.Verdicts[0].MetLevel = plugins.Soft, 0 }, CodeEvicted},
		"a grace period":       {func(in *Input) { in.Levels.Verdicts[0].GraceEnds = at(100) }, CodeEvicted},
		"the node settles":     {func(in *Input) { in.State.Cooldowns = map[string]time.Time{"outer/pods": at(20)} }, CodeEvicted},
		"another ends":         {func(in *Input) { in.Cluster.Pods.Pods[1].TerminatesBy = at(20) }, CodeEvicted},
		"it is DaemonSet's":    {func(in *Input) { protected(pods.Protection{Code: pods.DaemonSet})(&in.Cluster.Pods.Pods[0]) }, pods.DaemonSet},
		"it opted out at hard": {func(in *Input) { in.Cluster.Pods.Pods[0].OptedOut, in.Config.OptOutHard = "a=b", []string{"shop"} }, CodeOptedOut},
		"all may opt out":      {func(in *Input) { in.Cluster.Pods.Pods[0].OptedOut, in.Config.OptOutHard = "a=b", []string{"*"} }, CodeOptedOut},
		"it opted out":         {func(in *Input) { in.Cluster.Pods.Pods[0].OptedOut = "a=b" }, CodeEvicted},
		"the kubelet evicts":   {func(in *Input) { in.Cluster.Node.KubeletPressure = []string{"PIDPressure"} }, CodeKubelet},
		"the plugin is new":    {func(in *Input) { in.Config.ReportOnly = time.Minute }, CodeReportOnly},
		"it was not shown":     {func(in *Input) { in.Levels.Verdicts[0].Candidates[0].Refused = "not shown" }, CodeNotAllowed},
		"no taint":             {func(in *Input) { in.Cluster.Unmarked = "conflict" }, CodeTaint},
	} {
		t.Run(what, func(t *testing.T) {
			in := round(0, []pods.Pod{pod("f"), pod("o")}, asking(forced(named("f", 0)), named("o", 30)))
			row.change(&in)
			d, _ := play(in, &api{})
			assert.Equal(t, row.code, codes(d)["f"], d.Reason)
		})
	}
}

func TestForcedFirst(t *testing.T) {
	refused := forced(named("c", 30))
	refused.Refused = "not shown"
	in := round(0, []pods.Pod{pod("a", low), pod("b"), pod("c")}, pressing(named("a", 30), named("b", 20), named("c", 20)), asking(forced(named("b", 0)), refused))
	d, _ := Decide(in)
	assert.Equal(t, []string{"b", "a", "c"}, order(d))
	assert.True(t, d.Candidates[0].Forced)
	assert.Equal(t, []string{"memory-stall", "outer"}, d.Candidates[0].Plugins)
	assert.False(t, d.Candidates[2].Forced, "a word that is not taken adds nothing to another's")
	assert.Equal(t, CodeNext, d.Candidates[2].Code)
}

// A pod that is named and not forced is at soft, also where the verdict is hard because
// another pod is forced, or was: it must not lose its owner's opt-out by that.
func TestSoftForcedOnePerRound(t *testing.T) {
	for _, level := range []plugins.Level{plugins.Soft, plugins.Hard} {
		v := asking(named("a", 0), named("b", 0), named("c", 0), named("d", 0))
		v.Level, v.MetLevel, v.Condition = level, level, "C"
		tolerates := func(p *pods.Pod) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
		in := round(0, []pods.Pod{pod("a", optedOut), pod("b"), pod("c"), pod("d", tolerates)}, v)
		in.Config.Limits.PerRound = 3
		a := api{}
		d, m := play(in, &a)
		assert.Equal(t, map[string]Code{"a": CodeOptedOut, "b": CodeEvicted, "c": CodeNotNeeded, "d": CodeTolerates}, codes(d))
		evicted, _ := d.FirstEvicted()
		assert.Equal(t, plugins.Soft, evicted.For.Level)
		d, _ = play(then(in, 5, m), &a)
		assert.Equal(t, CodeTerminating, d.Code)
		v.Candidates = []plugins.Candidate{named("b", 10), named("c", 10)}
		v.Target, v.Whole = some(20), some(20)
		in.Levels.Verdicts = []plugins.Verdict{v}
		d, _ = play(in, &a)
		assert.Equal(t, CodeRoundLimit, codes(d)["c"], "though more is missing")
		in.Levels.Verdicts = append(in.Levels.Verdicts, softDisk(named("d", 11)))
		d, _ = Decide(in)
		assert.Equal(t, []string{"d", "b", "c"}, order(d), "of equal severity the larger relief")
	}
	both := asking(forced(named("x", 0)), named("y", 0))
	both.Level, both.MetLevel, both.Plugin = plugins.Hard, plugins.Hard, "p"
	in := round(0, []pods.Pod{pod("x", protected(pods.Protection{Code: pods.DaemonSet})), pod("y", optedOut)}, both)
	in.Levels, in.State = RecallNamed(in)
	d, m := play(in, &api{})
	assert.Equal(t, map[string]Code{"x": pods.DaemonSet, "y": CodeOptedOut}, codes(d))
	in = then(in, 5, m)
	both.Level, both.MetLevel, both.Candidates = plugins.Soft, plugins.Soft, both.Candidates[1:]
	in.Levels.Verdicts = []plugins.Verdict{both}
	in.Levels, in.State = RecallNamed(in)
	d, _ = play(in, &api{})
	assert.Equal(t, map[string]Code{"x": pods.DaemonSet, "y": CodeOptedOut}, codes(d), "x is recalled")
	in.Levels.Verdicts = append(in.Levels.Verdicts, pressing(named("y", 1)))
	d, _ = play(in, &api{})
	assert.Equal(t, CodeTooSmall, codes(d)["y"], "a hard rule beside it does not change that")
}

func TestGraceAskedByPluginBounded(t *testing.T) {
	for seconds, want := range map[int64]int64{0: 0, -3: 1, 5: 5, 3600: 30} { // 0 only comes from a plugin that may
		c := named("a", 30)
		c.GraceSeconds = snapshot.Some(seconds)
		a := api{}
		play(round(0, []pods.Pod{pod("a")}, pressing(c)), &a)
		require.Len(t, a.asked, 1)
		assert.Equal(t, want, a.asked[0].GraceSeconds)
	}
	short, long := named("a", 30), named("a", 30)
	short.GraceSeconds, long.GraceSeconds = snapshot.Some(int64(2)), snapshot.Some(int64(9))
	for _, list := range [][]plugins.Verdict{{pressing(short), disk(plugins.Hard, long)}, {pressing(long), disk(plugins.Hard, short)}} {
		a := api{}
		play(round(0, []pods.Pod{pod("a")}, list...), &a)
		assert.Equal(t, int64(9), a.asked[0].GraceSeconds, "of two the longer")
	}
}
