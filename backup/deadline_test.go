package backup

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/backup/objective"
)

// timed says whether any that waits has an objective.
func timed(in Input) bool {
	return !in.HandBack && slices.ContainsFunc(in.Backups, func(b Backup) bool {
		return slices.Contains([]Phase{"", New, Queued}, b.Phase) && b.Due != objective.Due{}
	})
}

// dueModel is the order by deadlines, said once more: where not all deadlines can be met, the
// longest of its class up to the first that would be missed is given up, again and again, and
// those of tenants before any other. What each slot has to do is added up anew each time.
type dueModel struct {
	in      Input
	given   map[string]time.Time // by when those are due that have not to age for it
	tenants map[string]time.Time // the same, as tenants chose
	beside  bool                 // those of tenants count too
	ahead   []Backup             // planned, and its slot
	slot    map[string]int
	runs    []time.Duration // left of those that run, in its slot each
	of      []int
	drop    map[string]bool
}

func byDue(in Input) func(a, b Backup) bool {
	m := &dueModel{in: in, given: map[string]time.Time{}, tenants: map[string]time.Time{}, drop: map[string]bool{}}
	var list []Backup
	for _, b := range in.Backups {
		switch b.Phase {
		case "", New, Queued:
			m.give(b)
			list = append(list, b)
		case InProgress, Ready:
			if b.Phase == InProgress || b.ReadySince.IsZero() || in.Config.StuckAfter == 0 || in.Time.Sub(b.ReadySince) < in.Config.StuckAfter {
				m.runs = append(m.runs, slotTime(b))
			}
		}
	}
	slices.Sort(m.runs)
	for range m.runs {
		m.of = append(m.of, m.first(""))
	}
	m.planAll(list)
	m.beside = true
	maps.Copy(m.given, m.tenants)
	m.planAll(list)
	return m.before
}

func (m *dueModel) planAll(list []Backup) {
	m.ahead, m.slot = nil, map[string]int{}
	sort.SliceStable(list, func(i, j int) bool { return m.before(list[i], list[j]) })
	for _, b := range list {
		if !m.closed(b) && !m.drop[b.UID] {
			m.plan(b)
		}
	}
	for uid := range m.drop {
		delete(m.given, uid)
	}
}

// give a Backup the time by which it is due, if it has not to age for it.
func (m *dueModel) give(b Backup) {
	lost := b.Due.Deadline.Sub(m.in.Time) < b.Takes.Low
	of := func(tenant bool) map[string]time.Time {
		if tenant {
			return m.tenants
		}
		return m.given
	}
	switch left := b.Due.Closes.Sub(m.in.Time); {
	case !lost && b.Due.Deadline.Before(m.ages(b)):
		of(b.Due.DeadlineBounded)[b.UID] = b.Due.Deadline
	case lost && left >= b.Takes.Low && b.Due.Closes.After(b.Due.Deadline) && b.Due.Closes.Before(m.ages(b)):
		of(b.Due.ClosesBounded)[b.UID] = b.Due.Closes
	}
}

// ages is when a Backup has aged.
func (m *dueModel) ages(b Backup) time.Time {
	if m.in.Config.Aging == 0 {
		return b.Created.Add(24 * time.Hour)
	}
	return b.Created.Add(m.in.Config.Aging)
}

func (m *dueModel) aged(b Backup) bool   { return !m.ages(b).After(m.in.Time) }
func (m *dueModel) closed(b Backup) bool { return b.Due.Opens.After(m.in.Time) }

func (m *dueModel) at(b Backup) time.Time {
	if by, due := m.given[b.UID]; due {
		return by
	}
	return m.ages(b)
}

func (m *dueModel) before(a, b Backup) bool {
	switch c := m.in.Config; {
	case m.closed(a) != m.closed(b):
		return m.closed(b)
	case m.closed(a):
		return byAge(a, b)
	case m.aged(a) != m.aged(b):
		return m.aged(a)
	case m.aged(a):
		return byAge(a, b)
	case c.Priorities && a.Priority != b.Priority:
		return a.Priority > b.Priority
	case c.Priorities && c.ManualFirst && (a.Schedule == "") != (b.Schedule == ""):
		return a.Schedule == ""
	case !m.at(a).Equal(m.at(b)):
		return m.at(a).Before(m.at(b))
	case a.Takes.Mid != b.Takes.Mid:
		return a.Takes.Mid < b.Takes.Mid
	}
	return byAge(a, b)
}

