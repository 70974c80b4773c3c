package uploads

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(minutes float64) time.Time { return noon.Add(time.Duration(minutes * float64(time.Minute))) }

func middling() float64 { return 0.5 }

// took are loads of a volume that took so many minutes, prepared in one.
func took(kind names.MoverKind, volume string, minutes ...float64) (list []Ended) {
	for i, m := range minutes {
		start := at(-10000 + 1000*float64(i))
		list = append(list, Ended{Volume{Kind: kind, Name: volume}, start.Add(-time.Minute), start, start.Add(time.Duration(m * float64(time.Minute)))})
	}
	return list
}

func TestPlay(t *testing.T) {
	nodes := map[string]Node{"n1": {Places: 1}, "n4": {Places: 4}, "n7": {Places: 4, Pressed: true, Allowed: 1}, "n8": {Places: 1, Pressed: true, HoldUntil: at(10)}}
	on := map[string][]string{"n1": {"n1"}, "n4": {"n4"}, "n7": {"n7"}, "n8": {"n8"}, "both": {"n1", "n7"}}
	waits := func(backup, where string, code vgdp.Code) Load {
		return Load{Volume: Volume{Kind: names.DataUpload}, Backup: backup, Nodes: on[where], Code: code, Cancelled: at(240), HeldUntil: at(200)}
	}
	runs := func(backup, where string, since float64) Load {
		l := waits(backup, where, "")
		l.Stage, l.Since = Runs, at(-since)
		return l
	}
	play := func(slots int, loads ...Load) map[string]Future {
		return NewPlayer(&State{Time: noon, Slots: slots, Nodes: nodes, Loads: loads, Ended: took(names.DataUpload, "", slices.Repeat([]float64{30}, 20)...)}).Play(middling)
	}
	for name, row := range map[string]struct {
		loads   []Load
		slots   int
		ends    float64 // minutes
		because string
	}{
		"runs": {loads: []Load{runs("b", "n1", 10)}, ends: 20, because: "one of its uploads takes 20m more"},
		"runs where it is pressed": {
			loads: []Load{runs("b", "n7", 10)}, ends: 20, because: "one of its uploads takes 20m more on node n7, which is pressed",
		},
		"the pressed node takes one at a time": {
			loads: []Load{runs("x", "n7", 10), waits("x", "n7", vgdp.CodePressure), waits("y", "n7", vgdp.CodePressure), waits("b", "n7", vgdp.CodePressure)},
			ends:  20 + 31 + 31 + 31, because: "node n7 is pressed and 2 uploads wait before it",
		},
		"pressure holds it no longer than it may": {
			loads: []Load{runs("x", "n7", 0), func() Load { l := waits("b", "n7", vgdp.CodePressure); l.HeldUntil = at(5); return l }()},
			ends:  5 + 31, because: "node n7 is pressed",
		},
		"a start hold ends": {loads: []Load{func() Load { l := waits("b", "n8", vgdp.CodePressure); l.HeldUntil = at(5); return l }()}, ends: 36, because: "node n8 is pressed"},
		"the node is full": {
			loads: []Load{runs("x", "n1", 10), waits("y", "n1", vgdp.CodeFull), waits("b", "n1", vgdp.CodeFull)},
			ends:  20 + 31 + 31, because: "as many run on node n1 as may and 1 upload waits before it",
		},
		"one slot for all": {
			loads: []Load{waits("y", "n7", vgdp.CodeLimit), waits("b", "n1", vgdp.CodeLimit)}, slots: 1,
			ends: 1 + 31, because: "all slots of prepareQueueLength are taken and 1 upload waits before it",
		},
		"a restore is in the kept slot": {
			loads: []Load{func() Load { l := waits("", "n4", ""); l.Stage = Prepares; return l }(), waits("x", "n4", vgdp.CodeLimit), waits("y", "n4", vgdp.CodeLimit), waits("b", "n4", vgdp.CodeLimit)}, slots: 4,
			ends: 31, because: "all slots of prepareQueueLength are taken and 2 uploads wait before it",
		},
		"the first of two nodes that has a place": {loads: []Load{runs("x", "n1", 10), runs("x", "n7", 0), waits("b", "both", vgdp.CodeFull)}, ends: 51, because: "one of its uploads waits for node n1"},
		"no node": {loads: []Load{waits("b", "none", vgdp.CodeUnschedulable)}, ends: 240, because: "no node can run one of its uploads, which Velero cancels then"},
		"postponed": {
			loads: []Load{func() Load { l := waits("b", "n1", vgdp.CodePostponed); l.From = at(60); return l }()},
			ends:  91, because: "one of its uploads is postponed until 2026-03-01T13:00:00Z",
		},
		"Velero cancels it first": {loads: []Load{func() Load { l := runs("b", "n1", 0); l.Cancelled = at(3); return l }()}, ends: 3, because: "one of its uploads takes 3m more"},
	} {
		t.Run(name, func(t *testing.T) {
			f := play(row.slots, row.loads...)["b"]
			assert.Equal(t, at(row.ends), f.Ends)
			assert.Equal(t, row.because, f.Because())
			assert.Zero(t, f.Frees, "a Backup does not stay InProgress for a DataUpload")
		})
	}
	t.Run("its Backup stays InProgress for a PodVolumeBackup", func(t *testing.T) {
		s := &State{Time: noon, Nodes: nodes, Ended: slices.Concat(took(names.PodVolumeBackup, "", slices.Repeat([]float64{20}, 20)...), took(names.DataUpload, "", slices.Repeat([]float64{40}, 20)...))}
		pvb := runs("b", "n7", 10)
		pvb.Kind = names.PodVolumeBackup
		s.Loads = []Load{pvb, runs("b", "n7", 10)}
		f := NewPlayer(s).Play(middling)["b"]
		assert.Equal(t, [2]time.Time{at(10), at(30)}, [2]time.Time{f.Frees, f.Ends})
	})
	t.Run("a Backup with a load of which nothing is known is not played, but in the way", func(t *testing.T) {
		all := NewPlayer(&State{Time: noon, Nodes: nodes, Loads: []Load{
			func() Load { l := waits("new", "n1", ""); l.Kind = names.PodVolumeBackup; return l }(), waits("b", "n1", vgdp.CodeFull),
		}, Ended: took(names.DataUpload, "", 30)}).Play(middling)
		assert.NotContains(t, all, "new")
		assert.Equal(t, at(10+31), all["b"].Ends)
	})
	t.Run("nothing of nothing", func(t *testing.T) { assert.Empty(t, NewPlayer(&State{}).Play(middling)) })
}

