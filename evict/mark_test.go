package evict

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

const (
	memoryKey = "plimsoll.dev/MemoryContention"
	diskKey   = "plimsoll.dev/DiskContention"
)

// effects of the wanted taints by key.
func effects(m Marks) map[string]corev1.TaintEffect {
	all := map[string]corev1.TaintEffect{}
	for _, t := range m.Taints {
		all[t.Key] = t.Effect
	}
	return all
}

// about is the condition of a type.
func about(t *testing.T, m Marks, key string) Condition {
	t.Helper()
	for _, c := range m.Conditions {
		if c.Type == key {
			return c
		}
	}
	t.Fatalf("no condition %s in %v", key, m.Conditions)
	return Condition{}
}

func memoryAt(level plugins.Level) plugins.Verdict {
	v := pressing()
	v.Level, v.MetLevel, v.Reason = level, level, "memory is "+level.String()
	return v
}

func TestMark(t *testing.T) {
	t.Run("of each level", markOfEachLevel)
	t.Run("highest level wins", markHighestLevelWins)
	t.Run("unknown scope is not clear", markUnknownScopeIsNotClear)
	t.Run("without candidates", markWithoutCandidates)
	t.Run("transition period", markTransitionPeriod)
	t.Run("hard falls to soft", markHardFallsToSoft)
	t.Run("lasts with level", markLastsWithLevel)
	t.Run("state written seldom", markStateWrittenSeldom)
	t.Run("of disabled plugin fades", markOfDisabledPluginFades)
	t.Run("none in dry run or standalone", markNoneInDryRunOrStandalone)
	t.Run("clock set back", markClockSetBack)
	t.Run("leaves input unchanged", markLeavesInputUnchanged)
	t.Run("adopts former taints", markAdoptsFormerTaints)
	t.Run("met resolution", markMetResolution)
	t.Run("kept while unknown", markKeptWhileUnknown)
	t.Run("dry run no flap backoff", markDryRunNoFlapBackoff)
	t.Run("dry run plugin alone", markDryRunPluginAlone)
	t.Run("condition before taint", markConditionBeforeTaint)
	t.Run("first of clear scopes told", markFirstOfClearScopesTold)
	t.Run("CNR conditions", markCNRConditions)
	t.Run("adopts first and highest", markAdoptsFirstAndHighest)
	t.Run("effects last with taint", markEffectsLastWithTaint)
	t.Run("told where there is none", markToldWhereNone)
}

// A decision says that the node is marked only where it is, and else why not.
func markToldWhereNone(t *testing.T) {
	on := func(change func(in *Input, v *plugins.Verdict)) Input {
		in := round(0, nil, naming("p", "C", plugins.Soft))
		change(&in, &in.Levels.Verdicts[0])
		return in
	}
	for why, in := range map[string]Input{
		"":                            on(func(*Input, *plugins.Verdict) {}),
		"dry run":                     on(func(in *Input, _ *plugins.Verdict) { in.Config.DryRun = true }),
		"conditions.enabled is false": on(func(in *Input, _ *plugins.Verdict) { in.Cluster.Unmarked = "conditions.enabled is false" }),
		"the rule only reports":       on(func(_ *Input, v *plugins.Verdict) { v.ReportOnly, v.Condition = true, "" }),
		"the rule has no condition":   on(func(_ *Input, v *plugins.Verdict) { v.Condition = "" }),
		"outer plugins have as many conditions as they may": on(func(in *Input, v *plugins.Verdict) {
			v.CNR = true
			in.State.Claims = map[string]string{"1": "p", "2": "p", "3": "p", "4": "p"}
			in.Levels.Verdicts = append(in.Levels.Verdicts, naming("p", "1", plugins.None), naming("p", "2", plugins.None), naming("p", "3", plugins.None), naming("p", "4", plugins.None))
		}),
	} {
		var m Marks
		m, in.State = Mark(in)
		d, _ := Decide(in)
		want := "soft level: the node is marked, no pod is evicted"
		if why != "" {
			want = "soft level: no pod is evicted; the node is not marked: " + why
		}
		assert.Equal(t, want, d.Reason)
		assert.Equal(t, why == "" || in.Cluster.Unmarked != "", marksMet(m), why)
	}
}

