package evict

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// forcing is a plugin's answer that forces these pods.
func forcing(uids ...string) plugins.Verdict {
	v := plugins.Verdict{Plugin: "p", Scope: plugins.ScopeNamed}
	for _, uid := range uids {
		v.Level, v.MetLevel, v.Named = plugins.Hard, plugins.Hard, true
		v.Candidates = append(v.Candidates, plugins.Candidate{PodUID: uid, Name: "ns/" + uid, Why: "must go", Forced: true, GraceSeconds: snapshot.Some[int64](7)})
	}
	return v
}

func says(level plugins.Level) plugins.Verdict {
	return plugins.Verdict{Plugin: "p", Scope: "s", Level: level, MetLevel: level}
}

// rounds tells after each round which pods are forced; a round is 5 s after the
// one before.
type rounds struct {
	now    time.Time
	memory State
	levels *plugins.Levels // of the last round
	there  []string
}

func (r *rounds) next(verdicts ...plugins.Verdict) []string {
	r.now = r.now.Add(5 * time.Second)
	in := Input{Time: r.now, Levels: &plugins.Levels{Time: r.now, Verdicts: verdicts}, State: r.memory, Cluster: &Cluster{Pods: pods.List{Synced: true}}}
	for _, uid := range r.there {
		in.Cluster.Pods.Pods = append(in.Cluster.Pods.Pods, pods.Pod{UID: uid, Name: uid})
	}
	levels, m := RecallNamed(in)
	r.memory, r.levels = m, levels
	names := []string{}
	for _, v := range levels.Verdicts {
		for _, c := range v.Candidates {
			if c.Forced {
				names = append(names, c.PodUID)
			}
		}
	}
	return names
}

func newRounds(there ...string) *rounds {
	return &rounds{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), there: there}
}

func TestRecall(t *testing.T) {
	t.Run("forced until terminated", recallForcedUntilTerminated)
	t.Run("as named", recallAsNamed)
	t.Run("repeating plugin withdraws", recallRepeatingPluginWithdraws)
	t.Run("ends with pressure", recallEndsWithPressure)
	t.Run("absent plugin keeps", recallAbsentPluginKeeps)
	t.Run("refused not forced", recallRefusedNotForced)
	t.Run("other plugin keeps", recallOtherPluginKeeps)
	t.Run("survives restart", recallSurvivesRestart)
	t.Run("clock set back", recallClockSetBack)
	t.Run("only forced pods", recallOnlyForcedPods)
	t.Run("own pressure only", recallOwnPressureOnly)
	t.Run("per plugin", recallPerPlugin)
	t.Run("time to a minute", recallTimeToAMinute)
	t.Run("keeps current verdict", recallKeepsCurrentVerdict)
}

func recallForcedUntilTerminated(t *testing.T) {
	r := newRounds("a", "b")
	assert.Equal(t, []string{"a", "b"}, r.next(forcing("a", "b")))
	assert.Equal(t, []string{"a", "b"}, r.next(forcing()), "some plugins say it once only")
	r.there = []string{"b"}
	assert.Equal(t, []string{"b"}, r.next(forcing()))
	assert.Equal(t, []string{"b"}, r.next(), "the plugin has gone")
	r.now = r.now.Add(plugins.ForcedTTL)
	assert.Empty(t, r.next())
	assert.Empty(t, r.memory.Named)
}

func recallAsNamed(t *testing.T) {
	r := newRounds("a")
	r.next(forcing("a"))
	in := Input{Time: r.now, Levels: &plugins.Levels{Verdicts: []plugins.Verdict{forcing()}}, State: r.memory}
	levels, _ := RecallNamed(in)
	v := levels.Verdicts[0]
	want := forcing("a").Candidates
	want[0].NamedAt = r.now
	assert.Equal(t, want, v.Candidates)
	assert.Equal(t, plugins.Hard, v.Level)
	assert.True(t, v.Named)
	assert.Contains(t, v.Reason, "the plugin forced the eviction of ns/a at")
	assert.Empty(t, in.Levels.Verdicts[0].Candidates, "what came in is not changed")
}

