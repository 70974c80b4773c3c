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

func TestHold(t *testing.T) {
	t.Run("reasons", holdReasons)
	t.Run("reason without detail", holdReasonWithoutDetail)
	t.Run("nearest verdict told", holdNearestVerdictTold)
	t.Run("terminating pod by relief", holdTerminatingPodByRelief)
	t.Run("terminating then cooldown", holdTerminatingThenCooldown)
	t.Run("terminating by the node's clock", holdTerminatingByNodesClock)
	t.Run("pod that never terminates", holdPodThatNeverTerminates)
	t.Run("kubelet victim counts once", holdKubeletVictimCountsOnce)
	t.Run("order of reasons", holdOrderOfReasons)
	t.Run("forced protected pod", holdForcedProtectedPod)
	t.Run("clock set back is stale", holdClockSetBackIsStale)
	t.Run("service and unknown node", holdServiceAndUnknownNode)
	t.Run("urgent memory waits for no cooldown", holdUrgentWaitsForNoCooldown)
}

func holdReasons(t *testing.T) {
	level := func(level, pressing plugins.Level) func(*Input) {
		return func(in *Input) { in.Levels.Verdicts[0].Level, in.Levels.Verdicts[0].MetLevel = level, pressing }
	}
	chosen := func(c Chosen) func(*Input) { return func(in *Input) { in.State.Victims = []Chosen{c} } }
	quiet := func(until time.Time) func(*Input) { return func(in *Input) { in.State.CooldownUntil = until } }
	dry := func(scope string) func(*Input) {
		return func(in *Input) {
			in.Config.DryRun = true
			in.State.DryRunEvicted = map[string]Chosen{scope: {Victim: Victim{UID: "a"}, Time: at(0), DryRun: true, Outcome: Evicted}}
		}
	}
	kubelet := func(list ...string) func(*Input) {
		return func(in *Input) { in.Cluster.Node.KubeletPressure = list }
	}
	nothing := func(*Input) {}
	for what, row := range map[string]struct {
		code          Code
		just, justNot func(*Input)
		reason        string
	}{
		"nothing is met": {CodeEnded, level(plugins.None, plugins.None), nothing, "the pressure has ended"},
		"nothing is judged any more": {CodeEnded, func(in *Input) {
			level(plugins.None, plugins.None)(in)
			in.Before = &plugins.Levels{Verdicts: []plugins.Verdict{in.Levels.Verdicts[0]}}
			in.Before.Verdicts[0].Level = plugins.Hard
			in.Levels.Verdicts[0].Absent = "no answer since noon: the plugin has ended"
		}, nothing, "whether the pressure has ended is not known: memory-stall on node: no answer since noon: the plugin has ended"},
		"there is no cluster":        {CodeStandalone, func(in *Input) { in.Cluster = nil }, nothing, "standalone mode"},
		"eviction is off":            {CodeOff, func(in *Input) { in.Config.Enabled = false }, nothing, "eviction.enabled"},
		"it is soft":                 {CodeSoft, level(plugins.Soft, plugins.Soft), nothing, "no pod is evicted"},
		"hard is kept, soft presses": {CodeLatched, level(plugins.Hard, plugins.Soft), nothing, "the pressure is gone"},
		"hard is kept, none presses": {CodeLatched, level(plugins.Hard, plugins.None), nothing, "the pressure is gone"},
		"a measurement is absent":    {CodeNoCandidate, func(in *Input) { in.Levels.Verdicts[0].Absent = "no PSI" }, nothing, "no PSI"},
		"the pods were never listed": {CodeStale, func(in *Input) { in.Cluster.Pods.Synced = false }, nothing, "have not been listed yet"},
		"the API server is away": {CodeStale, func(in *Input) {
			in.Cluster.Pods.StaleSince, in.Cluster.Pods.StaleBecause = at(-2), "refused"
		}, nothing, "no connection to the API server since 2026-03-01 11:59:58 UTC: refused"},
		"the Node is not known":      {CodeStale, func(in *Input) { in.Cluster.Node.ReadError = "timeout" }, nothing, "timeout"},
		"the measurements are old":   {CodeStale, func(in *Input) { in.Levels.Time = at(0).Add(-15*time.Second - 1) }, func(in *Input) { in.Levels.Time = at(-15) }, "no measurement since 2026-03-01 11:59:44"},
		"rounds are long, all older": {CodeStale, func(in *Input) { in.Config.Round, in.Levels.Time = time.Minute, at(-181) }, func(in *Input) { in.Config.Round, in.Levels.Time = time.Minute, at(-180) }, "no measurement since"},
		"rounds are short, all old":  {CodeStale, func(in *Input) { in.Config.Round, in.Levels.Time = time.Second, at(-16) }, func(in *Input) { in.Config.Round, in.Levels.Time = time.Second, at(-15) }, "no measurement since"},
		"the kubelet relieves":       {CodeKubelet, kubelet("PIDPressure", "MemoryPressure"), kubelet("PIDPressure", "DiskPressure"), "MemoryPressure"},
		"the taint is not there":     {CodeTaint, func(in *Input) { in.Cluster.Unmarked = "conflict" }, func(in *Input) { in.Cluster.Unmarked, in.Config.DryRun = "conflict", true }, "conflict"},
		"our last one is ending": {
			CodeTerminating, chosen(Chosen{Victim: Victim{UID: "b", Name: "web-b", GraceSeconds: 20}, Time: at(-49), Outcome: Evicted}),
			chosen(Chosen{Victim: Victim{UID: "b", GraceSeconds: 20}, Time: at(-50), Outcome: Evicted}), "web-b is terminating until 2026-03-01 12:00:01 UTC; its usage counts as released",
		},
		"our last one got longer": {CodeTerminating, func(in *Input) {
			terminates(in, 1, -29)
			in.State.Victims = []Chosen{{Victim: Victim{UID: "b", GraceSeconds: 20}, Time: at(-99), Outcome: Evicted}}
		}, func(in *Input) {
			terminates(in, 1, -30)
			in.State.Victims = []Chosen{{Victim: Victim{UID: "b", GraceSeconds: 20}, Time: at(-99), Outcome: Evicted}}
		}, "is terminating until"},
		"nobody knows of our last one": {
			CodeTerminating, chosen(Chosen{Victim: Victim{UID: "b", Name: "web-b"}, Time: at(-59), Outcome: UnknownOutcome}),
			chosen(Chosen{Victim: Victim{UID: "b"}, Time: at(-60), Outcome: UnknownOutcome}), "the outcome of the eviction of /web-b",
		},
		"it was granted in a dry run":  {CodeTerminating, dry("memory-stall/node"), dry("memory-stall/numa1"), "dry run"},
		"somebody is ending":           {CodeTerminating, func(in *Input) { terminates(in, 2, -29) }, func(in *Input) { terminates(in, 2, -30) }, "web-big is terminating until 2026-03-01 12:00:01 UTC"},
		"somebody small is not enough": {CodeTerminating, func(in *Input) { in.Cluster.Pods.Pods[2].TerminatesBy = at(9) }, func(in *Input) { in.Cluster.Pods.Pods[3].TerminatesBy = at(9) }, "is terminating until"},
		"one has just gone":            {CodeCooldown, quiet(at(0).Add(1)), quiet(at(0)), "2026-03-01 12:00:00 UTC"},
		"the kubelet evicted one": {CodeKubelet, func(in *Input) {
			pressedOut("memory")(&in.Cluster.Pods.Pods[1])
		}, func(in *Input) {
			in.Cluster.Pods.Pods[1].Phase, in.Cluster.Pods.Pods[1].StatusReason = "Failed", "OOMKilled"
		}, "evicted a pod at 2026-03-01 12:00:00 UTC; cooldown until 2026-03-01 12:01:00 UTC"},
	} {
		t.Run(what, func(t *testing.T) {
			made := func() Input {
				return round(0, []pods.Pod{pod("a"), pod("b"), pod("big"), pod("small")}, pressing(named("big", 30), named("a", 20), named("small", 5)))
			}
			in := made()
			row.just(&in)
			a := api{}
			d, _ := play(in, &a)
			assert.Equal(t, row.code, d.Code)
			assert.Contains(t, d.Reason, row.reason)
			assert.Empty(t, a.asked)
			if row.code != CodeEnded {
				assert.Equal(t, row.code, codes(d)["a"], "who had no reason of its own has the round's")
				assert.Equal(t, d.Reason, d.Candidates[1].Reason)
			}
			in = made()
			row.justNot(&in)
			d, _ = play(in, &a)
			require.Len(t, a.asked, 1)
			assert.Contains(t, []Code{CodeEvicted, CodeWouldEvict}, d.Code)
		})
	}
}