// marksMet tells whether a pressure is marked.
func marksMet(m Marks) bool {
	met := func(c Condition) bool { return c.Status == corev1.ConditionTrue }
	return len(m.Taints) > 0 || slices.ContainsFunc(m.Conditions, met) || m.CNR != nil && marksMet(*m.CNR)
}

func markOfEachLevel(t *testing.T) {
	absent := memoryAt(plugins.None)
	absent.Absent = "no PSI"
	for what, row := range map[string]struct {
		verdict plugins.Verdict
		status  corev1.ConditionStatus
		reason  string
		effect  corev1.TaintEffect
	}{
		"none":     {memoryAt(plugins.None), corev1.ConditionFalse, "Clear", ""},
		"soft":     {memoryAt(plugins.Soft), corev1.ConditionTrue, "Soft", corev1.TaintEffectPreferNoSchedule},
		"hard":     {memoryAt(plugins.Hard), corev1.ConditionTrue, "Hard", corev1.TaintEffectNoSchedule},
		"not seen": {absent, corev1.ConditionUnknown, "NotSeen", ""},
	} {
		t.Run(what, func(t *testing.T) {
			m, _ := Mark(round(0, nil, row.verdict))
			assert.Equal(t, []Condition{{Type: memoryKey, Status: row.status, Reason: row.reason, Message: row.verdict.Reason}}, m.Conditions)
			var want []corev1.Taint
			if row.effect != "" {
				want = []corev1.Taint{{Key: memoryKey, Effect: row.effect}}
			}
			assert.Equal(t, want, m.Taints)
		})
	}
}

func markHighestLevelWins(t *testing.T) {
	sdb := disk(plugins.Hard)
	sdb.Scope, sdb.Reason = "sdb", "sdb is full of work"
	unmarked := disk(plugins.Hard)
	unmarked.Condition = ""
	for _, list := range [][]plugins.Verdict{
		{memoryAt(plugins.None), disk(plugins.Soft), sdb, unmarked},
		{unmarked, sdb, disk(plugins.None), disk(plugins.Soft), memoryAt(plugins.None)},
	} {
		m, memory := Mark(round(0, nil, list...))
		assert.Equal(t, []Condition{
			{Type: diskKey, Status: corev1.ConditionTrue, Reason: "Hard", Message: "sdb is full of work"},
			{Type: memoryKey, Status: corev1.ConditionFalse, Reason: "Clear", Message: "memory is none"},
		}, m.Conditions)
		assert.Equal(t, map[string]corev1.TaintEffect{diskKey: corev1.TaintEffectNoSchedule}, effects(m))
		assert.NotContains(t, memory.Marks, "")
		assert.NotContains(t, memory.Marks, "MemoryContention")
	}
	other := disk(plugins.Hard)
	other.Scope, other.Reason = "sdc", "sdc too"
	m, _ := Mark(round(0, nil, sdb, other))
	assert.Equal(t, "sdb is full of work", m.Conditions[0].Message, "of equals the first")
}

// room is what the filesystem plugin says of a mount.
func room(point string, level plugins.Level) plugins.Verdict {
	return plugins.Verdict{
		Plugin: "filesystem", Resource: plugins.Filesystem, Scope: point, Level: level, MetLevel: level,
		Condition: "FilesystemPressure", Reason: "room on " + point + " is " + level.String(),
	}
}

