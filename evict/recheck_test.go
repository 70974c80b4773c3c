package evict

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// stillInput is a round in which "one" is chosen and "two" is the next.
func stillInput() Input {
	named := func(uid string, relief float64) plugins.Candidate {
		return plugins.Candidate{Cgroup: "/kubepods/pod" + uid, PodUID: uid, Relief: relief, Unit: "bytes"}
	}
	now := time.Unix(1000, 0).UTC()
	known := func(uid string) pods.Pod {
		return pods.Pod{UID: uid, CgroupUID: uid, Namespace: "n", Name: uid, Phase: "Running", GraceSeconds: 30}
	}
	c := DefaultConfig()
	c.DryRun, c.ReportOnly = false, 0
	return Input{
		Time: now, Uptime: up(0), Boot: "boot", State: seasoned(), Config: c,
		Levels: &plugins.Levels{Time: now, Verdicts: []plugins.Verdict{{
			Plugin: "p", Scope: "node", Condition: "MemoryContention", Level: plugins.Hard, MetLevel: plugins.Hard,
			Candidates: []plugins.Candidate{named("one", 9), named("two", 8)},
		}}},
		Cluster: &Cluster{Pods: pods.List{Synced: true, Pods: []pods.Pod{known("one"), known("two")}}},
	}
}

func TestRecheckChoice(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*Input)
		holds  bool
	}{
		"nothing changed":             {func(*Input) {}, true},
		"a little later":              {func(in *Input) { in.Time = in.Time.Add(10 * time.Second) }, true},
		"the measurements are old":    {func(in *Input) { in.Time = in.Time.Add(time.Minute) }, false},
		"the pressure is gone":        {func(in *Input) { in.Levels.Verdicts[0].MetLevel = plugins.None }, false},
		"the level is over":           {func(in *Input) { in.Levels.Verdicts[0].Level, in.Levels.Verdicts[0].MetLevel = 0, 0 }, false},
		"eviction was switched off":   {func(in *Input) { in.Config.Enabled = false }, false},
		"the API server is not heard": {func(in *Input) { in.Cluster.Pods.StaleSince = in.Time }, false},
		"the pod is gone":             {func(in *Input) { in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:] }, false},
		"the pod is another":          {func(in *Input) { in.Cluster.Pods.Pods[0].UID = "new" }, false},
		"the pod is ending":           {func(in *Input) { in.Cluster.Pods.Pods[0].TerminatesBy = in.Time }, false},
		"the pod is protected now":    {func(in *Input) { in.Cluster.Pods.Pods[0].Protections = []pods.Protection{{Code: pods.Critical}} }, false},
		"another candidate is ending": {func(in *Input) { in.Cluster.Pods.Pods[1].TerminatesBy = in.Time }, false},
		"another candidate is gone":   {func(in *Input) { in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[:1] }, false},
		"a pod that was no candidate is": {func(in *Input) {
			in.Cluster.Pods.Pods = append(in.Cluster.Pods.Pods, pods.Pod{UID: "x", TerminatesBy: in.Time})
		}, true},
		"its plugin is left to another host":     {func(in *Input) { in.Standings = map[string]Standing{"p": {Excluded: "left"}} }, false},
		"its plugin marks beside another host":   {func(in *Input) { in.Standings = map[string]Standing{"p": {Beside: plugins.BesideMark}} }, false},
		"its plugin reports beside another host": {func(in *Input) { in.Standings = map[string]Standing{"p": {Beside: plugins.BesideReport}} }, false},
		"a dry run of such a plugin": {func(in *Input) {
			in.Standings, in.Config.DryRun = map[string]Standing{"p": {Beside: plugins.BesideReport}}, true
		}, true},
		"its plugin may act":                {func(in *Input) { in.Standings = map[string]Standing{"p": {}} }, true},
		"without a cluster nobody is asked": {func(in *Input) { in.Cluster = nil }, false},
	} {
		t.Run(what, func(t *testing.T) {
			d, m := Decide(stillInput())
			require.Equal(t, CodeNext, d.Code, d.Reason)
			later := stillInput()
			row.change(&later)
			_, holds := Recheck(later, m, &d, 0)
			assert.Equal(t, row.holds, holds)
		})
	}
}