func holdReasonWithoutDetail(t *testing.T) {
	in := round(0, nil, pressing())
	in.Cluster.Pods.Synced = false
	d, _ := Decide(in)
	assert.Equal(t, "the pods of this node have not been listed yet", d.Reason)
	in.Cluster.Pods.StaleBecause = "forbidden"
	d, _ = Decide(in)
	assert.Equal(t, "the pods of this node have not been listed yet: forbidden", d.Reason)
}

func holdNearestVerdictTold(t *testing.T) {
	held, blind := pressing(), pressing()
	held.MetLevel, blind.Absent = plugins.None, "no PSI"
	held.Scope, blind.Scope = "numa0", "numa1"
	kubelet := disk(plugins.Hard)
	soft := disk(plugins.Soft)
	none := disk(plugins.None)
	soft.Scope, none.Scope = "sdb", "sdc"
	for want, list := range map[Code][]plugins.Verdict{
		CodeSoft:        {none, soft, none},
		CodeLatched:     {soft, held, none},
		CodeNoCandidate: {held, blind, soft},
		CodeKubelet:     {blind, kubelet, held},
		CodeNone:        {kubelet, pressing(), blind},
	} {
		for range 2 { // in both directions
			in := round(0, nil, list...)
			in.Cluster.Node.KubeletPressure = []string{"DiskPressure"}
			d, _ := Decide(in)
			assert.Equal(t, want, d.Code)
			slices.Reverse(list)
		}
	}
	in := round(0, nil, pressing(), kubelet)
	in.Cluster.Node.KubeletPressure = []string{"DiskPressure", "MemoryPressure"}
	d, _ := Decide(in)
	assert.Equal(t, "the kubelet reports MemoryPressure and evicts pods itself", d.Reason, "the first of equals")
}