func markUnknownScopeIsNotClear(t *testing.T) {
	hung := room("/mnt", plugins.None)
	hung.Absent = "statfs hangs"
	second := room("/second", plugins.None)
	second.Absent = "not mounted"
	for _, list := range [][]plugins.Verdict{
		{room("/a", plugins.None), hung, room("/z", plugins.None), second},
		{hung, room("/a", plugins.None)},
	} {
		m, _ := Mark(round(0, nil, list...))
		assert.Equal(t, []Condition{{
			Type: "plimsoll.dev/FilesystemPressure", Status: corev1.ConditionUnknown, Reason: "NotSeen", Message: "room on /mnt is none",
		}}, m.Conditions)
	}
	for _, list := range [][]plugins.Verdict{
		{hung, room("/a", plugins.Soft)},
		{room("/a", plugins.Soft), hung},
	} {
		m, _ := Mark(round(0, nil, list...))
		assert.Equal(t, corev1.ConditionTrue, m.Conditions[0].Status)
		assert.Equal(t, "room on /a is soft", m.Conditions[0].Message)
	}
}

func markWithoutCandidates(t *testing.T) {
	full := room("/data", plugins.Soft)
	in := round(0, []pods.Pod{pod("a"), pod("b")}, room("/", plugins.None), full, memoryAt(plugins.None))
	m, _ := Mark(in)
	assert.Equal(t, map[string]corev1.TaintEffect{"plimsoll.dev/FilesystemPressure": corev1.TaintEffectPreferNoSchedule}, effects(m))
	c := about(t, m, "plimsoll.dev/FilesystemPressure")
	assert.Equal(t, corev1.ConditionTrue, c.Status)
	assert.Equal(t, "Soft", c.Reason)
	assert.Equal(t, "room on /data is soft", c.Message)

	a := api{}
	d, _ := play(in, &a)
	assert.Empty(t, a.asked)
	assert.Empty(t, d.Candidates)
	assert.Equal(t, CodeSoft, d.Code)
	assert.Equal(t, "soft level: the node is marked, no pod is evicted", d.Reason)
	require.Len(t, d.Causes, 1)
	assert.Equal(t, "/data", d.Causes[0].Scope)

	in = round(0, []pods.Pod{pod("a"), pod("b")}, full, pressing(named("b", 30)))
	d, _ = play(in, &a)
	assert.Equal(t, []string{"b"}, a.uids(), "it neither adds a candidate to another rule's nor spares one")
	assert.Equal(t, CodeEvicted, d.Code)
	assert.Len(t, d.Causes, 2)
}

func markTransitionPeriod(t *testing.T) {
	for level, effect := range map[plugins.Level]corev1.TaintEffect{
		plugins.Soft: corev1.TaintEffectPreferNoSchedule, plugins.Hard: corev1.TaintEffectNoSchedule,
	} {
		in := round(0, nil, memoryAt(level))
		_, m := Mark(in)
		in.Levels.Verdicts[0] = memoryAt(plugins.None)
		for in = then(in, 1, m); in.Time.Before(at(300)); in = then(in, 1, restarted(t, m)) {
			var marks Marks
			marks, m = Mark(in)
			require.Equal(t, effect, effects(marks)[memoryKey], in.Time)
			c := about(t, marks, memoryKey)
			require.Equal(t, corev1.ConditionTrue, c.Status)
			require.Equal(t, "Settling", c.Reason)
		}
		marks, m := Mark(in)
		assert.Empty(t, marks.Taints, "the period is over")
		assert.Equal(t, "Clear", about(t, marks, memoryKey).Reason)
		_, m = Mark(then(in, 3599, m))
		assert.NotEmpty(t, m.Marks, "that it was there is known for an hour")
		_, m = Mark(then(in, 3600, m))
		assert.Empty(t, m.Marks)
	}
}

func markHardFallsToSoft(t *testing.T) {
	in := round(0, nil, memoryAt(plugins.Hard))
	_, m := Mark(in)
	in.Levels.Verdicts[0] = memoryAt(plugins.Soft)
	for second := 1; second < 700; second++ {
		in = then(in, 1, m)
		var marks Marks
		marks, m = Mark(in)
		want := corev1.TaintEffectNoSchedule
		if second >= 300 {
			want = corev1.TaintEffectPreferNoSchedule
		}
		require.Equal(t, want, effects(marks)[memoryKey], second)
		require.Equal(t, "Soft", about(t, marks, memoryKey).Reason)
	}
}

