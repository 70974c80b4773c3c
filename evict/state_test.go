package evict

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// waits plays a round a second and returns the seconds at which a pod was
// asked for that is answered alike each time.
func waits(t *testing.T, answer Answer, seconds int) []int {
	t.Helper()
	a := api{answer: func(Victim) Answer { return answer }}
	in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
	var when []int
	for second := range seconds {
		before := len(a.asked)
		d, m := play(in, &a)
		if len(a.asked) > before {
			when = append(when, second)
		} else {
			require.Equal(t, CodeNone, d.Code)
			require.Contains(t, d.Reason, "not requested again until")
		}
		in = then(in, 1, restarted(t, m))
	}
	return when
}

func TestBackoffOfBlockedPod(t *testing.T) {
	assert.Equal(t, []int{0, 10, 30, 70, 150, 310, 610, 910}, waits(t, Answer{Outcome: Blocked, Text: "a budget"}, 1000))
}

func TestBackoffRetryAfterBounds(t *testing.T) {
	assert.Equal(t, []int{0, 3, 6, 9}, waits(t, Answer{Outcome: Blocked, RetryAfter: 3 * time.Second}, 10))
	assert.Equal(t, []int{0, 300, 600}, waits(t, Answer{Outcome: Blocked, RetryAfter: time.Hour}, 700))
	assert.Equal(t, []int{0, 10}, waits(t, Answer{Outcome: Blocked, RetryAfter: -time.Hour}, 12))
}

func TestBackoffOfRefusedPod(t *testing.T) {
	assert.Equal(t, []int{0, 300, 600}, waits(t, Answer{Outcome: Refused, RetryAfter: time.Second, Text: "a webhook"}, 700))
}

func TestUnansweredPodAskedNextRound(t *testing.T) {
	a := api{answer: always(UnknownOutcome)}
	in := three(0)
	for range 5 {
		d, m := play(in, &a)
		require.Equal(t, CodeUnknownOutcome, d.Code)
		in = then(in, 5, restarted(t, m))
	}
	assert.Equal(t, []string{"a", "a", "a", "a", "a"}, a.uids())
}

// A real eviction does not wait for what a dry run was answered, nor a dry run for a real
// answer.
func TestBackoffOfDryRunApart(t *testing.T) {
	for _, outcome := range []Outcome{Blocked, Refused} {
		for _, dryFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dry run first %t", outcome, dryFirst), func(t *testing.T) {
				a := api{answer: always(outcome)}
				in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
				in.Config.DryRun = dryFirst
				_, m := play(in, &a)
				_, m = play(then(in, 5, restarted(t, m)), &a)
				require.Len(t, a.asked, 1, "it waits for an answer of its own kind")
				in.Config.DryRun = !dryFirst
				_, m = play(then(in, 5, restarted(t, m)), &a)
				require.Len(t, a.asked, 2)
				play(then(in, 8, restarted(t, m)), &a)
				require.Len(t, a.asked, 2)
			})
		}
	}
}

func TestBackoffForgotten(t *testing.T) {
	a := api{answer: always(Blocked)}
	in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
	_, m := play(in, &a)
	_, m = play(then(in, 10, m), &a)
	require.Equal(t, Backoff{Until: at(30), Attempts: 2, Code: CodePDB, Text: "so it says", Via: ViaDirect}, m.Backoffs["a"])
	calm := round(0, nil, disk(plugins.None))
	_, m = play(then(calm, 30+300, m), &a)
	require.Contains(t, m.Backoffs, "a")
	_, m = play(then(calm, 30+301, m), &a)
	require.Empty(t, m.Backoffs, "five minutes after")
	_, m = play(then(in, 400, m), &a)
	assert.Equal(t, 1, m.Backoffs["a"].Attempts)
}