func holdTerminatingPodByRelief(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b", ending)}, pressing(named("a", 30)), disk(plugins.Soft, named("b", 30)))
	a := api{}
	play(in, &a)
	assert.Equal(t, []string{"a"}, a.uids(), "that a user of the disk ends is no relief of memory")
	in.Levels.Verdicts[1] = disk(plugins.Hard, named("b", 30))
	play(in, &a)
	assert.Equal(t, []string{"a", "a"}, a.uids(), "nor at hard")
	in.Levels.Verdicts = in.Levels.Verdicts[1:]
	d, _ := play(in, &a)
	assert.Equal(t, CodeTerminating, d.Code)
}

// terminates has a pod that was seen to terminate long before.
func terminates(in *Input, i, by int) {
	p := &in.Cluster.Pods.Pods[i]
	p.TerminatesBy = at(by)
	in.State.Terminating = map[string]time.Time{p.UID: at(-59)}
}

// The API server's clock may be behind or ahead of the node's by any amount.
func holdTerminatingByNodesClock(t *testing.T) {
	for _, ahead := range []int{-300, -60, 0, 60, 300} {
		in := round(0, []pods.Pod{pod("a"), pod("drained", func(p *pods.Pod) {
			p.TerminatesBy, p.DeletionGraceSeconds = at(20+ahead), 20
		})}, pressing(named("drained", 50), named("a", 30)))
		second := 0
		for ; second < 200; second += 5 {
			d, m := play(in, &api{})
			if d.Code != CodeTerminating {
				break
			}
			in = then(in, 5, restarted(t, m))
		}
		assert.True(t, second == 50 || ahead > 0 && second == 60, "%d s ahead: it counts for %d s", ahead, second)
	}
}

func holdTerminatingThenCooldown(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("drained", func(p *pods.Pod) { p.TerminatesBy = at(30) })}, pressing(named("drained", 50), named("a", 30)))
	a := api{}
	var m State
	var d Decision
	for second := 0; second < 60; second += 5 {
		d, m = play(in, &a)
		require.Equal(t, CodeTerminating, d.Code)
		in = then(in, 5, restarted(t, m))
	}
	require.Equal(t, at(60), in.Time)
	in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[:1]
	in.Levels.Verdicts = []plugins.Verdict{pressing(named("a", 30))}
	for second := 55; second < 55+25; second += 5 {
		d, m = play(in, &a)
		require.Equal(t, CodeCooldown, d.Code)
		in = then(in, 5, m)
	}
	require.Empty(t, a.asked)
	play(then(in, 0, m), &a)
	require.Equal(t, []string{"a"}, a.uids(), "30 s after it was last seen to be ending")
}

