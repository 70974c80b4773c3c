package evict

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// ending pods have been deleted and end within 10 s.
func ending(p *pods.Pod) { p.TerminatesBy = at(10) }

func phase(name string) func(*pods.Pod) { return func(p *pods.Pod) { p.Phase = name } }

func optedOut(p *pods.Pod) { p.OptedOut = "plimsoll.dev/skip-eviction=true" }

func protected(list ...pods.Protection) func(*pods.Pod) {
	return func(p *pods.Pod) { p.Protections = list }
}

func TestSkip(t *testing.T) {
	t.Run("reasons", skipReasons)
	t.Run("protections", skipProtections)
	t.Run("protection first", skipProtectionFirst)
	t.Run("only for naming verdict", skipOnlyForNamingVerdict)
	t.Run("too small", skipTooSmall)
	t.Run("reasons name facts", skipReasonsNameFacts)
	t.Run("opted out beside hard", skipOptedOutBesideHard)
	t.Run("several cgroups largest", skipSeveralCgroupsLargest)
}

func skipReasons(t *testing.T) {
	waits := func(until time.Time, code Code) func(*Input) {
		return func(in *Input) {
			in.State.Backoffs = map[string]Backoff{"a": {Until: until, Attempts: 1, Code: code, Text: "a budget"}}
		}
	}
	sized := func(relief float64) func(*Input) {
		return func(in *Input) { in.Levels.Verdicts[0].Candidates[0].Relief = relief }
	}
	listed := func(changes ...func(*pods.Pod)) func(*Input) {
		return func(in *Input) { in.Cluster.Pods.Pods[0] = pod("a", changes...) }
	}
	optOut := func(namespaces ...string) func(*Input) {
		return func(in *Input) {
			in.Cluster.Pods.Pods[0].OptedOut, in.Config.OptOutHard = "a=b", namespaces
		}
	}
	only := func(v plugins.Verdict) func(*Input) {
		return func(in *Input) {
			in.Levels.Verdicts = []plugins.Verdict{v, pressing(named("b", 30))}
		}
	}
	held, blind := pressing(named("a", 30)), pressing(named("a", 30))
	held.MetLevel, blind.Absent = plugins.Soft, "no PSI"
	held.Scope, blind.Scope = "numa0", "numa1"
	relieved := func(condition string) func(*Input) {
		return func(in *Input) {
			in.Levels.Verdicts = []plugins.Verdict{disk(plugins.Hard, named("a", 30)), pressing(named("b", 30))}
			in.Cluster.Node.KubeletPressure = []string{condition}
		}
	}
	for code, row := range map[Code]struct{ just, justNot func(*Input) }{
		CodeNotAPod:     {func(in *Input) { in.Levels.Verdicts[0].Candidates[0].PodUID = "" }, func(*Input) {}},
		CodeUnknownPod:  {listed(func(p *pods.Pod) { p.CgroupUID, p.UID = "A", "A" }), listed(func(p *pods.Pod) { p.Name = "A" })},
		CodeFinished:    {listed(phase("Succeeded")), listed(phase("Unknown"))},
		CodeTerminating: {listed(func(p *pods.Pod) { p.TerminatesBy = at(-29) }), listed()},
		CodeOverdue:     {func(in *Input) { terminates(in, 0, -30) }, listed()},
		CodeNotAllowed:  {func(in *Input) { in.Levels.Verdicts[0].Candidates[0].Refused = "it was not shown to it" }, listed()},
		CodeOptedOut:    {optOut("other", "shop"), optOut("other")},
		CodeTooSmall:    {sized(9.99), sized(10)},
		CodePDB:         {waits(at(0).Add(1), CodePDB), waits(at(0), CodePDB)},
		CodeRefused:     {waits(at(1), CodeRefused), waits(at(-1), CodeRefused)},
		CodeSoft:        {only(disk(plugins.Soft, named("a", 30))), only(disk(plugins.Hard, named("a", 30)))},
		CodeLatched:     {only(held), only(pressing(named("a", 30)))},
		CodeNoCandidate: {only(blind), only(pressing(named("a", 30)))},
		CodeKubelet:     {relieved("DiskPressure"), relieved("PIDPressure")},
	} {
		t.Run(string(code), func(t *testing.T) {
			for want, change := range map[Code]func(*Input){code: row.just, CodeNext: row.justNot} {
				in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 30)))
				change(&in)
				d, _ := Decide(in)
				got := codes(d)
				assert.Equal(t, want, cmp.Or(got["a"], got["/kubepods/a"]))
				if want != CodeTerminating { // what ends holds the whole round
					assert.Equal(t, CodeNext, got["b"])
				}
				assert.NotEmpty(t, d.Candidates[0].Reason)
				assert.NotEmpty(t, d.Candidates[1].Reason)
			}
		})
	}
}