// What the owner of the chosen pod may change at any moment ends no round: neither a mark or
// a deletion that has had its time, nor what protects the pod.
func TestRecheckChangedByOwner(t *testing.T) {
	mark := func(p *pods.Pod) { p.EvictedElsewhere = "annotation x/y" }
	deleted := func(seconds int) func(*pods.Pod) { return func(p *pods.Pod) { p.TerminatesBy = at(seconds) } }
	bare := func(p *pods.Pod) { p.Protections = []pods.Protection{{Code: pods.NoController, Why: "nobody"}} }
	for what, row := range map[string]struct {
		before, after func(*pods.Pod)
		want          Code
	}{
		"marked again":   {func(*pods.Pod) {}, mark, CodeNext},
		"marked no more": {mark, func(p *pods.Pod) { p.EvictedElsewhere = "" }, CodeNext},
		"deleted again":  {deleted(3600), deleted(3599), CodeNext},
		"protected":      {func(*pods.Pod) {}, bare, pods.NoController},
	} {
		t.Run(what, func(t *testing.T) {
			in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 60), named("b", 40)))
			in.State.Elsewhere = map[string]time.Time{"a": at(-121)}
			in.State.Terminating = map[string]time.Time{"a": at(-61)}
			row.before(&in.Cluster.Pods.Pods[0])
			d, m := Decide(in)
			i, _ := d.Next()
			require.Equal(t, "a", d.Candidates[i].Pod.UID, d.Reason)
			later := in
			later.Cluster = &Cluster{Pods: pods.List{Synced: true, Pods: slices.Clone(in.Cluster.Pods.Pods)}}
			row.after(&later.Cluster.Pods.Pods[0])
			after, holds := Recheck(later, m, &d, i)
			assert.Equal(t, row.want == CodeNext, holds)
			assert.Equal(t, map[string]Code{"a": row.want, "b": CodeNext}, codes(d))
			assert.Equal(t, m, after)
		})
	}
	t.Run("protected while its eviction may have been accepted", func(t *testing.T) {
		in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 60), named("b", 40)))
		_, m := play(in, &api{answer: always(UnknownOutcome)})
		in = then(in, 5, m)
		d, m := Decide(in)
		bare(&in.Cluster.Pods.Pods[0])
		_, holds := Recheck(in, m, &d, 0)
		assert.False(t, holds)
		assert.Equal(t, map[string]Code{"a": CodeNext, "b": CodeNext}, codes(d), "no other goes in its place")
	})
}

// What ended meanwhile counts by its amount, as what ended before the round.
func TestRecheckCreditMeanwhile(t *testing.T) {
	protected := func(p *pods.Pod) { p.Protections = []pods.Protection{{Code: pods.NoController, Why: "nobody"}} }
	gone := func(in *Input) { in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[:1] }
	ending := func(in *Input) { in.Cluster.Pods.Pods[1].TerminatesBy = in.Time.Add(20 * time.Second) }
	for what, row := range map[string]struct {
		relief float64 // of the other; 10 are missing
		change func(*Input)
		later  func(*Input)
		holds  bool
	}{
		"a large one is gone":                     {40, func(*Input) {}, gone, false},
		"a large one is ending":                   {40, func(*Input) {}, ending, false},
		"a small one is gone":                     {2, func(*Input) {}, gone, true},
		"a small one is ending":                   {2, func(*Input) {}, ending, true},
		"a small one that is protected is gone":   {2, func(in *Input) { protected(&in.Cluster.Pods.Pods[1]) }, gone, true},
		"a small one that is protected is ending": {2, func(in *Input) { protected(&in.Cluster.Pods.Pods[1]) }, ending, true},
		"the chosen one is ending, and not enough": {2, func(in *Input) {
			in.Levels.Verdicts[0].Target = some(80)
		}, func(in *Input) { in.Cluster.Pods.Pods[0].TerminatesBy = in.Time }, false},
		"the chosen one is forced": {40, func(in *Input) { in.Levels.Verdicts[0].Candidates[0].Forced = true }, gone, true},
		"others have ended for as long as any may take": {40, func(in *Input) {
			in.State.Covered = map[string]time.Time{"memory-stall/node": at(-60)}
		}, gone, true},
		"others have, and memory is below its floor": {40, func(in *Input) {
			in.Levels.Verdicts[0].Urgent = true
			in.State.Covered = map[string]time.Time{"memory-stall/node": at(-5)}
		}, ending, true},
	} {
		t.Run(what, func(t *testing.T) {
			in := round(0, []pods.Pod{pod("culprit"), pod("other")}, pressing(named("culprit", 60), named("other", row.relief)))
			row.change(&in)
			d, m := Decide(in)
			i, some := d.Next()
			require.True(t, some, d.Reason)
			require.Equal(t, "culprit", d.Candidates[i].Pod.UID)
			row.later(&in)
			_, holds := Recheck(in, m, &d, i)
			assert.Equal(t, row.holds, holds)
		})
	}
}

