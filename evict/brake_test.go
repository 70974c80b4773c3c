package evict

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// brakes lets nobody go for what these plugins ask for.
func brakes(these ...string) func(Victim) Answer {
	return func(v Victim) Answer {
		if slices.Contains(these, v.Plugin) {
			return Answer{Outcome: Braked, Text: "3 of 5 nodes", Via: ViaController}
		}
		return Answer{Outcome: Evicted, Via: ViaController}
	}
}

// files is an outer plugin, which wants pods gone.
func files(list ...plugins.Candidate) plugins.Verdict {
	v := plugins.Verdict{Plugin: "files", Scope: plugins.ScopeNamed, Level: plugins.Hard, MetLevel: plugins.Hard, Since: at(-5), Named: true}
	for _, c := range list {
		v.Candidates = append(v.Candidates, forced(c))
	}
	return v
}

func pleading(list []pods.Pod, verdicts ...plugins.Verdict) Input {
	in := round(0, list, verdicts...)
	in.Config.Via = ViaController
	return in
}

func TestBrake(t *testing.T) {
	t.Run("backoff grows", brakeBackoffGrows)
	t.Run("of one plugin holds no other", brakeOfOnePluginHoldsNoOther)
	t.Run("not held below floor", brakeNotHeldBelowFloor)
	t.Run("backoff forgotten", brakeBackoffForgotten)
	t.Run("retry after", brakeRetryAfter)
	t.Run("clock set back", brakeClockSetBack)
	t.Run("keeps pending request", brakeKeepsPendingRequest)
}

func brakeBackoffGrows(t *testing.T) {
	a := api{answer: brakes("memory-stall")}
	in := governed()
	var when []int
	for second := range 100 {
		before := len(a.asked)
		d, m := play(in, &a)
		require.Equal(t, CodeBrake, d.Code)
		require.Contains(t, d.Reason, ": 3 of 5 nodes")
		if len(a.asked) > before {
			when = append(when, second)
		}
		require.Empty(t, m.Victims)
		require.Empty(t, m.Backoffs, "it is not the pod's")
		in = then(in, 1, restarted(t, m))
	}
	assert.Equal(t, []int{0, 10, 30, 70}, when)
	assert.Equal(t, []string{"a", "a", "a", "a"}, a.uids(), "no second one is tried")

	direct := in
	direct.Config.Via = ViaDirect
	d, _ := play(direct, &api{})
	assert.Equal(t, CodeEvicted, d.Code, "it is the controller's, not ours")
}

func brakeOfOnePluginHoldsNoOther(t *testing.T) {
	list := []pods.Pod{pod("a"), pod("b"), pod("c")}
	a := api{answer: brakes("files")}
	in := pleading(list, pressing(named("c", 30)), files(named("a", 0), named("b", 0)))
	d, m := play(in, &a)
	assert.Equal(t, []string{"a", "c"}, a.uids(), "in the same round; and the plugin's second is not tried")
	assert.Equal(t, map[string]Code{"a": CodeBrake, "b": CodeBrake, "c": CodeEvicted}, codes(d))
	assert.Equal(t, CodeEvicted, d.Code)

	in = pleading(list, pressing(named("c", 30)), files(named("a", 0), named("b", 0)))
	in.State = restarted(t, m)
	in.State.Victims, in.State.Cooldowns = nil, nil
	in.Time = at(1)
	d, _ = play(in, &a)
	assert.Equal(t, []string{"a", "c", "c"}, a.uids(), "nor is it asked again soon")
	assert.Equal(t, "the controller refused evictions for files at hard; not requested again until 2026-03-01 12:00:10 UTC: 3 of 5 nodes", d.Candidates[0].Reason)
}

func TestRequestByWeightiestPlugin(t *testing.T) {
	urgent := pressing(named("a", 30))
	urgent.Urgent = true
	soft := files(named("a", 0))
	soft.MetLevel = plugins.Soft
	for what, row := range map[string]struct {
		verdicts []plugins.Verdict
		plugin   string
		resource plugins.Resource
		urgent   bool
	}{
		"memory below its floor":                 {[]plugins.Verdict{files(named("a", 0)), urgent}, "memory-stall", plugins.Memory, true},
		"of two at hard the one with a resource": {[]plugins.Verdict{files(named("a", 0)), pressing(named("a", 30))}, "memory-stall", plugins.Memory, false},
		"of two with one, memory":                {[]plugins.Verdict{disk(plugins.Hard, named("a", 30)), pressing(named("a", 30))}, "memory-stall", plugins.Memory, false},
		"whichever is judged first":              {[]plugins.Verdict{pressing(named("a", 30)), disk(plugins.Hard, named("a", 30))}, "memory-stall", plugins.Memory, false},
		"before a disk that is named first":      {[]plugins.Verdict{disk(plugins.Hard, named("a", 30)), urgent}, "memory-stall", plugins.Memory, true},
		"hard before soft":                       {[]plugins.Verdict{soft, disk(plugins.Soft, named("a", 30)), pressing(named("a", 30))}, "memory-stall", plugins.Memory, false},
		"and not what names another":             {[]plugins.Verdict{files(named("a", 0)), pressing(named("b", 30))}, "files", "", false},
	} {
		t.Run(what, func(t *testing.T) {
			a := api{}
			play(pleading([]pods.Pod{pod("a"), pod("b")}, row.verdicts...), &a)
			require.NotEmpty(t, a.asked)
			v := a.asked[0]
			assert.Equal(t, "a", v.UID)
			assert.Equal(t, row.plugin, v.Plugin)
			assert.Equal(t, row.resource, v.Resource)
			assert.Equal(t, row.urgent, v.Urgent)
			assert.Equal(t, plugins.Hard, v.Level)
		})
	}
}

