package evict

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// month is the grace period that an owner gives a pod which is to stay.
const month = 30 * 24 * 3600

func TestOwner(t *testing.T) {
	t.Run("cannot avoid hard", ownerCannotAvoidHard)
	t.Run("cannot avoid urgent", ownerCannotAvoidUrgent)
	t.Run("long grace credit bounded", ownerLongGraceCreditBounded)
	t.Run("credit once more after restart", ownerCreditOnceMoreAfterRestart)
	t.Run("terminating asked until answer", ownerTerminatingAskedUntilAnswer)
	t.Run("deletes in turn bounded", ownerDeletesInTurnBounded)
	t.Run("deletes with gaps bounded", ownerDeletesWithGapsBounded)
	t.Run("blocked keeps bound", ownerBlockedKeepsBound)
	t.Run("credit anew after clear", ownerCreditAnewAfterClear)
	t.Run("urgent memory bounds grace", ownerUrgentMemoryBoundsGrace)
	t.Run("finalizer is terminated", ownerFinalizerIsTerminated)
	t.Run("puts other pod first", ownerPutsOtherPodFirst)
	t.Run("bound through stale rounds", ownerBoundThroughStaleRounds)
}

// What an owner may write into its pod changes nothing at hard: the culprit goes,
// and nobody in its place.
func ownerCannotAvoidHard(t *testing.T) {
	for what, change := range map[string]func(*pods.Pod){
		"opted out":            optedOut,
		"tolerates everything": func(p *pods.Pod) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} },
		"tolerates our taint": func(p *pods.Pod) {
			p.Tolerations = []corev1.Toleration{{Key: names.Prefix + "MemoryContention", Operator: corev1.TolerationOpExists}}
		},
		"asks for a month":      func(p *pods.Pod) { p.GraceSeconds = month },
		"asks for no time":      func(p *pods.Pod) { p.GraceSeconds = 0 },
		"asks for less than no": func(p *pods.Pod) { p.GraceSeconds = -5 },
	} {
		t.Run(what, func(t *testing.T) {
			in := round(0, []pods.Pod{pod("culprit", change), pod("innocent")}, pressing(named("culprit", 40), named("innocent", 20)))
			a := api{}
			d, _ := play(in, &a)
			assert.Equal(t, []string{"culprit"}, a.uids(), d.Reason)
			assert.LessOrEqual(t, a.asked[0].GraceSeconds, int64(in.Config.MaxTerminationGrace/time.Second))
			assert.Positive(t, a.asked[0].GraceSeconds)
		})
	}
}

// Memory below its floor waits for what an owner writes for urgentWait, and takes no other
// pod in its place.
func ownerCannotAvoidUrgent(t *testing.T) {
	for what, change := range map[string]func(*pods.Pod){
		"says that another evicts it":    func(p *pods.Pod) { p.EvictedElsewhere = "its owner says so" },
		"deletes it with a month to go":  deletedFor(month),
		"deletes it with a minute to go": deletedFor(60),
	} {
		t.Run(what, func(t *testing.T) {
			v := pressing(named("culprit", 60), named("innocent", 40))
			v.Urgent = true
			in, a := round(0, []pods.Pod{pod("culprit", change), pod("innocent")}, v), api{}
			for in.Time.Before(at(10)) {
				_, m := play(in, &a)
				require.Equal(t, !in.Time.Before(at(5)), len(a.asked) > 0)
				in = then(in, 1, restarted(t, m))
			}
			assert.Equal(t, []string{"culprit"}, a.uids())
		})
	}
	v := pressing(named("culprit", 60))
	v.Urgent = true
	in, a := round(0, []pods.Pod{pod("culprit", deletedFor(20))}, v), api{}
	for in.Time.Before(at(20)) {
		_, m := play(in, &a)
		in = then(in, 1, restarted(t, m))
	}
	assert.Empty(t, a.asked, "one that ends as soon by itself is not evicted")
}

// deletedFor is a pod that its owner deleted with a grace period, now.
func deletedFor(seconds int) func(*pods.Pod) {
	return func(p *pods.Pod) { p.TerminatesBy = at(seconds) }
}