func recallRepeatingPluginWithdraws(t *testing.T) {
	r := newRounds("a", "b")
	r.next(forcing("a", "b"))
	r.next(forcing("a", "b"))
	assert.Equal(t, []string{"b"}, r.next(forcing("b")))
	assert.Empty(t, r.next(forcing()))
	assert.Empty(t, r.memory.Named)
}

func recallEndsWithPressure(t *testing.T) {
	all := []string{"1", "2", "3", "4", "5", "6", "7"}
	r := newRounds(all...)
	assert.Equal(t, all, r.next(forcing(all...), says(plugins.Soft)))
	r.there = all[3:] // as many as a round allows
	assert.Equal(t, all[3:], r.next(forcing(), says(plugins.Soft)), "the pressure stays")
	assert.Empty(t, r.next(forcing(), says(plugins.None)), "it has gone: none more")
}

func recallAbsentPluginKeeps(t *testing.T) {
	r := newRounds("a")
	r.next(forcing("a"), says(plugins.Hard))
	silent := forcing()
	silent.Absent = "it did not answer"
	assert.Equal(t, []string{"a"}, r.next(silent, says(plugins.None)))
	assert.Empty(t, r.next(forcing(), says(plugins.None)))
}

func recallRefusedNotForced(t *testing.T) {
	r := newRounds("a")
	v := forcing("a")
	v.Candidates[0].Refused = "this pod was not in the request to the plugin"
	r.next(v)
	assert.Empty(t, r.memory.Named)
}

func recallOtherPluginKeeps(t *testing.T) {
	r := newRounds("a")
	r.next(forcing("a"))
	r.next(forcing("a"))
	other := forcing()
	other.Plugin = "q"
	assert.Equal(t, []string{"a"}, r.next(other))
}

func recallSurvivesRestart(t *testing.T) {
	r := newRounds("a")
	changes := 0
	for range 60 { // 5 min
		before := fmt.Sprint(r.memory.Named)
		r.next(forcing("a"))
		if fmt.Sprint(r.memory.Named) != before {
			changes++
		}
	}
	assert.LessOrEqual(t, changes, 7, "each is a write to the disk")
	assert.Equal(t, []string{"a"}, newAgent(t, r).next(forcing()))
}

// newAgent goes on with what the one before kept.
func newAgent(t *testing.T, r *rounds) *rounds {
	t.Helper()
	next := *r
	next.memory = restarted(t, r.memory)
	next.memory.Named[0].Repeats = false
	return &next
}

func recallClockSetBack(t *testing.T) {
	r := newRounds("a")
	r.next(forcing("a"))
	r.now = r.now.Add(-24 * time.Hour)
	assert.Empty(t, r.next(forcing()))
}

func recallOnlyForcedPods(t *testing.T) {
	r := newRounds("a", "b")
	v := forcing("a")
	v.Candidates = append(v.Candidates, plugins.Candidate{PodUID: "b", Name: "ns/b"})
	r.next(v)
	assert.Equal(t, []string{"a"}, r.next())
	r.next(v) // it repeats itself
	named := forcing("a")
	named.Candidates[0].Forced = false
	assert.Empty(t, r.next(named), "it is named still, and not forced any more")
	assert.Empty(t, r.next())
}

func recallOwnPressureOnly(t *testing.T) {
	other := says(plugins.Hard)
	other.Plugin = "q"
	empty := plugins.Verdict{Plugin: "p", Scope: plugins.ScopeNamed}
	met := empty
	met.Level, met.Condition = plugins.Soft, "C"
	for what, row := range map[string]struct {
		first, second []plugins.Verdict
		want          []string
	}{
		"its threshold is not met any more":         {[]plugins.Verdict{forcing("a"), says(plugins.Soft)}, []plugins.Verdict{empty, other}, []string{}},
		"its condition is met still":                {[]plugins.Verdict{forcing("a"), says(plugins.Soft)}, []plugins.Verdict{met}, []string{"a"}},
		"it never was met":                          {[]plugins.Verdict{forcing("a"), other}, []plugins.Verdict{empty}, []string{"a"}},
		"it was not met when the pod was named 1st": {[]plugins.Verdict{forcing("a")}, []plugins.Verdict{empty, says(plugins.None)}, []string{"a"}},
	} {
		r := newRounds("a")
		r.next(row.first...)
		assert.Equal(t, row.want, r.next(row.second...), what)
	}
}

