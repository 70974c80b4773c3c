package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func until(second int) func(*pods.Pod) { return func(p *pods.Pod) { p.TerminatesBy = at(second) } }

func TestCreditByAmount(t *testing.T) {
	for target, code := range map[float64]Code{10: CodeTerminating, 30: CodeTerminating, 31: CodeEvicted, 100: CodeEvicted} {
		v := pressing(named("x", 20), named("y", 10), named("a", 40))
		v.Target = some(target)
		in := round(0, []pods.Pod{pod("x", until(20)), pod("y", until(10)), pod("a")}, v)
		d, _ := play(in, &api{})
		assert.Equal(t, code, d.Code, "%g: %s", target, d.Reason)
		require.Len(t, d.Causes, 1)
		x, y := 20.0, 10.0
		assert.Equal(t, []Credit{
			{Name: "shop/web-x", UID: "x", Relief: &x, Until: at(50)}, {Name: "shop/web-y", UID: "y", Relief: &y, Until: at(40)},
		}, d.Causes[0].Credit)
	}
}

func TestCreditEndsWhenOverdue(t *testing.T) {
	in := round(0, []pods.Pod{pod("x", until(20)), pod("a")}, pressing(named("x", 40), named("a", 40)))
	d, m := play(in, &api{})
	require.Equal(t, CodeTerminating, d.Code)
	in.Config.Cooldown = 0
	d, m = play(then(in, 49, m), &api{})
	require.Equal(t, CodeTerminating, d.Code)
	in.State = m
	d, _ = play(then(in, 50, m), &api{})
	require.Equal(t, CodeEvicted, d.Code)
	assert.Equal(t, CodeOverdue, codes(d)["x"])
	assert.Equal(t, "it should have terminated by 2026-03-01 12:00:20 UTC; its usage no longer counts as released", d.Candidates[0].Reason)
	in.Config.OverdueAfter = 5 * time.Second
	d, _ = play(then(in, 25, m), &api{})
	assert.Equal(t, CodeEvicted, d.Code)
}

// Victims of ours count before their end is seen, and after their cgroup is gone.
func TestCreditFromEvictionOn(t *testing.T) {
	v := pressing(named("a", 30), named("b", 30))
	v.Target = some(50)
	in := round(0, []pods.Pod{pod("a"), pod("b")}, v)
	in.Config.Cooldown = 0
	a := api{}
	_, m := play(in, &a)
	d, m := play(then(in, 1, m), &a)
	assert.Equal(t, []string{"a", "b"}, a.uids(), "30 are not 50")
	require.Len(t, d.Causes[0].Credit, 1)
	in.Levels.Verdicts[0].Candidates = []plugins.Candidate{named("c", 30)}
	in.Cluster.Pods.Pods = append(in.Cluster.Pods.Pods, pod("c"))
	d, _ = play(then(in, 2, m), &a)
	assert.Equal(t, CodeTerminating, d.Code, "nobody names the two any more, and they are still there: 60 of 50")
	in.Levels.Verdicts[0].Candidates = []plugins.Candidate{named("a", 2), named("b", 2), named("c", 30)}
	d, _ = play(then(in, 2, m), &a)
	assert.Equal(t, CodeEvicted, d.Code, "what they have given back is no credit any more")
}

func TestCooldownPerVerdict(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30)), disk(plugins.None))
	a := api{}
	_, m := play(in, &a)
	in = then(in, 1, restarted(t, m))
	in.Levels.Verdicts = []plugins.Verdict{pressing(named("a", 30)), disk(plugins.Hard, named("b", 1))}
	d, _ := play(in, &a)
	assert.Equal(t, []string{"a", "b"}, a.uids())
	assert.Equal(t, CodeEvicted, d.Code)
}

// It counts for each verdict as all that must be released.
func TestVictimOfUnknownRelief(t *testing.T) {
	in := three(0)
	in.State.Victims = []Chosen{{Victim: Victim{UID: "b", Namespace: "shop", Name: "web-b", GraceSeconds: 20}, Time: at(-5), Outcome: Evicted, Decision: "x"}}
	d, m := play(in, &api{})
	assert.Equal(t, CodeTerminating, d.Code)
	in.Cluster.Pods.Pods = []pods.Pod{pod("a")}
	d, m = play(then(in, 5, restarted(t, m)), &api{})
	assert.Equal(t, CodeCooldown, d.Code)
	assert.Equal(t, at(35), m.CooldownUntil)
}