func holdPodThatNeverTerminates(t *testing.T) {
	in := round(0, []pods.Pod{pod("stuck"), pod("a")}, pressing(named("stuck", 50), named("a", 30)))
	a := api{}
	d, m := play(in, &a)
	require.Equal(t, CodeEvicted, d.Code)
	in.Cluster.Pods.Pods[0].TerminatesBy = at(21) // it says it is ending, and is not
	for in = then(in, 1, m); in.Time.Before(at(200)) && len(a.asked) == 1; in = then(in, 1, m) {
		_, m = play(in, &a)
	}
	require.Equal(t, []string{"stuck", "a"}, a.uids())
	assert.Equal(t, at(21+29+30), in.Time.Add(-time.Second), "grace, late, and the settle time from when it last counted")
}

func holdKubeletVictimCountsOnce(t *testing.T) {
	evicted := pressedOut("memory")
	in := round(0, []pods.Pod{pod("a"), pod("k", evicted)}, disk(plugins.None))
	_, m := play(in, &api{})
	assert.Equal(t, map[string]time.Time{"MemoryPressure": at(0)}, m.KubeletEvictions)
	in = then(in, 60, restarted(t, m))
	in.Levels.Verdicts = []plugins.Verdict{pressing(named("a", 30))}
	a := api{}
	d, m := play(in, &a)
	require.Equal(t, CodeEvicted, d.Code, d.Reason)
	in = then(in, 100, m)
	in.Cluster.Pods.Pods = []pods.Pod{pod("b"), pod("k2", evicted), pod("k", evicted)}
	_, m = play(in, &a)
	assert.Equal(t, []string{"k", "k2"}, m.KubeletEvicted)
	assert.Equal(t, map[string]time.Time{"MemoryPressure": in.Time}, m.KubeletEvictions)
	in.Cluster.Pods.Pods = []pods.Pod{pod("b")}
	_, m = play(then(in, 1, m), &a)
	assert.Empty(t, m.KubeletEvicted, "one that is listed no more is forgotten")
}

func holdOrderOfReasons(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*Input)
		want   Code
	}{
		"soft": {func(in *Input) {
			in.Levels.Verdicts[0].Level, in.Levels.Verdicts[0].MetLevel = plugins.Soft, plugins.Soft
		}, CodeSoft},
		"hard, in its grace":    {func(in *Input) { in.Levels.Verdicts[0].GraceEnds = at(60) }, CodeStale},
		"hard, and it settles":  {func(in *Input) { in.State.Cooldowns = map[string]time.Time{"memory-stall/node": at(9)} }, CodeStale},
		"hard, with nothing on": {func(*Input) {}, CodeStale},
	} {
		in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
		in.Cluster.Pods.Synced = false
		row.change(&in)
		d, _ := Decide(in)
		assert.Equal(t, row.want, d.Code, what)
	}
}

func holdForcedProtectedPod(t *testing.T) {
	v := asking(forced(named("a", 0)))
	v.GraceEnds = at(60)
	d, _ := Decide(round(0, []pods.Pod{pod("a", protected(pods.Protection{Code: pods.Static, Why: "static"}))}, v))
	assert.Equal(t, map[string]Code{"a": pods.Static}, codes(d))
	assert.Equal(t, CodeGrace, d.Code)
}

func holdClockSetBackIsStale(t *testing.T) {
	for ahead, want := range map[time.Duration]Code{15 * time.Second: CodeNext, 15*time.Second + 1: CodeStale} {
		in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
		in.Levels.Time = in.Time.Add(ahead)
		d, _ := Decide(in)
		assert.Equal(t, want, d.Code, ahead)
	}
}

func holdServiceAndUnknownNode(t *testing.T) {
	service := plugins.Candidate{Cgroup: "/big.service", Name: "big.service", Relief: 99}
	in := round(0, []pods.Pod{pod("a")}, pressing(service, named("a", 30)))
	in.State.Victims = []Chosen{{Victim: Victim{UID: "b", Namespace: "shop", Name: "web-b"}, Time: at(-5), Outcome: UnknownOutcome}}
	in.Cluster.Pods.Pods = append(in.Cluster.Pods.Pods, pod("b"))
	d, m := Decide(in)
	assert.Equal(t, CodeTerminating, d.Code)
	assert.Equal(t, at(30), m.CooldownUntil)
	in.Cluster.Pods.Synced = false
	d, m = Decide(in)
	assert.Equal(t, CodeStale, d.Code)
	assert.Zero(t, m.CooldownUntil)
}

