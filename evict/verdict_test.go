package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// softDisk is a disk rule that is armed and wants pods gone at soft.
func softDisk(list ...plugins.Candidate) plugins.Verdict {
	v := disk(plugins.Soft, list...)
	v.Named = true
	return v
}

func TestRequest(t *testing.T) {
	t.Run("reason", requestReason)
	t.Run("nothing soft for soft pod", requestNothingSoftForSoftPod)
	t.Run("beside braked plugin", requestBesideBrakedPlugin)
	t.Run("not for report only forced", requestNotForReportOnlyForced)
	t.Run("for still missing", requestForStillMissing)
	t.Run("reason order", requestReasonOrder)
	t.Run("repeated unchanged", requestRepeatedUnchanged)
	t.Run("forced despite grace period", requestForcedDespiteGracePeriod)
	t.Run("tolerant pod not for soft", requestTolerantPodNotForSoft)
	t.Run("standalone", requestStandalone)
}

// The brake of the controller, the exemption of memory from it, and the disk that
// is not waited for rest on what a pod is asked for.
func requestReason(t *testing.T) {
	floor := func(list ...plugins.Candidate) plugins.Verdict {
		v := pressing(list...)
		v.Urgent = true
		return v
	}
	const (
		byDisk   = "disk-contention at soft"
		byMemory = "memory-stall at hard, below the floor"
	)
	due := floor(named("a", 30))
	due.GraceEnds = at(60)
	unheard := floor(named("a", 30))
	unheard.Absent = "no PSI"
	for what, row := range map[string]struct {
		memory plugins.Verdict
		change func(*Input)
		want   string
	}{
		"memory may":                       {floor(named("a", 30)), func(*Input) {}, byMemory},
		"its rule only reports":            {floor(named("a", 30)), func(in *Input) { in.State.Rules = map[string]Rule{"memory-stall": {Since: in.Uptime}} }, byDisk},
		"it is not met for long enough":    {due, func(*Input) {}, byDisk},
		"a measurement of it is absent":    {unheard, func(*Input) {}, byDisk},
		"another is ending for it":         {floor(named("a", 30), named("b", 30)), func(in *Input) { in.Cluster.Pods.Pods[1].TerminatesBy = at(20) }, byDisk},
		"it is the kubelet's turn":         {floor(named("a", 30)), func(in *Input) { in.Cluster.Node.KubeletPressure = []string{"MemoryPressure"} }, byDisk},
		"the pod is too small to end it":   {floor(named("a", 1)), func(*Input) {}, byDisk},
		"the controller refuses it by now": {floor(named("a", 30)), func(in *Input) { in.State.Refusals = map[string]Backoff{byMemory: {Until: at(60)}} }, byDisk},
	} {
		for _, verdicts := range [][]plugins.Verdict{{row.memory, softDisk(named("a", 30))}, {softDisk(named("a", 30)), row.memory}} {
			t.Run(what, func(t *testing.T) {
				in := pleading([]pods.Pod{pod("a"), pod("b")}, verdicts...)
				in.Config.ReportOnly = 10 * time.Minute
				in.Rules = map[string]plugins.Rule{"memory-stall": {Default: true}, "disk-contention": {Default: true}}
				row.change(&in)
				d, _ := Decide(in)
				require.Equal(t, CodeNext, d.Code, d.Reason)
				assert.Equal(t, row.want == byMemory, d.EvictUnsaved(0, 0))
				a := api{}
				_, m := play(in, &a)
				require.Equal(t, []string{"a"}, a.uids())
				assert.Equal(t, row.want == byMemory, a.asked[0].Urgent)
				assert.Equal(t, row.want, m.last().For)
			})
		}
	}
}

func requestNothingSoftForSoftPod(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*Input)
		code   Code
	}{
		"the rule at hard only reports": {func(in *Input) { in.State.Rules = map[string]Rule{"memory-stall": {Since: in.Uptime}} }, CodeReportOnly},
		"the controller refuses it": {func(in *Input) {
			in.State.Refusals = map[string]Backoff{"memory-stall at hard": {Until: at(60)}}
		}, CodeBrake},
		"it may go at hard": {func(*Input) {}, CodeEvicted},
	} {
		in := pleading([]pods.Pod{pod("a", optedOut)}, pressing(named("a", 30)), softDisk(named("a", 30)))
		in.Config.ReportOnly = 10 * time.Minute
		in.Rules = map[string]plugins.Rule{"memory-stall": {Default: true}, "disk-contention": {Default: true}}
		row.change(&in)
		d, _ := play(in, &api{})
		assert.Equal(t, map[string]Code{"a": row.code}, codes(d), what)
	}
}

// A plugin that is at hard everywhere is a common cause, and lets nobody go.
func requestBesideBrakedPlugin(t *testing.T) {
	rogue := plugins.Verdict{Plugin: "rogue", Scope: "x", Level: plugins.Hard, MetLevel: plugins.Hard, Since: at(-5)}
	rogue.Candidates = []plugins.Candidate{named("a", 30), named("b", 30)}
	a := api{answer: brakes("rogue")}
	in := pleading([]pods.Pod{pod("a"), pod("b")}, rogue, softDisk(rogue.Candidates...))
	d, m := play(in, &a)
	require.Equal(t, CodeBrake, d.Code)
	d, _ = play(then(in, 1, restarted(t, m)), &a)
	require.Equal(t, CodeEvicted, d.Code, d.Reason)
	require.Len(t, a.asked, 2, "the second in the next round")
	assert.Equal(t, "disk-contention", a.asked[1].Plugin)
	assert.Equal(t, plugins.Soft, a.asked[1].Level)
}