// pressedOut is a pod that the kubelet evicted because the node was short of
// something, in its words.
func pressedOut(of string) func(*pods.Pod) {
	return func(p *pods.Pod) {
		p.Phase, p.StatusReason, p.StatusMessage = "Failed", "Evicted", "The node was low on resource: "+of+". Threshold quantity: 100Mi, available: 90Mi. "
	}
}

func TestKubeletEvictionHoldsItsResource(t *testing.T) {
	for of, row := range map[string]struct{ memory, disk, other Code }{
		"memory":            {CodeKubelet, CodeNext, CodeKubelet},
		"ephemeral-storage": {CodeNext, CodeKubelet, CodeKubelet},
		"inodes":            {CodeNext, CodeKubelet, CodeKubelet},
		"pids":              {CodeNext, CodeNext, CodeKubelet},
	} {
		gpu := disk(plugins.Hard, named("c", 30))
		gpu.Plugin, gpu.Resource = "outer", "gpu"
		in := round(0, []pods.Pod{pod("a"), pod("b"), pod("c"), pod("k", pressedOut(of))}, pressing(named("a", 30)), disk(plugins.Hard, named("b", 30)), gpu)
		d, m := Decide(in)
		assert.Equal(t, map[string]Code{"a": row.memory, "b": row.disk, "c": row.other}, codes(d), of)
		d, m = Decide(then(in, 59, restarted(t, m)))
		assert.Equal(t, row.memory, codes(d)["a"], of)
		d, _ = Decide(then(in, 60, m))
		assert.Equal(t, CodeNext, codes(d)["a"], "it is over, however long the pod stays listed")
	}
}

// The messages are those of kubernetes 1.31.14, 1.34.4 and 1.37.1 (helpers.go and
// eviction_manager.go of pkg/kubelet/eviction, rejectPod of pkg/kubelet); names in
// them are the owner's.
func TestKubeletEvictionForPodsOwnLimit(t *testing.T) {
	for _, message := range []string{
		"",
		`Usage of EmptyDir volume "cache" exceeds the limit "1Mi". `,
		`Usage of EmptyDir volume "low-on-resource-memory" exceeds the limit "1Mi". `,
		"Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
		`Container memory exceeded its local ephemeral storage limit "1Mi". `,
		"Pod was rejected: The node had condition: [MemoryPressure]. ",
		"The node had condition: [MemoryPressure DiskPressure]. ",
		`Container x was using 1Gi, request is 0, has larger consumption of memory. The node was low on resource: memory. `,
		"The node was low on resource: example.org/gpu. ",
		"The node was low on resource: ",
		"memory. ",
	} {
		own := func(p *pods.Pod) { p.Phase, p.StatusReason, p.StatusMessage = "Failed", "Evicted", message }
		gpu := disk(plugins.Hard, named("c", 30))
		gpu.Plugin, gpu.Resource = "outer", "gpu"
		in := round(0, []pods.Pod{pod("a"), pod("b"), pod("c"), pod("k", own)}, pressing(named("a", 30)), disk(plugins.Hard, named("b", 30)), gpu)
		d, m := Decide(in)
		assert.Equal(t, map[string]Code{"a": CodeNext, "b": CodeNext, "c": CodeNext}, codes(d), message)
		assert.Empty(t, m.KubeletEvictions, message)
	}
	other := pod("k", pressedOut("memory"), func(p *pods.Pod) { p.StatusReason = "Preempting" })
	d, _ := Decide(round(0, []pods.Pod{pod("a"), other}, pressing(named("a", 30))))
	assert.Equal(t, CodeNext, codes(d)["a"], "it was not evicted")
}

