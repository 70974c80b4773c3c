package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/pods"
)

func elsewhere(p *pods.Pod) { p.EvictedElsewhere = "annotation x/y" }

func TestEvictionInProgress(t *testing.T) {
	t.Run("no other pod until it is over", inProgressUntilOver)
	t.Run("then it goes", inProgressThenGone)
	t.Run("it is deleted after all", inProgressThenDeleted)
	t.Run("memory below its floor", inProgressUrgent)
	t.Run("too little relief", inProgressTooLittle)
	t.Run("a dry run", inProgressDryRun)
	t.Run("no wait is configured", inProgressNoWait)
}

func inProgressUntilOver(t *testing.T) {
	log, a := Log{Max: 10}, api{answer: always(InProgress)}
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 20)))
	d, m := keeping(in, &a, &log)
	first := d.ID
	assert.Equal(t, CodeInProgress, d.Code)
	assert.Equal(t, map[string]Code{"a": CodeInProgress, "b": CodeNotNeeded}, codes(d))
	assert.Equal(t, "shop/web-a: a holds 30 (in progress: the API server: so it says)", d.Reason)
	for _, second := range []int{5, 60, 119} {
		in = then(in, second-int(in.Time.Sub(at(0)).Seconds()), restarted(t, m))
		d, m = keeping(in, &a, &log)
		require.Equal(t, CodeTerminating, d.Code, second)
		assert.Equal(t, "the eviction of shop/web-a is in progress; its usage counts as released until 2026-03-01 12:02:00 UTC, which is all that must be released", d.Reason)
		assert.Equal(t, "its eviction has been in progress since 2026-03-01 12:00:00 UTC", d.Candidates[0].Reason)
		require.True(t, d.Causes[0].Credit[0].InProgress)
	}
	require.Equal(t, []string{"a"}, a.uids(), "it is not requested again, nor another in its place")
	in.Config.Cooldown, a.answer = 0, nil
	m.Cooldowns = nil
	d, m = keeping(then(in, 1, restarted(t, m)), &a, &log)
	assert.Equal(t, []string{"a", "b"}, a.uids(), "it counts as refused")
	assert.Equal(t, "not requested again until 2026-03-01 12:07:00 UTC: its eviction was in progress for 2m0s, and the pod still exists", d.Candidates[0].Reason)
	assert.Equal(t, CodeRefused, d.Candidates[0].Code)
	was := log.List()[len(log.List())-1]
	require.Equal(t, first, was.ID)
	assert.Equal(t, CodeRefused, was.Candidates[0].Code, "the decision tells so")
	assert.Equal(t, CodeNone, was.Code)
	assert.Equal(t, "shop/web-a: its eviction was in progress for 2m0s, and the pod still exists", was.Reason)
	assert.Len(t, m.Victims, 1)
	assert.Equal(t, "b", m.last().UID)
}

func inProgressThenGone(t *testing.T) {
	log, a := Log{Max: 10}, api{answer: always(InProgress)}
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 20)))
	d, m := keeping(in, &a, &log)
	first := d.ID
	in = then(in, 60, restarted(t, m))
	in.Cluster.Pods.Pods[0].Phase = "Succeeded" // as KubeVirt leaves the pod of a machine that was migrated
	d, m = keeping(in, &a, &log)
	assert.Equal(t, CodeCooldown, d.Code)
	d, _ = keeping(then(in, 29, restarted(t, m)), &a, &log)
	assert.Equal(t, CodeCooldown, d.Code, "its relief is measured first")
	require.Equal(t, []string{"a"}, a.uids())
	was := log.List()[len(log.List())-1]
	require.Equal(t, first, was.ID)
	assert.Equal(t, at(60), was.TerminatedAt)
	assert.Equal(t, CodeInProgress, was.Code)
}

func inProgressThenDeleted(t *testing.T) {
	a := api{answer: always(InProgress)}
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 20)))
	_, m := play(in, &a)
	in = then(in, 110, restarted(t, m))
	in.Cluster.Pods.Pods[0].TerminatesBy = at(130)
	d, m := play(in, &a)
	require.Equal(t, CodeTerminating, d.Code)
	assert.Equal(t, Evicted, m.last().Outcome)
	d, _ = play(then(in, 20, restarted(t, m)), &a)
	assert.Equal(t, CodeTerminating, d.Code, "now its grace period counts")
	assert.False(t, d.Causes[0].Credit[0].InProgress)
	assert.Equal(t, []string{"a"}, a.uids())
}

func inProgressUrgent(t *testing.T) {
	a := api{answer: always(InProgress)}
	v := pressing(named("a", 30), named("b", 20))
	v.Urgent = true
	in := round(0, []pods.Pod{pod("a"), pod("b")}, v)
	_, m := play(in, &a)
	d, m := play(then(in, 4, m), &a)
	assert.Equal(t, CodeTerminating, d.Code)
	d, _ = play(then(in, 5, m), &a)
	assert.Equal(t, CodeInProgress, d.Code)
	assert.Equal(t, []string{"a", "b"}, a.uids())
}