func markLastsWithLevel(t *testing.T) {
	for _, period := range []time.Duration{0, time.Second, 10 * time.Second, 15 * time.Second, time.Hour} {
		in := round(0, nil, memoryAt(plugins.Hard))
		in.Config.Transition = period
		for range 100 {
			marks, m := Mark(in)
			require.Equal(t, corev1.TaintEffectNoSchedule, effects(marks)[memoryKey], period)
			require.Equal(t, corev1.ConditionTrue, about(t, marks, memoryKey).Status)
			in = then(in, 1, m)
		}
	}
}

func markStateWrittenSeldom(t *testing.T) {
	in := round(0, nil, memoryAt(plugins.Hard))
	changes := map[time.Time]bool{}
	for range 60 {
		_, m := Mark(in)
		changes[m.Marks["MemoryContention"].LastMet[1]] = true
		require.Zero(t, m.Marks["MemoryContention"].LastMet[0])
		in = then(in, 1, m)
	}
	assert.Equal(t, map[time.Time]bool{at(0): true, at(15): true, at(30): true, at(45): true}, changes)
}

func markOfDisabledPluginFades(t *testing.T) {
	_, m := Mark(round(0, nil, memoryAt(plugins.Soft)))
	in := then(round(0, nil, disk(plugins.None)), 100, m)
	marks, m := Mark(in)
	assert.Equal(t, Condition{Type: memoryKey, Status: corev1.ConditionTrue, Reason: "Settling", Message: "over; the mark stays until 2026-03-01 12:05:00 UTC: " + ReasonDisabled}, about(t, marks, memoryKey))
	assert.Equal(t, map[string]corev1.TaintEffect{memoryKey: corev1.TaintEffectPreferNoSchedule}, effects(marks))
	marks, _ = Mark(then(in, 200, m))
	assert.Len(t, marks.Conditions, 1)
	assert.Equal(t, diskKey, marks.Conditions[0].Type)
	assert.Empty(t, marks.Taints)
}

func markNoneInDryRunOrStandalone(t *testing.T) {
	forReal := round(0, nil, memoryAt(plugins.Hard))
	dry, alone := forReal, forReal
	dry.Config.DryRun, alone.Cluster = true, nil
	for _, in := range []Input{dry, alone} {
		marks, m := Mark(in)
		assert.Equal(t, Marks{}, marks)
		assert.Empty(t, m.Marks)

		marks, _ = Mark(then(round(0, nil, memoryAt(plugins.None)), 1, m))
		assert.Empty(t, marks.Taints, "a pressure that was over when the dry run ended")
		assert.Equal(t, corev1.ConditionFalse, about(t, marks, memoryKey).Status)
		marks, _ = Mark(then(forReal, 1, m))
		assert.Len(t, marks.Taints, 1, "one that goes on")
	}
}

func markClockSetBack(t *testing.T) {
	_, m := Mark(round(86400, nil, memoryAt(plugins.Hard)))
	in := then(round(0, nil, memoryAt(plugins.None)), 0, m)
	marks, m := Mark(in)
	assert.Equal(t, corev1.TaintEffectNoSchedule, effects(marks)[memoryKey])
	marks, _ = Mark(then(in, 300, m))
	assert.Empty(t, marks.Taints)

	_, m = Mark(then(round(1, nil, memoryAt(plugins.Hard)), 0, m))
	assert.Equal(t, at(0), m.Marks["MemoryContention"].LastMet[1])
}

func markLeavesInputUnchanged(t *testing.T) {
	_, m := Mark(round(0, nil, memoryAt(plugins.Soft)))
	before := restarted(t, m)
	in := then(round(0, nil, memoryAt(plugins.Hard)), 60, m)
	Mark(in)
	m.Adopt(at(9), []OwnTaint{ownTaint(diskKey, corev1.TaintEffectNoSchedule, 0)})
	Mark(then(in, 900, m))
	assert.Empty(t, cmp.Diff(before, restarted(t, m)))
}

