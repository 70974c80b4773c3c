package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// governed is a round whose evictions the controller grants.
func governed(change ...func(*Input)) Input {
	in := three(0)
	in.Config.Via = ViaController
	for _, c := range change {
		c(&in)
	}
	return in
}

func TestControllerAskedUntilAnswer(t *testing.T) {
	a := api{answer: always(UnknownOutcome)}
	in := governed()
	var m State
	for range 120 { // ten minutes
		var d Decision
		d, m = play(in, &a)
		require.Equal(t, CodeUnknownOutcome, d.Code)
		in = then(in, 5, restarted(t, m))
	}
	for _, v := range a.asked {
		require.Equal(t, Victim{
			UID: "a", Namespace: "shop", Name: "web-a", GraceSeconds: 20, Since: at(0), Plugin: "memory-stall", Why: "a holds 30", Level: plugins.Hard, Resource: plugins.Memory,
		}, v, "each time the same request")
	}
	assert.Len(t, m.Victims, 1)
	a.answer = nil
	d, m := play(in, &a)
	assert.Equal(t, CodeEvicted, d.Code)
	assert.Equal(t, map[string]time.Time{"memory-stall/node": in.Time.Add(30 * time.Second)}, m.Cooldowns, "it settles from the answer on")
}

func TestControllerWithdrawnHoldsMinute(t *testing.T) {
	a := api{answer: always(UnknownOutcome)}
	in := governed()
	_, m := play(in, &a)
	for _, second := range []int{1, 59} { // another pod has grown meanwhile, and the first is protected
		next := then(in, second, m)
		next.Cluster.Pods.Pods[0].Protections = []pods.Protection{{Code: pods.NoController, Why: "it has no controller"}}
		d, _ := play(next, &a)
		require.Equal(t, CodeTerminating, d.Code, d.Reason)
	}
	assert.Equal(t, []string{"a"}, a.uids())
}

func TestControllerOwnerLimitTakesNext(t *testing.T) {
	a := api{answer: func(v Victim) Answer {
		if v.UID == "a" {
			return Answer{Outcome: Blocked, Text: "a pod of shop/web went", Via: ViaController}
		}
		return Answer{Outcome: Evicted, Via: ViaController}
	}}
	d, _ := play(governed(), &a)
	assert.Equal(t, []string{"a", "b"}, a.uids())
	assert.Equal(t, "the controller: a pod of shop/web went", d.Candidates[0].Reason)
	assert.Equal(t, map[string]Code{"a": CodePDB, "b": CodeEvicted, "c": CodeNotNeeded}, codes(d))
}

func fallback(in *Input) { in.Config.ViaFallback = true }

// alonePlayed are the seconds at which a pod goes without a controller that
// never answers; each that goes so is not granted, so that it goes again.
func alonePlayed(t *testing.T, in Input, seconds int) (when []int) {
	t.Helper()
	a := api{}
	for second := 0; second < seconds; second += 5 {
		a.answer = func(v Victim) Answer {
			if v.Fallback {
				when = append(when, second)
			}
			return Answer{Outcome: UnknownOutcome}
		}
		_, m := play(in, &a)
		in = then(in, 5, restarted(t, m))
	}
	return when
}

func TestFallbackForHardMemory(t *testing.T) {
	for what, row := range map[string]struct {
		in   Input
		want []int
	}{
		"it is not allowed":        {in: governed()},
		"the controller is away":   {in: governed(fallback), want: []int{30, 630, 1230}},
		"a disk is no such reason": {in: governed(fallback, func(in *Input) { in.Levels.Verdicts[0].Resource = plugins.Disk })},
		"nor is soft": {in: governed(fallback, func(in *Input) {
			v := &in.Levels.Verdicts[0]
			v.Level, v.MetLevel, v.Named = plugins.Soft, plugins.Soft, true
		})},
		"a dry run asks nobody else": {in: governed(fallback, func(in *Input) { in.Config.DryRun = true })},
		"nothing is known: it is empty": {in: governed(fallback, func(in *Input) {
			in.State = State{}
			in.Rules = map[string]plugins.Rule{"memory-stall": {Default: true}}
		}), want: []int{600, 1200}},
		"it was used before, in this boot": {in: governed(fallback, func(in *Input) { in.State.RateLimits.Fallback = in.Uptime - time.Minute }), want: []int{540, 1140}},
		"the machine is up for a minute": {in: governed(fallback, func(in *Input) {
			in.State.RateLimits.Boot, in.State.RateLimits.Fallback, in.Uptime = "before", 99*time.Hour, time.Minute
		}), want: []int{540, 1140}},
	} {
		t.Run(what, func(t *testing.T) { assert.Equal(t, row.want, alonePlayed(t, row.in, 1500)) })
	}
}

// A pod that may not go now takes no fallback from the others, and one that went does; so does
// one that is refused, as where the agent lacks the right.
func TestFallbackBlocked(t *testing.T) {
	for _, o := range []Outcome{Blocked, Refused} {
		t.Run(string(o), func(t *testing.T) {
			in := governed(fallback)
			when := map[string][]int{}
			a := api{}
			for second := 0; second < 600; second += 5 {
				a.answer = func(v Victim) Answer {
					switch {
					case !v.Fallback:
						return Answer{Outcome: UnknownOutcome}
					case v.UID == "a":
						when["a"] = append(when["a"], second)
						return Answer{Outcome: o}
					}
					when["others"] = append(when["others"], second)
					return Answer{Outcome: Evicted}
				}
				_, m := play(in, &a)
				in = then(in, 5, restarted(t, m))
			}
			assert.Equal(t, 30, when["a"][0])
			if o == Refused {
				assert.Empty(t, when["others"])
				return
			}
			require.Len(t, when["others"], 1)
			assert.LessOrEqual(t, when["others"][0], 125)
		})
	}
}

// The disk's pod was asked for first, and stays the one that is asked for.
func TestFallbackBesideWaitingDisk(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*Input)
		want   []int // when somebody goes alone
	}{
		"it is allowed": {change: fallback, want: []int{60, 660, 1260}},
		"it is not":     {change: func(*Input) {}},
		"the pod for memory is spared": {change: func(in *Input) {
			fallback(in)
			in.Cluster.Pods.Pods[1].Protections = []pods.Protection{{Code: pods.NoController, Why: "it has no controller"}}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			in := governed(row.change)
			in.Levels.Verdicts = []plugins.Verdict{disk(plugins.Hard, named("a", 30))}
			_, m := play(in, &api{answer: always(UnknownOutcome)})
			in.Levels = &plugins.Levels{Verdicts: append(in.Levels.Verdicts, pressing(named("b", 30)))}
			var when []int
			for second := 5; second < 1500; second += 5 {
				a := api{}
				a.answer = func(v Victim) Answer {
					if v.Fallback {
						assert.Equal(t, "b", v.UID)
						when = append(when, second)
					}
					return Answer{Outcome: UnknownOutcome}
				}
				in = then(in, 5, restarted(t, m))
				_, m = play(in, &a)
				if second < 30 || row.want == nil {
					require.Equal(t, []string{"a"}, a.uids(), "nobody else in its place")
				}
			}
			assert.Equal(t, row.want, when)
		})
	}
}

func TestControllerRequestClockSetBack(t *testing.T) {
	a := api{answer: always(UnknownOutcome)}
	in := governed()
	_, m := play(in, &a)
	back := then(in, -3600, m)
	_, m = play(back, &a)
	assert.Equal(t, back.Time, m.Victims[0].Requested)
	assert.Empty(t, m.Pending(back.Time.Add(time.Minute)))
}
