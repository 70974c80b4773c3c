package replay

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// stalls is memory-stall's scope in a report.
func stalls(t *testing.T, r *Report) *Scope {
	t.Helper()
	for i := range r.Scopes {
		if r.Scopes[i].Plugin == "memory-stall" {
			return &r.Scopes[i]
		}
	}
	t.Fatal("memory-stall said nothing")
	return nil
}

func TestReplayShortage(t *testing.T) {
	n := newNode().seconds(61, 0).short(20).seconds(60, 0)
	r := replayed(player(nil), n)
	assert.Equal(t, []string{"memory-stall node none>hard at 1m3s", "memory-stall node hard>none at 1m50s"}, levels(r))
	assert.Equal(t, uint64(141), r.Samples)
	assert.InDelta(t, 140, r.Seconds, 0)
	assert.Equal(t, n.samples[0].Time, r.Start)
	assert.Equal(t, n.samples[140].Time, r.End)

	s := stalls(t, r)
	assert.InDelta(t, 47, s.HardSeconds, 0)
	assert.InDelta(t, 93, s.NoneSeconds, 0)
	assert.InDelta(t, 30, s.UnjudgedSeconds, 0, "soft needs half a minute to be judged")
	assert.Equal(t, "29s of the last 30s seen so far", s.Absent)
	assert.Zero(t, s.SoftSeconds)
	assert.Equal(t, []uint64{0, 1}, []uint64{s.RoseToSoft, s.RoseToHard})
	assert.InDelta(t, 0.6, s.Hard.Observed, 1e-9)
	assert.InDelta(t, 0.25, s.Hard.Threshold, 0)
	assert.InDelta(t, 0.4, s.Soft.Observed, 1e-9, "20 of 30 seconds at 60 %")

	require.NotEmpty(t, r.Decisions)
	d := r.Decisions[0]
	assert.InDelta(t, 63, d.OffsetSeconds, 0, "at once when the level rises")
	assert.Equal(t, evict.CodeWouldEvict, d.Code)
	assert.True(t, d.DryRun)
	going, some := d.FirstEvicted()
	require.True(t, some)
	assert.Equal(t, "pod/"+largeUID, going.Name)
	assert.Equal(t, "working set 30720 MiB", going.Why)
	assert.Empty(t, going.Answers, "no request was sent")
	var codes []evict.Code
	for _, c := range d.Candidates {
		codes = append(codes, c.Code)
	}
	assert.Equal(t, []evict.Code{evict.CodeWouldEvict, evict.CodeTooSmall, evict.CodeNotAPod}, codes)
	assert.Equal(t, evict.CodeEnded, r.Decisions[len(r.Decisions)-1].Code)
	for _, later := range r.Decisions[1:] {
		assert.NotEqual(t, evict.CodeWouldEvict, later.Code, "one pressure, one eviction")
	}
}

func TestReplayLowestClassEvictedFirst(t *testing.T) {
	n := newNode()
	n.small = 20 * gib
	n.seconds(40, 0).short(10)
	for _, s := range n.samples {
		s.Workloads[1].Cgroup = "/kubepods.slice/kubepods-besteffort.slice/pod-b.slice"
	}
	d := replayed(player(nil), n).Decisions[0]
	going, _ := d.FirstEvicted()
	assert.Equal(t, "pod/"+smallUID, going.Name)
}

func TestReplayEvictedAfterManySkipped(t *testing.T) {
	n := newNode().seconds(40, 0).short(10)
	for _, s := range n.samples {
		for i := range uint64(40) {
			w := s.Workloads[1]
			w.Cgroup, w.Inode, w.PodUID = fmt.Sprintf("/kubepods.slice/kubepods-besteffort.slice/pod-%d.slice", i), 2+i, fmt.Sprint(i)
			s.Workloads = append(s.Workloads, w)
		}
	}
	d := replayed(player(nil), n).Decisions[0]
	going, _ := d.FirstEvicted()
	assert.Equal(t, "pod/"+largeUID, going.Name)
	assert.Positive(t, d.Omitted)
}

func TestReplayWithoutPods(t *testing.T) {
	n := newNode().seconds(40, 0).short(10)
	for _, s := range n.samples {
		s.Workloads = s.Workloads[2:]
	}
	d := replayed(player(nil), n).Decisions[0]
	assert.Equal(t, evict.CodeNone, d.Code)
	assert.Equal(t, "no pod evicted: the plugin named no pod; the largest workload, backup.service (working set 1024 MiB): not a pod", d.text())
}

func TestReplayEvictionsOff(t *testing.T) {
	c := defaults()
	c.Eviction.Enabled = false
	r := replayed(player(c), newNode().seconds(40, 0).short(10))
	assert.Equal(t, evict.CodeOff, r.Decisions[0].Code)
}