func TestTerminatedAlreadyIsReleased(t *testing.T) {
	a := api{answer: always(NotFound)}
	in := three(0)
	d, m := play(in, &a)
	require.Equal(t, CodeTerminated, d.Code)
	assert.Equal(t, at(0), m.last().TerminatedAt)
	assert.Equal(t, at(30), m.Cooldowns["memory-stall/node"])
	in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:]
	for in = then(in, 1, restarted(t, m)); in.Time.Before(at(30)); in = then(in, 1, m) {
		d, m = play(in, &a)
		require.Equal(t, CodeCooldown, d.Code)
	}
	assert.Equal(t, at(0), m.last().TerminatedAt)
	a.answer = nil
	play(in, &a)
	assert.Equal(t, []string{"a", "b"}, a.uids())
}

func TestCooldownAfterTermination(t *testing.T) {
	a := api{}
	in := three(0)
	_, m := play(in, &a)
	for in = then(in, 1, m); in.Time.Before(at(15)); in = then(in, 1, restarted(t, m)) {
		if in.Time.After(at(2)) {
			in.Cluster.Pods.Pods[0].TerminatesBy = at(20)
		}
		_, m = play(in, &a)
		require.Zero(t, m.last().TerminatedAt)
	}
	in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:]
	var d Decision
	for ; in.Time.Before(at(15 + 30)); in = then(in, 1, restarted(t, m)) {
		d, m = play(in, &a)
		require.Equal(t, CodeCooldown, d.Code)
		require.Equal(t, at(15), m.last().TerminatedAt, "it is seen once")
	}
	play(in, &a)
	assert.Equal(t, []string{"a", "b"}, a.uids())
}

func TestStaleListConcludesNothing(t *testing.T) {
	for what, spoil := range map[string]func(*Cluster){
		"never listed": func(c *Cluster) { c.Pods = pods.List{} },
		"stale":        func(c *Cluster) { c.Pods = pods.List{Synced: true, StaleSince: at(0)} },
		"no Node":      func(c *Cluster) { c.Pods = pods.List{Synced: true}; c.Node.ReadError = "away" },
	} {
		a := api{}
		in := three(0)
		_, m := play(in, &a)
		in = then(in, 5, m)
		spoil(in.Cluster)
		_, m = play(in, &a)
		assert.Zero(t, m.last().TerminatedAt, what)
		assert.Equal(t, Evicted, m.last().Outcome)
		in.Cluster = nil
		_, m = play(in, &a)
		assert.Zero(t, m.last().TerminatedAt)
	}
}

func TestLostAnswerSeenInPod(t *testing.T) {
	a := api{answer: always(UnknownOutcome)}
	in := three(0)
	_, m := play(in, &a)
	in = then(in, 5, m)
	_, same := Decide(in)
	assert.Equal(t, UnknownOutcome, same.last().Outcome)
	in.Cluster.Pods.Pods[0].TerminatesBy = at(25)
	d, m := play(in, &a)
	assert.Equal(t, CodeTerminating, d.Code)
	assert.Equal(t, Evicted, m.last().Outcome)
	assert.Equal(t, []string{"a"}, a.uids())
}

func TestDryRunVictimNotWatched(t *testing.T) {
	in := three(0)
	in.Config.DryRun = true
	_, m := play(in, &api{})
	in = then(in, 5, m)
	in.Cluster.Pods.Pods = nil
	_, m = play(in, &api{})
	assert.Empty(t, m.Victims)
	assert.Empty(t, m.Cooldowns)
}