func TestExpect(t *testing.T) {
	u := learn(slices.Concat(
		took(names.DataUpload, "large", 100, 110, 90), took(names.DataUpload, "small", 10, 10, 10), took(names.DataUpload, "", 20),
		[]Ended{{Volume: Volume{Kind: names.DataUpload, Name: "odd"}, Started: at(-5), Completed: at(-10)}, {Volume: Volume{Kind: names.DataUpload, Name: "odd"}, Completed: at(0)}},
	))
	left := func(l Load) float64 {
		l.Kind = names.DataUpload
		e, known := u.expect(&l, noon)
		require.True(t, known)
		e.errors = []float64{0}
		return e.at(0.5).Minutes()
	}
	of := func(name string) Volume { return Volume{Kind: names.DataUpload, Name: name} }
	running := func(name string, minutes float64, done, total int64) Load {
		return Load{Volume: of(name), Stage: Runs, Since: at(-minutes), Done: done, Total: total}
	}
	for name, row := range map[string]struct {
		load Load
		want float64
	}{
		"by its volume":                    {Load{Volume: of("large")}, 100},
		"by its kind":                      {Load{Volume: of("odd")}, 20},
		"what is left":                     {running("large", 40, 0, 0), 60},
		"longer than any before":           {running("large", 200, 0, 0), 20},
		"by its progress":                  {running("large", 40, 3<<30, 4<<30), 40. / 3},
		"too early to tell":                {running("large", 40, 1, 4<<30), 60},
		"not for long enough":              {running("large", 0.25, 3, 4), 99.75},
		"more done than there is":          {running("large", 40, 9, 4), 1. / 60},
		"less than nothing done":           {running("large", 40, -9, 4), 60},
		"less than nothing at all":         {running("large", 40, -9, -4), 60},
		"it began in the future":           {running("large", -40, 1, 4), 100},
		"the largest number":               {running("large", 40, 1<<62, 1<<63-1), 40},
		"so slow that it takes for months": {running("large", 60*24*10, 1, 20), longest.Minutes()},
	} {
		t.Run(name, func(t *testing.T) { assert.InDelta(t, row.want, left(row.load), 0.02) })
	}
	e, known := u.expect(&Load{Volume: Volume{Kind: names.PodVolumeBackup}}, noon)
	assert.False(t, known)
	assert.Equal(t, unknown, e.at(0.5))
	assert.Less(t, e.at(0.01), e.at(0.99), "and it is not sure")
}