// Without a cluster no pod is known: an agent that starts so while memory is below its floor
// only says that it evicts none.
func TestHoldUrgentWithoutCluster(t *testing.T) {
	v := pressing(named("a", 30))
	v.Urgent = true
	in := round(0, nil, v)
	in.Cluster, in.State = nil, NoSavedState(in.Time, in.Config)
	d, _ := Decide(in)
	assert.Equal(t, CodeStandalone, d.Code)
}

// A pod whose eviction has no definite answer, such as one that a failing webhook keeps, does
// not keep the others where memory is below its floor.
func TestHoldUrgentPassesPodWithoutAnswer(t *testing.T) {
	for _, via := range []string{ViaDirect, ViaController} {
		t.Run(via, func(t *testing.T) {
			v := pressing(named("a", 30), named("b", 30))
			v.Urgent = true
			in := round(0, []pods.Pod{pod("a"), pod("b"), pod("d")}, v, disk(plugins.Hard, named("d", 30)))
			in.Config.Via = via
			a := api{answer: func(v Victim) Answer {
				if v.UID == "a" {
					return Answer{Outcome: UnknownOutcome}
				}
				return Answer{Outcome: Evicted}
			}}
			var d Decision
			for in.Time.Before(at(6)) {
				var m State
				d, m = play(in, &a)
				in = then(in, 1, restarted(t, m))
			}
			assert.Equal(t, append(slices.Repeat([]string{"a"}, 5), "b"), a.uids())
			assert.Equal(t, map[string]Code{"a": CodeTerminating, "b": CodeEvicted, "d": CodeTerminating}, codes(d))
		})
	}
}

// Memory below its floor has no cooldown; what it does not need has.
func holdUrgentWaitsForNoCooldown(t *testing.T) {
	urgent := func(in *Input) { in.Levels.Verdicts[0].Urgent = true }
	calm := func(*Input) {}
	quiet := func(in *Input) { in.State.CooldownUntil = at(30) }
	unknown := func(since int, uid string) func(*Input) {
		return func(in *Input) {
			in.State.Victims = []Chosen{{Victim: Victim{UID: uid, Namespace: "shop", Name: "web-" + uid}, Time: at(since), Outcome: UnknownOutcome}}
		}
	}
	empty := func(in *Input) { in.State.RateLimits.Node = in.Uptime + time.Hour }
	for what, row := range map[string]struct {
		changes    []func(*Input)
		code, disk Code
		asked      []string
	}{
		"cooldown, above the floor":              {[]func(*Input){calm, quiet}, CodeCooldown, CodeCooldown, []string{}},
		"cooldown":                               {[]func(*Input){urgent, quiet}, CodeEvicted, CodeCooldown, []string{"a"}},
		"cooldown, and the rate limit holds":     {[]func(*Input){urgent, quiet, empty}, CodeRateLimit, CodeCooldown, []string{}},
		"outcome unknown, above the floor":       {[]func(*Input){calm, unknown(-5, "gone")}, CodeTerminating, CodeTerminating, []string{}},
		"outcome unknown for less than the wait": {[]func(*Input){urgent, unknown(-4, "gone")}, CodeTerminating, CodeTerminating, []string{}},
		"outcome unknown for urgentWait":         {[]func(*Input){urgent, unknown(-5, "gone")}, CodeEvicted, CodeTerminating, []string{"a"}},
		"it costs a token of its own":            {[]func(*Input){urgent, unknown(-5, "gone"), empty}, CodeRateLimit, CodeTerminating, []string{}},
		"requested again, its token is taken":    {[]func(*Input){urgent, quiet, unknown(-4, "a"), empty}, CodeEvicted, CodeCooldown, []string{"a"}},
	} {
		t.Run(what, func(t *testing.T) {
			in := round(0, []pods.Pod{pod("a"), pod("d", low), pod("gone")}, pressing(named("a", 30)), disk(plugins.Hard, named("d", 30)))
			for _, change := range row.changes {
				change(&in)
			}
			a := api{}
			d, _ := play(in, &a)
			assert.Equal(t, row.code, d.Code, d.Reason)
			assert.Equal(t, row.asked, a.uids())
			assert.Equal(t, row.disk, codes(d)["d"])
		})
	}
}
