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
)

// three candidates, a before b before c.
func three(second int) Input {
	return round(second, []pods.Pod{pod("a"), pod("b"), pod("c")}, pressing(named("a", 30), named("b", 25), named("c", 20)))
}

func TestEvictFirstCandidate(t *testing.T) {
	a := api{}
	d, m := play(three(0), &a)
	assert.Equal(t, []Victim{{UID: "a", Namespace: "shop", Name: "web-a", GraceSeconds: 20}}, a.asked)
	assert.Equal(t, CodeEvicted, d.Code)
	assert.Equal(t, "shop/web-a: a holds 30", d.Reason)
	assert.Equal(t, map[string]Code{"a": CodeEvicted, "b": CodeNotNeeded, "c": CodeNotNeeded}, codes(d))
	assert.Equal(t, "a holds 30", d.Candidates[0].Reason)
	assert.Equal(t, []Answer{{Time: at(0), Outcome: Evicted}}, d.Candidates[0].Answers)
	assert.Equal(t, []Chosen{{
		Victim: a.asked[0], Owner: "shop/ReplicaSet/web", Relief: map[string]float64{"memory-stall/node": 30}, Decision: d.ID, Time: at(0), Outcome: Evicted,
	}}, m.Victims)
	assert.Equal(t, map[string]time.Time{"memory-stall/node": at(30)}, m.Cooldowns)
	going, some := d.FirstEvicted()
	require.True(t, some)
	assert.Equal(t, "a", going.Pod.UID)
	assert.Equal(t, plugins.Hard, d.Level())
}

func TestEvictNextWhenNotGranted(t *testing.T) {
	for outcome, code := range map[Outcome]Code{Blocked: CodePDB, Refused: CodeRefused} {
		a := api{answer: func(v Victim) Answer {
			if v.UID == "a" {
				return Answer{Outcome: outcome, Text: "so it says"}
			}
			return Answer{Outcome: Evicted}
		}}
		d, m := play(three(0), &a)
		assert.Equal(t, []string{"a", "b"}, a.uids())
		assert.Equal(t, map[string]Code{"a": code, "b": CodeEvicted, "c": CodeNotNeeded}, codes(d))
		assert.Equal(t, "the API server: so it says", d.Candidates[0].Reason)
		assert.Equal(t, CodeEvicted, d.Code)
		assert.Equal(t, "b", m.last().UID)
	}
}

// A plugin that tells no sizes has no largest one.
func TestEvictNoneOfUnknownSize(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 0), named("b", 0)))
	a := api{answer: always(Blocked)}
	d, _ := play(in, &a)
	assert.Contains(t, d.Reason, "; the first candidate, shop/web-a")
}

func TestEvictNoneGranted(t *testing.T) {
	a := api{answer: always(Blocked)}
	d, m := play(three(0), &a)
	assert.Equal(t, []string{"a", "b", "c"}, a.uids())
	assert.Equal(t, CodeNone, d.Code)
	assert.Equal(t, "none of 3 candidates is evicted; the largest workload, shop/web-a (a holds 30): the API server: so it says; 2 others: the same", d.Reason)
	assert.Empty(t, m.Victims)
	assert.Zero(t, m.CooldownUntil)
}