func inProgressTooLittle(t *testing.T) {
	a := api{answer: always(InProgress)}
	v := pressing(named("a", 30), named("b", 30), named("c", 30))
	v.Target = some(50)
	in := round(0, []pods.Pod{pod("a"), pod("b"), pod("c")}, v)
	in.Config.Limits.PerRound = 3
	d, _ := play(in, &a)
	assert.Equal(t, map[string]Code{"a": CodeInProgress, "b": CodeInProgress, "c": CodeNotNeeded}, codes(d), "two of 30 are 50")
}

func inProgressDryRun(t *testing.T) {
	a := api{answer: always(InProgress)}
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 20)))
	in.Config.DryRun = true
	d, m := play(in, &a)
	assert.Equal(t, CodeWouldEvict, d.Code)
	d, _ = play(then(in, 600, m), &a)
	assert.Equal(t, CodeTerminating, d.Code, "one pressure, one pod")
	assert.Equal(t, 1, a.dryRuns)
}

func inProgressNoWait(t *testing.T) {
	a := api{answer: always(InProgress)}
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 20)))
	in.Config.InProgressWait, in.Config.Cooldown = 0, 0
	_, m := play(in, &a)
	d, _ := play(then(in, 1, m), &a)
	assert.Equal(t, []string{"a", "b"}, a.uids())
	assert.Equal(t, CodeRefused, codes(d)["a"])
}

func TestEvictedElsewhere(t *testing.T) {
	two := func(changes ...func(*pods.Pod)) Input {
		in := round(0, []pods.Pod{pod("a", changes...), pod("b")}, pressing(named("a", 30), named("b", 20)))
		in.Config.Cooldown = 0
		return in
	}
	t.Run("counts as released for a time", func(t *testing.T) {
		a := api{}
		in := two(elsewhere)
		d, m := play(in, &a)
		assert.Equal(t, CodeTerminating, d.Code)
		assert.Equal(t, "the eviction of shop/web-a is in progress; its usage counts as released until 2026-03-01 12:02:00 UTC, which is all that must be released", d.Reason)
		assert.Equal(t, "another component evicts it (annotation x/y): counted until 2026-03-01 12:02:00 UTC", d.Candidates[0].Reason)
		d, m = play(then(in, 119, restarted(t, m)), &a)
		require.Equal(t, CodeTerminating, d.Code)
		require.Empty(t, a.asked)
		_, _ = play(then(in, 120, restarted(t, m)), &a)
		assert.Equal(t, []string{"a"}, a.uids(), "a mark protects no pod for ever")
	})
	t.Run("counts once in the life of a pod", func(t *testing.T) {
		a := api{}
		in := two(elsewhere)
		in.Levels.Verdicts[0].MetLevel, in.Levels.Verdicts[0].Level = 0, 0
		_, m := play(in, &a)
		in = then(in, 130, restarted(t, m))
		in.Cluster.Pods.Pods[0].EvictedElsewhere = ""
		_, m = play(in, &a)
		in = two(elsewhere)
		_, _ = play(then(in, 140, m), &a)
		assert.Equal(t, []string{"a"}, a.uids())
	})
	t.Run("one pod after the other does not hold for ever", func(t *testing.T) {
		a := api{}
		in := two(elsewhere)
		var m State
		m = in.State
		for second := 0; len(a.asked) == 0; second += 10 {
			require.LessOrEqual(t, second, 120)
			in.Cluster.Pods.Pods[0].UID = time.Duration(second).String() // another pod, marked at once
			in.Cluster.Pods.Pods[0].CgroupUID = in.Cluster.Pods.Pods[0].UID
			in.Levels.Verdicts[0].Candidates[0] = named(in.Cluster.Pods.Pods[0].UID, 30)
			_, m = play(then(in, second, m), &a)
		}
		assert.Equal(t, []string{"b"}, a.uids())
	})
	t.Run("forgotten with the pod", func(t *testing.T) {
		in := two(elsewhere)
		_, m := play(in, &api{})
		assert.Len(t, m.Elsewhere, 1)
		in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:]
		_, m = play(then(in, 1, m), &api{})
		assert.Empty(t, m.Elsewhere)
	})
	t.Run("no credit where the pod is not named", func(t *testing.T) {
		a := api{}
		in := two()
		in.Cluster.Pods.Pods = append(in.Cluster.Pods.Pods, pod("c", elsewhere))
		_, _ = play(in, &a)
		assert.Equal(t, []string{"a"}, a.uids())
	})
	t.Run("marked between choice and request", func(t *testing.T) {
		in := two()
		d, m := Decide(in)
		in.Cluster.Pods.Pods[0].EvictedElsewhere = "condition DisruptionTarget, PreemptionByScheduler"
		_, holds := Recheck(in, m, &d, 0)
		assert.False(t, holds)
	})
}