func recallPerPlugin(t *testing.T) {
	other := forcing("a")
	other.Plugin, other.Candidates[0].GraceSeconds = "q", snapshot.Opt[int64]{}
	r := newRounds("a")
	r.next(forcing("a"), other)
	seven := int64(7)
	assert.Equal(t, []NamedPod{
		{Plugin: "p", Scope: plugins.ScopeNamed, UID: "a", Name: "ns/a", Why: "must go", GraceSeconds: &seven, At: r.now},
		{Plugin: "q", Scope: plugins.ScopeNamed, UID: "a", Name: "ns/a", Why: "must go", At: r.now},
	}, r.memory.Named)
	in := Input{Time: r.now, Levels: &plugins.Levels{Time: r.now}, State: r.memory}
	levels, _ := RecallNamed(in)
	require.Len(t, levels.Verdicts, 2)
	for i, want := range []snapshot.Opt[int64]{snapshot.Some(seven), {}} {
		v := levels.Verdicts[i]
		assert.Equal(t, []string{"p", "q"}[i], v.Plugin)
		assert.Equal(t, want, v.Candidates[0].GraceSeconds)
		assert.Contains(t, v.Reason, "the plugin forced the eviction of ns/a at ")
	}
}

func recallTimeToAMinute(t *testing.T) {
	start := newRounds().now
	again := func(since time.Duration, f NamedPod) NamedPod {
		return withName([]NamedPod{f}, start.Add(since), forcing(), forcing("a").Candidates[0], false)[0]
	}
	f := NamedPod{Plugin: "p", Scope: plugins.ScopeNamed, UID: "a", At: start, WithThreshold: true}
	for since, want := range map[time.Duration]time.Duration{time.Minute - 1: 0, time.Minute: time.Minute, -time.Second: -time.Second} {
		got := again(since, f)
		assert.Equal(t, start.Add(want), got.At, since)
		assert.True(t, got.WithThreshold, "that it was met is not forgotten")
		assert.True(t, got.Repeats)
	}
	pressed := withName([]NamedPod{{Plugin: "p", Scope: plugins.ScopeNamed, UID: "a", At: start}}, start, forcing(), forcing("a").Candidates[0], true)
	assert.True(t, pressed[0].WithThreshold)
	for ago, want := range map[time.Duration]bool{plugins.ForcedTTL - 1: false, plugins.ForcedTTL: true, -plugins.ForcedTTL: false, -plugins.ForcedTTL - 1: true} {
		assert.Equal(t, want, (&NamedPod{Scope: plugins.ScopeNamed, At: start.Add(-ago)}).expired(Input{Time: start}), ago)
	}
}

func recallKeepsCurrentVerdict(t *testing.T) {
	f := []NamedPod{{Plugin: "p", Scope: plugins.ScopeNamed, UID: "a", Name: "ns/a"}}
	other, own := forcing("b"), forcing("b")
	other.Plugin = "q"
	own.Reason, own.Condition = "so it says", "C"
	in := Input{Levels: &plugins.Levels{Verdicts: []plugins.Verdict{other, says(plugins.Soft), own}}}
	got := recalled(in, f).Verdicts
	require.Len(t, got, 3)
	assert.Equal(t, other, got[0])
	assert.Equal(t, says(plugins.Soft), got[1])
	assert.Equal(t, "so it says", got[2].Reason)
	assert.Equal(t, "C", got[2].Condition)
	require.Len(t, got[2].Candidates, 2)
	own.Level, own.MetLevel, own.Candidates = plugins.None, plugins.None, nil
	in.Levels.Verdicts = []plugins.Verdict{own}
	got = recalled(in, f).Verdicts
	assert.Empty(t, got[0].Condition, "it is not met")
	assert.Contains(t, got[0].Reason, "the plugin forced the eviction of ns/a")
}

// namingTop is a plugin's answer that its hard threshold is met, and these pods.
func namingTop(uids ...string) plugins.Verdict {
	v := says(plugins.Hard)
	for _, uid := range uids {
		v.Candidates = append(v.Candidates, plugins.Candidate{PodUID: uid, Name: "ns/" + uid, Why: "named by p for s"})
	}
	return v
}