// One of ours is a victim, and is seen to be ending.
func TestCreditOfTerminatingVictimOnce(t *testing.T) {
	v := pressing(named("a", 6), named("b", 40))
	in := round(0, []pods.Pod{pod("a", until(20)), pod("b")}, v)
	in.State.Victims = []Chosen{{Victim: Victim{UID: "a", Namespace: "shop", Name: "web-a", GraceSeconds: 20}, Relief: map[string]float64{verdictKey(v): 6}, Outcome: Evicted, Time: at(-1)}}
	d, _ := play(in, &api{})
	require.Len(t, d.Causes[0].Credit, 1)
	assert.Equal(t, CodeEvicted, codes(d)["b"], "6 of 10: %s", d.Reason)
}

func TestCreditNoneForRefusedCandidate(t *testing.T) {
	ending := named("a", 40)
	ending.Refused = "it was not shown"
	in := round(0, []pods.Pod{pod("a", until(20)), pod("b")}, pressing(ending, named("b", 40)))
	d, _ := play(in, &api{})
	assert.Equal(t, map[string]Code{"a": CodeNotAllowed, "b": CodeEvicted}, codes(d))
}

func TestOverdueCountsFromTerminationGrace(t *testing.T) {
	for second, want := range map[int]Code{59: CodeTerminating, 60: CodeNext, 129: CodeNext, 130: CodeOverdue} {
		in := round(second, []pods.Pod{pod("x", until(100))}, pressing(named("x", 40)))
		in.Config.MaxTerminationGrace, in.Config.OverdueAfter = 30*time.Second, 30*time.Second
		in.State.Terminating = map[string]time.Time{"x": at(0)}
		d, _ := Decide(in)
		assert.Equal(t, want, codes(d)["x"], second)
	}
}

func TestOverdueVictimAskedForAgain(t *testing.T) {
	for second, want := range map[int]Code{49: CodeTerminating, 50: CodeNext} {
		in := round(second, []pods.Pod{pod("a")}, pressing(named("a", 30)))
		in.Config.MaxTerminationGrace, in.Config.OverdueAfter = 30*time.Second, 30*time.Second
		in.State.Victims = []Chosen{{Victim: Victim{UID: "a", Namespace: "shop", Name: "web-a", GraceSeconds: 20}, Time: at(0), Outcome: Evicted}}
		d, _ := Decide(in)
		assert.Equal(t, want, codes(d)["a"], second)
	}
}

func TestCreditSmallPodTargetUnknown(t *testing.T) {
	for relief, want := range map[float64]Code{19: CodeNext, 20: CodeTerminating} {
		v := pressing(named("x", relief), named("a", 40))
		v.Target = none()
		d, _ := Decide(round(0, []pods.Pod{pod("x", until(20)), pod("a")}, v))
		assert.Equal(t, want, codes(d)["a"], relief)
	}
}

func TestCreditReason(t *testing.T) {
	x := Credit{Name: "shop/web-x", Until: at(50)}
	v := pressing()
	assert.Equal(t, "shop/web-x is terminating until 2026-03-01 12:00:50 UTC; its usage counts as released, which is all that must be released", creditReason(v, []Credit{x}))
	for _, target := range []snapshot.Opt[float64]{none(), some(0)} {
		v.Target = target
		assert.Equal(t, "shop/web-x and 2 more are terminating; their usage counts as released", creditReason(v, []Credit{x, x, x}))
	}
}

// What counts as released has been all that is missing since then; where it is not
// that, or nothing presses, no such time begins.
func TestCoveredSince(t *testing.T) {
	held := pressing(named("x", 40))
	held.MetLevel = plugins.None
	scope := verdictKey(held)
	for what, row := range map[string]struct {
		verdict plugins.Verdict
		before  map[string]time.Time
		settle  map[string]time.Time
		want    map[string]time.Time
	}{
		"it is":                          {pressing(named("x", 40)), nil, nil, map[string]time.Time{scope: at(0)}},
		"it has been":                    {pressing(named("x", 40)), map[string]time.Time{scope: at(-9)}, nil, map[string]time.Time{scope: at(-9)}},
		"it is not":                      {pressing(named("x", 5)), nil, nil, map[string]time.Time{}},
		"it is not any more":             {pressing(named("x", 5)), map[string]time.Time{scope: at(-9)}, nil, map[string]time.Time{}},
		"nor, but the node settles":      {pressing(named("x", 5)), map[string]time.Time{scope: at(-9)}, map[string]time.Time{scope: at(9)}, map[string]time.Time{scope: at(-9)}},
		"nothing presses":                {held, nil, nil, map[string]time.Time{}},
		"nothing presses, as it did":     {held, map[string]time.Time{scope: at(-9)}, nil, map[string]time.Time{scope: at(-9)}},
		"no pod is named that is ending": {pressing(named("a", 40)), nil, nil, map[string]time.Time{}},
	} {
		in := round(0, []pods.Pod{pod("x", until(20)), pod("a")}, row.verdict)
		in.State.Covered, in.State.Cooldowns = row.before, row.settle
		_, m := Decide(in)
		assert.Equal(t, row.want, m.Covered, what)
	}
}