func ownerLongGraceCreditBounded(t *testing.T) {
	in := round(0, []pods.Pod{pod("stays", deletedFor(month)), pod("innocent")}, pressing(named("stays", 40), named("innocent", 20)))
	a := api{}
	var d Decision
	var m State
	for in.Time.Before(at(60)) { // maxGrace and late
		d, m = play(in, &a)
		require.Equal(t, CodeTerminating, d.Code)
		require.Contains(t, d.Reason, "shop/web-stays is terminating until 2026-03-01 12:01:00 UTC")
		in = then(in, 5, restarted(t, m))
	}
	for len(a.asked) == 0 && in.Time.Before(at(200)) {
		d, m = play(in, &a)
		in = then(in, 5, restarted(t, m))
	}
	require.Equal(t, []string{"stays"}, a.uids(), "it goes itself, its eviction shortens what its owner gave it")
	assert.LessOrEqual(t, a.asked[0].GraceSeconds, int64(30))
	assert.Equal(t, at(60+25), d.Time, "and the settle time from when it last counted")

	in.Cluster.Pods.Pods[0].TerminatesBy = in.Time // as the API server answers
	for len(a.asked) == 1 && in.Time.Before(at(400)) {
		d, m = play(in, &a)
		in = then(in, 5, restarted(t, m))
	}
	assert.Equal(t, []string{"stays", "innocent"}, a.uids(), "it does not end at all: then the next one, as after any pod that does not")
}

func ownerCreditOnceMoreAfterRestart(t *testing.T) {
	in := round(0, []pods.Pod{pod("stays", deletedFor(month))}, pressing(named("stays", 40)))
	_, m := play(in, &api{})
	require.Equal(t, map[string]time.Time{"stays": at(0)}, m.Terminating)
	in = then(in, 59, seasoned())
	d, m := play(in, &api{})
	assert.Equal(t, CodeTerminating, d.Code)
	in.Time = at(-100) // a clock that was set back
	_, m = play(then(in, 0, m), &api{})
	assert.Equal(t, map[string]time.Time{"stays": at(-100)}, m.Terminating)
	in.Cluster.Pods.Pods = nil
	_, m = play(then(in, 0, m), &api{})
	assert.Empty(t, m.Terminating, "one that is gone is forgotten")
}

// A request that stands in the Lease is answered a round later.
func ownerTerminatingAskedUntilAnswer(t *testing.T) {
	in := round(0, []pods.Pod{pod("stays", deletedFor(month))}, pressing(named("stays", 40)))
	in.State.Terminating = map[string]time.Time{"stays": at(-100)}
	a := api{answer: always(UnknownOutcome)}
	chosen, m := Decide(in)
	_, holds := Recheck(in, m, &chosen, 0)
	assert.True(t, holds, "that it is ending is nothing new")
	d, m := play(in, &a)
	require.Equal(t, CodeUnknownOutcome, d.Code, d.Reason)
	d, m = play(then(in, 5, restarted(t, m)), &a)
	assert.Equal(t, CodeUnknownOutcome, d.Code, "that it is ending is no answer")
	in.Cluster.Pods.Pods[0].TerminatesBy = at(month - 1)
	d, m = play(then(in, 5, restarted(t, m)), &a)
	assert.Equal(t, CodeUnknownOutcome, d.Code, "nor is that its owner deletes it again, with a little less of a month")
	in = then(in, 10, m)
	in.Cluster.Pods.Pods[0].TerminatesBy = at(5)
	d, m = play(in, &a)
	assert.Equal(t, CodeTerminating, d.Code, "that it ends as its eviction would have it is one")
	assert.Equal(t, Evicted, m.last().Outcome)
}

// Each of them ends in its time, and there is always one.
func ownerDeletesInTurnBounded(t *testing.T) {
	in := round(0, []pods.Pod{pod("innocent")}, pressing(named("innocent", 20)))
	var first time.Time
	a := api{}
	for i := 0; i < 100 && len(a.asked) == 0; i++ {
		decoy := string(rune('A' + i))
		in.Cluster.Pods.Pods = []pods.Pod{pod(decoy, deletedFor(5*i+20)), pod("culprit"), pod("innocent")}
		in.Levels.Verdicts = []plugins.Verdict{pressing(named(decoy, 40), named("culprit", 60), named("innocent", 20))}
		d, m := play(in, &a)
		first = d.Time
		in = then(in, 5, restarted(t, m))
	}
	require.Equal(t, []string{"culprit"}, a.uids())
	assert.Equal(t, at(60+25), first, "maxGrace and late, and the settle time")
	assert.Empty(t, in.State.Covered, "from here the bound starts anew")
}