func without(v plugins.Verdict, change func(*plugins.Verdict)) plugins.Verdict {
	change(&v)
	return v
}

func TestNamedForThreshold(t *testing.T) {
	now := newRounds().now
	silent := without(namingTop(), func(v *plugins.Verdict) { v.Absent = "no answer" })
	latched := without(namingTop(), func(v *plugins.Verdict) { v.MetLevel = plugins.Soft })
	graced := without(namingTop(), func(v *plugins.Verdict) { v.GraceEnds = now.Add(time.Minute) })
	elsewhere := without(namingTop(), func(v *plugins.Verdict) { v.Scope = "t" })
	refused := without(namingTop("a"), func(v *plugins.Verdict) { v.Candidates[0].Refused = "not shown" })
	inner := without(namingTop("a"), func(v *plugins.Verdict) { v.Plugin = plugins.Names()[0] })
	innerEmpty := without(namingTop(), func(v *plugins.Verdict) { v.Plugin = plugins.Names()[0] })
	type answers []plugins.Verdict
	for name, row := range map[string]struct {
		answers answers
		want    []string // candidates in the last round
		kept    int
	}{
		"a name said once is kept":                     {answers{namingTop("a", "b"), namingTop(), namingTop()}, []string{"a", "b"}, 2},
		"newer names replace older ones":               {answers{namingTop("a", "b"), namingTop("b", "c")}, []string{"b", "c"}, 2},
		"a plugin that repeats itself withdraws":       {answers{namingTop("a"), namingTop("a"), namingTop()}, nil, 0},
		"named again after a pause is said once":       {answers{namingTop("a"), namingTop(), namingTop("a"), namingTop()}, []string{"a"}, 1},
		"the threshold is not met":                     {answers{namingTop("a"), says(plugins.Soft)}, nil, 0},
		"the threshold is latched":                     {answers{namingTop("a"), latched}, nil, 0},
		"it is met again, and names no pod":            {answers{namingTop("a"), says(plugins.None), namingTop()}, nil, 0},
		"another threshold is met":                     {answers{namingTop("a"), elsewhere}, nil, 0},
		"no answer: kept, and not a candidate":         {answers{namingTop("a"), silent}, nil, 1},
		"no answer, then one":                          {answers{namingTop("a"), silent, namingTop()}, []string{"a"}, 1},
		"not asked for pods before the grace period":   {answers{namingTop("a"), namingTop("a"), graced}, []string{"a"}, 1},
		"a pod that it may not name":                   {answers{refused, namingTop()}, nil, 0},
		"an inner plugin names its pods at every tick": {answers{inner, innerEmpty}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRounds("a", "b", "c")
			var got []string
			for _, v := range row.answers {
				r.next(v)
				got = nil
				for _, c := range r.levels.Verdicts[0].Candidates {
					got = append(got, c.PodUID)
				}
			}
			assert.Equal(t, row.want, got)
			assert.Len(t, r.memory.Named, row.kept)
		})
	}

	r := newRounds("a", "b")
	r.next(namingTop("a", "b"))
	r.there = []string{"b"}
	r.next(namingTop())
	require.Len(t, r.levels.Verdicts[0].Candidates, 1, "a has terminated")
	assert.Equal(t, r.now.Add(-5*time.Second), r.levels.Verdicts[0].Candidates[0].NamedAt)
	r.now = r.now.Add(namedTTL)
	r.next(namingTop())
	assert.Empty(t, r.memory.Named, "too old")
}

