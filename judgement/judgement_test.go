package judgement

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func of(r plugins.Resource, l plugins.Level, from, to float64) Spell {
	return Spell{Alarm: Alarm{Resource: r, Level: l}, Span: Span{from, to}}
}

// short is a label of a node that is short of memory.
func short(from, to float64) Label {
	return Label{
		Load: Span{10, 60},
		Want: []Want{{Span: Span{from, to}, Resource: plugins.Memory, Level: plugins.Hard, Culprit: "hog"}},
	}
}

func all() Rule {
	return Rule{Resources: []plugins.Resource{plugins.Memory, plugins.Disk}, Highest: plugins.Hard}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name                    string
		spells                  []Spell
		falseHard, soft, missed int
	}{
		{"as wanted, and what is below it", []Spell{of(plugins.Memory, plugins.Hard, 25, 90), of(plugins.Memory, plugins.Soft, 15, 95)}, 0, 0, 0},
		{"never", nil, 0, 0, 1},
		{"soft alone", []Spell{of(plugins.Memory, plugins.Soft, 25, 90)}, 0, 0, 1},
		{"before the load", []Spell{of(plugins.Memory, plugins.Hard, 5, 90)}, 1, 0, 1},
		{"too long", []Spell{of(plugins.Memory, plugins.Hard, 25, 101)}, 1, 0, 0},
		{"soft of something else besides", []Spell{of(plugins.Memory, plugins.Hard, 25, 90), of(plugins.Disk, plugins.Soft, 25, 90)}, 0, 0, 0},
		{"soft of something else before", []Spell{of(plugins.Memory, plugins.Hard, 25, 90), of(plugins.Disk, plugins.Soft, 5, 90)}, 0, 1, 0},
		{"hard of something else besides", []Spell{of(plugins.Memory, plugins.Hard, 25, 90), of(plugins.Disk, plugins.Hard, 25, 90)}, 1, 0, 0},
		{"over before it began", []Spell{of(plugins.Memory, plugins.Hard, 12, 18)}, 0, 0, 1},
		{"from the begin of the load to 40 s after it", []Spell{of(plugins.Memory, plugins.Hard, 10, 100)}, 0, 0, 0},
		{"over when it begins", []Spell{of(plugins.Memory, plugins.Hard, 12, 20)}, 0, 0, 0},
		{"as late as it ends", []Spell{of(plugins.Memory, plugins.Hard, 60, 70)}, 0, 0, 0},
		{"after it has ended", []Spell{of(plugins.Memory, plugins.Hard, 61, 70)}, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Compare(short(20, 60), all(), c.spells)
			missed := 0
			for _, d := range o.Expected {
				missed += one(!d.Met)
			}
			assert.Equal(t, []int{c.falseHard, c.soft, c.missed}, []int{len(o.FalseHard), len(o.FalseSoft), missed})
		})
	}
	t.Run("of the disk", func(t *testing.T) {
		l := Label{Load: Span{10, 60}, Want: []Want{{Span: Span{10, 60}, Resource: plugins.Disk, Scope: "vdb", Level: plugins.Soft}}}
		on := func(disk string) Spell {
			s := of(plugins.Disk, plugins.Soft, 20, 60)
			s.Scope = disk
			return s
		}
		for disk, right := range map[string]bool{"": true, "vdb": true, "vdc": false} {
			o := Compare(l, all(), []Spell{on(disk)})
			assert.Equal(t, right, o.Expected[0].Met, disk)
			assert.Equal(t, right, len(o.FalseSoft) == 0, disk)
		}
		open := Label{Load: Span{10, 60}, NotJudged: []NotJudged{{Span: Span{10, 60}, Resource: plugins.Disk, Scope: "vdb", Sufferer: "shop"}}}
		assert.Empty(t, Compare(open, all(), []Spell{on("vdb")}).FalseSoft)
		assert.Len(t, Compare(open, all(), []Spell{on("vdc")}).FalseSoft, 1)
		early := on("vdb")
		early.From = 5
		assert.Len(t, Compare(open, all(), []Spell{early}).FalseSoft, 1)
	})
	t.Run("at most", func(t *testing.T) {
		l := short(20, 60)
		l.Want[0].AtMost = true
		o := Compare(l, all(), []Spell{of(plugins.Memory, plugins.Hard, 25, 90)})
		assert.Empty(t, o.FalseHard)
		assert.Empty(t, o.Expected)
	})
	t.Run("what the kernel does not tell is left open", func(t *testing.T) {
		l := Label{Load: Span{10, 60}, NotJudged: []NotJudged{{Span: Span{10, 60}, Resource: plugins.Disk, Scope: "vdb", Sufferer: "shop"}}}
		assert.Empty(t, Compare(l, all(), []Spell{of(plugins.Disk, plugins.Soft, 20, 60)}).FalseSoft)
		assert.Len(t, Compare(l, all(), []Spell{of(plugins.Memory, plugins.Soft, 20, 60)}).FalseSoft, 1)
		assert.Len(t, Compare(l, all(), []Spell{of(plugins.Disk, plugins.Hard, 20, 60)}).FalseHard, 1, "no pod may be evicted for it")
	})
	t.Run("a rule cannot miss what it does not judge", func(t *testing.T) {
		assert.Empty(t, Compare(short(20, 60), Rule{Resources: []plugins.Resource{plugins.Disk}, Highest: plugins.Hard}, nil).Expected)
	})
	t.Run("a rule without hard meets it by soft", func(t *testing.T) {
		r := all()
		r.Highest = plugins.Soft
		assert.True(t, Compare(short(20, 60), r, []Spell{of(plugins.Memory, plugins.Soft, 25, 90)}).Expected[0].Met)
	})
}