// Between two of them nobody ends, or who does is too small, so that what they
// held seems to be gone; or the pressure itself pauses.
func ownerDeletesWithGapsBounded(t *testing.T) {
	nobody := func(in *Input) { in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:] }
	pause := func(in *Input) { in.Levels.Verdicts[0].MetLevel = plugins.None }
	for what, row := range map[string]struct{ usual, gap func(*Input) }{
		"nobody ends":            {func(*Input) {}, nobody},
		"a small one ends":       {func(*Input) {}, func(in *Input) { in.Levels.Verdicts[0].Candidates[0].Relief = 2 }},
		"the pressure pauses":    {func(*Input) {}, pause},
		"they end in its pauses": {pause, nobody},
	} {
		for _, of := range []int{2, 3, 6, 7} { // rounds of 5 s
			t.Run(fmt.Sprintf("%s, every %d s", what, 5*of), func(t *testing.T) {
				in := round(0, nil)
				var first time.Time
				a := api{}
				for i := 0; i < 100 && len(a.asked) == 0; i++ {
					decoy := fmt.Sprint("decoy", i/of)
					in.Cluster.Pods.Pods = []pods.Pod{pod(decoy, deletedFor(5*(i/of)*of+20)), pod("culprit"), pod("innocent")}
					in.Levels.Verdicts = []plugins.Verdict{pressing(named(decoy, 40), named("culprit", 60), named("innocent", 20))}
					[]func(*Input){row.usual, row.gap}[(i%of+1)/of](&in) // the last of each is the gap
					d, m := play(in, &a)
					first = d.Time
					in = then(in, 5, restarted(t, m))
				}
				require.Equal(t, []string{"culprit"}, a.uids())
				assert.LessOrEqual(t, first, at(60+30+5), "maxGrace and late, the settle time, and a round of which the pressure was gone")
			})
		}
	}
}

func ownerBlockedKeepsBound(t *testing.T) {
	in := round(0, []pods.Pod{pod("b", deletedFor(500)), pod("a")}, pressing(named("b", 40), named("a", 30)))
	in.State.Terminating = map[string]time.Time{"b": at(-10)}
	in.State.Covered = map[string]time.Time{"memory-stall/node": at(-100)}
	a := api{answer: always(Blocked)}
	_, m := play(in, &a)
	require.Equal(t, []string{"a"}, a.uids())
	assert.Equal(t, map[string]time.Time{"memory-stall/node": at(-100)}, m.Covered)
}

func ownerCreditAnewAfterClear(t *testing.T) {
	in := round(0, []pods.Pod{pod("b", deletedFor(500)), pod("a")}, pressing(named("b", 40), named("a", 30)))
	in.State.Covered = map[string]time.Time{"memory-stall/node": at(-50)}
	in.Levels.Verdicts[0].MetLevel = plugins.None
	_, m := play(in, &api{})
	assert.Equal(t, in.State.Covered, m.Covered, "a pause is no end")
	in.Levels.Verdicts[0].Level = plugins.None
	_, m = play(then(in, 0, m), &api{})
	assert.Empty(t, m.Covered)
	in.Levels.Verdicts[0].Level, in.Levels.Verdicts[0].MetLevel = plugins.Hard, plugins.Hard
	d, m := play(then(in, 20, m), &api{})
	assert.Equal(t, CodeTerminating, d.Code)
	assert.Equal(t, map[string]time.Time{"memory-stall/node": at(20)}, m.Covered)
	in.Levels.Verdicts = nil
	_, m = play(then(in, 3700, m), &api{})
	assert.Empty(t, m.Covered, "a plugin that is asked no more is forgotten")
	for i := range 1000 {
		m.Covered[fmt.Sprintf("name-%d/node", i)] = at(3700)
	}
	_, m = play(then(in, 3701, m), &api{})
	assert.Len(t, m.Covered, maxRules, "however many names it takes")
}

func ownerUrgentMemoryBoundsGrace(t *testing.T) {
	urgent := func(list ...plugins.Candidate) plugins.Verdict {
		v := pressing(list...)
		v.Urgent = true
		return v
	}
	a := api{}
	in := round(0, []pods.Pod{pod("drained", deletedFor(25)), pod("a"), pod("b")}, urgent(named("drained", 40), named("a", 30), named("b", 20)))
	when := map[string]time.Time{}
	for in.Time.Before(at(20)) {
		d, m := play(in, &a)
		if g, some := d.FirstEvicted(); some {
			when[g.Pod.UID] = d.Time
			p := &in.Cluster.Pods.Pods[1]
			if g.Pod.UID == "b" {
				p = &in.Cluster.Pods.Pods[2]
			}
			p.TerminatesBy = in.Time.Add(20 * time.Second) // it holds what it has to the end
		} else if in.Time.Before(at(5)) {
			require.Equal(t, CodeTerminating, d.Code)
			require.Contains(t, d.Reason, "2026-03-01 12:00:05 UTC")
		}
		in = then(in, 1, restarted(t, m))
	}
	assert.Equal(t, map[string]time.Time{"a": at(5), "b": at(11)}, when, "each has urgentWait to give back what it holds, from when it is seen to end")
	assert.Equal(t, 5*time.Second, DefaultConfig().UrgentWait)

	calm := then(in, 0, in.State)
	calm.Levels.Verdicts = []plugins.Verdict{pressing(named("c", 30))}
	calm.Cluster.Pods.Pods = append(calm.Cluster.Pods.Pods, pod("c"))
	d, _ := play(calm, &a)
	assert.Contains(t, []Code{CodeCooldown, CodeTerminating}, d.Code, "above its floor all wait as ever")
}

