package backup

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup/objective"
)

// cluster is a queue that lives: what is decided is written, and who runs ends.
type cluster struct {
	in     Input
	writes map[string]int
	order  []string // who has started
	came   uint64
	waited map[string]time.Duration
}

func newCluster(c Config, namespaces int) *cluster {
	names := make([]string, namespaces)
	for i := range names {
		names[i] = fmt.Sprintf("ns-%04d", i)
	}
	return &cluster{
		in:     Input{Time: noon, Config: c, Namespaces: NewNamespaces(names)},
		writes: map[string]int{}, waited: map[string]time.Duration{},
	}
}

// settles: so many decisions in a row are enough, if nothing else happens.
const settles = 100

// step decides until nothing is left to write.
func (c *cluster) step(t *testing.T) {
	t.Helper()
	for i := 0; ; i++ {
		require.Less(t, i, settles, "it writes for ever")
		d := Decide(c.in)
		wrote := false
		for _, e := range d.Queue {
			i := slices.IndexFunc(c.in.Backups, func(b Backup) bool { return b.UID == e.UID })
			b := &c.in.Backups[i]
			switch {
			case e.Start:
				b.Phase, b.Position, b.ReadySince = Ready, 0, c.in.Time
				c.order, c.waited[b.UID] = append(c.order, b.UID), c.in.Time.Sub(b.Created)
			case b.Phase != Queued || b.Position != e.WritePosition || b.Turn != e.WriteTurn:
				b.Phase, b.Position, b.Turn = Queued, e.WritePosition, e.WriteTurn
			default:
				continue
			}
			c.came++
			b.Version = c.came // as the API server does
			c.writes[b.UID]++
			wrote = true
		}
		if !wrote {
			return
		}
	}
}

func (c *cluster) add(b Backup) {
	c.came++
	b.Created, b.Version = c.in.Time, c.came
	c.in.Backups = append(c.in.Backups, b)
}

// end ends the one that has run for longest.
func (c *cluster) end() {
	first := slices.IndexFunc(c.in.Backups, func(b Backup) bool { return b.running() && b.UID == c.oldest() })
	c.in.Backups = slices.Delete(c.in.Backups, first, first+1)
}

// drain lets all that are there have their turn.
func (c *cluster) drain(t *testing.T) {
	t.Helper()
	for len(c.in.Backups) > 0 {
		c.end()
		c.step(t)
	}
}

func (c *cluster) oldest() string {
	i := slices.IndexFunc(c.order, func(uid string) bool {
		return slices.ContainsFunc(c.in.Backups, func(b Backup) bool { return b.UID == uid && b.running() })
	})
	return c.order[i]
}

// Velero's own queue writes every position behind the one that starts: 20,100
// times to drain 200.
func TestQueueDrainWritesPerBackup(t *testing.T) {
	for _, n := range []int{1, 10, 200, 400} {
		c := newCluster(Config{Limit: 2}, n)
		var want []string
		for i := range n {
			uid := fmt.Sprintf("b-%04d", i)
			c.add(Backup{UID: uid, Include: []string{fmt.Sprintf("ns-%04d", i)}})
			want = append(want, uid)
			c.in.Time = c.in.Time.Add(time.Second)
		}
		c.step(t)
		c.drain(t)
		assert.Equal(t, want, c.order, "first come, first served")
		most, all := 0, 0
		for _, w := range c.writes {
			most, all = max(most, w), all+w
		}
		t.Logf("%4d backups: %d writes, %d at most for one", n, all, most)
		assert.LessOrEqual(t, float64(most), 5+math.Log2(float64(n)))
	}
}

func TestQueueOverlapNeverOvertakes(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		c := newCluster(Config{Limit: 3}, 6)
		var came []Backup
		for i := range 40 {
			b := Backup{UID: fmt.Sprintf("b-%02d", i), Include: [][]string{{"ns-0000"}, {"ns-000[1-3]"}, {"ns-0004"}, {"*"}, {"ns-0005", "ns-0000"}, {"ns-**"}}[r.IntN(6)]}
			c.add(b)
			came = append(came, b)
			c.step(t)
			if r.IntN(2) == 0 {
				c.end()
				c.step(t)
			}
			c.in.Time = c.in.Time.Add(time.Minute)
		}
		c.drain(t)
		require.Len(t, c.order, len(came), "everybody has its turn")
		require.Empty(t, c.overtaken(came), "seed %d", seed)
	}
}

// overtaken is a Backup that started after one which came later and overlaps
// with it.
func (c *cluster) overtaken(came []Backup) string {
	m := model{active: c.in.Namespaces.names}
	for i, a := range came {
		for _, b := range came[:i] {
			if m.overlap(a, b) && slices.Index(c.order, b.UID) > slices.Index(c.order, a.UID) {
				return b.UID
			}
		}
	}
	return ""
}