// droppable tells whether a planned Backup has a deadline that can be given up.
func (m *dueModel) droppable(b Backup) bool {
	_, due := m.given[b.UID]
	return !m.aged(b) && due && b.Takes.Mid > 0 && !m.drop[b.UID]
}

func (m *dueModel) plan(b Backup) {
	m.slot[b.UID] = m.first("")
	m.ahead = append(m.ahead, b)
	least := b.Takes.Low
	if m.beside {
		least = b.Takes.Mid
	}
	for m.droppable(b) && m.in.Time.Add(m.work(m.slot[b.UID], b.UID)+least).After(m.at(b)) {
		may := slices.DeleteFunc(slices.Clone(m.ahead), func(a Backup) bool { return !m.droppable(a) || !m.droppableFor(a, b) })
		if len(may) == 0 {
			return
		}
		longest := slices.MinFunc(may, func(x, y Backup) int {
			return cmp.Or(cmp.Compare(slotTime(y), slotTime(x)), cmp.Compare(x.UID, y.UID))
		})
		if m.drop[longest.UID] = true; longest.UID == b.UID {
			return
		}
		if m.slot[b.UID] = m.first(b.UID); !m.beside {
			return
		}
	}
}

// droppableFor tells whose deadlines are given up for one that would be late: of its class; a
// tenant's for itself alone.
func (m *dueModel) droppableFor(a, late Backup) bool {
	tenants := func(b Backup) bool { return !m.tenants[b.UID].IsZero() }
	c := m.in.Config
	switch {
	case tenants(late):
		return a.UID == late.UID
	case c.Priorities && (a.Priority != late.Priority || c.ManualFirst && (a.Schedule == "") != (late.Schedule == "")):
		return false
	}
	return tenants(a) == m.beside
}

// slotTime is how long a Backup takes a slot.
func slotTime(b Backup) time.Duration {
	if b.Holds.Mid > 0 {
		return min(b.Holds.Mid, b.Takes.Mid)
	}
	return b.Takes.Mid
}

// work of a slot, without one Backup.
func (m *dueModel) work(slot int, without string) (all time.Duration) {
	for i, s := range m.of {
		if s == slot {
			all += m.runs[i]
		}
	}
	for _, a := range m.ahead {
		if m.slot[a.UID] == slot && !m.drop[a.UID] && a.UID != without {
			all += slotTime(a)
		}
	}
	return all
}

// first is the slot that is available first.
func (m *dueModel) first(without string) (best int) {
	for i := range max(1, m.in.Config.Limit) {
		if m.work(i, without) < m.work(best, without) {
			best = i
		}
	}
	return best
}

// dated gives some of a world's Backups windows, deadlines and durations.
func dated(r *rand.Rand, in Input) Input {
	in.Config.Aging = time.Duration(r.IntN(3)) * 3 * time.Hour // of three hours at most have passed
	for i := range in.Backups {
		b := &in.Backups[i]
		if r.IntN(3) > 0 {
			b.Due.Deadline, b.Due.DeadlineBounded = noon.Add(time.Duration(r.IntN(48)-12)*10*time.Minute), r.IntN(4) == 0
		}
		if !b.Due.Deadline.IsZero() && r.IntN(2) == 0 {
			b.Due.Closes, b.Due.ClosesBounded = b.Due.Deadline.Add(time.Duration(r.IntN(24))*10*time.Minute), r.IntN(4) == 0
		}
		if r.IntN(4) == 0 {
			b.Due.Opens = noon.Add(time.Duration(r.IntN(13)-6) * 10 * time.Minute)
		}
		if r.IntN(3) > 0 {
			mid := time.Duration(1+r.IntN(12)) * 10 * time.Minute
			b.Takes = durations.Estimate{Low: mid / 2, Mid: mid, High: 2 * mid}
		}
		if r.IntN(3) == 0 {
			b.Holds = takes(time.Duration(1+r.IntN(12)) * 10 * time.Minute)
		}
	}
	return in
}