func TestDetection(t *testing.T) {
	detect := func(spells ...Spell) Detection { return Compare(short(20, 60), all(), spells).Expected[0] }
	t.Run("times", func(t *testing.T) {
		d := detect(of(plugins.Memory, plugins.Soft, 22, 80), of(plugins.Memory, plugins.Hard, 25, 70))
		assert.Equal(t, snapshot.Some(5.0), d.After, "of its own level")
		assert.Equal(t, snapshot.Some(20.0), d.Cleared, "80 s, and the load ended at 60")
		assert.Equal(t, snapshot.Some(0.0), detect(of(plugins.Memory, plugins.Hard, 15, 70)).After, "it was there before")
	})
	t.Run("still on at the end", func(t *testing.T) {
		s := of(plugins.Memory, plugins.Hard, 25, 70)
		s.StillOn = true
		_, known := detect(s).Cleared.Get()
		assert.False(t, known)
	})
	t.Run("the culprit", func(t *testing.T) {
		s := of(plugins.Memory, plugins.Hard, 25, 70)
		for rank, names := range [][]string{{"db"}, {"/hog.slice", "db"}, {"db", "/hog.slice"}} {
			s.Named, s.NamedAt = names, 26
			assert.Equal(t, rank, detect(s).Rank, names)
		}
		late := of(plugins.Memory, plugins.Hard, 40, 70)
		late.Named, late.NamedAt = []string{"/hog.slice"}, 41
		assert.Equal(t, 2, detect(late, s).Rank, "who is named first is evicted")
		s.NamedAt = 60
		assert.Equal(t, 2, detect(s).Rank, "as late as it ends")
		s.NamedAt = 61
		assert.Zero(t, detect(s).Rank, "after the load")
		other := of(plugins.Disk, plugins.Soft, 20, 70)
		other.Named, other.NamedAt = []string{"/hog.slice"}, 21
		assert.Zero(t, detect(other, s).Rank, "named for something else")
	})
	t.Run("the presser that is only shown", func(t *testing.T) {
		l := short(20, 60)
		l.Want[0].Culprit, l.Want[0].Presser, l.Want[0].NoCulprit = "", "hog", true
		s := of(plugins.Memory, plugins.Hard, 25, 70)
		s.Shown, s.ShownAt = []string{"db", "/hog.slice"}, 26
		o := Compare(l, all(), []Spell{s})
		assert.Equal(t, 2, o.Expected[0].Rank)
		assert.True(t, o.NoneMayBe)
		assert.False(t, o.Vain)
		assert.False(t, Compare(l, all(), nil).NoneMayBe, "the level was not reached")
	})
	t.Run("named where none may be", func(t *testing.T) {
		l := short(20, 60)
		l.Want[0].Culprit, l.Want[0].NoCulprit = "", true
		s := of(plugins.Memory, plugins.Hard, 25, 70)
		assert.False(t, Compare(l, all(), []Spell{s}).Vain)
		s.Named = []string{"db"}
		assert.True(t, Compare(l, all(), []Spell{s}).Vain)
	})
}