// Names of plugins and scopes may both have a slash. What holds for one verdict must not
// hold for another plugin's.
func TestVerdictKey(t *testing.T) {
	one := plugins.Verdict{Plugin: "a/b", Scope: "c", Level: plugins.Hard, MetLevel: plugins.Hard, Candidates: []plugins.Candidate{named("x", 0)}}
	other := one
	other.Plugin, other.Scope = "a", "b/c"
	t.Run("a cooldown", func(t *testing.T) {
		in := round(0, []pods.Pod{pod("x")}, other)
		in.State.Cooldowns = map[string]time.Time{verdictKey(one): at(20)}
		d, _ := Decide(in)
		assert.Equal(t, CodeNext, d.Candidates[0].Code, d.Candidates[0].Reason)
		in.State.Cooldowns = map[string]time.Time{verdictKey(other): at(20)}
		d, _ = Decide(in)
		assert.Equal(t, CodeCooldown, d.Candidates[0].Code)
	})
	t.Run("a name", func(t *testing.T) {
		list := []NamedPod{{Plugin: "a", Scope: "b/c", UID: "x"}, {Plugin: "a/b", Scope: "c", UID: "y"}}
		assert.Equal(t, list[:1], withoutNames(list, &Chosen{Relief: map[string]float64{verdictKey(one): 1}}))
	})
	t.Run("of other plugins as in states of before", func(t *testing.T) {
		assert.Equal(t, "memory-stall/node", verdictKey(pressing()))
	})
}

// In a state of version 1 the key of a/b's verdict about c is a/b/c, which is that of a's
// about b/c, too.
func TestAdoptKeys(t *testing.T) {
	v := pressing(named("b", 40)) // it names the victim no more
	v.Plugin, v.Scope = "a/b", "c"
	old := func() Input {
		in := round(0, []pods.Pod{pod("a"), pod("b")}, v)
		in.State.Victims = []Chosen{{
			Victim: Victim{UID: "a", Namespace: "shop", Name: "web-a", GraceSeconds: 20},
			Relief: map[string]float64{"a/b/c": 40}, Outcome: Evicted, Time: at(-1),
		}}
		return in
	}
	t.Run("a pod that is terminating still counts", func(t *testing.T) {
		in := old()
		d, _ := play(in, &api{})
		require.Equal(t, CodeEvicted, codes(d)["b"], "else the rest shows nothing")
		in = old()
		in.State.AdoptKeys()
		d, _ = play(in, &api{})
		assert.NotEqual(t, CodeEvicted, codes(d)["b"], d.Reason)
	})
	t.Run("every map", func(t *testing.T) {
		both := map[string]time.Time{"a/b/c": at(1), "a%2Fb/c": at(1), "memory-stall/node": at(2)}
		m := State{
			Cooldowns:     map[string]time.Time{"a/b/c": at(1), "memory-stall/node": at(2)},
			Covered:       map[string]time.Time{"a/b/c": at(1), "memory-stall/node": at(2)},
			DryRunEvicted: map[string]Chosen{"a/b/c": {Relief: map[string]float64{"a/b/c": 1}}},
		}
		m.AdoptKeys()
		assert.Equal(t, both, m.Cooldowns)
		assert.Equal(t, both, m.Covered)
		for _, key := range []string{"a/b/c", "a%2Fb/c"} {
			assert.Equal(t, map[string]float64{"a/b/c": 1, "a%2Fb/c": 1}, m.DryRunEvicted[key].Relief)
		}
		assert.Len(t, m.DryRunEvicted, 2)
		none := State{}
		none.AdoptKeys()
		assert.Equal(t, State{}, none)
	})
}