func TestWhyNone(t *testing.T) {
	static, mover := protected(pods.Protection{Code: pods.Static, Why: "static"}), protected(pods.Protection{Code: pods.Mover, Why: "mover"})
	unit := func(name string, relief float64) plugins.Candidate {
		c := named("", relief)
		c.Cgroup, c.Name, c.Why = "/system.slice/"+name, name, fmt.Sprintf("%s holds %g", name, relief)
		return c
	}
	ofUnit := func(c plugins.Candidate, unit string) plugins.Candidate {
		c.Unit = unit
		return c
	}
	listed := []pods.Pod{pod("a", static), pod("b", static), pod("c", mover), pod("d")}
	for name, c := range map[string]struct {
		candidates []plugins.Candidate
		want       string
	}{
		"no candidate": {nil, "the plugin named no pod"},
		"one": {
			[]plugins.Candidate{named("c", 30)},
			"none of 1 candidates is evicted; the largest workload, shop/web-c (c holds 30): protected: mover",
		},
		"the largest comes first, whatever the reason of most": {
			[]plugins.Candidate{named("a", 10), named("b", 20), named("c", 70)},
			"none of 3 candidates is evicted; the largest workload, shop/web-c (c holds 70): protected: mover; 2 others: protected: static",
		},
		"of equal ones the first in eviction order": {
			[]plugins.Candidate{named("c", 30), named("a", 30)},
			"none of 2 candidates is evicted; the largest workload, shop/web-c (c holds 30): protected: mover; 1 other: protected: static",
		},
		"another unit is not larger": {
			[]plugins.Candidate{named("c", 30), ofUnit(named("a", 900), "B/s")},
			"none of 2 candidates is evicted; the largest workload, shop/web-c (c holds 30): protected: mover; 1 other: protected: static",
		},
		"the others have several reasons": {
			[]plugins.Candidate{named("c", 70), named("a", 30), named("b", 20), named("x", 10)},
			"none of 4 candidates is evicted; the largest workload, shop/web-c (c holds 70): protected: mover; 2 of 3 others: protected: static",
		},
		"numbers stand once": {
			[]plugins.Candidate{named("d", 1)},
			"none of 1 candidates is evicted; the largest workload, shop/web-d: evicting it would release too little: d holds 1",
		},
		"services are no candidates": {
			[]plugins.Candidate{named("c", 70), unit("ssh.service", 20), unit("cron.service", 10)},
			"none of 1 candidates is evicted; the largest workload, shop/web-c (c holds 70): protected: mover",
		},
		"a service is the largest": {
			[]plugins.Candidate{named("c", 20), unit("backup.service", 70)},
			"none of 1 candidates is evicted; the largest workload, backup.service (backup.service holds 70): not a pod; 1 other: protected: mover",
		},
		"services alone": {
			[]plugins.Candidate{unit("ssh.service", 20), unit("backup.service", 70)},
			"the plugin named no pod; the largest workload, backup.service (backup.service holds 70): not a pod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var a api
			d, _ := play(round(0, listed, pressing(c.candidates...)), &a)
			assert.Empty(t, a.asked)
			assert.Equal(t, CodeNone, d.Code)
			assert.Equal(t, c.want, d.Reason)
		})
	}
}

func TestEvictEndsRoundOnUnclearAnswer(t *testing.T) {
	for outcome, want := range map[Outcome]struct {
		code, others Code
	}{
		NotFound:       {CodeTerminated, CodeNotNeeded},
		UnknownOutcome: {CodeUnknownOutcome, CodeUnknownOutcome},
	} {
		a := api{answer: always(outcome)}
		d, m := play(three(0), &a)
		assert.Equal(t, []string{"a"}, a.uids())
		assert.Equal(t, want.code, d.Code)
		assert.Contains(t, d.Reason, "shop/web-a")
		assert.Equal(t, map[string]Code{"a": want.code, "b": want.others, "c": want.others}, codes(d))
		assert.Equal(t, d.Reason, d.Candidates[1].Reason)
		assert.Equal(t, outcome, m.last().Outcome)
		_, some := d.FirstEvicted()
		assert.False(t, some)
	}
}

func TestEvictRoundRequestsBounded(t *testing.T) {
	var listed []pods.Pod
	var list []plugins.Candidate
	for i := range 8 {
		uid := fmt.Sprint("p", i)
		listed, list = append(listed, pod(uid)), append(list, named(uid, float64(40-i)))
	}
	a := api{answer: always(Blocked)}
	in := round(0, listed, pressing(list...))
	d, m := play(in, &a)
	assert.Equal(t, []string{"p0", "p1", "p2", "p3", "p4"}, a.uids())
	assert.Equal(t, CodeNone, d.Code)
	assert.Equal(t, CodeNext, codes(d)["p7"])
	assert.Equal(t, "left for a later round, if still needed", d.Candidates[7].Reason)
	a.asked = nil
	play(then(in, 5, m), &a)
	assert.Equal(t, []string{"p5", "p6", "p7"}, a.uids())
}

// One budget covers the pods of an owner: those of others have their turn in the same round.
func TestEvictBlockedOwnerLast(t *testing.T) {
	listed, list := []pods.Pod{pod("culprit", func(p *pods.Pod) { p.Owner.Name = "api-1" })}, []plugins.Candidate{}
	for i := range 9 {
		uid := fmt.Sprint("p", i)
		listed, list = append(listed, pod(uid)), append(list, named(uid, float64(40-i)))
	}
	in := round(0, listed, pressing(append(list, named("culprit", 20))...))
	a := api{answer: func(v Victim) Answer {
		if v.UID == "culprit" {
			return Answer{Outcome: Evicted}
		}
		return Answer{Outcome: Blocked, Text: "a budget"}
	}}
	d, _ := play(in, &a)
	assert.Equal(t, []string{"p0", "p1", "culprit"}, a.uids())
	assert.Equal(t, CodeEvicted, d.Code)
	in.State.Backoffs = map[string]Backoff{"p0": {Until: at(9), Code: CodePDB}, "p1": {Until: at(9), Code: CodePDB}}
	a.asked = nil
	play(in, &a)
	assert.Equal(t, []string{"culprit"}, a.uids(), "they have been blocked since an earlier round")
}