// script answers by the second; a minute that it does not have lacks a measurement.
type script struct {
	start   time.Time
	answers map[int][]Answer
	lacks   map[int]bool
}

func (s script) Judge(at *snapshot.Sample) ([]Answer, string) {
	second := int(at.Time.Sub(s.start).Seconds())
	if s.lacks[second] {
		return nil, "PSI"
	}
	return s.answers[second], ""
}

func TestPlay(t *testing.T) {
	var list []*snapshot.Sample
	start := time.Unix(1000, 0)
	for i := range 30 {
		list = append(list, &snapshot.Sample{Time: start.Add(time.Duration(i) * time.Second)})
	}
	soft := Answer{Alarm: Alarm{Resource: plugins.Memory, Level: plugins.Soft}}
	named := soft
	named.Named = []string{"hog"}
	t.Run("spells", func(t *testing.T) {
		later := soft
		later.Named, later.Shown = []string{"db"}, []string{"batch"}
		last := soft
		last.Shown = []string{"db"}
		spells, lacks := Play(list, script{start, map[int][]Answer{3: {soft}, 4: {named}, 5: {later, later}, 6: {last}, 8: {soft}, 29: {soft}}, nil})
		require.Empty(t, lacks)
		require.Len(t, spells, 3)
		assert.Equal(t, Span{3, 6}, spells[0].Span)
		assert.Equal(t, []string{"hog"}, spells[0].Named, "who is named first")
		assert.InDelta(t, 4, spells[0].NamedAt, 0)
		assert.Equal(t, []string{"batch"}, spells[0].Shown)
		assert.InDelta(t, 5, spells[0].ShownAt, 0)
		assert.Equal(t, []bool{false, false, true}, []bool{spells[0].StillOn, spells[1].StillOn, spells[2].StillOn})
	})
	t.Run("a sample that lacks something is passed over", func(t *testing.T) {
		spells, lacks := Play(list, script{start, map[int][]Answer{3: {soft}, 5: {soft}}, map[int]bool{4: true}})
		require.Empty(t, lacks)
		require.Len(t, spells, 1)
		assert.Equal(t, Span{3, 5}, spells[0].Span)
	})
	t.Run("a tenth of them", func(t *testing.T) {
		spells, lacks := Play(list, script{start, map[int][]Answer{3: {soft}}, map[int]bool{4: true, 5: true, 6: true}})
		assert.Empty(t, lacks)
		assert.Len(t, spells, 1)
	})
	t.Run("more than a tenth of them is not judged", func(t *testing.T) {
		spells, lacks := Play(list, script{start, map[int][]Answer{3: {soft}}, map[int]bool{4: true, 5: true, 6: true, 7: true}})
		assert.Equal(t, "PSI", lacks)
		assert.Empty(t, spells)
	})
}

// A machine that is starved takes no samples, and a clock that is set moves all times.
func TestHole(t *testing.T) {
	samples := func(change func(i int, s *snapshot.Sample)) (list []*snapshot.Sample) {
		for i := range 120 {
			s := &snapshot.Sample{Time: time.Unix(int64(i), 0), Boottime: time.Hour + time.Duration(i)*time.Second}
			change(i, s)
			list = append(list, s)
		}
		return list
	}
	late := func(from, by int) func(int, *snapshot.Sample) {
		return func(i int, s *snapshot.Sample) {
			if i >= from {
				s.Time, s.Boottime = s.Time.Add(time.Duration(by)*time.Second), s.Boottime+time.Duration(by)*time.Second
			}
		}
	}
	set := func(from, by int) func(int, *snapshot.Sample) {
		return func(i int, s *snapshot.Sample) {
			if i >= from {
				s.Time = s.Time.Add(time.Duration(by) * time.Second)
			}
		}
	}
	l := Label{Load: Span{30, 50}}
	for name, c := range map[string]struct {
		change func(int, *snapshot.Sample)
		want   string
	}{
		"none":                                {func(int, *snapshot.Sample) {}, ""},
		"five seconds are no hole":            {late(40, 4), ""},
		"during the load":                     {late(40, 5), "samples from 39 to 45 s"},
		"shortly before it":                   {late(20, 9), "samples from 19 to 29 s"},
		"long before it":                      {late(11, 8), ""},
		"over its begin":                      {late(11, 60), "samples from 10 to 71 s"},
		"while a level may stay":              {late(90, 10), "samples from 89 to 100 s"},
		"when all levels have ended":          {late(92, 60), ""},
		"a clock that is set forward":         {set(40, 3), "a clock that is not set: at 43 s by 3s"},
		"a clock that is set back":            {set(40, -3), "a clock that is not set: at 37 s by -3s"},
		"a clock that is adjusted is not set": {set(40, 2), ""},
	} {
		assert.Equal(t, c.want, l.Hole(samples(c.change)), name)
	}
	assert.Empty(t, l.Hole(nil))
}

