package evict

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func low(p *pods.Pod) { p.LowQoS = true }

func priority(n int32) func(*pods.Pod) { return func(p *pods.Pod) { p.Priority = n } }

// ranks is the order of the candidates of a round.
func ranks(in Input) []string {
	d, _ := Decide(in)
	return order(d)
}

func TestRank(t *testing.T) {
	t.Run("keys", rankKeys)
	t.Run("last key is cgroup", rankLastKeyIsCgroup)
	t.Run("unconfirmed first", rankUnconfirmedFirst)
	t.Run("joins plugins of pod", rankJoinsPluginsOfPod)
	t.Run("best of all plugins", rankBestOfAllPlugins)
	t.Run("not met no candidates", rankNotMetNoCandidates)
	t.Run("ignores input order", rankIgnoresInputOrder)
	t.Run("finds pod by cgroup UID", rankFindsPodByCgroupUID)
	t.Run("joins in any order", rankJoinsInAnyOrder)
	t.Run("longest grace", rankLongestGrace)
	t.Run("only what may evict counts", rankOnlyWhatMayEvictCounts)
}

func rankKeys(t *testing.T) {
	a, b := named("a", 30), named("b", 30)
	unlisted := named("c", 90)
	service := plugins.Candidate{Cgroup: "/system.slice/big.service", Name: "big.service", Relief: 99, Unit: "bytes"}
	held := disk(plugins.Hard, a)
	held.MetLevel = plugins.Soft
	for what, row := range map[string]struct {
		a, b     pods.Pod
		verdicts []plugins.Verdict
		want     []string
	}{
		"low QoS before lower priority":               {pod("a", priority(1)), pod("b", low), []plugins.Verdict{pressing(a, b)}, []string{"b", "a"}},
		"lower priority before the plugin's order":    {pod("a"), pod("b", priority(999)), []plugins.Verdict{pressing(a, b)}, []string{"b", "a"}},
		"a priority below zero is lower":              {pod("a"), pod("b", priority(-1)), []plugins.Verdict{pressing(a, b)}, []string{"b", "a"}},
		"what presses hard before what was named 1st": {pod("a"), pod("b"), []plugins.Verdict{held, pressing(unlisted, b)}, []string{"b", "a", "c"}},
		"the plugin's order before the relief":        {pod("a"), pod("b"), []plugins.Verdict{pressing(named("b", 11), a)}, []string{"b", "a"}},
		"larger relief where both were named first":   {pod("a"), pod("b"), []plugins.Verdict{pressing(a), disk(plugins.Hard, named("b", 31))}, []string{"b", "a"}},
		"the name where all is equal":                 {pod("a", func(p *pods.Pod) { p.Name = "z" }), pod("b"), []plugins.Verdict{disk(plugins.Hard, b), pressing(a)}, []string{"b", "a"}},
		"what is no listed pod comes last, by name":   {pod("a"), pod("b"), []plugins.Verdict{pressing(service, unlisted, a)}, []string{"a", service.Cgroup, "c"}},
	} {
		t.Run(what, func(t *testing.T) {
			assert.Equal(t, row.want, ranks(round(0, []pods.Pod{row.a, row.b}, row.verdicts...)))
		})
	}
}

func rankLastKeyIsCgroup(t *testing.T) {
	a := plugins.Candidate{Cgroup: "/a", Name: "x.service"}
	b := plugins.Candidate{Cgroup: "/b", Name: "x.service"}
	assert.Equal(t, []string{"/a", "/b"}, ranks(round(0, nil, pressing(a), disk(plugins.Hard, b))))
	assert.Equal(t, []string{"/a", "/b"}, ranks(round(0, nil, pressing(b), disk(plugins.Hard, a))))
}

func rankUnconfirmedFirst(t *testing.T) {
	in := round(0, []pods.Pod{pod("a", low), pod("b", priority(5000))}, pressing(named("a", 30), named("b", 20)))
	d, m := Decide(in)
	require.Equal(t, []string{"a", "b"}, order(d))
	for outcome, first := range map[Outcome]string{"": "b", UnknownOutcome: "b"} {
		m, _ := m.RecordChoice(in, &d, 1)
		m.last().Outcome = outcome
		assert.Equal(t, first, ranks(then(in, 5, restarted(t, m)))[0], outcome)
		assert.Equal(t, "a", ranks(then(in, 60, m))[0], "after a minute the API server has given the request up")
		m.last().DryRun = true
		assert.Equal(t, "a", ranks(then(in, 5, m))[0], "a dry run's choice does not count")
	}
}