func requestNotForReportOnlyForced(t *testing.T) {
	in := pleading([]pods.Pod{pod("a")}, files(named("a", 0)), disk(plugins.Soft, named("a", 30)))
	in.Config.ReportOnly = time.Minute
	in.Rules = map[string]plugins.Rule{"disk-contention": {Default: true}}
	d, _ := play(in, &api{})
	assert.Equal(t, map[string]Code{"a": CodeReportOnly}, codes(d))
}

func TestFallbackNotForReportOnly(t *testing.T) {
	in := governed(fallback)
	in.Levels.Verdicts = append(in.Levels.Verdicts, disk(plugins.Hard, named("a", 30)))
	in.Config.ReportOnly = time.Hour
	in.Rules = map[string]plugins.Rule{"disk-contention": {Default: true}}
	assert.Empty(t, alonePlayed(t, in, 600))
}

// One pod is all that memory misses; the second goes for the disk alone.
func requestForStillMissing(t *testing.T) {
	of := disk(plugins.Hard, named("a", 30), named("b", 30))
	of.Target = some(60)
	of.Whole = some(100)
	in := pleading([]pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 30)), of)
	in.Config.Limits.PerRound = 2
	a := api{}
	play(in, &a)
	require.Equal(t, []string{"a", "b"}, a.uids())
	assert.Equal(t, "memory-stall", a.asked[0].Plugin)
	assert.Equal(t, "disk-contention", a.asked[1].Plugin)
}

func requestReasonOrder(t *testing.T) {
	list := []VerdictRef{ // each key decides where those before it are equal
		{"z", plugins.Soft, "", true},
		{"z", plugins.Hard, plugins.Memory, false},
		{"z", plugins.Hard, plugins.Disk, false},
		{"a", plugins.Hard, "", false},
		{"b", plugins.Hard, "", false},
		{"y", plugins.Soft, plugins.CPU, false},
		{"y", plugins.Soft, plugins.Disk, false},
		{"z", plugins.Soft, plugins.CPU, false},
	}
	for i, a := range list {
		assert.Zero(t, a.before(a))
		for _, b := range list[i+1:] {
			assert.Negative(t, a.before(b), "%v before %v", a, b)
			assert.Positive(t, b.before(a), "%v after %v", b, a)
		}
	}
}

// The request that stands is repeated in its own words, whatever is refused since.
func requestRepeatedUnchanged(t *testing.T) {
	const byDisk, byMemory = "disk-contention at soft", "memory-stall at hard"
	for what, row := range map[string]struct {
		before, refused, want string
		verdicts              []plugins.Verdict
	}{
		"what it goes for is refused to others":     {byMemory, byMemory, byMemory, []plugins.Verdict{softDisk(named("a", 30)), pressing(named("a", 30))}},
		"what weighs more is refused":               {byDisk, byMemory, byDisk, []plugins.Verdict{softDisk(named("a", 30)), pressing(named("a", 30))}},
		"what it went for is over, the rest is not": {byMemory, byDisk, byDisk, []plugins.Verdict{softDisk(named("a", 30))}},
	} {
		in := pleading([]pods.Pod{pod("a")}, row.verdicts...)
		in.State.Victims = []Chosen{{Victim: Victim{UID: "a", Namespace: "shop", Name: "web-a"}, Time: at(-5), Requested: at(-5), For: row.before, Outcome: UnknownOutcome}}
		in.State.Refusals = map[string]Backoff{row.refused: {Until: at(60)}}
		a := api{}
		_, m := play(in, &a)
		require.Equal(t, []string{"a"}, a.uids(), what)
		assert.Equal(t, row.want, m.last().For, what)
	}
}

func requestForcedDespiteGracePeriod(t *testing.T) {
	waiting := pressing(named("a", 30))
	waiting.GraceEnds = at(60)
	notShown := forced(named("a", 0))
	notShown.Refused = "it was not shown"
	for what, row := range map[string]struct {
		forces plugins.Verdict
		want   map[string]Code
	}{
		"it forces this one":          {asking(forced(named("a", 0))), map[string]Code{"a": CodeEvicted}},
		"it forces another":           {asking(forced(named("b", 0))), map[string]Code{"a": CodeGrace, "b": CodeEvicted}},
		"its word is not taken":       {asking(notShown), map[string]Code{"a": CodeGrace}},
		"it is not met, so it is old": {disk(plugins.None, forced(named("a", 0))), map[string]Code{"a": CodeGrace}},
	} {
		d, _ := play(round(0, []pods.Pod{pod("a"), pod("b")}, waiting, row.forces), &api{})
		got := codes(d)
		assert.Equal(t, row.want["a"], got["a"], what)
		assert.Equal(t, row.want["b"], got["b"], what)
	}
}

func requestTolerantPodNotForSoft(t *testing.T) {
	tolerates := func(p *pods.Pod) {
		p.Tolerations = []corev1.Toleration{{Key: diskKey, Operator: corev1.TolerationOpExists}}
	}
	waiting := pressing(named("a", 30))
	waiting.GraceEnds = at(60)
	d, _ := play(round(0, []pods.Pod{pod("a", tolerates)}, waiting, softDisk(named("a", 30))), &api{})
	assert.Equal(t, map[string]Code{"a": CodeGrace}, codes(d))
	d, _ = play(round(0, []pods.Pod{pod("a")}, waiting, softDisk(named("a", 30))), &api{})
	assert.Equal(t, map[string]Code{"a": CodeEvicted}, codes(d))
}

func requestStandalone(t *testing.T) {
	in := pleading(nil, softDisk(named("a", 30)))
	in.Cluster = nil
	in.State.Refusals = map[string]Backoff{"disk-contention at soft": {Until: at(60)}}
	d, _ := Decide(in)
	assert.Equal(t, CodeStandalone, d.Code)
}