// The intervals of tables: Clopper and Pearson's of 0 of 22 ends at 15.4 %, of 5 of 10
// it is 18.7 to 81.3 %, of 20 of 20 it begins at 83.2 %.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		count, of int
		from, to  float64
	}{{0, 22, 0, 0.1544}, {5, 10, 0.1871, 0.8129}, {20, 20, 0.8316, 1}, {1, 100, 0.00025, 0.0545}, {0, 1, 0, 0.975}, {450, 500, 0.8703, 0.9249}} {
		t.Run(fmt.Sprint(c.count, " of ", c.of), func(t *testing.T) {
			r := NewRate(c.count, c.of)
			from, _ := r.From.Get()
			to, _ := r.To.Get()
			assert.InDelta(t, c.from, from, 0.0001)
			assert.InDelta(t, c.to, to, 0.0001)
		})
	}
	_, known := NewRate(0, 0).From.Get()
	assert.False(t, known)
}

// slow is the probability of at most k successes of n, one trial after the other.
func slow(k, n int, p float64) (sum float64) {
	chances := []float64{1}
	for range n {
		next := make([]float64, len(chances)+1)
		for i, c := range chances {
			next[i] += c * (1 - p)
			next[i+1] += c * p
		}
		chances = next
	}
	for i := range k + 1 {
		sum += chances[i]
	}
	return sum
}

// At the ends of an interval what was seen, or more extreme, has a probability of 2.5 %:
// added up slowly, by multiplying one trial after the other.
func TestRateModel(t *testing.T) {
	for n := 1; n <= 25; n++ {
		for k := 0; k <= n; k++ {
			r := NewRate(k, n)
			from, _ := r.From.Get()
			to, _ := r.To.Get()
			if k > 0 {
				assert.InDelta(t, 0.025, 1-slow(k-1, n, from), 1e-6, "%d of %d", k, n)
			}
			if k < n {
				assert.InDelta(t, 0.025, slow(k, n, to), 1e-6, "%d of %d", k, n)
			}
		}
	}
}

// Order statistics: of 10 the interval is from the 2nd to the 9th, of 6 it is all, of 5
// there is none (tables of the sign test).
func TestTimes(t *testing.T) {
	some := func(values ...float64) (list []snapshot.Opt[float64]) {
		for _, v := range values {
			list = append(list, snapshot.Some(v))
		}
		return list
	}
	never := snapshot.Opt[float64]{}
	t.Run("ten", func(t *testing.T) {
		got := NewTimes(some(10, 9, 8, 7, 6, 5, 4, 3, 2, 1))
		assert.Equal(t, Times{Of: 10, Median: snapshot.Some(5.0), Known: true, From: snapshot.Some(2.0), To: snapshot.Some(9.0)}, got)
	})
	t.Run("six", func(t *testing.T) {
		got := NewTimes(some(1, 2, 3, 4, 5, 6))
		assert.Equal(t, []any{true, snapshot.Some(1.0), snapshot.Some(6.0)}, []any{got.Known, got.From, got.To})
	})
	t.Run("five", func(t *testing.T) { assert.False(t, NewTimes(some(1, 2, 3, 4, 5)).Known) })
	t.Run("what never came is late", func(t *testing.T) {
		got := NewTimes(append(some(1, 2, 3, 4, 5, 6, 7, 8), never, never))
		assert.Equal(t, Times{Of: 10, Never: 2, Median: snapshot.Some(5.0), Known: true, From: snapshot.Some(2.0)}, got)
		got = NewTimes(append(some(1, 2), never, never, never))
		assert.Equal(t, Times{Of: 5, Never: 3}, got)
	})
	t.Run("none", func(t *testing.T) { assert.Equal(t, Times{}, NewTimes(nil)) })
}