func TestDeadlineModel(t *testing.T) {
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := dated(r, world(r, r.IntN(14)))
		require.NoError(t, agree(in), "seed %d", seed)
		require.NoError(t, agree(refusing(r, in)), "seed %d", seed)
	}
}

// orderOf those Backups of the queue.
func orderOf(in Input, of func(b *Backup) bool) (uids []string) {
	for _, e := range Decide(in).Queue {
		if of(e.Backup) {
			uids = append(uids, e.UID)
		}
	}
	return uids
}

// A namespace's annotations change nothing in the order of those whose deadline they did not
// set, and Backups of lower priority nothing in that of higher ones.
func TestDeadlineOfOthers(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 5))
		in := dated(r, world(r, 14))
		tenants := map[string]bool{}
		without := in
		without.Backups = nil
		for i := range in.Backups {
			b := &in.Backups[i]
			b.Due.ClosesBounded = b.Due.DeadlineBounded
			without.Backups = append(without.Backups, *b)
			if b.Due.DeadlineBounded {
				tenants[b.UID] = true
				without.Backups[i].Due = objective.Due{Opens: b.Due.Opens}
			}
		}
		if timed(without) {
			others := func(b *Backup) bool { return !tenants[b.UID] }
			require.Equal(t, orderOf(without, others), orderOf(in, others), "seed %d", seed)
		}
		in.Config.Priorities, in.Config.Aging = true, 24*time.Hour // none has aged
		without = in
		without.Backups = slices.DeleteFunc(slices.Clone(in.Backups), func(b Backup) bool { return b.Priority < 1 && b.waits() })
		if timed(without) {
			high := func(b *Backup) bool { return b.Priority > 0 }
			require.Equal(t, orderOf(without, high), orderOf(in, high), "seed %d", seed)
		}
	}
}

func FuzzDeadlines(f *testing.F) {
	f.Add(uint64(1), uint8(10))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		r := rand.New(rand.NewPCG(seed, 4))
		if err := agree(dated(r, world(r, int(n%40)))); err != nil {
			t.Error(err)
		}
	})
}

// withoutObjectives is the digest of what the queue decided about these worlds before it
// knew deadlines.
const withoutObjectives = "178fb9305b436795314ad8ea746e62956fa3ad782b6a3ef2ea9459b170d4c42c"

// Where no Backup has an objective, decisions are those of a queue without deadlines, bit
// by bit, whatever is known of durations.
func TestDeadlinesUnsetChangeNothing(t *testing.T) {
	digest := sha256.New()
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := world(r, r.IntN(14))
		text := decisionText(Decide(in))
		fmt.Fprint(digest, text)
		for i := range in.Backups {
			in.Backups[i].Takes = durations.Estimate{Low: time.Minute, Mid: time.Hour, High: 2 * time.Hour}
			in.Backups[i].Began = noon.Add(-time.Hour)
			if in.Backups[i].running() {
				in.Backups[i].Due.Deadline = noon
			}
		}
		require.Equal(t, text, decisionText(Decide(in)), "seed %d", seed)
	}
	assert.Equal(t, withoutObjectives, hex.EncodeToString(digest.Sum(nil)))
}

// decisionText has all that a decision says.
func decisionText(d Decision) string {
	text := fmt.Sprintf("limit %d, %d run\n", d.Limit, d.Running)
	for _, e := range d.Queue {
		text += fmt.Sprintf("%s %t %d %d %v %v\n", e.UID, e.Start, e.Place, e.WritePosition, e.WriteTurn, e.Wait)
	}
	for _, b := range d.Stuck {
		text += "stuck " + b.UID + "\n"
	}
	return text
}

func takes(mid time.Duration) durations.Estimate {
	return durations.Estimate{Low: mid, Mid: mid, High: mid}
}