func TestEvictStateNotSaved(t *testing.T) {
	d, _ := Decide(three(0))
	i, some := d.Next()
	require.True(t, some)
	d.RecordAnswer(i, Answer{Outcome: Blocked, Text: "a budget"})
	d.StateNotSaved(errDisk)
	d.Postpone()
	assert.Equal(t, CodeState, d.Code)
	assert.Contains(t, d.Reason, "no space left")
	assert.Equal(t, map[string]Code{"a": CodePDB, "b": CodeState, "c": CodeState}, codes(d))
	_, some = d.Next()
	assert.False(t, some)
}

func TestVictimGraceBounded(t *testing.T) {
	for _, row := range []struct {
		asks int64
		most time.Duration
		want int64
	}{
		{20, 30 * time.Second, 20},
		{30, 30 * time.Second, 30},
		{3600, 30 * time.Second, 30},
		{5, 1500 * time.Millisecond, 1},
		{0, 30 * time.Second, 1},
		{-5, 30 * time.Second, 1},
		{20, 0, 1},
	} {
		d := Decision{Candidates: []Considered{{}, {Pod: &pods.Pod{UID: "u", Namespace: "n", Name: "x", GraceSeconds: row.asks}}}}
		assert.Equal(t, Victim{UID: "u", Namespace: "n", Name: "x", GraceSeconds: row.want}, d.Victim(1, row.most), row)
	}
}

func TestDryRunOncePerPressure(t *testing.T) {
	in := three(0)
	in.Config.DryRun = true
	marks, _ := Mark(in)
	assert.Equal(t, Marks{}, marks)
	a := api{}
	d, m := play(in, &a)
	assert.Equal(t, CodeWouldEvict, d.Code)
	assert.Equal(t, "dry run: shop/web-a: a holds 30", d.Reason)
	assert.True(t, d.DryRun)
	assert.Equal(t, 1, a.dryRuns)
	assert.Zero(t, m.CooldownUntil, "nobody went, so nothing settles")
	for range 10 {
		in = then(in, 60, restarted(t, m))
		d, m = play(in, &a)
		require.Equal(t, CodeTerminating, d.Code)
	}
	require.Len(t, a.asked, 1)

	held := then(in, 5, m)
	held.Levels.Verdicts = []plugins.Verdict{pressing(named("a", 30))}
	held.Levels.Verdicts[0].MetLevel = plugins.None
	_, m = play(held, &a)
	_, m = play(then(in, 5, m), &a)
	require.Len(t, a.asked, 1, "a level that is kept is the same episode")

	over := then(in, 5, m)
	over.Levels.Verdicts = []plugins.Verdict{disk(plugins.Soft)}
	_, m = play(over, &a)
	assert.Empty(t, m.Victims)
	_, m = play(then(in, 5, m), &a)
	require.Len(t, a.asked, 2, "another episode")
	require.Equal(t, 2, a.dryRuns)

	in = then(in, 5, m)
	in.Config.DryRun = false
	d, _ = play(in, &a)
	assert.Equal(t, CodeEvicted, d.Code, "from now on it is for real")
	assert.Equal(t, []string{"a", "a", "a"}, a.uids())
	assert.Equal(t, 2, a.dryRuns)
}

func TestDryRunAfterRealEvictions(t *testing.T) {
	in := three(0)
	a := api{}
	_, m := play(in, &a)
	in = then(in, 20, m)
	in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:]
	_, m = play(in, &a)
	in = then(in, 30, m)
	in.Config.DryRun = true
	d, m := play(in, &a)
	assert.Equal(t, CodeWouldEvict, d.Code, d.Reason)
	assert.Equal(t, []string{"a", "b"}, a.uids())
	assert.Contains(t, m.DryRunEvicted, "memory-stall/node")
}

func TestDryRunNotGranted(t *testing.T) {
	in := three(0)
	in.Config.DryRun = true
	a := api{answer: always(Blocked)}
	d, m := play(in, &a)
	assert.Equal(t, CodeNone, d.Code)
	assert.Len(t, a.asked, 3)
	_, m = play(then(in, 5, m), &a)
	assert.Len(t, a.asked, 3)
	play(then(in, 10, m), &a)
	assert.Len(t, a.asked, 6)
}