func TestStateClockSetBack(t *testing.T) {
	m := State{
		CooldownUntil: at(86400),
		Backoffs:      map[string]Backoff{"a": {Until: at(86400), Attempts: 1, Code: CodePDB}, "b": {Until: at(86400), Attempts: 1, Code: CodePDB}},
		Victims:       []Chosen{{Victim: Victim{UID: "x"}, Time: at(86400)}},
	}
	in := three(0)
	in.State = m
	in.Cluster.Pods.Pods = append(in.Cluster.Pods.Pods, pod("x"))
	_, after := Decide(in)
	assert.Equal(t, at(0), after.last().Time)
	assert.Equal(t, at(30+30), later(after.CooldownUntil, at(60)))
	assert.Equal(t, at(300), after.Backoffs["a"].Until)
	assert.Equal(t, at(86400), m.last().Time, "what was given is not changed")
	assert.Equal(t, at(86400), m.Backoffs["a"].Until)

	m.Victims = nil
	in.State = m
	_, after = Decide(in)
	assert.Equal(t, at(30), after.CooldownUntil)
}

func TestRecordAnswerLeavesInput(t *testing.T) {
	in := three(0)
	d, m := Decide(in)
	for _, o := range []Outcome{Evicted, NotFound, UnknownOutcome, Blocked, Refused} {
		chosen, _ := m.RecordChoice(in, &d, 0)
		before := restarted(t, chosen)
		chosen.RecordAnswer(Answer{Time: at(1), Outcome: o}, in.Config)
		assert.Empty(t, cmp.Diff(before, restarted(t, chosen)), o)
	}
	assert.Empty(t, m.Victims)
}

func TestRoundStateIsACopy(t *testing.T) {
	in := three(0)
	a := api{answer: always(Blocked)}
	_, first := play(in, &a)
	before := restarted(t, first)
	a.answer = nil
	_, second := play(then(in, 10, first), &a)
	require.Equal(t, "a", second.last().UID)
	kept := restarted(t, second)
	gone := then(in, 20, second)
	gone.Cluster.Pods.Pods = nil
	play(gone, &a)
	assert.Empty(t, cmp.Diff(before, restarted(t, first)))
	assert.Empty(t, cmp.Diff(kept, restarted(t, second)))
}

func TestRoundStateForgets(t *testing.T) {
	in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
	in.State.Cooldowns = map[string]time.Time{"over": at(0), "not yet": at(1)}
	in.State.KubeletEvictions = map[string]time.Time{"over": at(0).Add(-in.Config.KubeletCooldown), "not yet": at(1).Add(-in.Config.KubeletCooldown)}
	in.State.DryRunEvicted = map[string]Chosen{"memory-stall/node": {}, "another/part": {}}
	in.State.Covered = map[string]time.Time{"over": at(0).Add(-coveredMaxAge), "not yet": at(1).Add(-coveredMaxAge)}
	in.State.Victims = []Chosen{{Victim: Victim{UID: "a"}, DryRun: true, Time: at(-1)}}
	m := in.State.observe(in)
	only := []string{"not yet"}
	assert.Equal(t, only, slices.Collect(maps.Keys(m.Cooldowns)))
	assert.Equal(t, only, slices.Collect(maps.Keys(m.KubeletEvictions)))
	assert.Equal(t, only, slices.Collect(maps.Keys(m.Covered)))
	assert.Equal(t, []string{"another/part"}, slices.Collect(maps.Keys(m.DryRunEvicted)), "this part of the round is for real")
	assert.Empty(t, m.Victims, "of an agent that was killed in a dry run")
	for i := range 2 * maxRules {
		in.State.Covered[fmt.Sprint("gone", i)] = at(-1)
	}
	in.State.Covered["memory-stall/node"] = at(-1)
	m = in.State.observe(in)
	assert.LessOrEqual(t, len(m.Covered), maxRules+1)
	assert.Contains(t, m.Covered, "memory-stall/node", "it is judged")
}