func TestDeadline(t *testing.T) {
	in := func(hours float64) time.Time { return noon.Add(time.Duration(hours * float64(time.Hour))) }
	due := func(uid string, deadline time.Time, takes durations.Estimate) Backup {
		return Backup{UID: uid, Name: uid, Phase: Queued, Created: noon, Version: 9, Turn: Turn{Version: 5}, Include: []string{uid}, Due: objective.Due{Deadline: deadline}, Takes: takes}
	}
	order := func(c Config, at time.Time, backups ...Backup) (names []string) {
		for _, e := range Decide(Input{Time: at, Config: c, Namespaces: NewNamespaces([]string{"a", "b", "c", "d"}), Backups: backups}).Queue {
			names = append(names, e.Name)
		}
		return names
	}
	one := Config{Limit: 1, Aging: 24 * time.Hour}
	a, b, c := due("a", in(9), takes(time.Hour)), due("b", in(3), takes(time.Hour)), due("c", time.Time{}, takes(time.Hour))
	t.Run("the earliest comes first, none last", func(t *testing.T) {
		assert.Equal(t, []string{"b", "a", "c"}, order(one, noon, c, a, b))
	})
	t.Run("at the same time the shortest", func(t *testing.T) {
		assert.Equal(t, []string{"b", "a"}, order(one, noon, due("a", in(9), takes(2*time.Hour)), due("b", in(9), takes(time.Hour))))
	})
	t.Run("one that cannot be met lets others pass", func(t *testing.T) {
		assert.Equal(t, []string{"a", "b", "c"}, order(one, in(2.5), c, a, b))
	})
	t.Run("where only the window can be kept still, its end counts", func(t *testing.T) {
		window := b
		window.Due.Closes = in(8)
		assert.Equal(t, []string{"b", "a", "c"}, order(one, noon, a, window, c))
		assert.Equal(t, []string{"b", "a", "c"}, order(one, in(2.5), a, window, c), "in which it is complete before a is due")
		window.Due.Closes = in(9.5)
		assert.Equal(t, []string{"a", "b", "c"}, order(one, in(2.5), a, window, c))
		assert.Equal(t, []string{"a", "b", "c"}, order(one, in(8.6), a, window, c), "nor can that be kept")
		long := due("d", in(2), takes(8*time.Hour))
		long.Due.Closes = in(9)
		assert.Equal(t, []string{"b", "a", "c", "d"}, order(one, noon, long, window, a, c), "it is given up as a deadline is")
	})
	t.Run("the longest is given up for several", func(t *testing.T) {
		long := due("d", in(4), takes(4*time.Hour))
		assert.Equal(t, []string{"b", "a", "c", "d"}, order(one, noon, long, a, b, c))
		assert.Equal(t, []string{"b", "d", "a", "c"}, order(Config{Limit: 2, Aging: one.Aging}, noon, long, a, b, c), "but with two slots all are met")
	})
	t.Run("nor what could be met if it took little", func(t *testing.T) {
		long := due("d", in(4), durations.Estimate{Low: 90 * time.Minute, Mid: 4 * time.Hour, High: 5 * time.Hour})
		assert.Equal(t, []string{"b", "d", "c"}, order(one, noon, long, b, c), "after b it may be complete in time")
		long.Takes.Low = 190 * time.Minute
		assert.Equal(t, []string{"b", "c", "d"}, order(one, noon, long, b, c))
	})
	t.Run("a tenant's is given up for others, and no other for it", func(t *testing.T) {
		tenants := func(uid string, at float64, hours float64) Backup {
			b := due(uid, in(at), takes(time.Duration(hours*float64(time.Hour))))
			b.Due.DeadlineBounded = true
			return b
		}
		assert.Equal(t, []string{"b", "d"}, order(one, noon, due("b", in(3.75), takes(3*time.Hour)), tenants("d", 4, 1.5)), "it would be late itself")
		assert.Equal(t, []string{"b", "d"}, order(one, noon, due("b", in(3.75), takes(3*time.Hour)), tenants("d", 3, 1.5)), "it would make another late")
		assert.Equal(t, []string{"d", "b"}, order(one, noon, due("b", in(4.5), takes(3*time.Hour)), tenants("d", 3, 1.5)))
		assert.Equal(t, []string{"a", "d"}, order(one, noon, tenants("a", 3, 3), tenants("d", 4, 1.5)), "nor another tenant's")
		assert.Equal(t, []string{"c", "b", "d", "a"}, order(one, noon, tenants("a", 1, 1), tenants("d", 2, 0.5), tenants("c", 2.2, 0.1), due("b", in(3), takes(168*time.Minute))), "as many as it takes")
		window := tenants("d", 1, 1.5)
		window.Due.Closes = in(3)
		assert.Equal(t, []string{"d", "b"}, order(one, noon, due("b", in(3.75), takes(3*time.Hour)), window), "the end of a window that is not a tenant's counts as any other")
		window.Due.ClosesBounded = true
		assert.Equal(t, []string{"b", "d"}, order(one, noon, due("b", in(3.75), takes(3*time.Hour)), window))
	})
	t.Run("none is given up for one of lower priority", func(t *testing.T) {
		high := func(b Backup) Backup { b.Priority = 10; return b }
		first, second, low := high(due("a", in(3.5), takes(3*time.Hour))), high(due("b", in(8), takes(time.Hour))), due("c", in(4.5), takes(time.Hour))
		ranked := Config{Limit: 1, Aging: one.Aging, Priorities: true}
		assert.Equal(t, []string{"a", "b", "c"}, order(ranked, noon, first, second, low))
		low.Priority, low.Schedule, ranked.ManualFirst = 10, "s", true
		assert.Equal(t, []string{"a", "b", "c"}, order(ranked, noon, first, second, low), "or of a Schedule")
	})
	t.Run("what is given up empties its own slot", func(t *testing.T) {
		hours := func(h float64) durations.Estimate { return takes(time.Duration(h * float64(time.Hour))) }
		assert.Equal(t, []string{"b", "c", "d", "e", "a"}, order(Config{Limit: 2, Aging: one.Aging}, noon,
			due("a", in(4), hours(4)), due("b", in(5), hours(3)), due("c", in(5.5), hours(2.9)), due("d", in(6), hours(3)), due("e", in(6.1), hours(3))))
	})
	t.Run("a running one takes time", func(t *testing.T) {
		runs := Backup{UID: "r", Phase: InProgress, Began: noon, Takes: takes(150 * time.Minute)}
		assert.Equal(t, []string{"a", "b"}, order(one, noon, runs, a, b))
		runs.Began = in(-1)
		assert.Equal(t, []string{"b", "a"}, order(one, noon, runs, a, b))
	})
	t.Run("of unknown duration", func(t *testing.T) {
		b.Takes, a.Takes = durations.Estimate{}, durations.Estimate{}
		assert.Equal(t, []string{"b", "a"}, order(one, in(2.9), a, b))
		assert.Equal(t, []string{"a", "b"}, order(one, in(3.1), a, b), "is late when it is")
	})
	t.Run("priority first, where it counts", func(t *testing.T) {
		high := a
		high.Priority = 1
		assert.Equal(t, []string{"b", "a"}, order(one, noon, high, b))
		assert.Equal(t, []string{"a", "b"}, order(Config{Limit: 1, Aging: one.Aging, Priorities: true}, noon, high, b))
	})
	t.Run("aged before all", func(t *testing.T) {
		old := c
		old.Created = in(-24)
		assert.Equal(t, []string{"c", "b", "a"}, order(one, noon, a, b, old))
		old.Due = objective.Due{Opens: in(1), Deadline: in(2), Closes: in(2)}
		assert.Equal(t, []string{"b", "a", "c"}, order(one, noon, a, b, old), "but outside of its window, however long it has waited")
		assert.Equal(t, []string{"c", "b", "a"}, order(one, in(1), a, b, old))
	})
}