func TestDryRunWaitsForUnknownOutcome(t *testing.T) {
	in := three(0)
	a := api{answer: always(UnknownOutcome)}
	_, m := play(in, &a)
	in = then(in, 2, m)
	in.Config.DryRun = true
	d, m := play(in, &a)
	assert.Equal(t, CodeTerminating, d.Code)
	assert.Equal(t, []string{"a"}, a.uids())
	assert.False(t, m.last().DryRun)
}

func TestEvictNotAfterOutage(t *testing.T) {
	a := api{}
	in := three(0)
	in.Cluster.Pods.StaleSince = at(-1)
	var m State
	for range 120 {
		var d Decision
		d, m = play(in, &a)
		require.Equal(t, CodeStale, d.Code)
		in = then(in, 5, m)
	}
	back, calm := in, in
	back.Cluster = three(0).Cluster
	calm.Cluster = three(0).Cluster
	calm.Levels = &plugins.Levels{Time: calm.Time, Verdicts: []plugins.Verdict{disk(plugins.None)}}
	d, _ := play(calm, &a)
	assert.Empty(t, a.asked)
	assert.Equal(t, CodeEnded, d.Code)
	play(back, &a)
	assert.Equal(t, []string{"a"}, a.uids())
}

func TestEvictSameNameOtherUID(t *testing.T) {
	in := round(0, []pods.Pod{pod("old", func(p *pods.Pod) { p.Name = "db-0" })}, pressing(named("old", 30)))
	a := api{answer: always(UnknownOutcome)}
	_, m := play(in, &a)
	in = then(in, 5, restarted(t, m))
	in.Cluster.Pods.Pods = []pods.Pod{pod("new", func(p *pods.Pod) { p.Name = "db-0" })}
	in.Levels.Verdicts = []plugins.Verdict{pressing(named("new", 30))}
	d, m := play(in, &a)
	assert.Equal(t, CodeCooldown, d.Code)
	assert.Equal(t, []string{"old"}, a.uids())
	assert.Equal(t, in.Time, m.last().TerminatedAt, "the one that was chosen is gone")
}

func TestEvictRestartBeforeAnswer(t *testing.T) {
	in := three(0)
	d, m := Decide(in)
	i, _ := d.Next()
	m, _ = m.RecordChoice(in, &d, i)
	kept := restarted(t, m)
	for what, row := range map[string]struct {
		change func(*Input)
		code   Code
		asked  []string
	}{
		"nothing came of it: the same pod": {func(*Input) {}, CodeEvicted, []string{"a"}},
		"it came through, the pod ends":    {func(in *Input) { in.Cluster.Pods.Pods[0].TerminatesBy = at(22) }, CodeTerminating, []string{}},
		"it came through, the pod is gone": {func(in *Input) { in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:] }, CodeCooldown, []string{}},
		"others would go before it":        {func(in *Input) { in.Cluster.Pods.Pods[2].LowQoS = true }, CodeEvicted, []string{"a"}},
		"it is named no more":              {func(in *Input) { in.Levels.Verdicts[0].Candidates = in.Levels.Verdicts[0].Candidates[1:] }, CodeTerminating, []string{}},
		"it has become small":              {func(in *Input) { in.Levels.Verdicts[0].Candidates[0].Relief = 1 }, CodeTerminating, []string{}},
		"it failed":                        {func(in *Input) { in.Cluster.Pods.Pods[0].Phase = "Failed" }, CodeCooldown, []string{}},
	} {
		t.Run(what, func(t *testing.T) {
			in := then(three(0), 10, kept)
			row.change(&in)
			a := api{}
			d, _ := play(in, &a)
			assert.Equal(t, row.code, d.Code, d.Reason)
			assert.Equal(t, row.asked, a.uids())
		})
	}
}

func TestDecisionTellsEachEvicted(t *testing.T) {
	in := three(0)
	in.Levels.Verdicts[0].Target, in.Config.Limits.PerRound = some(1000), 3
	for outcome, code := range map[Outcome]Code{Evicted: CodeEvicted, UnknownOutcome: CodeUnknownOutcome, NotFound: CodeTerminated} {
		d, _ := play(in, &api{answer: func(v Victim) Answer {
			if v.UID == "c" {
				return Answer{Outcome: outcome}
			}
			return Answer{Outcome: Evicted}
		}})
		assert.Equal(t, CodeEvicted, d.Code, "two went, whatever became of the third")
		assert.Contains(t, d.Reason, "shop/web-a: a holds 30; shop/web-b: b holds 25")
		assert.Equal(t, map[string]Code{"a": CodeEvicted, "b": CodeEvicted, "c": code}, codes(d))
	}
}