func skipProtections(t *testing.T) {
	for _, code := range []string{
		pods.Static, pods.Critical, pods.DaemonSet, pods.NoController, pods.OnlyHere,
		pods.Namespace, pods.Mover, pods.Unresolved,
	} {
		why := []pods.Protection{{Code: code, Why: "since it is " + code}, {Code: "second", Why: "and for more"}}
		a := api{}
		d, m := play(round(0, []pods.Pod{pod("a", protected(why...))}, pressing(named("a", 99))), &a)
		assert.Equal(t, map[string]Code{"a": Code(code)}, codes(d))
		assert.Equal(t, "protected: since it is "+code+"; and for more", d.Candidates[0].Reason)
		assert.Equal(t, CodeNone, d.Code)
		assert.Empty(t, a.asked)
		assert.Empty(t, m.Victims)
	}
	mirror := pod("a", protected(pods.Protection{Code: pods.Static}), func(p *pods.Pod) { p.CgroupUID = "hash" })
	d, _ := Decide(round(0, []pods.Pod{mirror}, asking(forced(named("a", 0)))))
	assert.Equal(t, map[string]Code{"a": pods.Static}, codes(d), "an outer plugin names it by its own UID")
}

func skipProtectionFirst(t *testing.T) {
	p := pod("a", protected(pods.Protection{Code: pods.Mover, Why: "it moves data"}), phase("Failed"), ending, optedOut)
	d, _ := Decide(round(60, []pods.Pod{p}, pressing(named("a", 1))))
	assert.Equal(t, Code(pods.Mover), codes(d)["a"])
}

func skipOnlyForNamingVerdict(t *testing.T) {
	in := round(0, []pods.Pod{pod("a", low), pod("b", protected(pods.Protection{Code: pods.Static, Why: "static"}))},
		pressing(named("b", 50)), disk(plugins.Soft, named("a", 50)))
	a := api{}
	d, _ := play(in, &a)
	assert.Empty(t, a.asked, "memory presses, and the only one that is free to go merely uses the disk")
	assert.Equal(t, map[string]Code{"a": CodeSoft, "b": "static"}, codes(d))

	in.Levels.Verdicts = append(in.Levels.Verdicts, pressing(named("a", 9)))
	d, _ = play(in, &a)
	assert.Equal(t, CodeTooSmall, codes(d)["a"], "what helps the disk is no relief of memory")
	in.Levels.Verdicts[2].Candidates[0].Relief = 10
	d, _ = play(in, &a)
	assert.Equal(t, CodeEvicted, codes(d)["a"])
}

func skipTooSmall(t *testing.T) {
	none := snapshot.Opt[float64]{}
	for what, row := range map[string]struct {
		relief        float64
		target, whole snapshot.Opt[float64]
		goes          bool
	}{
		"all that is missing":                     {10, snapshot.Some(10.0), snapshot.Some(100.0), true},
		"less than is missing":                    {9, snapshot.Some(10.0), snapshot.Some(100.0), false},
		"a fifth of all, though more is missing":  {20, snapshot.Some(50.0), snapshot.Some(100.0), true},
		"less than a fifth, and more is missing":  {19.9, snapshot.Some(50.0), snapshot.Some(100.0), false},
		"all that is missing of who knows":        {10, snapshot.Some(10.0), none, true},
		"less than is missing of who knows":       {9, snapshot.Some(10.0), none, false},
		"a fifth, and nobody knows what misses":   {20, none, snapshot.Some(100.0), true},
		"less than a fifth, nobody knows what":    {19, none, snapshot.Some(100.0), false},
		"nothing is known: the plugin's own word": {0.1, none, none, true},
		"a relief that is no number":              {math.NaN(), snapshot.Some(10.0), snapshot.Some(100.0), false},
		"a relief below zero":                     {-1, snapshot.Some(0.5), snapshot.Some(100.0), false},
	} {
		t.Run(what, func(t *testing.T) {
			v := pressing(named("a", row.relief))
			v.Target, v.Whole = row.target, row.whole
			d, _ := Decide(round(0, []pods.Pod{pod("a")}, v))
			want := CodeTooSmall
			if row.goes {
				want = CodeNext
			}
			assert.Equal(t, want, d.Candidates[0].Code)
		})
	}
	in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 20)))
	in.Levels.Verdicts[0].Target = snapshot.Some(50.0)
	in.Config.MinRelief = 0.21
	d, _ := Decide(in)
	assert.Equal(t, CodeTooSmall, d.Candidates[0].Code, "how large a share is configuration")
}

func skipReasonsNameFacts(t *testing.T) {
	in := round(0, []pods.Pod{pod("a", phase("Failed")), pod("b", ending)}, pressing(named("a", 30), named("b", 5)))
	d, _ := Decide(in)
	require.Len(t, d.Candidates, 2)
	assert.Equal(t, "it has terminated: phase Failed", d.Candidates[0].Reason)
	assert.Equal(t, "it is terminating until 2026-03-01 12:00:10 UTC", d.Candidates[1].Reason)
}

func skipOptedOutBesideHard(t *testing.T) {
	d, _ := Decide(round(0, []pods.Pod{pod("a", optedOut), pod("b")}, softDisk(named("a", 30)), pressing(named("b", 30))))
	assert.Equal(t, map[string]Code{"a": CodeOptedOut, "b": CodeNext}, codes(d))
}

func skipSeveralCgroupsLargest(t *testing.T) {
	d, _ := Decide(round(0, []pods.Pod{pod("a")}, pressing(named("a", 30), named("a", 5))))
	assert.Equal(t, map[string]Code{"a": CodeNext}, codes(d))
}

func TestRateLimitRepeatOneOwnerToken(t *testing.T) {
	in := many(1, own)
	in.Config.Limits.PerOwnerHour = 1
	a := api{answer: always(UnknownOutcome)}
	_, m := play(in, &a)
	play(then(in, 5, m), &a)
	assert.Len(t, a.asked, 2)
}