func TestDeadlineWindow(t *testing.T) {
	base := Backup{Phase: Queued, Created: noon, Version: 9, Include: []string{"a"}}
	night, other := base, base
	night.UID, night.Turn, night.Due = "night", Turn{Version: 1}, objective.Due{Opens: noon.Add(time.Hour), Deadline: noon.Add(2 * time.Hour)}
	other.UID, other.Turn = "other", Turn{Version: 2}
	in := Input{Time: noon, Config: Config{Limit: 1, Aging: 24 * time.Hour}, Namespaces: NewNamespaces([]string{"a"}), Backups: []Backup{night, other}}
	d := Decide(in)
	assert.Equal(t, "other", d.Queue[0].UID, "one that overlaps passes it")
	assert.Equal(t, Wait{Code: CodeAhead, By: "night", Namespaces: []string{"a"}, Shared: 1}, d.Queue[0].Wait, "when its later turn is written")
	assert.True(t, d.Queue[0].Overtakes)
	assert.Equal(t, CodeWindow, d.Queue[1].Wait.Code)
	in.Backups[0].Turn = d.Queue[1].WriteTurn
	d = Decide(in)
	assert.True(t, d.Queue[0].Start)
	assert.Equal(t, 1, d.Queue[1].Place)
	in.Time = night.Due.Opens
	d = Decide(in)
	assert.Equal(t, "night", d.Queue[0].UID)
	in.Backups = in.Backups[:1]
	assert.True(t, Decide(in).Queue[0].Start)
	in.HandBack, in.Time = true, noon
	assert.True(t, Decide(in).Queue[0].Start, "Velero's own queue knows no window")
}