func TestReplayOtherThreshold(t *testing.T) {
	n := newNode().seconds(61, 0).short(20).seconds(60, 0)
	c := defaults()
	c.Plugins.MemoryStall.Hard.StallFull = 0.7
	assert.Equal(t, []string{"memory-stall node none>soft at 1m5s", "memory-stall node soft>none at 1m50s"}, levels(replayed(player(c), n)))
	c = defaults()
	c.Plugins.MemoryStall.Enabled = false
	r := replayed(player(c), n)
	assert.Empty(t, r.Changes)
	assert.NotContains(t, levels(r), "memory-stall")
}

// changing is a node whose shortage comes and goes at random, with gaps.
func changing(random *rand.Rand) *node {
	n := newNode()
	for range 30 {
		n.available = []uint64{2 * gib, 5 * gib, 40 * gib}[random.IntN(3)]
		n.seconds(1+random.IntN(20), []float64{0, 0.05, 0.15, 0.5}[random.IntN(4)])
		if random.IntN(10) == 0 {
			n.pass(time.Duration(random.IntN(8000))*time.Millisecond, 0)
		}
	}
	return n
}

// The slow obvious version: the agent's own parts, one after the other.
func TestReplayLevelsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	hard := 0
	for range 20 {
		n, c := changing(random), defaults()
		history := snapshot.History{Window: c.Window, Keep: c.History, MaxGap: 3 * time.Second}
		set := plugins.NewSet(c.Plugins.Inner, nil)
		want, level := []string{}, plugins.None
		for _, s := range n.samples {
			if l := set.Judge(history.Add(s)).Verdicts[0].Level; l != level {
				want, level = append(want, s.Time.String()+" "+l.String()), l
			}
		}
		p := player(c)
		p.WarmUp = true
		got := []string{}
		for _, change := range replayed(p, n).Changes {
			got = append(got, change.Time.String()+" "+change.To.String())
			if change.To == plugins.Hard {
				hard++
			}
		}
		require.Equal(t, want, got)
	}
	require.Greater(t, hard, 10, "there was something to see")
}

func TestReplayAccountsForAllTime(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		n := newNode()
		n.seconds(1, 0)
		for range 60 {
			switch random.IntN(8) {
			case 0:
				n.pass(time.Duration(random.IntN(90))*time.Second, 0)
			case 1:
				n.reboot().seconds(1, 0)
			case 2:
				n.short(random.IntN(40))
			default:
				n.seconds(random.IntN(30), 0)
			}
		}
		r := replayed(player(nil), n)
		s := stalls(t, r)
		assert.InDelta(t, r.Seconds, s.NoneSeconds+s.SoftSeconds+s.HardSeconds+s.UnobservedSeconds, 1e-6)
		gaps := 0.0
		for _, g := range r.Gaps {
			gaps += g.Seconds
		}
		assert.InDelta(t, gaps, s.UnobservedSeconds, 1e-6)
	}
}

func TestReplayGapNotJudged(t *testing.T) {
	n := newNode().seconds(61, 0).short(10)
	n.pass(time.Minute, 0).seconds(40, 0)
	r := replayed(player(nil), n)
	require.Len(t, r.Gaps, 1)
	assert.Equal(t, Gap{
		Time: n.samples[71].Time, OffsetSeconds: 130, Seconds: 60, Reason: "no sample for 1m0s (suspended, paused or starved)",
	}, r.Gaps[0])
	s := stalls(t, r)
	assert.InDelta(t, 60, s.UnobservedSeconds, 0)
	assert.Equal(t, []string{"memory-stall node none>hard at 1m3s", "memory-stall node hard>none at 2m40s"}, levels(r), "a gap is no calm")
}

func TestReplayRebootEndsLevels(t *testing.T) {
	n := newNode().seconds(61, 0).short(10).reboot().seconds(400, 0).short(10)
	r := replayed(player(nil), n)
	require.Len(t, r.Gaps, 1)
	assert.Equal(t, Rebooted, r.Gaps[0].Reason)
	assert.InDelta(t, 61, r.Gaps[0].Seconds, 0, "by the wall's clock")
	require.Len(t, r.Changes, 3)
	assert.Equal(t, plugins.None, r.Changes[1].To)
	assert.Equal(t, Rebooted, r.Changes[1].Reason)
	assert.Equal(t, plugins.Hard, r.Changes[2].To)
	assert.InDelta(t, 70+61+399+3, r.Changes[2].OffsetSeconds, 1, "the new boot's own shortage")
}

func TestReplayBaselinesSurviveReboot(t *testing.T) {
	c := defaults()
	before := newChain(c, false, nil)
	learned := plugins.Baselines{"wwid:1": {Device: "sda"}}
	before.set = plugins.NewSet(c.Plugins.Inner, learned)
	assert.Equal(t, learned, newChain(c, false, before).set.Baselines())
}