// One that is large enough goes between each choice and its request, whether it
// had time to end or was deleted by force.
func TestRecheckRepeatedCreditBounded(t *testing.T) {
	for urgent, last := range map[bool]time.Time{false: at(60 + 30 + 5), true: at(5)} {
		in := round(0, nil)
		var went time.Time
		for i := 0; i < 300 && went.IsZero(); i++ {
			decoy := fmt.Sprint("decoy", i)
			in.Cluster.Pods.Pods = []pods.Pod{pod("culprit"), pod(decoy)}
			in.Levels.Verdicts = []plugins.Verdict{pressing(named("culprit", 60), named(decoy, 40))}
			in.Levels.Verdicts[0].Urgent = urgent
			d, m := Decide(in)
			if k, some := d.Next(); some {
				later := in
				later.Cluster = &Cluster{Pods: pods.List{Synced: true, Pods: in.Cluster.Pods.Pods[:1]}}
				after, holds := Recheck(later, m, &d, k)
				if m = after; holds {
					require.Equal(t, "culprit", d.Candidates[k].Pod.UID)
					went = d.Time
				}
			}
			in = then(in, 1, restarted(t, m))
		}
		require.False(t, went.IsZero(), "urgent: %t", urgent)
		assert.False(t, went.After(last), "urgent: %t, %s", urgent, went)
		assert.True(t, went.After(at(0)))
	}
}

func TestRecheckOutdatedEndsRound(t *testing.T) {
	d, _ := Decide(stillInput())
	d.Outdated()
	assert.Equal(t, CodeStale, d.Code)
	for _, c := range d.Candidates {
		assert.Equal(t, CodeStale, c.Code)
		assert.Equal(t, d.Reason, c.Reason)
	}
	_, some := d.Next()
	assert.False(t, some)
}

func TestSkipToleratingAtSoftOnly(t *testing.T) {
	for level, want := range map[plugins.Level]map[string]Code{
		plugins.Soft: {"one": CodeTolerates, "two": CodeNext},
		plugins.Hard: {"one": CodeNext, "two": CodeNext},
	} {
		in := stillInput()
		v := &in.Levels.Verdicts[0]
		v.Level, v.MetLevel, v.Named = level, level, level == plugins.Soft
		in.Cluster.Pods.Pods[0].Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		in.Cluster.Pods.Pods[1].Tolerations = []corev1.Toleration{{Key: "plimsoll.dev/DiskContention", Operator: corev1.TolerationOpExists}}
		d, _ := Decide(in)
		assert.Equal(t, want, codes(d), level)
	}
}

func TestUnansweredBlocksNoOther(t *testing.T) {
	in := stillInput()
	asked := map[string]int{}
	for range 12 { // rounds of 10 s
		d, m := Decide(in)
		if i, some := d.Next(); some {
			var v Victim
			m, v = m.RecordChoice(in, &d, i)
			asked[v.UID]++
			m = m.RecordAnswer(Answer{Time: in.Time, Outcome: UnknownOutcome, Text: "timeout"}, in.Config)
		}
		in.Time = in.Time.Add(10 * time.Second)
		in.Levels.Time = in.Time
		in.State = m
	}
	assert.NotZero(t, asked["two"], "%v", asked)
	assert.GreaterOrEqual(t, asked["one"], 6, "for a minute it may still come through: %v", asked)
}

func TestMarkKeptWhileMeasurementMissing(t *testing.T) {
	in := stillInput()
	_, m := Mark(in)
	v := &in.Levels.Verdicts[0]
	v.Level, v.MetLevel, v.Partial = plugins.None, plugins.None, true
	for range 20 { // minutes: longer than the transition period
		in.Time = in.Time.Add(time.Minute)
		in.State = m
		var marks Marks
		marks, m = Mark(in)
		require.Len(t, marks.Taints, 1)
		require.Equal(t, corev1.TaintEffectNoSchedule, marks.Taints[0].Effect)
	}
	v.Partial = false
	in.Time, in.State = in.Time.Add(in.Config.Transition), m
	marks, _ := Mark(in)
	assert.Empty(t, marks.Taints)
}