// A finalizer keeps what is left of a pod listed for as long as its owner likes.
func ownerFinalizerIsTerminated(t *testing.T) {
	a := api{}
	in := three(0)
	_, m := play(in, &a)
	in = then(in, 5, m)
	in.Cluster.Pods.Pods[0].TerminatesBy, in.Cluster.Pods.Pods[0].Phase = at(20), "Failed"
	in.Levels.Verdicts = []plugins.Verdict{pressing(named("b", 25), named("c", 20))}
	d, m := play(in, &a)
	assert.Equal(t, CodeCooldown, d.Code)
	assert.Equal(t, at(5), m.last().TerminatedAt)
	play(then(in, 30, m), &a)
	assert.Equal(t, []string{"a", "b"}, a.uids(), "30 s after it ended, not after its object has gone")
}

// What an owner writes that is true, and that a rule of safety or of fairness
// counts: another pod may go before its own, which docs/security.md says. The
// other is one that gives back what is missing itself.
func ownerPutsOtherPodFirst(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*Input)
		code   Code // of the culprit
	}{
		"a request, beside one that asks for nothing": {func(in *Input) { in.Cluster.Pods.Pods[1].LowQoS = true }, CodeNotNeeded},
		"a higher priority":                           {func(in *Input) { in.Cluster.Pods.Pods[0].Priority = 1_000_000_000 }, CodeNotNeeded},
		"a disruption budget":                         {func(*Input) {}, CodePDB},
		"being evicted again and again": {func(in *Input) {
			in.State.RateLimits.Owners = map[string]time.Duration{"shop/ReplicaSet/web": in.Uptime}
			in.Cluster.Pods.Pods[1].Owner.Name = "other"
		}, CodeRateLimit},
		"many pods that are small": {func(in *Input) { in.Levels.Verdicts[0].Candidates[0].Relief = 9 }, CodeTooSmall},
	} {
		t.Run(what, func(t *testing.T) {
			in := round(0, []pods.Pod{pod("culprit"), pod("other")}, pressing(named("culprit", 60), named("other", 20)))
			row.change(&in)
			a := api{answer: func(v Victim) Answer {
				if v.UID == "culprit" && row.code == CodePDB {
					return Answer{Outcome: Blocked, Text: "a budget"}
				}
				return Answer{Outcome: Evicted}
			}}
			d, _ := play(in, &a)
			assert.Equal(t, map[string]Code{"culprit": row.code, "other": CodeEvicted}, codes(d))

			small := round(0, in.Cluster.Pods.Pods, in.Levels.Verdicts...)
			small.State = in.State
			small.Levels.Verdicts[0].Candidates[1].Relief = 9
			d, _ = play(small, &a)
			assert.Equal(t, CodeTooSmall, codes(d)["other"], "one that would not end the pressure never goes in its place")
		})
	}
}

// Whoever loads the API server, or cuts the node off from it, would else begin the
// bound anew with each such round.
func ownerBoundThroughStaleRounds(t *testing.T) {
	for what, unknown := range map[string]func(*Cluster){
		"the API server is not heard": func(c *Cluster) { c.Pods.StaleSince = at(-1) },
		"the pods are not listed yet": func(c *Cluster) { c.Pods.Synced = false },
		"the Node is not known":       func(c *Cluster) { c.Node.ReadError = "away" },
	} {
		in := round(0, []pods.Pod{pod("b", deletedFor(500)), pod("a")}, pressing(named("b", 40), named("a", 30)))
		in.State.Covered = map[string]time.Time{"memory-stall/node": at(-100)}
		unknown(in.Cluster)
		d, m := play(in, &api{})
		require.Equal(t, CodeStale, d.Code, what)
		assert.Equal(t, in.State.Covered, m.Covered, what)
		in.Levels.Verdicts[0].Level, in.Levels.Verdicts[0].MetLevel = plugins.None, plugins.None
		_, m = play(in, &api{})
		assert.Empty(t, m.Covered, "%s, and the level is over", what)
	}
}
