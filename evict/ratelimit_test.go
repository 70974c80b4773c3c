package evict

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// many candidates, each of an owner of its own, of which each gives back 5 of
// 1000 that are missing.
func many(n int, owner func(i int) string) Input {
	var listed []pods.Pod
	var list []plugins.Candidate
	for i := range n {
		uid := fmt.Sprintf("p%02d", i)
		listed = append(listed, pod(uid, func(p *pods.Pod) { p.Owner.Name = owner(i) }))
		list = append(list, named(uid, 30))
	}
	v := pressing(list...)
	v.Target = some(1000)
	in := round(0, listed, v)
	in.Config.Cooldown = 0
	return in
}

func own(i int) string { return fmt.Sprintf("web%d-1", i) }

func TestRateLimit(t *testing.T) {
	t.Run("per round", rateLimitPerRound)
	t.Run("not granted costs none", rateLimitNotGrantedCostsNone)
	t.Run("unknown costs one", rateLimitUnknownCostsOne)
	t.Run("per minute", rateLimitPerMinute)
	t.Run("per owner hour", rateLimitPerOwnerHour)
	t.Run("clock and boot", rateLimitClockAndBoot)
	t.Run("memory below its floor, nothing stored", rateLimitBelowFloorNothingStored)
	t.Run("model", rateLimitModel)
	t.Run("input unchanged", rateLimitInputUnchanged)
	t.Run("zero", rateLimitZero)
	t.Run("repeat one node token", rateLimitRepeatOneNodeToken)
}

func rateLimitPerRound(t *testing.T) {
	for target, want := range map[float64]int{0: 1, 30: 1, 31: 2, 60: 2, 90: 3, 91: 4, 1000: 4} {
		in := many(8, own)
		in.Levels.Verdicts[0].Target, in.Config.Limits.PerRound = some(target), 4
		a := api{}
		d, _ := play(in, &a)
		assert.Len(t, a.asked, want, target)
		assert.Equal(t, CodeEvicted, d.Code)
		for i, c := range d.Candidates {
			switch {
			case i < want:
				assert.Equal(t, CodeEvicted, c.Code)
			case target > 120:
				assert.Equal(t, CodeRoundLimit, c.Code)
				assert.Equal(t, "limit of 4 evictions per round reached; left for a later round, if still needed", c.Reason)
			default:
				assert.Equal(t, CodeNotNeeded, c.Code)
			}
		}
	}
	in := many(3, own)
	in.Levels.Verdicts[0].Target, in.Config.Limits.PerRound = none(), 4
	a := api{}
	play(in, &a)
	assert.Len(t, a.asked, 1, "how much is missing is not known: the relief of one is seen first")
}

func rateLimitNotGrantedCostsNone(t *testing.T) {
	for _, outcome := range []Outcome{Blocked, Refused, NotFound} {
		in := many(3, own)
		a := api{answer: always(outcome)}
		_, m := play(in, &a)
		assert.Equal(t, 60, in.Config.Limits.nodeBucket().left(m.RateLimits.Node, in.Uptime), outcome)
		for owner := range m.RateLimits.Owners {
			assert.Equal(t, 600, in.Config.Limits.ownerBucket().left(m.RateLimits.Owners[owner], in.Uptime))
		}
	}
}

func rateLimitUnknownCostsOne(t *testing.T) {
	in := many(3, own)
	in.Config.Limits.PerMinute = 2
	a := api{answer: always(UnknownOutcome)}
	var m State
	for range 5 {
		_, m = play(in, &a)
		in = then(in, 5, restarted(t, m))
	}
	assert.Equal(t, []string{"p00", "p00", "p00", "p00", "p00"}, a.uids())
	assert.Equal(t, 1, in.Config.Limits.nodeBucket().left(m.RateLimits.Node, in.Uptime), "of two")
	a.answer = nil
	d, _ := play(in, &a)
	assert.Equal(t, CodeEvicted, d.Code, "its own token waits for it")
}

// evictions plays a round a second and counts them.
func evictions(t *testing.T, in Input, seconds int) int {
	t.Helper()
	a := api{}
	for range seconds {
		_, m := play(in, &a)
		in = then(in, 1, restarted(t, m))
		var left []pods.Pod
		for _, p := range in.Cluster.Pods.Pods {
			if len(a.asked) == 0 || p.UID != a.asked[len(a.asked)-1].UID {
				left = append(left, p)
			}
		}
		in.Cluster.Pods.Pods = left
	}
	return len(a.asked)
}

func rateLimitPerMinute(t *testing.T) {
	in := many(99, own)
	in.Config.Limits.PerMinute = 5
	assert.Equal(t, 5, evictions(t, in, 12), "a bucket that is full")
	assert.Equal(t, 6, evictions(t, in, 13), "and a token every 12 s")
	assert.Equal(t, 14, evictions(t, in, 120))
	in.State = State{}
	assert.Zero(t, evictions(t, in, 12), "one of which nothing is known is empty")
	assert.Equal(t, 1, evictions(t, in, 13))
	in.State = seasoned()
	in.Config.Limits.PerRound = 3
	d, _ := play(in, &api{})
	assert.Len(t, d.Evicted(), 3)
	in.Config.Limits.PerMinute = 2
	d, _ = play(in, &api{})
	assert.Len(t, d.Evicted(), 2)
	assert.Equal(t, CodeRateLimit, d.Candidates[2].Code)
	assert.Equal(t, "eviction rate limit of this node reached (2 per minute); next eviction possible at 2026-03-01 12:00:30 UTC", d.Candidates[2].Reason)
}