func markAdoptsFormerTaints(t *testing.T) {
	_, known := Mark(round(-200, nil, memoryAt(plugins.Soft)))
	for what, row := range map[string]struct {
		before State
		owned  []OwnTaint
		want   map[string]corev1.TaintEffect
	}{
		"soft": {State{}, []OwnTaint{ownTaint(diskKey, corev1.TaintEffectPreferNoSchedule, 0)}, map[string]corev1.TaintEffect{diskKey: corev1.TaintEffectPreferNoSchedule}},
		"hard": {State{}, []OwnTaint{ownTaint(diskKey, corev1.TaintEffectNoSchedule, 0)}, map[string]corev1.TaintEffect{diskKey: corev1.TaintEffectNoSchedule}},
		"both, in any order": {State{}, []OwnTaint{
			ownTaint(diskKey, corev1.TaintEffectPreferNoSchedule, 0), ownTaint(diskKey, corev1.TaintEffectNoSchedule, 0),
			ownTaint(memoryKey, corev1.TaintEffectNoSchedule, 0), ownTaint(memoryKey, corev1.TaintEffectPreferNoSchedule, 0),
		}, map[string]corev1.TaintEffect{diskKey: corev1.TaintEffectNoSchedule, memoryKey: corev1.TaintEffectNoSchedule}},
		"NoExecute is never asked for":     {State{}, []OwnTaint{ownTaint(diskKey, corev1.TaintEffectNoExecute, 0)}, map[string]corev1.TaintEffect{diskKey: corev1.TaintEffectNoSchedule}},
		"what is remembered is not enough": {known, []OwnTaint{ownTaint(memoryKey, corev1.TaintEffectNoSchedule, 0)}, map[string]corev1.TaintEffect{memoryKey: corev1.TaintEffectNoSchedule}},
		"a key that is not ours":           {State{}, []OwnTaint{ownTaint("example.com/x", corev1.TaintEffectNoSchedule, 0), ownTaint(names.Prefix, corev1.TaintEffectNoSchedule, 0)}, map[string]corev1.TaintEffect{}},
		"none":                             {State{}, nil, map[string]corev1.TaintEffect{}},
	} {
		t.Run(what, func(t *testing.T) {
			m := row.before.Adopt(at(0), row.owned)
			in := then(round(0, nil), 50, m)
			marks, m := Mark(in)
			assert.Equal(t, row.want, effects(marks))
			marks, _ = Mark(then(in, 249, m))
			assert.Equal(t, row.want, effects(marks))
			marks, _ = Mark(then(in, 250, m))
			assert.Empty(t, marks.Taints)
		})
	}
}

func markMetResolution(t *testing.T) {
	assert.Equal(t, 15*time.Second, metResolution(time.Hour))
	assert.Equal(t, 3*time.Second, metResolution(time.Minute))
}

func markKeptWhileUnknown(t *testing.T) {
	partial := memoryAt(plugins.None)
	partial.Partial = true
	_, m := Mark(round(0, nil, partial))
	assert.Empty(t, m.Marks, "there was none")
	in := round(0, nil, memoryAt(plugins.Hard))
	_, m = Mark(in)
	in.Levels.Verdicts[0] = partial
	changes := map[time.Time]bool{}
	for range 60 {
		in = then(in, 1, m)
		_, m = Mark(in)
		changes[m.Marks["MemoryContention"].LastMet[1]] = true
	}
	assert.Equal(t, map[time.Time]bool{at(0): true, at(15): true, at(30): true, at(45): true, at(60): true}, changes)
}

func markDryRunNoFlapBackoff(t *testing.T) {
	in := round(0, nil, memoryAt(plugins.Hard))
	_, in.State = Mark(in)
	require.Equal(t, plugins.Hard, in.State.Marks["MemoryContention"].TaintLevel)
	in.Config.DryRun = true
	_, m := Mark(in)
	assert.Empty(t, m.Marks)
}