// A stream of Backups that are always due earlier never ends: one without a deadline, one
// whose deadline cannot be met, and the longest of all get through all the same.
func TestDeadlineAging(t *testing.T) {
	for name, patient := range map[string]Backup{
		"no deadline":              {},
		"a deadline far away":      {Due: objective.Due{Deadline: noon.Add(1000 * time.Hour)}},
		"a deadline that is over":  {Due: objective.Due{Deadline: noon.Add(-time.Hour)}},
		"the longest is given up":  {Due: objective.Due{Deadline: noon.Add(time.Hour)}, Takes: takes(10 * time.Hour)},
		"the lowest priority":      {Priority: -1 << 31},
		"a window that opens late": {Due: objective.Due{Opens: noon.Add(time.Hour), Deadline: noon.Add(2 * time.Hour)}, Takes: takes(2 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(Config{Limit: 1, Priorities: true, Aging: 2 * time.Hour}, 1)
			c.add(Backup{UID: "running"})
			c.step(t)
			patient.UID = "patient"
			c.add(patient)
			for i := 0; c.waited["patient"] == 0; i++ {
				require.Less(t, i, 100, "it starves")
				c.in.Time = c.in.Time.Add(10 * time.Minute)
				c.add(Backup{UID: fmt.Sprintf("urgent-%02d", i), Due: objective.Due{Deadline: c.in.Time.Add(12 * time.Minute)}, Takes: takes(10 * time.Minute)})
				c.step(t)
				c.end()
				c.step(t)
			}
			assert.Less(t, c.waited["patient"], 2*time.Hour+20*time.Minute)
		})
	}
}

// BenchmarkDecideDeadlines is BenchmarkDecide with windows, deadlines and durations.
func BenchmarkDecideDeadlines(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	c := newCluster(Config{Limit: 4, Aging: 24 * time.Hour}, 5000)
	for i := range 10_000 {
		include := [][]string{{fmt.Sprintf("ns-%04d", i%5000)}, {fmt.Sprintf("ns-%02d*", i%50)}, {fmt.Sprintf("ns-%04d", i%5000), fmt.Sprintf("ns-%04d", i*7%5000)}, nil}[i%4]
		c.add(Backup{UID: fmt.Sprintf("b-%05d", i), Phase: Queued, Position: i + 1, Include: include})
	}
	c.in = dated(r, c.in)
	b.ReportAllocs()
	for b.Loop() {
		Decide(c.in)
	}
}