func rankJoinsPluginsOfPod(t *testing.T) {
	byMemory, byDisk := named("a", 30), named("a", 5000)
	byDisk.Unit, byDisk.Why, byDisk.Cgroup = "bytes per second", "half of the traffic on sda", "/kubepods/a/container"
	second := disk(plugins.Hard, byDisk)
	second.Scope = "sdb"
	d, _ := Decide(round(0, []pods.Pod{pod("a")}, pressing(byMemory), disk(plugins.Soft, byDisk), second))
	require.Len(t, d.Candidates, 1)
	c := d.Candidates[0]
	assert.Equal(t, []string{"memory-stall", "disk-contention"}, c.Plugins)
	assert.Equal(t, "a holds 30; half of the traffic on sda", c.Why)
	assert.Equal(t, "shop/web-a", c.Name)
	assert.InDelta(t, 30, c.Relief, 0, "a rate is not compared with bytes")
	assert.Equal(t, "bytes", c.Unit)

	larger := named("a", 40)
	again := pressing(larger)
	again.Scope = "numa1"
	d, _ = Decide(round(0, []pods.Pod{pod("a")}, pressing(byMemory), again))
	require.Len(t, d.Candidates, 1)
	assert.InDelta(t, 40, d.Candidates[0].Relief, 0)
	assert.Equal(t, []string{"memory-stall"}, d.Candidates[0].Plugins)
}

func rankBestOfAllPlugins(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b"), pod("c")}, pressing(named("a", 40), named("b", 30), named("c", 20)), disk(plugins.Hard, named("c", 20), named("b", 20)))
	assert.Equal(t, []string{"a", "c", "b"}, ranks(in))
}

func rankNotMetNoCandidates(t *testing.T) {
	assert.Empty(t, ranks(round(0, []pods.Pod{pod("a")}, disk(plugins.None, named("a", 30)))))
}

func rankIgnoresInputOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var listed []pods.Pod
	var memory, discs []plugins.Candidate
	for i := range 40 {
		uid := string(rune('A' + i))
		listed = append(listed, pod(uid, priority(int32(random.IntN(3))), func(p *pods.Pod) { p.LowQoS = random.IntN(2) == 0 }))
		if random.IntN(3) > 0 {
			memory = append(memory, named(uid, float64(random.IntN(3))))
		} else {
			discs = append(discs, named(uid, float64(random.IntN(3))))
		}
	}
	in := round(0, listed, pressing(memory...), disk(plugins.Hard, discs...))
	want, _ := Decide(in)
	require.Len(t, want.Candidates, 40)
	for range 50 {
		random.Shuffle(len(listed), func(i, j int) { listed[i], listed[j] = listed[j], listed[i] })
		random.Shuffle(2, func(i, j int) {
			v := in.Levels.Verdicts
			v[i], v[j] = v[j], v[i]
		})
		got, _ := Decide(in)
		require.Empty(t, cmp.Diff(want.Candidates, got.Candidates, cmp.AllowUnexported(snapshot.Opt[int64]{})))
	}
	for i := range want.Candidates { // a total order: no two are equal
		for j := range i {
			a, b := &ranked{Considered: want.Candidates[i]}, &ranked{Considered: want.Candidates[j]}
			require.NotZero(t, a.before(b))
			require.Equal(t, -a.before(b), b.before(a))
		}
	}
}

func rankFindsPodByCgroupUID(t *testing.T) {
	static := pod("mirror", func(p *pods.Pod) { p.CgroupUID = "hash" })
	d, _ := Decide(round(0, []pods.Pod{static, pod("b")}, pressing(named("hash", 30))))
	require.NotNil(t, d.Candidates[0].Pod)
	assert.Equal(t, static, *d.Candidates[0].Pod)
}

// Whichever verdict comes first.
func rankJoinsInAnyOrder(t *testing.T) {
	quiet := disk(plugins.Hard, named("a", 10))
	quiet.MetLevel = plugins.Soft
	notShown := forced(named("a", 30))
	notShown.Refused = "it was not shown"
	again := pressing(named("a", 20))
	again.Scope = "numa1"
	for what, row := range map[string]struct {
		verdicts []plugins.Verdict
		want     func(t *testing.T, c Considered)
	}{
		"forced": {[]plugins.Verdict{asking(forced(named("a", 30))), pressing(named("a", 30))}, func(t *testing.T, c Considered) { assert.True(t, c.Forced) }},
		"forced, and its word is not taken": {[]plugins.Verdict{asking(notShown), pressing(named("a", 30))}, func(t *testing.T, c Considered) {
			assert.False(t, c.Forced)
			assert.Empty(t, c.Refused)
		}},
		"the larger relief": {[]plugins.Verdict{pressing(named("a", 30)), again}, func(t *testing.T, c Considered) { assert.InDelta(t, 30, c.Relief, 0) }},
	} {
		t.Run(what, func(t *testing.T) {
			for range 2 {
				d, _ := Decide(round(0, []pods.Pod{pod("a")}, row.verdicts...))
				require.Len(t, d.Candidates, 1)
				row.want(t, d.Candidates[0])
				slices.Reverse(row.verdicts)
			}
		})
	}
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 30)), quiet)
	assert.Equal(t, []string{"a", "b"}, ranks(in), "the higher severity counts")
	in = round(0, []pods.Pod{pod("a"), pod("b"), pod("c")}, pressing(named("a", 30), named("b", 30)), disk(plugins.Hard, named("c", 20), named("a", 20)))
	assert.Equal(t, []string{"a", "c", "b"}, ranks(in), "the better place counts")
}