func TestEvictNotNeededAfterFirst(t *testing.T) {
	d, _ := Decide(three(0))
	d.RecordAnswer(0, Answer{Outcome: Evicted})
	assert.Equal(t, map[string]Code{"a": CodeEvicted, "b": CodeNotNeeded, "c": CodeNotNeeded}, codes(d))
	assert.Equal(t, "waiting for the effect of an earlier eviction", d.Candidates[1].Reason)
}

func TestBrakeKeepsEarlierAnswers(t *testing.T) {
	in := three(0)
	in.Config.Via = ViaController
	d, _ := play(in, &api{answer: func(v Victim) Answer {
		if v.UID == "a" {
			return Answer{Outcome: Blocked, Text: "a budget"}
		}
		return Answer{Outcome: Braked, Text: "a brake"}
	}})
	assert.Equal(t, map[string]Code{"a": CodePDB, "b": CodeBrake, "c": CodeBrake}, codes(d))
}

func TestDryRunDecisionID(t *testing.T) {
	in := three(0)
	in.Config.DryRun = true
	d, _ := Decide(in)
	assert.NotContains(t, d.ID, "-dry")
	in.Config.DryRun, in.Config.DryRunPlugins = false, []string{"memory-stall"}
	in.Levels.Verdicts = append(in.Levels.Verdicts, disk(plugins.Hard))
	parts := Split(in)
	require.Len(t, parts, 2)
	d, _ = Decide(parts[0])
	assert.NotContains(t, d.ID, "-dry")
	d, _ = Decide(parts[1])
	assert.Contains(t, d.ID, "-dry")
}

func TestEvictSeveralStopsAtUnclear(t *testing.T) {
	for _, outcome := range []Outcome{NotFound, UnknownOutcome} {
		in := three(0)
		in.Levels.Verdicts[0].Target, in.Config.Limits.PerRound = some(1000), 3
		a := api{answer: func(v Victim) Answer {
			if v.UID == "b" {
				return Answer{Outcome: outcome}
			}
			return Answer{Outcome: Evicted}
		}}
		play(in, &a)
		assert.Equal(t, []string{"a", "b"}, a.uids(), outcome)
	}
}

func TestMoreOnlyAfterFirstEviction(t *testing.T) {
	in := three(0)
	d, m := Decide(in)
	before := slices.Clone(d.Candidates)
	d.More(in, m)
	assert.Equal(t, before, d.Candidates)
}

func TestMoreOnlyForMissingRelief(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b"), pod("c", priority(5000))}, pressing(named("a", 30), named("b", 30)), disk(plugins.Hard, named("c", 30)))
	in.Config.Limits.PerRound = 3
	a := api{}
	d, _ := play(in, &a)
	assert.Equal(t, []string{"a", "c"}, a.uids(), "one is enough for memory, and is no relief of the disk")
	assert.Equal(t, CodeNotNeeded, codes(d)["b"])

	memory, of := pressing(named("a", 30), named("b", 30)), softDisk(named("b", 30))
	memory.Target = some(60)
	in = round(0, []pods.Pod{pod("a"), pod("b")}, memory, of)
	in.Config.Limits.PerRound = 2
	a = api{}
	play(in, &a)
	assert.Equal(t, []string{"a", "b"}, a.uids(), "the highest level counts of those that miss it")
}

func TestVerdictNotMetEvictsNoPod(t *testing.T) {
	waiting := pressing(named("a", 30))
	waiting.GraceEnds = at(60)
	d, _ := Decide(round(0, []pods.Pod{pod("a")}, waiting, disk(plugins.None, named("a", 30))))
	assert.Equal(t, map[string]Code{"a": CodeGrace}, codes(d))
	for _, c := range []plugins.Candidate{named("a", 30), forced(named("a", 30))} { // and another pod may go
		calm, other := disk(plugins.None, c), softDisk(named("b", 30))
		calm.Scope = "sdb"
		d, _ = Decide(round(0, []pods.Pod{pod("a"), pod("b", priority(5000))}, waiting, calm, other))
		assert.Equal(t, map[string]Code{"a": CodeGrace, "b": CodeNext}, codes(d))
	}
	waiting.GraceEnds = at(0)
	d, _ = Decide(round(0, []pods.Pod{pod("a")}, waiting))
	assert.Equal(t, map[string]Code{"a": CodeNext}, codes(d), "its time has come")
}