func TestSize(t *testing.T) {
	var s Size
	s.Add(true, 100, 10)
	s.Add(true, 50, 0)
	assert.Equal(t, Size{Total: 150, New: 10}, s)
	s.Add(false, 0, 0)
	s.Add(false, 7, 9)
	assert.Equal(t, Size{Total: 157, New: 17, Open: 2, Unknown: 1}, s)
	for _, n := range []int64{-1 << 63, -1, 1<<63 - 1} {
		s.Add(true, n, n)
		s.Add(true, 1<<63-1, n)
	}
	assert.Equal(t, Size{Total: mostBytes, New: mostBytes, Open: 2, Unknown: 1}, s)
}

// made is a State by random numbers.
func made(r *rand.Rand, loads int) *State {
	s := &State{Time: noon, Slots: r.IntN(4), Nodes: map[string]Node{}, Ended: took(names.DataUpload, "", 5, 10, 20)}
	var reaches [][]string
	for i := range 1 + r.IntN(4) {
		name := fmt.Sprint("n", i)
		n := Node{Places: r.IntN(3), Pressed: r.IntN(2) == 0, Allowed: r.IntN(2)}
		if n.Pressed && r.IntN(2) == 0 {
			n.HoldUntil = at(float64(r.IntN(20)))
		}
		s.Nodes[name] = n
		reaches = append(reaches, []string{name})
	}
	for range 3 {
		reaches = append(reaches, some(r, s.Nodes))
	}
	for range loads {
		l := Load{
			Volume: Volume{Kind: []names.MoverKind{names.DataUpload, names.PodVolumeBackup}[r.IntN(2)]}, Backup: []string{"", "a", "b", "c"}[r.IntN(4)],
			Nodes: reaches[r.IntN(len(reaches))], Stage: Stage(r.IntN(3)), Cancelled: at(float64(r.IntN(300))), Total: 100, Done: int64(r.IntN(100)),
		}
		if r.IntN(2) == 0 {
			l.From = at(float64(r.IntN(30)))
		}
		if r.IntN(2) == 0 {
			l.HeldUntil = at(float64(r.IntN(60)))
		}
		if l.Stage != Waits && r.IntN(2) == 0 {
			l.Since = at(-float64(r.IntN(30)))
		}
		s.Loads = append(s.Loads, l)
	}
	return s
}

// some nodes, by random numbers.
func some(r *rand.Rand, nodes map[string]Node) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if r.IntN(2) == 0 {
			list = append(list, name)
		}
	}
	return list
}

// The slow and plain play is the same.
func TestPlayIsThePlainOne(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := NewPlayer(made(r, r.IntN(14)))
		draw := func() func() float64 { return rand.New(rand.NewPCG(seed, 2)).Float64 }
		fast := p.run(draw())
		require.Equal(t, plain(p, draw()), fast, "seed %d", seed)
		require.Equal(t, fast, p.run(draw()), "and the same again")
		for i, f := range fast {
			l := p.Loads[i]
			require.False(t, f.ends.Before(noon.Add(time.Second)))
			require.False(t, f.ends.After(later(l.Cancelled, noon.Add(time.Second))), "seed %d: %v", seed, f)
		}
	}
}

// plain steps from time to time and looks at every load.
func plain(p *Player, share func() float64) []ran {
	s := newSteps(p, share)
	for len(s.order) > 0 {
		slices.SortFunc(s.order, time.Time.Compare)
		s.now, s.order = s.order[0], s.order[1:]
		if !s.now.Before(noon) {
			s.step()
		}
	}
	return s.all
}

// steps is such a play, and what is counted anew at each time.
type steps struct {
	*Player

	all      []ran
	takes    []time.Duration
	prepared []time.Time
	order    []time.Time // when something may change
	now      time.Time

	used, waited           []int // by node
	slots, restores, begun int
}