// A plugin with a cooldown names its pod once, in a round that evicts no pod.
func TestNameOutlivesBlockedRound(t *testing.T) {
	pdb := func(v Victim) Answer {
		return Answer{Outcome: Blocked, RetryAfter: time.Second, Text: "budget web-pdb"}
	}
	for name, row := range map[string]struct {
		block func(*Input, *api)
	}{
		"cooldown":            {func(in *Input, _ *api) { in.State.Cooldowns = map[string]time.Time{"p/s": at(2)} }},
		"cooldown of all":     {func(in *Input, _ *api) { in.State.CooldownUntil = at(2) }},
		"PodDisruptionBudget": {func(_ *Input, a *api) { a.answer = pdb }},
		"report-only":         {func(in *Input, _ *api) { in.Config.ReportOnly = 3 * time.Second }},
		"dry run":             {func(in *Input, _ *api) { in.Config.DryRun = true }},
		"API server away":     {func(in *Input, _ *api) { in.Cluster.Pods.StaleSince = at(-3) }},
		"no answer":           {func(_ *Input, a *api) { a.answer = func(Victim) Answer { return Answer{Outcome: UnknownOutcome} } }},
		"rate limit":          {func(in *Input, _ *api) { in.State.RateLimits = RateLimits{}; in.Uptime = 0 }},
		"the kubelet evicts":  {func(in *Input, _ *api) { in.Cluster.Node.KubeletPressure = []string{"PIDPressure"} }},
		"no taint":            {func(in *Input, _ *api) { in.Cluster.Unmarked = "conflict" }},
	} {
		t.Run(name, func(t *testing.T) {
			in, a := round(0, []pods.Pod{pod("a"), pod("b")}, namingTop("a", "b")), api{}
			cluster, config := *in.Cluster, in.Config
			row.block(&in, &a)
			in.Levels, in.State = RecallNamed(in)
			d, m := play(in, &a)
			require.NotEqual(t, CodeEvicted, d.Code, d.Reason)

			a = api{}
			later := 70
			if name == "no answer" {
				later = 5 // within a minute the same eviction is requested again
			}
			in = then(in, later, restarted(t, m))
			in.Cluster, in.Config = &cluster, config
			in.Levels.Verdicts = []plugins.Verdict{namingTop()}
			in.Levels, in.State = RecallNamed(in)
			d, m = play(in, &a)
			require.Equal(t, CodeEvicted, d.Code, d.Reason)
			assert.Equal(t, []string{"a"}, a.uids())
			assert.Equal(t, at(0), d.Candidates[0].NamedAt)
			assert.Empty(t, m.Named, "the eviction was accepted: the plugin decides who is next")
		})
	}
}

func TestRefusedNameIsDropped(t *testing.T) {
	in, a := round(0, []pods.Pod{pod("a"), pod("b")}, namingTop("a", "b")), api{}
	a.answer = func(v Victim) Answer {
		if v.UID == "a" {
			return Answer{Outcome: Refused, Text: "denied by a webhook"}
		}
		return Answer{Outcome: Blocked, Text: "budget"}
	}
	in.Levels, in.State = RecallNamed(in)
	_, m := play(in, &a)
	require.Len(t, m.Named, 1)
	assert.Equal(t, "b", m.Named[0].UID, "a PodDisruptionBudget may open again")
}

// A plugin that forces an eviction and then hangs gains nothing by it.
func TestForcedByLatePlugin(t *testing.T) {
	for name, hold := range map[string]func(*Input, *plugins.Verdict){
		"report-only":         func(in *Input, _ *plugins.Verdict) { in.Config.ReportOnly = time.Hour },
		"beside a rival":      func(_ *Input, v *plugins.Verdict) { v.Beside = plugins.BesideMark },
		"the kubelet's turn":  func(in *Input, _ *plugins.Verdict) { in.Cluster.Node.KubeletPressure = []string{"PIDPressure"} },
		"nothing holds it up": func(*Input, *plugins.Verdict) {},
	} {
		t.Run(name, func(t *testing.T) {
			v := forcing("a")
			in := round(0, []pods.Pod{pod("a")}, v)
			hold(&in, &in.Levels.Verdicts[0])
			in.Levels, in.State = RecallNamed(in)
			_, in.State = Mark(in)
			_, m := Decide(in) // it is chosen, and not evicted yet
			late := forcing()
			late.Absent, late.Beside = "late", in.Levels.Verdicts[0].Beside
			in = then(in, 5, m)
			in.Levels.Verdicts = []plugins.Verdict{late}
			in.Levels, in.State = RecallNamed(in)
			a := api{}
			d, _ := play(in, &a)
			assert.Equal(t, name == "nothing holds it up", d.Code == CodeEvicted, d.Reason)
		})
	}
}