func TestVictimOutcomeSeenInPod(t *testing.T) {
	chosen := Chosen{Victim: Victim{UID: "a", Namespace: "shop", Name: "web-a"}, Relief: map[string]float64{"memory-stall/node": 30}, Time: at(-60)}
	for what, row := range map[string]struct {
		pod     pods.Pod
		outcome Outcome
		gone    time.Time
		settles bool
		kept    bool
		waits   bool
	}{
		"it has succeeded":            {pod("a", phase("Succeeded")), Evicted, at(0), true, true, false},
		"it has failed":               {pod("a", phase("Failed")), Evicted, at(0), true, true, false},
		"it is ending":                {pod("a", until(20)), Evicted, time.Time{}, false, true, false},
		"its answer was lost":         {pod("a", until(20)), "", time.Time{}, true, true, false},
		"it is there after a minute":  {pod("a"), UnknownOutcome, time.Time{}, false, false, true},
		"it is there, and it may end": {pod("a"), Evicted, time.Time{}, false, true, false},
	} {
		in := round(0, []pods.Pod{row.pod}, pressing())
		chosen.Outcome = row.outcome
		in.State.Victims = []Chosen{chosen}
		m := in.State.observe(in)
		require.Equal(t, row.kept, len(m.Victims) == 1, what)
		if row.kept {
			assert.Equal(t, row.gone, m.Victims[0].TerminatedAt, what)
			assert.Equal(t, Evicted, m.Victims[0].Outcome, what)
		}
		assert.Equal(t, row.settles, m.Cooldowns["memory-stall/node"].Equal(at(30)), what)
		assert.Equal(t, row.waits, len(m.Backoffs) == 1, what)
	}
}

func TestNoSavedStateSettles(t *testing.T) {
	assert.Equal(t, at(30), NoSavedState(at(0), DefaultConfig()).CooldownUntil)
}

func TestBackoffMaximum(t *testing.T) {
	for times, want := range map[int]time.Duration{0: minBackoff, 1: 2 * minBackoff, 10: maxBackoff, 100: maxBackoff, 1 << 40: maxBackoff} {
		w := Backoff{Attempts: times}.next(Answer{Time: at(0), Outcome: Blocked}, ViaDirect)
		assert.Equal(t, at(0).Add(want), w.Until, times)
	}
}

func TestPendingEvictions(t *testing.T) {
	for what, row := range map[string]struct {
		of   Chosen
		want string
	}{
		"no answer yet":           {Chosen{Time: at(0)}, "a"},
		"its answer was lost":     {Chosen{Time: at(0), Outcome: UnknownOutcome}, "a"},
		"it was asked again":      {Chosen{Time: at(-100), Requested: at(0)}, "a"},
		"it was granted":          {Chosen{Time: at(0), Outcome: Evicted}, ""},
		"it has gone":             {Chosen{Time: at(0), TerminatedAt: at(0)}, ""},
		"it was asked in a dry":   {Chosen{Time: at(0), DryRun: true}, ""},
		"it was asked a long ago": {Chosen{Time: at(-60)}, ""},
	} {
		row.of.UID = "a"
		assert.Equal(t, row.want, State{Victims: []Chosen{row.of}}.Pending(at(0)), what)
	}
	assert.Empty(t, State{}.Pending(at(0)))
}

func TestVictimsBounded(t *testing.T) {
	in := three(0)
	for i := range maxVictims {
		in.State.Victims = append(in.State.Victims, Chosen{Victim: Victim{UID: fmt.Sprint("old", i)}, TerminatedAt: at(-1)})
	}
	in.State.Victims[1].UID = "a"
	d, _ := Decide(three(0))
	before := restarted(t, in.State)
	m, _ := in.State.RecordChoice(in, &d, 0)
	require.Len(t, m.Victims, maxVictims)
	assert.Equal(t, "old0", m.Victims[0].UID, "one made room itself")
	m, _ = m.RecordChoice(in, &d, 1)
	require.Len(t, m.Victims, maxVictims)
	assert.Equal(t, "old2", m.Victims[0].UID)
	assert.Equal(t, []string{"a", "b"}, []string{m.Victims[maxVictims-2].UID, m.Victims[maxVictims-1].UID})
	assert.Empty(t, cmp.Diff(before, restarted(t, in.State)))
}