// A stream of more important ones never ends; with aging it lets the other
// through all the same.
func TestQueueAging(t *testing.T) {
	c := newCluster(Config{Limit: 1, Priorities: true, Aging: 2 * time.Hour}, 1)
	c.add(Backup{UID: "running"})
	c.step(t)
	c.add(Backup{UID: "patient"})
	for i := 0; c.waited["patient"] == 0; i++ {
		require.Less(t, i, 100, "it starves")
		c.in.Time = c.in.Time.Add(10 * time.Minute)
		c.add(Backup{UID: fmt.Sprintf("urgent-%02d", i), Priority: 1})
		c.step(t)
		c.end()
		c.step(t)
	}
	assert.GreaterOrEqual(t, c.waited["patient"], 2*time.Hour, "priority counts until then")
	assert.Less(t, c.waited["patient"], 2*time.Hour+20*time.Minute)
}

func TestQueueStuckHoldsNamespacesNoSlot(t *testing.T) {
	in := Input{
		Time: noon, Config: Config{Limit: 1, StuckAfter: 10 * time.Minute}, Namespaces: NewNamespaces([]string{"a", "b"}),
		Backups: []Backup{
			{UID: "stuck", Phase: Ready, Include: []string{"a"}, ReadySince: noon.Add(-10 * time.Minute)},
			{UID: "same", Phase: Queued, Position: 1, Include: []string{"a"}},
			{UID: "other", Phase: Queued, Position: 2, Include: []string{"b"}},
		},
	}
	d := Decide(in)
	require.Len(t, d.Stuck, 1)
	assert.Equal(t, Wait{Code: CodeRunning, By: "stuck", Namespaces: []string{"a"}, Shared: 1}, d.Queue[0].Wait)
	assert.True(t, d.Queue[1].Start)

	in.Time = in.Time.Add(-time.Second)
	d = Decide(in)
	assert.Empty(t, d.Stuck)
	assert.Equal(t, CodeLimit, d.Queue[1].Wait.Code)

	in.Backups[0].ReadySince = time.Time{} // another let it start, and it is not known when
	d = Decide(in)
	assert.Empty(t, d.Stuck)
	assert.Equal(t, CodeLimit, d.Queue[1].Wait.Code)
}

// With a Velero that takes up nothing no more than twice the limit are let start.
func TestQueueStuckAreBounded(t *testing.T) {
	for limit := range 4 {
		c := newCluster(Config{Limit: limit, StuckAfter: 10 * time.Minute}, 20)
		for i := range 20 {
			c.add(Backup{UID: fmt.Sprint(i), Include: []string{fmt.Sprintf("ns-%04d", i)}, Takes: takes(time.Hour), Due: objective.Due{Deadline: noon.Add(time.Duration(i) * time.Hour)}})
		}
		for range 20 {
			c.step(t)
			c.in.Time = c.in.Time.Add(10 * time.Minute)
		}
		assert.Len(t, c.order, 2*max(1, limit), "limit %d", limit)
		d := Decide(c.in)
		assert.Equal(t, d.Limit, d.Running)
		for _, busy := range c.in.newSlots().busy {
			assert.Equal(t, time.Hour, busy, "nor is another planned to start")
		}
	}
}

func TestWaitNamesFirstSharedNamespaces(t *testing.T) {
	c := newCluster(Config{Limit: 2}, 300)
	c.in.Backups = []Backup{{UID: "all", Phase: InProgress}, {UID: "most", Phase: Queued, Position: 1, Exclude: []string{"ns-0000"}}}
	w := Decide(c.in).Queue[0].Wait
	assert.Equal(t, 299, w.Shared)
	assert.Len(t, w.Namespaces, maxNames)
	assert.Equal(t, "ns-0001", w.Namespaces[0])
	assert.Equal(t, "all", w.By)
	c.in.Backups[1].Include = []string{"ns-0064", "ns-0299"}
	assert.Equal(t, []string{"ns-0064", "ns-0299"}, Decide(c.in).Queue[0].Wait.Namespaces)
}