func newSteps(p *Player, share func() float64) *steps {
	n := len(p.Loads)
	s := &steps{Player: p, all: make([]ran, n), takes: make([]time.Duration, n), prepared: make([]time.Time, n), order: []time.Time{noon}}
	for i := range p.Loads {
		l, r := &p.Loads[i], &s.all[i]
		s.takes[i] = p.expected[i].at(share())
		r.node, r.ends = -1, later(l.Cancelled, noon.Add(time.Second))
		if l.Stage == Runs {
			if len(l.Nodes) > 0 {
				r.node = slices.Index(p.names, l.Nodes[0])
			}
			r.begins = noon
			r.ends = earlier(r.ends, noon.Add(s.takes[i]))
		}
		s.order = append(s.order, l.From, l.HeldUntil, r.ends)
	}
	for _, node := range p.nodes {
		s.order = append(s.order, node.HoldUntil)
	}
	return s
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (s *steps) step() {
	s.count()
	for i := range s.Loads {
		l, r := &s.Loads[i], &s.all[i]
		if !r.begins.IsZero() || l.From.After(s.now) || !r.ends.After(s.now) {
			continue
		}
		best := s.best(l)
		if best < 0 {
			continue
		}
		if l.Stage == Waits && !s.slotFor(l) {
			return
		}
		s.begin(i, best)
	}
}

func (s *steps) count() {
	s.used, s.waited = make([]int, len(s.nodes)), make([]int, len(s.nodes))
	s.slots, s.restores, s.begun = 0, 0, 0
	for i := range s.Loads {
		l, r := &s.Loads[i], &s.all[i]
		did, going := !r.begins.IsZero(), r.ends.After(s.now)
		if did && r.node >= 0 && going {
			s.used[r.node]++
		}
		switch {
		case l.Stage == Prepares && !did && going, l.Stage != Runs && did && s.prepared[i].After(s.now):
			s.slots++
			if l.Backup == "" {
				s.restores++
			}
		}
		if l.Stage == Waits && did {
			s.waited[r.node]++
			s.begun++
		}
	}
}

// best place for a load; -1: none.
func (s *steps) best(l *Load) int {
	best := -1
	for _, name := range l.Nodes {
		i := slices.Index(s.names, name)
		places := s.nodes[i].Places
		if l.Stage == Waits && l.HeldUntil.After(s.now) {
			places = s.nodes[i].allowed(s.now)
		}
		if s.used[i] < places && (best < 0 || s.before(i, best)) {
			best = i
		}
	}
	return best
}

// before tells whether node a is better than node b.
func (s *steps) before(a, b int) bool {
	if s.nodes[a].Pressed != s.nodes[b].Pressed {
		return s.nodes[b].Pressed
	}
	return s.used[a] < s.used[b]
}

func (s *steps) slotFor(l *Load) bool {
	lastOne := l.Backup != "" && s.Slots > 1 && s.slots-s.restores == s.Slots-1 // of backups: it is kept for restores
	return s.Slots == 0 || s.slots < s.Slots && !lastOne
}

func (s *steps) begin(i, node int) {
	l, r := &s.Loads[i], &s.all[i]
	prepares := s.usual.prepares[l.Kind]
	r.begins, r.node, r.before, r.beforeAll = s.now, node, s.waited[node], s.begun
	if l.Stage == Waits {
		s.waited[node]++
		s.begun++
		s.slots++
		if l.Backup == "" {
			s.restores++
		}
	} else if !l.Since.IsZero() {
		prepares = max(0, prepares-s.now.Sub(l.Since))
	}
	s.used[node]++
	s.prepared[i] = s.now.Add(prepares)
	r.ends = earlier(r.ends, s.prepared[i].Add(s.takes[i]))
	s.order = append(s.order, s.prepared[i], r.ends)
}

// BenchmarkPlay is one night of 5,000 loads of 500 Backups on 500 nodes, a twelfth of them
// pressed, played as often as a forecast does.
func BenchmarkPlay(b *testing.B) {
	s := many(5000)
	b.ReportAllocs()
	for b.Loop() {
		r := rand.New(rand.NewPCG(1, 1))
		p := NewPlayer(s)
		for range 9 {
			p.Play(r.Float64)
		}
	}
}

func many(loads int) *State {
	r := rand.New(rand.NewPCG(1, 1))
	s := &State{Time: noon, Slots: 200, Nodes: map[string]Node{}}
	nodes := loads / 10
	bound := make([][]string, nodes)
	zones := make([][]string, 20)
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		s.Nodes[name] = Node{Places: 2, Pressed: i%12 == 0, Allowed: 1}
		bound[i] = []string{name}
		zones[i%20] = append(zones[i%20], name)
	}
	for i := range loads {
		l := Load{Volume: Volume{Kind: names.DataUpload, Name: fmt.Sprint(i)}, Backup: fmt.Sprint("b", r.IntN(loads/10)), Nodes: zones[r.IntN(20)], Code: vgdp.CodeLimit, Cancelled: at(2400), HeldUntil: at(30)}
		if i%2 == 0 {
			l.Kind, l.Nodes = names.PodVolumeBackup, bound[r.IntN(nodes)]
		}
		s.Loads = append(s.Loads, l)
		for range 4 {
			s.Ended = append(s.Ended, took(l.Kind, l.Name, 3+10*r.Float64())...)
		}
	}
	return s
}