// A name is worth what its plugin is worth now, whether that is registered or has ended.
func TestStandingOfNamingPlugin(t *testing.T) {
	silent := without(forcing(), func(v *plugins.Verdict) { v.Absent = "no answer" })
	heard := map[string][]plugins.Verdict{"answers": {forcing("a")}, "is silent": {silent}, "starts anew": {says(plugins.None)}, "has ended": nil}
	for name, row := range map[string]struct {
		standings map[string]Standing
		code      Code
		reason    string
	}{
		"may evict":      {map[string]Standing{"p": {}}, CodeEvicted, ""},
		"is not known":   {nil, CodeEvicted, ""},
		"is another":     {map[string]Standing{"q": {Excluded: "not listed"}}, CodeEvicted, ""},
		"is excluded":    {map[string]Standing{"p": {Excluded: "not listed"}}, CodeReportOnly, "no pod is evicted for this plugin: not listed"},
		"only marks now": {map[string]Standing{"p": {Beside: plugins.BesideMark}}, CodeReportOnly, "plugins.beside is mark"},
		"only reports":   {map[string]Standing{"p": {Beside: plugins.BesideReport}}, CodeWouldEvict, ""},
	} {
		for what, verdicts := range heard {
			t.Run(name+" and "+what, func(t *testing.T) {
				in, a, log := round(0, []pods.Pod{pod("a")}, forcing("a")), api{}, Log{Max: 2}
				in.Levels, in.State = RecallNamed(in)
				_, in.State = Mark(in)
				d, m := Decide(in) // it is chosen, and not evicted yet
				require.Equal(t, CodeNext, d.Code, d.Reason)
				next := func(standings map[string]Standing) {
					in = then(in, 5, restarted(t, m))
					in.Standings, in.Levels.Verdicts = standings, slices.Clone(verdicts)
					for i := range in.Levels.Verdicts {
						in.Levels.Verdicts[i].Beside = standings["p"].Beside
					}
					in.Levels, in.State = RecallNamed(in)
					var list []Decision
					list, m = both(t, in, &a)
					d = list[len(list)-1]
				}
				next(row.standings)
				require.Equal(t, row.code, d.Code, d.Reason)
				assert.Equal(t, row.code == CodeEvicted, len(a.asked) > a.dryRuns)
				if row.code != CodeReportOnly {
					return
				}
				assert.Contains(t, d.Reason, row.reason)
				assert.Equal(t, map[string]Code{"a": CodeReportOnly}, codes(d))
				require.True(t, log.Add(d))
				next(row.standings)
				assert.False(t, log.Add(d), "it is recorded once")
				next(map[string]Standing{"p": {}})
				assert.Equal(t, CodeEvicted, d.Code, d.Reason)
			})
		}
	}
}

// The answer is lost; the watch shows that the pod terminates.
func TestNamesUsedByEvictionWithoutAnswer(t *testing.T) {
	a := api{answer: func(Victim) Answer { return Answer{Outcome: UnknownOutcome} }}
	in := round(0, []pods.Pod{pod("a"), pod("b")}, namingTop("a", "b"))
	in.Levels, in.State = RecallNamed(in)
	_, m := play(in, &a)
	require.Len(t, m.Named, 2)
	in = then(in, 5, restarted(t, m))
	in.Levels.Verdicts = []plugins.Verdict{namingTop()}
	in.Cluster.Pods.Pods[0].TerminatesBy = at(30)
	in.Levels, in.State = RecallNamed(in)
	_, m = play(in, &api{})
	assert.Empty(t, m.Named)
}

func TestNamesAreBounded(t *testing.T) {
	r := newRounds()
	var all []plugins.Verdict
	for i := range 10 {
		v := forcing()
		v.Plugin = fmt.Sprint("p", i)
		for n := range 400 {
			uid := fmt.Sprint(i, "-", n)
			r.there = append(r.there, uid)
			v.Candidates = append(v.Candidates, plugins.Candidate{PodUID: uid, Forced: true})
		}
		all = append(all, v)
	}
	r.next(all[0])
	assert.Len(t, r.memory.Named, maxNamedOfPlugin)
	assert.Equal(t, "0-399", r.memory.Named[maxNamedOfPlugin-1].UID, "the newest stay")
	r.next(all...)
	assert.Len(t, r.memory.Named, maxNamed)
}