func TestSum(t *testing.T) {
	r := all()
	healthy := Label{Load: Span{10, 60}}
	hard, soft := of(plugins.Memory, plugins.Hard, 25, 70), of(plugins.Memory, plugins.Soft, 25, 70)
	hard.Named, hard.NamedAt = []string{"db", "hog"}, 26
	judged := func(l Label, spells ...Spell) Judged { return Judged{l, Compare(l, r, spells)} }
	f := Sum(r, []Judged{
		judged(short(20, 60), hard, soft), judged(short(20, 60), soft), judged(short(20, 60)),
		judged(healthy), judged(healthy, soft, soft), judged(healthy, hard),
		{Label: healthy, Outcome: Outcome{Lacks: "PSI"}},
	})
	counts := func(r Rate) string { return fmt.Sprintf("%d/%d", r.Count, r.Of) }
	assert.Equal(t, 6, f.Recordings)
	assert.Equal(t, 1, f.NotJudged)
	assert.Equal(t, []string{"PSI"}, f.Lacks)
	assert.Equal(t, "1/3", counts(f.FalseHard))
	assert.Equal(t, "2/3", counts(f.FalseAny))
	assert.Equal(t, "2/4", counts(f.Precision), "hard and soft of the first are one alarm")
	assert.Equal(t, "1/2", counts(f.HardPrecision))
	assert.Equal(t, "2/3", counts(f.SoftPrecision))
	assert.Equal(t, "2/3", counts(f.Recall))
	assert.Equal(t, "1/3", counts(f.HardRecall))
	assert.Equal(t, "0/0", counts(f.SoftRecall))
	assert.Equal(t, "0/1", counts(f.Top1))
	assert.Equal(t, "1/1", counts(f.Top2))
	assert.Equal(t, Times{Of: 3, Never: 2}, Times{Of: f.Detect.Of, Never: f.Detect.Never})
	assert.Equal(t, 2, f.Clear.Of)
	waits := short(20, 60)
	waits.Want[0].Level = plugins.Soft
	f = Sum(r, []Judged{judged(waits, soft), judged(waits), judged(waits, of(plugins.Memory, plugins.Soft, 5, 8), soft)})
	assert.Equal(t, "2/3", counts(f.SoftRecall))
	assert.Equal(t, "0/0", counts(f.HardRecall))
	assert.Equal(t, "1/2", counts(f.Precision), "right if each time was")
	r.Unnamed = "it names none"
	assert.Zero(t, Sum(r, []Judged{judged(short(20, 60), hard)}).Top1.Of)
}