func TestReplayWarmUp(t *testing.T) {
	soft := func(n *node) *node {
		n.available = 5 * gib
		return n.seconds(100, 0.2)
	}
	run := soft(newNode())
	assert.NotEmpty(t, replayed(player(nil), run).Changes)
	p := player(nil)
	p.WarmUp = true
	assert.Empty(t, replayed(p, run).Changes)
	assert.True(t, p.Report().WarmUp)

	booted := newNode()
	booted.at = time.Minute
	assert.Empty(t, replayed(player(nil), soft(booted)).Changes)
}

func TestReplaySlowTickNoGaps(t *testing.T) {
	n := newNode()
	for range 40 {
		n.pass(10*time.Second, 0)
	}
	r := replayed(player(nil), n)
	assert.Empty(t, r.Gaps)
	assert.InDelta(t, 10, r.TickSeconds, 0)
	n.pass(31*time.Second, 0).pass(10*time.Second, 0)
	assert.Len(t, replayed(player(nil), n).Gaps, 1, "three of its own ticks")

	fast := newNode()
	for range 40 {
		fast.pass(100*time.Millisecond, 0)
	}
	assert.InDelta(t, 1, replayed(player(nil), fast).TickSeconds, 0)
}

func TestReplayOneSample(t *testing.T) {
	r := replayed(player(nil), newNode().seconds(1, 0))
	assert.Equal(t, uint64(1), r.Samples)
	assert.Zero(t, r.Seconds)
	assert.Len(t, r.Gaps, 0)
}

func TestReplayScopeRemovedEndsLevel(t *testing.T) {
	var l scopes
	at := instant{time: time.Unix(1, 0)}
	l.add(at, &plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "p", Scope: "sda", Level: plugins.Soft}, {Plugin: "p", Scope: "sdb"}}})
	at.step, at.offset = time.Second, time.Second
	changes := l.add(at, &plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "p", Scope: "sdb"}}})
	require.Len(t, changes, 1)
	assert.Equal(t, evict.ReasonNoLongerJudged, changes[0].Reason)
	at.offset += time.Second
	assert.Empty(t, l.add(at, &plugins.Levels{}))
	reports := l.reports()
	assert.InDelta(t, 1, reports[0].SoftSeconds, 0, "and its time ends with it")
	assert.Zero(t, reports[0].NoneSeconds)
	assert.InDelta(t, 2, reports[1].NoneSeconds, 0)
}

func TestReplayRisesCounted(t *testing.T) {
	var l scopes
	for _, level := range []plugins.Level{plugins.Soft, plugins.Hard, plugins.Soft, plugins.None, plugins.Soft, plugins.Soft, plugins.None, plugins.Hard} {
		l.add(instant{}, &plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "p", Scope: "sda", Level: level}}})
	}
	r := l.reports()[0]
	assert.Equal(t, []uint64{2, 2}, []uint64{r.RoseToSoft, r.RoseToHard})
}

func TestReplayFlapBounded(t *testing.T) {
	const total = 42_000
	n := newNode()
	c := defaults()
	c.Plugins.MemoryStall.ClearFor = 0
	c.Plugins.MemoryStall.Hard.Window = time.Second
	p := player(c)
	var middle uint64
	for i := range total {
		n.available, n.samples = 40*gib, n.samples[:0]
		stall := 0.0
		if i%8 < 2 {
			n.available, stall = gib, 1
		}
		p.Add(n.seconds(1, stall).samples[0])
		if i == total/3 {
			middle = heap()
		}
	}
	after := heap()
	r := p.Report()
	t.Logf("heap after a third %d KiB, at the end %d KiB", middle>>10, after>>10)
	assert.Less(t, after, middle+8<<20)
	assert.Len(t, r.Changes, maxChanges)
	s := stalls(t, r)
	assert.Equal(t, uint64(len(r.Changes))+r.Omitted.Changes, 2*s.RoseToHard, "each rise has its end")
	assert.LessOrEqual(t, len(r.Decisions), maxDecisions)
	assert.Positive(t, r.Omitted.Decisions)
	assert.LessOrEqual(t, len(s.Points), maxPoints)
	assert.LessOrEqual(t, len(r.Stall), maxPoints)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestReplayScopesBounded(t *testing.T) {
	var l scopes
	for i := range maxScopes + 5 {
		l.add(instant{}, &plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "p", Scope: string(rune('a' + i))}}})
	}
	assert.Len(t, l.reports(), maxScopes)
	assert.Equal(t, uint64(5), l.omitted)
}