// Memory was refused a moment ago, and falls below its floor.
func brakeNotHeldBelowFloor(t *testing.T) {
	a := api{answer: brakes("memory-stall")}
	in := pleading([]pods.Pod{pod("a")}, pressing(named("a", 30)))
	_, m := play(in, &a)
	require.Len(t, a.asked, 1)
	in = then(in, 1, restarted(t, m))
	play(in, &a)
	require.Len(t, a.asked, 1)
	in.Levels.Verdicts[0].Urgent = true
	_, m = play(in, &a)
	require.Len(t, a.asked, 2)
	assert.Contains(t, m.Refusals, "memory-stall at hard, below the floor")
	assert.Contains(t, m.Refusals, "memory-stall at hard")
}

func brakeBackoffForgotten(t *testing.T) {
	a := api{answer: brakes("memory-stall")}
	in := governed()
	_, m := play(in, &a)
	_, m = play(then(in, 10, restarted(t, m)), &a)
	const of = "memory-stall at hard"
	require.Equal(t, Backoff{Until: at(30), Attempts: 2, Code: CodePDB, Text: "3 of 5 nodes", Via: ViaController}, m.Refusals[of])
	calm := round(0, nil, disk(plugins.None))
	_, m = play(then(calm, 30+300, m), &a)
	require.Contains(t, m.Refusals, of)
	_, m = play(then(calm, 30+301, m), &a)
	require.Empty(t, m.Refusals, "five minutes after")
	_, m = play(then(in, 400, m), &a)
	assert.Equal(t, 1, m.Refusals[of].Attempts, "the waits begin anew")
	a.answer = nil
	_, m = play(then(in, 410, m), &a)
	assert.Empty(t, m.Refusals, "and with one that goes")
}

func brakeRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration][]int{
		3 * time.Second: {0, 3, 6, 9}, time.Hour: {0, 300, 600}, 0: {0, 10, 30, 70, 150, 310, 610},
	} {
		a := api{answer: func(Victim) Answer { return Answer{Outcome: Braked, RetryAfter: after, Via: ViaController} }}
		in := governed()
		var when []int
		for second := range 700 {
			if after == 3*time.Second && second > 10 {
				break
			}
			before := len(a.asked)
			_, m := play(in, &a)
			if len(a.asked) > before {
				when = append(when, second)
			}
			in = then(in, 1, m)
		}
		assert.Equal(t, want, when, after)
	}
}

func brakeClockSetBack(t *testing.T) {
	in := governed()
	in.State.Refusals = map[string]Backoff{"memory-stall at hard": {Until: at(86400), Attempts: 1}}
	_, m := play(in, &api{})
	assert.Equal(t, at(300), m.Refusals["memory-stall at hard"].Until)
}

// Another eviction.via needs other rights: what was refused by one may be accepted by the other.
func TestRefusalOfAnotherVia(t *testing.T) {
	for _, row := range []struct {
		from, to string
		outcome  Outcome
	}{
		{ViaDirect, ViaController, Refused},
		{ViaDirect, ViaRequest, Blocked},
		{ViaController, ViaDirect, Refused},
		{ViaController, ViaDirect, Braked},
		{ViaRequest, ViaController, Braked},
	} {
		t.Run(row.from+" to "+row.to, func(t *testing.T) {
			a := api{answer: always(row.outcome)}
			in := three(0)
			in.Config.Via = row.from
			_, m := play(in, &a)
			in = then(in, 1, restarted(t, m))
			a = api{}
			play(in, &a)
			require.Empty(t, a.asked, "it is not requested again so soon")
			in.Config.Via = row.to
			d, _ := play(in, &a)
			assert.Equal(t, CodeEvicted, d.Code, d.Reason)
		})
	}
}

// Nobody knows yet what became of the request that stands.
func brakeKeepsPendingRequest(t *testing.T) {
	a := api{answer: always(UnknownOutcome)}
	in := governed()
	_, m := play(in, &a)
	m.Refusals["memory-stall at hard"] = Backoff{Until: at(100)}
	d, _ := play(then(in, 5, m), &a)
	assert.Equal(t, CodeUnknownOutcome, d.Code, d.Reason)
	assert.Equal(t, []string{"a", "a"}, a.uids())
}