func TestDecode(t *testing.T) {
	good := "class: calm\nmachine: here\ndid: nothing\nwhy: it is idle\nload: {from: 10, to: 60}\n"
	l, err := Decode("one.yaml", "one", []byte(good+"usual: {vdb: 5ms}\nwant: [{resource: disk, scope: vdb, level: soft, from: 11.5, to: 20, atMost: true, noCulprit: true}]\n"))
	require.NoError(t, err)
	assert.Equal(t, "one", l.Name)
	assert.Equal(t, Want{Span: Span{11.5, 20}, Resource: plugins.Disk, Scope: "vdb", Level: plugins.Soft, AtMost: true, NoCulprit: true}, l.Want[0])
	assert.Equal(t, 5*time.Millisecond, l.Usual["vdb"])
	_, err = Decode("one.yaml", "one", []byte(good+"want:\n  - {resource: memory, level: hard, from: 15, to: 30, culprit: hog}\n  - {resource: memory, level: hard, from: 15, to: 30, culprit: leak}\n  - {resource: memory, level: hard, from: 40, to: 50, culprit: hog}\n"))
	require.NoError(t, err, "two that press, and one that presses again")
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", good + "wants: []\n", "one.yaml: line 6: unknown key wants"},
		{"no YAML", "class: [\n", "one.yaml: line "},
		{"empty", "", "one.yaml: empty: want a label"},
		{"a word", "hello", "one.yaml: line 1: want the keys of a label"},
		{"two documents", good + "---\n" + good, "one.yaml: more than one document"},
		{"missing key", "machine: here\ndid: nothing\nwhy: it is idle\nload: {from: 10, to: 60}\n", "one.yaml: line 1: class: missing"},
		{"level", good + "want:\n  - resource: memory\n    level: severe\n    from: 10\n    to: 20\n", "one.yaml: line 8: want[0].level: want soft or hard"},
		{"no level", good + "want:\n  - resource: memory\n    from: 10\n    to: 20\n", "one.yaml: line 7: want[0].level: want soft or hard"},
		{"resource", good + "want:\n  - resource: ram\n    level: soft\n    from: 10\n    to: 20\n", "one.yaml: line 7: want[0].resource: want memory, disk, network, filesystem, cpu"},
		{"span", good + "want:\n  - {resource: memory, level: soft, from: 20, to: 20}\n", "one.yaml: line 7: want[0]: from must be before to"},
		{"before the load", good + "want:\n  - {resource: memory, level: soft, from: 5, to: 20}\n", "one.yaml: line 7: want[0].from: it begins before the load"},
		{"after the load", good + "want:\n  - {resource: memory, level: soft, from: 15, to: 61}\n", "one.yaml: line 7: want[0].to: it ends after the load"},
		{"for ever", good + "want:\n  - {resource: memory, level: soft, from: 15, to: .inf}\n", "one.yaml: line 7: want[0].to: it ends after the load"},
		{"no time", good + "usual: {vdb: -1ms}\n", "one.yaml: line 6: usual.vdb: want how long a request takes"},
		{"no unit", good + "usual: {vdb: 5}\n", "one.yaml: line 6: cannot unmarshal"},
		{"no device", good + "want:\n  - {resource: disk, level: soft, from: 15, to: 20}\n", "one.yaml: line 7: want[0].scope: missing"},
		{"a CPU", good + "want:\n  - {resource: cpu, scope: cpu0, level: soft, from: 15, to: 20}\n", "one.yaml: line 7: want[0].scope: the CPUs have none"},
		{"culprit and presser", good + "want:\n  - {resource: cpu, level: soft, from: 15, to: 20, culprit: hog, presser: hog}\n", "one.yaml: line 7: want[0].presser: a culprit is to be evicted"},
		{"twice", good + "want:\n  - {resource: memory, level: soft, from: 15, to: 20}\n  - {resource: memory, level: soft, from: 19, to: 25}\n", "one.yaml: line 8: want[1]: it is wanted already"},
		{"culprit and none", good + "want:\n  - {resource: memory, level: soft, from: 15, to: 20, culprit: hog, noCulprit: true}\n", "one.yaml: line 7: want[0].culprit: a culprit and noCulprit contradict"},
		{"load", "class: calm\nmachine: here\ndid: nothing\nwhy: idle\nload: {from: 60, to: 10}\n", "one.yaml: line 5: load: from must be before to"},
		{"not judged", good + "notJudged:\n  - {resource: disk, from: 15, to: 20}\n", "one.yaml: line 7: notJudged[0].scope: missing"},
		{"duration", good + "usual: {vdb: soon}\n", "one.yaml: line 6: "},
		{"which kubelet", good + "kubelet: {looks: [{at: 1, available: 5}]}\n", "one.yaml: line 6: kubelet.version: missing"},
		{"a kubelet that saw nothing", good + "kubelet: {version: 1.37.2}\n", "one.yaml: line 6: kubelet.looks: missing"},
		{"looks in no order", good + "kubelet:\n  version: 1.37.2\n  looks:\n  - {at: 11, available: 5}\n  - {at: 1, available: 5}\n", "one.yaml: line 10: kubelet.looks[1].at: it must be later than the one before"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode("one.yaml", "one", []byte(c.text))
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "judgement.", "no name of the source")
		})
	}
}

// A label is somebody else's file.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("class: calm\nwant: [{level: soft}]\n"))
	f.Add([]byte("want: {a: &x [*x]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := Decode("one.yaml", "one", text)
		if err == nil && !(l.Load.From < l.Load.To) {
			t.Errorf("accepted %+v", l)
		}
	})
}