// Of several verdicts' termination grace periods the longest one wins, and one that asks
// for none wants the pod's own.
func rankLongestGrace(t *testing.T) {
	of := func(scope string, seconds ...int64) plugins.Verdict {
		c := named("a", 30)
		for _, s := range seconds {
			c.GraceSeconds = snapshot.Some(s)
		}
		v := pressing(c)
		v.Scope = scope
		return v
	}
	for what, row := range map[string]struct {
		verdicts []plugins.Verdict
		want     int64
	}{
		"none is asked for":               {[]plugins.Verdict{of("node"), of("numa1")}, 20},
		"one alone asks for none at all":  {[]plugins.Verdict{of("node", 0)}, 0},
		"one asks for none at all":        {[]plugins.Verdict{of("node"), of("numa1", 0)}, 20},
		"one asks for less than the pod":  {[]plugins.Verdict{of("node"), of("numa1", 1)}, 20},
		"one asks for more than the pod":  {[]plugins.Verdict{of("node"), of("numa1", 25)}, 25},
		"both ask for less than the pod":  {[]plugins.Verdict{of("node", 2), of("numa1", 1)}, 2},
		"one asks for more than is meant": {[]plugins.Verdict{of("node"), of("numa1", 99)}, 30},
	} {
		t.Run(what, func(t *testing.T) {
			for range 2 {
				a := api{}
				play(round(0, []pods.Pod{pod("a")}, row.verdicts...), &a)
				require.Len(t, a.asked, 1)
				assert.Equal(t, row.want, a.asked[0].GraceSeconds)
				slices.Reverse(row.verdicts)
			}
		})
	}
}

// A verdict that evicts no pod chooses none for another one, nor how it ends.
func rankOnlyWhatMayEvictCounts(t *testing.T) {
	hasty := forced(named("b", 90))
	hasty.GraceSeconds = snapshot.Some[int64](25)
	notShown := hasty
	notShown.Refused = "it was not shown"
	for what, row := range map[string]struct {
		by     plugins.Candidate
		change func(*Input, *plugins.Verdict)
		order  []string
		grace  int64
	}{
		"it may evict":            {hasty, func(*Input, *plugins.Verdict) {}, []string{"b", "a"}, 25},
		"beside: mark":            {hasty, func(_ *Input, v *plugins.Verdict) { v.Beside = plugins.BesideMark }, []string{"a", "b"}, 20},
		"the rule is new":         {hasty, func(in *Input, _ *plugins.Verdict) { delete(in.State.Rules, "outer") }, []string{"a", "b"}, 20},
		"the kubelet acts":        {hasty, func(in *Input, _ *plugins.Verdict) { in.Cluster.Node.KubeletPressure = []string{"PIDPressure"} }, []string{"a", "b"}, 20},
		"the plugin is dry":       {hasty, func(in *Input, _ *plugins.Verdict) { in.Config.DryRunPlugins = []string{"outer"} }, []string{"a", "b"}, 20},
		"it may not name the pod": {notShown, func(*Input, *plugins.Verdict) {}, []string{"a", "b"}, 20},
	} {
		t.Run(what, func(t *testing.T) {
			outer := disk(plugins.Hard, row.by, named("a", 1))
			outer.Plugin, outer.Resource = "outer", ""
			list := []plugins.Verdict{pressing(named("a", 30), named("b", 20)), outer}
			for second := range 2 {
				v := slices.Clone(list)
				in := round(0, []pods.Pod{pod("a"), pod("b")}, v...)
				in.Config.ReportOnly = time.Minute
				in.State.Rules = map[string]Rule{"memory-stall": {InForce: true}, "outer": {InForce: true}}
				row.change(&in, &v[1-second])
				in.Levels.Verdicts = v
				in = Split(in)[0]
				d, _ := Decide(in)
				assert.Equal(t, row.order, order(d))
				i, some := d.Next()
				require.True(t, some, d.Reason)
				assert.Equal(t, row.order[0], d.Candidates[i].Pod.UID)
				assert.Equal(t, row.grace, d.Victim(slices.Index(row.order, "b"), time.Minute).GraceSeconds)
				slices.Reverse(list)
			}
		})
	}
}