func rateLimitPerOwnerHour(t *testing.T) {
	in := many(9, func(i int) string { return []string{"web-5d9f", "web-77aa", "db"}[i/3] })
	in.Config.Limits.PerOwnerHour, in.Config.Limits.PerRound = 2, 9
	a := api{}
	d, m := play(in, &a)
	assert.Equal(t, []string{"p00", "p01", "p06", "p07"}, a.uids(), "the ReplicaSets of one rollout are one owner, and there are no two buckets for it")
	assert.Equal(t, CodeRateLimit, d.Candidates[3].Code)
	assert.Equal(t, "eviction rate limit of shop/ReplicaSet/web on this node reached (2 per hour); next eviction possible at 2026-03-01 12:30:00 UTC", d.Candidates[3].Reason)
	d, _ = play(then(in, 1799, restarted(t, m)), &a)
	assert.Equal(t, CodeNone, d.Code)
	assert.Contains(t, d.Reason, "eviction rate limit of shop/ReplicaSet/web on this node reached (2 per hour)")
	_, m = play(then(in, 1800, restarted(t, m)), &a)
	assert.Len(t, a.asked, 6)
	assert.Len(t, m.RateLimits.Owners, 2)
	_, m = play(then(in, 3*3600, m), &a)
	assert.Len(t, m.RateLimits.Owners, 2, "a bucket that is full again is forgotten, and taken from anew")
}

// In the first minutes of a node all its pods start: where memory is below its floor each owner
// has one token in advance.
func rateLimitBelowFloorNothingStored(t *testing.T) {
	for what, start := range map[string]func(in *Input){
		"the node was booted": func(in *Input) { in.State.RateLimits, in.Uptime = RateLimits{Boot: "first"}, time.Minute },
		"the state is lost":   func(in *Input) { in.State.RateLimits = RateLimits{} },
	} {
		for urgent, want := range map[bool][]string{true: {"p00", "p02"}, false: {}} {
			in := many(4, func(i int) string { return []string{"web-1", "db-1"}[i/2] })
			in.Config.Limits = DefaultConfig().Limits
			in.Levels.Verdicts[0].Urgent = urgent
			start(&in)
			var a api
			for range 20 {
				_, m := play(in, &a)
				in = then(in, 5, restarted(t, m))
			}
			assert.ElementsMatch(t, want, a.uids(), "%s, urgent: %v", what, urgent)
		}
	}
}

func rateLimitClockAndBoot(t *testing.T) {
	limits := Limits{PerRound: 1, PerMinute: 1, PerOwnerHour: 1}
	spent := func() (Input, State) {
		in := many(5, func(int) string { return "web-1" })
		in.Config.Limits = limits
		_, m := play(in, &api{})
		return in, restarted(t, m)
	}
	for what, change := range map[string]func(in *Input, m *State){
		"the clock is set forward": func(in *Input, _ *State) {
			in.Time, in.Levels.Time = in.Time.AddDate(1, 0, 0), in.Levels.Time.AddDate(1, 0, 0)
		},
		"the clock is set back": func(in *Input, _ *State) {
			in.Time, in.Levels.Time = in.Time.AddDate(-1, 0, 0), in.Levels.Time.AddDate(-1, 0, 0)
		},
		"the node was booted":     func(in *Input, _ *State) { in.Boot, in.Uptime = "second", 59*time.Second },
		"the state is lost":       func(_ *Input, m *State) { *m = NoSavedState(at(0), DefaultConfig()) },
		"the budgets are spoiled": func(_ *Input, m *State) { m.RateLimits = RateLimits{} },
		"its times lie ahead": func(in *Input, m *State) {
			m.RateLimits.Node, m.RateLimits.Since = in.Uptime+time.Hour, in.Uptime+time.Hour
		},
		"it is of the version before": func(_ *Input, m *State) {
			require.NoError(t, json.Unmarshal([]byte(`{"quiet":"2026-03-01T11:00:00Z","last":{"uid":"x","time":"2026-03-01T11:00:00Z","outcome":"evicted"}}`), m))
			m.RateLimits = RateLimits{}
		},
	} {
		in, m := spent()
		in = then(in, 50, m)
		change(&in, &m)
		in.State = m
		a := api{}
		play(in, &a)
		assert.Empty(t, a.asked, what)
	}
	in, m := spent()
	in = then(in, 60, m)
	in.Cluster.Pods.Pods = []pods.Pod{pod("p09", func(p *pods.Pod) { p.Owner.Name = "other" })}
	in.Levels.Verdicts[0].Candidates = []plugins.Candidate{named("p09", 30)}
	a := api{}
	play(in, &a)
	assert.Len(t, a.asked, 1, "only time does")
	in, m = spent()
	m.RateLimits.Node, m.RateLimits.Since, m.RateLimits.Owners = in.Uptime+time.Hour, in.Uptime+time.Hour, nil
	_, m = play(then(in, 0, m), &api{})
	assert.Equal(t, in.Uptime, m.RateLimits.Node, "what lies ahead is empty now, and fills from now on")
	assert.Equal(t, in.Uptime, m.RateLimits.Since)
	in, m = spent()
	in = then(in, 0, m)
	in.Boot, in.Uptime = "second", time.Hour
	play(in, &a)
	assert.Len(t, a.asked, 2, "so long after a boot no token is of before it")
}