func markDryRunPluginAlone(t *testing.T) {
	in := round(0, nil, memoryAt(plugins.Hard), disk(plugins.Hard))
	_, in.State = Mark(in)
	in.Config.DryRunPlugins = []string{"disk-contention"}
	marks, m := Mark(in)
	assert.Equal(t, map[string]corev1.TaintEffect{memoryKey: corev1.TaintEffectNoSchedule}, effects(marks))
	assert.NotContains(t, m.Marks, "DiskContention")
}

func markConditionBeforeTaint(t *testing.T) {
	for what, row := range map[string]struct {
		level      plugins.Level
		transition time.Duration
		reason     string
	}{
		"soft, without a period":       {plugins.Soft, 0, "Soft"},
		"over, and its period is not":  {plugins.None, 5 * time.Minute, "Settling"},
		"soft, with the usual periods": {plugins.Soft, 5 * time.Minute, "Soft"},
	} {
		in := round(0, nil, memoryAt(row.level))
		in.Config.Transition = row.transition
		in.State.Marks = map[string]MarkState{"MemoryContention": {LastMet: [2]time.Time{at(-20)}, UntaintedAt: at(-10), Flaps: 1}}
		marks, _ := Mark(in)
		require.Empty(t, marks.Taints, what)
		assert.Equal(t, corev1.ConditionTrue, about(t, marks, memoryKey).Status, what)
		assert.Equal(t, row.reason, about(t, marks, memoryKey).Reason, what)
	}
}

func markFirstOfClearScopesTold(t *testing.T) {
	m, _ := Mark(round(0, nil, room("/a", plugins.None), room("/z", plugins.None)))
	assert.Equal(t, "room on /a is none", m.Conditions[0].Message)
}

func markCNRConditions(t *testing.T) {
	one, two := naming("p", "A", plugins.Soft), naming("q", "B", plugins.Soft)
	one.CNR, two.CNR = true, true
	m, _ := Mark(round(0, nil, one, two))
	require.NotNil(t, m.CNR)
	assert.Len(t, m.CNR.Conditions, 2)
}

func markAdoptsFirstAndHighest(t *testing.T) {
	owned := []OwnTaint{ownTaint(diskKey, corev1.TaintEffectNoSchedule, -100), ownTaint(diskKey, corev1.TaintEffectPreferNoSchedule, -50)}
	seen := State{}.Adopt(at(0), owned).Marks["DiskContention"]
	assert.Equal(t, plugins.Hard, seen.TaintLevel)
	assert.True(t, seen.TaintedAt.Equal(owned[0].Since.Time))
	before := State{Marks: map[string]MarkState{"DiskContention": {Effects: map[string]time.Time{"NoSchedule": at(-1000)}}}}
	assert.Equal(t, map[string]time.Time{"NoSchedule": at(0)}, before.Adopt(at(0), owned).Marks["DiskContention"].Effects)
}

func markEffectsLastWithTaint(t *testing.T) {
	asked := map[string]time.Time{"q/NoSchedule": at(-9)}
	in := round(0, nil, memoryAt(plugins.None))
	in.State.Marks = map[string]MarkState{
		cnrPrefix + "Worn":  {TaintLevel: plugins.Hard, TaintedAt: at(-1), Flaps: 2, Effects: asked},
		cnrPrefix + "Met":   {LastMet: [2]time.Time{at(-9)}, UntaintedAt: at(-1), Flaps: 1, Effects: asked},
		cnrPrefix + "Ended": {UntaintedAt: at(-1), Flaps: 1, Effects: asked},
	}
	marks, m := Mark(in)
	require.NotNil(t, marks.CNR)
	assert.Equal(t, []corev1.Taint{{Key: names.Prefix + "Worn", Effect: "q/NoSchedule"}}, marks.CNR.Taints)
	assert.Equal(t, asked, m.Marks[cnrPrefix+"Worn"].Effects)
	assert.Equal(t, asked, m.Marks[cnrPrefix+"Met"].Effects)
	assert.Nil(t, m.Marks[cnrPrefix+"Ended"].Effects)
}