func TestPlotPointKeepsWorst(t *testing.T) {
	is := func(v float64) Comparison { return Comparison{Observed: snapshot.Some(v)} }
	calm, bad := Rules{Soft: is(0.1), Hard: is(0.2)}, Rules{Level: plugins.Hard, Soft: is(0.3), Hard: is(0.1)}
	s := scope{report: Scope{Operator: ">="}}
	assert.Equal(t, Rules{Level: plugins.Hard, Soft: is(0.3), Hard: is(0.2)}, s.worst(calm, bad))
	assert.Equal(t, s.worst(calm, bad), s.worst(bad, calm))
	assert.Equal(t, calm, s.worst(calm, Rules{}), "what is absent is no better")
	s.report.Operator = "<"
	assert.Equal(t, Rules{Level: plugins.Hard, Soft: is(0.1), Hard: is(0.1)}, s.worst(calm, bad))
}

func TestPlotRuleInVerdictUnit(t *testing.T) {
	v := plugins.Verdict{Unit: "seconds", Operator: ">=", Evidence: []plugins.Evidence{
		{Rule: plugins.Soft, Unit: "ratio", Operator: ">=", Observed: snapshot.Some(0.5), Threshold: 0.05},
		{Rule: plugins.Hard, Unit: "seconds", Operator: ">=", Observed: snapshot.Some(0.9), Threshold: 0.8},
		{Rule: plugins.Soft, Unit: "seconds", Operator: "<", Observed: snapshot.Some(0.7), Threshold: 0.6},
		{Rule: plugins.Soft, Unit: "seconds", Operator: ">=", Observed: snapshot.Some(0.02), Threshold: 0.1},
	}}
	c, worst := compareRule(&v, plugins.Soft, instant{offset: time.Minute}, &Extreme{Observed: 0.01})
	assert.Equal(t, Comparison{snapshot.Some(0.02), snapshot.Some(0.1)}, c)
	assert.InDelta(t, 0.02, worst.Observed, 0)
	assert.InDelta(t, 60, worst.OffsetSeconds, 0)
	_, worst = compareRule(&v, plugins.Soft, instant{}, &Extreme{Observed: 0.03})
	assert.InDelta(t, 0.03, worst.Observed, 0)
}

func TestPlotPointOfGapBreaksLine(t *testing.T) {
	var line trace[int]
	line.add(1, false, 1, func(a, b int) int { return max(a, b) })
	line.add(1.01, true, 2, func(a, b int) int { return max(a, b) })
	assert.Equal(t, []Point[int]{{1, true, 2}}, line.points)
}

func TestPlotPeakNeverLost(t *testing.T) {
	join := func(a, b int) int { return max(a, b) }
	random := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		var line trace[int]
		count, peak := 1+random.IntN(50_000), 0
		at := 0.0
		for range count {
			at += random.Float64() * 3
			v := random.IntN(1 << 30)
			peak = max(peak, v)
			line.add(at, false, v, join)
			if len(line.points) > maxPoints { // a million times: an assertion takes longer than what it holds
				t.Fatalf("%d points", len(line.points))
			}
		}
		highest := 0
		for i, p := range line.points {
			highest = max(highest, p.Value)
			if i > 0 && p.OffsetSeconds <= line.points[i-1].OffsetSeconds {
				t.Fatalf("point %d of %v", i, line.points)
			}
		}
		require.Equal(t, peak, highest)
		if count > 4*maxPoints {
			require.Greater(t, len(line.points), maxPoints/4, "nor is it coarser than it must be")
		}
	}
}

func TestReplayReportJSONRoundTrip(t *testing.T) {
	n := newNode().seconds(61, 0).short(20).pass(time.Minute, 0).seconds(60, 0)
	r := replayed(player(nil), n)
	b, err := json.Marshal(r)
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(b, &back))
	again, err := json.Marshal(back)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(b), string(again)))
	assert.Equal(t, Format, back.Format)

	b, err = json.Marshal(player(nil).Report())
	require.NoError(t, err)
	assert.NotContains(t, string(b), "null", "what there is nothing of is an empty list")
}

// A link has two directions, of which the verdict shows the fuller one.
func TestPlotWorstOfShownComparison(t *testing.T) {
	evidence := func(rule plugins.Level, observed float64) plugins.Evidence {
		return plugins.Evidence{Rule: rule, Observed: some(observed), Operator: ">=", Unit: "ratio", Threshold: 0.9}
	}
	v := &plugins.Verdict{
		Unit: "ratio", Operator: ">=", Observed: some(0.95),
		Evidence: []plugins.Evidence{evidence(plugins.Hard, 0.3), evidence(plugins.Soft, 0.1), evidence(plugins.Soft, 0.95)},
	}
	c, worst := compareRule(v, plugins.Soft, instant{}, nil)
	assert.Equal(t, some(0.95), c.Observed)
	assert.InDelta(t, 0.95, worst.Observed, 0)
	_, worst = compareRule(v, plugins.Hard, instant{}, nil)
	assert.InDelta(t, 0.3, worst.Observed, 0, "of another level it is the first")
}