// A bucket against one that keeps a list.
func rateLimitModel(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 500 {
		k := tokenBucket{1 + random.IntN(5), time.Duration(1+random.IntN(20)) * time.Second}
		tokens, next := float64(k.size), time.Duration(0)
		empty := -time.Hour
		for range 200 {
			now := next
			require.Equal(t, int(tokens+1e-9), k.left(empty, now))
			if k.left(empty, now) > 0 && random.IntN(2) == 0 {
				empty = k.take(empty, now)
				tokens--
				if random.IntN(4) == 0 { // and is given back
					empty -= k.step
					tokens++
				}
			}
			if k.left(empty, now) == 0 {
				require.InDelta(t, (1-tokens)*k.step.Seconds(), k.next(empty, now).Seconds(), 1e-6)
			}
			step := time.Duration(random.IntN(8)) * time.Second
			next += step
			tokens = min(float64(k.size), tokens+step.Seconds()/k.step.Seconds())
		}
	}
}

func rateLimitInputUnchanged(t *testing.T) {
	const hour = time.Hour
	ahead := RateLimits{Boot: "b", Since: 2 * hour, Node: 2 * hour, Fallback: 2 * hour, Owners: map[string]time.Duration{"o": 2 * hour}}
	want := RateLimits{Boot: "b", Since: hour, Node: hour, Fallback: hour, Owners: map[string]time.Duration{"o": hour}}
	assert.Equal(t, want, ahead.onBoot("b", hour), "what lies ahead is empty now")
	assert.Equal(t, map[string]time.Duration{"o": 2 * hour}, ahead.Owners)

	p, l := pod("a"), Limits{PerMinute: 5, PerOwnerHour: 2}
	before := RateLimits{Boot: "b", Since: hour, Node: hour, Owners: map[string]time.Duration{
		"shop/ReplicaSet/web": 5 * hour, "full": 4 * hour, "not yet": 4*hour + 1, "as old as all": hour, "older": hour / 2,
	}}
	after := before.spend(l, &p, 5*hour)
	assert.Equal(t, map[string]time.Duration{"shop/ReplicaSet/web": 5*hour + hour/2, "not yet": 4*hour + 1}, after.Owners, "what is full, or no better than what is not kept, is forgotten")
	assert.Len(t, before.Owners, 5)
	assert.Equal(t, before.Owners["shop/ReplicaSet/web"], after.refund(l, &Chosen{Owner: "shop/ReplicaSet/web"}).Owners["shop/ReplicaSet/web"])
	assert.Equal(t, after, after.refund(l, &Chosen{Owner: "another"}), "of which no token was taken")
	assert.Equal(t, after.Fallback-fallbackInterval, after.refund(l, &Chosen{Victim: Victim{Fallback: true}}).Fallback)

	older := 3*hour - time.Minute
	early := RateLimits{Boot: "b", Since: 3 * hour, Owners: map[string]time.Duration{"older": older}}
	assert.Equal(t, older, early.emptyOf("older"))
	assert.Equal(t, 3*hour, early.emptyOf("another"), "as empty as all were then")
	assert.NotContains(t, early.spend(l, &p, 3*hour).Owners, "older")
}

func rateLimitZero(t *testing.T) {
	for _, k := range []tokenBucket{Limits{}.nodeBucket(), Limits{}.ownerBucket()} {
		assert.Zero(t, k.left(0, 1000*time.Hour))
	}
}

func TestOwnerThroughRollouts(t *testing.T) {
	for _, row := range [][3]string{
		{"ReplicaSet", "web-5d9f", "n/ReplicaSet/web"},
		{"Job", "nightly-29001", "n/Job/nightly"},
		{"ReplicaSet", "a-b-c", "n/ReplicaSet/a-b"},
		{"StatefulSet", "db-1", "n/StatefulSet/db-1"},
		{"ReplicaSet", "web", "n/ReplicaSet/web"},
		{"ReplicaSet", "-1", "n/ReplicaSet/-1"},
	} {
		assert.Equal(t, row[2], Owner("n", row[0], row[1]))
	}
}

func rateLimitRepeatOneNodeToken(t *testing.T) {
	in := many(1, own)
	in.Config.Limits.PerMinute = 1
	a := api{answer: always(UnknownOutcome)}
	_, m := play(in, &a)
	require.Zero(t, in.Config.Limits.nodeBucket().left(m.RateLimits.Node, in.Uptime))
	play(then(in, 5, m), &a)
	assert.Len(t, a.asked, 2)
}