func TestPatternInvalid(t *testing.T) {
	invalid := func(pattern string) Input {
		return Input{Time: noon, Config: Config{Limit: 5}, Namespaces: NewNamespaces([]string{"a"}), Backups: []Backup{
			{UID: "runs", Phase: InProgress, Include: []string{"missing"}},
			{UID: "odd", Phase: Queued, Position: 1, Include: []string{"a", pattern}},
			{UID: "behind", Phase: Queued, Position: 2, Include: []string{"a"}},
			{UID: "too", Phase: Queued, Position: 3, Include: []string{"missing", pattern + "y"}},
			{UID: "last", Phase: Queued, Position: 4, Include: []string{"a"}},
		}}
	}
	t.Run("rejected by Velero waits for none and none for it", func(t *testing.T) {
		in := invalid("x**")
		d := Decide(in)
		assert.Equal(t, []bool{true, true, true, false}, []bool{d.Queue[0].Start, d.Queue[1].Start, d.Queue[2].Start, d.Queue[3].Start})
		assert.Equal(t, "behind", d.Queue[3].Wait.By)
		require.NoError(t, d.Queue[3].Wait.Invalid)
		in.Backups[1].Phase = Ready
		assert.True(t, Decide(in).Queue[0].Start, "also until Velero has failed it")
	})
	t.Run("rejected by Velero takes a slot in its turn", func(t *testing.T) {
		in := invalid("x**")
		in.Config.Limit = 1
		d := Decide(in)
		assert.Equal(t, CodeLimit, d.Queue[0].Wait.Code)
		require.ErrorIs(t, d.Queue[0].Wait.Invalid, ErrPattern)
		in.Backups = in.Backups[1:]
		d = Decide(in)
		assert.True(t, d.Queue[0].Start)
		assert.Equal(t, CodeLimit, d.Queue[1].Wait.Code)
		require.NoError(t, d.Queue[1].Wait.Invalid)
	})
	t.Run("that runs all the same overlaps with all", func(t *testing.T) {
		in := invalid("x**")
		in.Backups[1].Phase = InProgress
		assert.Equal(t, Wait{Code: CodeRunning, By: "odd", Invalid: Decide(in).Queue[0].Wait.Invalid}, Decide(in).Queue[0].Wait)
		require.ErrorIs(t, Decide(in).Queue[0].Wait.Invalid, ErrPattern)
	})
	t.Run("of unknown content overlaps with all", func(t *testing.T) {
		in := invalid("[[x]")
		d := Decide(in)
		assert.Equal(t, "runs", d.Queue[0].Wait.By)
		require.ErrorIs(t, d.Queue[0].Wait.Invalid, ErrPattern)
		assert.Equal(t, CodeAhead, d.Queue[1].Wait.Code)
		assert.Equal(t, "odd", d.Queue[1].Wait.By)
		require.ErrorContains(t, d.Queue[1].Wait.Invalid, `"[[x]"`)
		assert.Equal(t, "odd", d.Queue[3].Wait.By, "the first of them is named")
		in.Backups = in.Backups[1:]
		assert.True(t, Decide(in).Queue[0].Start)
	})
	t.Run("what Velero rejects", func(t *testing.T) { // pkg/util/wildcard/expand_test.go of Velero 1.18.3
		for pattern, is := range map[string]bool{
			"": false, "a": false, "*": false, "a?": false, "[abc]": false, "a[0-9]-[x]": false, "[[a]": false, "[a-]": false,
			"**": true, "a|b": true, "(a": true, "a)": true, "!a": true, "{a": true, "a}": true, "a,b": true,
			"[": true, "]": true, "[]": true, "a]": true, "[a": true, "[a]]": true, "][": true, "[a][": true,
		} {
			assert.Equal(t, is, rejected(pattern), pattern)
		}
	})
}

func TestNamespacesResolveCache(t *testing.T) {
	n := NewNamespaces([]string{"b", "a", "b"})
	assert.Equal(t, []string{"a", "b"}, n.Names(n.Resolve(nil, nil)))
	assert.Equal(t, []string{"a"}, n.Names(n.Resolve([]string{"a"}, []string{"b", "c"})))
	assert.Equal(t, []string{"a", "b"}, n.Names(n.Resolve([]string{"a", "b"}, []string{"c"})))
}

// BenchmarkDecide is one decision over 10,000 that wait, on 5,000 namespaces;
// resolved is how it is at all times but the first and after a namespace came
// or went.
func BenchmarkDecide(b *testing.B) {
	c := newCluster(Config{Limit: 4}, 5000)
	for i := range 10_000 {
		include := [][]string{{fmt.Sprintf("ns-%04d", i%5000)}, {fmt.Sprintf("ns-%02d*", i%50)}, {fmt.Sprintf("ns-%04d", i%5000), fmt.Sprintf("ns-%04d", i*7%5000)}, nil}[i%4]
		c.add(Backup{UID: fmt.Sprintf("b-%05d", i), Phase: Queued, Position: i + 1, Include: include})
	}
	b.Run("resolved", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Decide(c.in)
		}
	})
	b.Run("anew", func(b *testing.B) {
		for b.Loop() {
			c.in.Namespaces = NewNamespaces(c.in.Namespaces.names)
			Decide(c.in)
		}
	})
}
