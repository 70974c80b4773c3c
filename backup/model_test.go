package backup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// model is the queue once more, slow and plain: sets are maps, and one Backup
// is looked at after the other from the beginning until none starts.
type model struct {
	limit   int
	active  []string
	backups []Backup
	before  func(a, b Backup) bool
	// turn is the order that is written down; before goes against it only when
	// it has been written anew.
	turn func(a, b Backup) bool
	// closed ones wait for their window, and no other for them; nil: none.
	closed func(b Backup) bool
}

func (m model) names(b Backup) (set map[string]bool, all bool) {
	switch all := slices.Concat(b.Include, b.Exclude); {
	case slices.ContainsFunc(all, rejected):
		return nil, b.Phase == InProgress // Velero fails it before it holds anything
	case slices.ContainsFunc(all, unreadable):
		return nil, true
	}
	matches := func(patterns []string, name string) bool {
		for _, p := range patterns {
			if ok, _ := path.Match(p, name); ok {
				return true
			}
		}
		return false
	}
	set = map[string]bool{}
	for _, name := range m.active {
		if (len(b.Include) == 0 || matches(b.Include, name)) && !matches(b.Exclude, name) {
			set[name] = true
		}
	}
	return set, false
}

func (m model) overlap(a, b Backup) bool {
	setA, allA := m.names(a)
	setB, allB := m.names(b)
	if allA || allB {
		return true
	}
	for name := range setA {
		if setB[name] {
			return true
		}
	}
	return false
}

// decide is who starts, and who waits, in order.
func (m model) decide() (starts, waits []string) {
	var running, queue []Backup
	for _, b := range m.backups {
		switch b.Phase {
		case Ready, InProgress:
			running = append(running, b)
		case "", New, Queued:
			queue = append(queue, b)
		}
	}
	sort.SliceStable(queue, func(i, j int) bool { return m.before(queue[i], queue[j]) })
	all := slices.Clone(queue)
	for i := m.next(running, queue); i >= 0; i = m.next(running, queue) {
		starts, running = append(starts, queue[i].UID), append(running, queue[i])
		queue = slices.Delete(queue, i, i+1)
	}
	starts = slices.DeleteFunc(starts, func(uid string) bool {
		b := all[slices.IndexFunc(all, func(b Backup) bool { return b.UID == uid })]
		return slices.ContainsFunc(all, func(o Backup) bool { return m.before(b, o) && m.turn(o, b) && m.overlap(o, b) })
	})
	for _, b := range all {
		if !slices.Contains(starts, b.UID) {
			waits = append(waits, b.UID)
		}
	}
	return starts, waits
}

// next that may start; -1: nobody.
func (m model) next(running, queue []Backup) int {
	if len(running) >= m.limit {
		return -1
	}
	return slices.IndexFunc(queue, func(b Backup) bool {
		hinders := func(o Backup) bool { return m.overlap(b, o) }
		i := slices.IndexFunc(queue, func(o Backup) bool { return o.UID == b.UID })
		if m.closed != nil && m.closed(b) {
			return false
		}
		// It cannot be given a later turn, and keeps its namespaces.
		stays := func(o Backup) bool { return o.Refused && m.turn(o, b) && m.overlap(o, b) }
		return b.Phase == Queued && !b.Refused && !slices.ContainsFunc(running, hinders) && !slices.ContainsFunc(queue[:i], hinders) && !slices.ContainsFunc(queue[i+1:], stays)
	})
}

var patterns = [][]string{nil, {"*"}, {"a"}, {"b"}, {"a", "b"}, {"app-*"}, {"app-?"}, {"*-1"}, {"[a-c]"}, {"missing"}, {"bad-**"}, {"[[a]"}, {"c", "d"}, {"db-1"}}

// world is some Backups of all kinds, by one seed.
func world(r *rand.Rand, n int) Input {
	in := Input{
		Time: noon, Namespaces: NewNamespaces([]string{"a", "b", "c", "d", "app-1", "app-2", "db-1"}),
		Config: Config{
			Limit: r.IntN(5), Priorities: r.IntN(2) == 0, ManualFirst: r.IntN(2) == 0, Aging: time.Duration(r.IntN(3)) * time.Hour,
		},
		Exact: r.IntN(2) == 0, HandBack: r.IntN(5) == 0,
	}
	in.Config.Priorities = in.Config.Priorities && !in.HandBack // their order is not by positions
	position := 0
	for i := range n {
		b := Backup{
			UID: fmt.Sprintf("uid-%d", r.IntN(1000)*1000+i), Name: fmt.Sprintf("b%d", i),
			Phase: []Phase{"", New, Queued, Queued, Queued, Queued, Ready, InProgress, "Completed"}[r.IntN(9)],
			// Made within three hours, some of them in the same second.
			Created: noon.Add(-time.Duration(r.IntN(40)) * 5 * time.Minute),
			Include: patterns[r.IntN(len(patterns))], Priority: int32(r.IntN(3)) - 1,
		}
		if r.IntN(3) == 0 {
			b.Exclude = patterns[1+r.IntN(len(patterns)-1)]
		}
		if r.IntN(2) == 0 {
			b.Schedule = "nightly"
		}
		if b.Phase == Queued {
			position += r.IntN(3) // some are equal
			if r.IntN(5) == 0 {
				position += r.IntN(30) // many before it have gone
			}
			b.Position = position
		}
		b.Version = 1 + uint64(r.IntN(2*n))
		if r.IntN(3) == 0 {
			b.Turn = Turn{Version: 1 + uint64(r.IntN(2*n))}
		}
		in.Backups = append(in.Backups, b)
	}
	r.Shuffle(len(in.Backups), func(i, j int) { in.Backups[i], in.Backups[j] = in.Backups[j], in.Backups[i] })
	return in
}

// byTurn, byAge, byPosition and byPriority are the orders, said once more.
func byTurn(a, b Backup) bool {
	// What Velero's own queue had is of version 0.
	key := func(b Backup) uint64 {
		switch {
		case b.Turn.Version > 0:
			return b.Turn.Version << 32
		case b.Position > 0:
			return uint64(b.Position)
		}
		return b.Version << 32
	}
	switch {
	case key(a) != key(b):
		return key(a) < key(b)
	case !a.Created.Equal(b.Created):
		return a.Created.Before(b.Created)
	}
	return a.UID < b.UID
}

func byAge(a, b Backup) bool {
	if !a.Created.Equal(b.Created) {
		return a.Created.Before(b.Created)
	}
	return byTurn(a, b) // a creation has whole seconds
}

// place that Velero's own queue reads.
func place(b Backup) int {
	if b.Position > 0 {
		return b.Position
	}
	return 1 << 30
}

func byPosition(a, b Backup) bool {
	if place(a) != place(b) {
		return place(a) < place(b)
	}
	return byTurn(a, b)
}

func byPriority(in Input) func(a, b Backup) bool {
	old := func(b Backup) bool { return in.Config.Aging > 0 && !b.Created.After(in.Time.Add(-in.Config.Aging)) }
	return func(a, b Backup) bool {
		switch {
		case old(a) && old(b):
			return byAge(a, b)
		case old(a) || old(b):
			return old(a)
		case a.Priority != b.Priority:
			return a.Priority > b.Priority
		case in.Config.ManualFirst && (a.Schedule == "") != (b.Schedule == ""):
			return a.Schedule == ""
		}
		return byAge(a, b)
	}
}

func modelOf(in Input) model {
	m := model{limit: max(1, in.Config.Limit), active: in.Namespaces.names, backups: in.Backups, before: byTurn, turn: byTurn}
	if in.HandBack {
		m.before = byPosition
	}
	if in.Config.Priorities {
		m.before = byPriority(in)
	}
	if timed(in) {
		m.before, m.closed = byDue(in), func(b Backup) bool { return b.Due.Opens.After(in.Time) }
	}
	return m
}

// agree says what of a decision is not as it must be.
func agree(in Input) error {
	d, m := Decide(in), modelOf(in)
	wantStarts, wantWaits := m.decide()
	var starts, waits []string
	last, ahead := 0, time.Time{}
	for _, e := range d.Queue {
		if e.Start {
			starts = append(starts, e.UID)
			continue
		}
		waits = append(waits, e.UID)
		if (in.Config.Priorities || timed(in)) && !e.Created.Equal(ahead) {
			last = 0
		}
		if e.Place != len(waits) {
			return fmt.Errorf("%s has place %d and stands at %d", e.UID, e.Place, len(waits))
		}
		if err := errors.Join(waitsFor(in, e), positioned(in, e, last)); err != nil {
			return err
		}
		last, ahead = max(last, e.WritePosition), e.Created
	}
	if !slices.Equal(starts, wantStarts) || !slices.Equal(waits, wantWaits) {
		return fmt.Errorf("starts %v, waits %v; the model: %v, %v", starts, waits, wantStarts, wantWaits)
	}
	return overlapping(m, starts)
}

// waitsFor says what is wrong with what it waits for.
func waitsFor(in Input, e Entry) error {
	switch {
	case e.Wait.Code == "":
		return fmt.Errorf("%s waits for nothing", e.UID)
	case (e.Wait.Code == CodeWindow) != (timed(in) && e.Due.Opens.After(in.Time)):
		return fmt.Errorf("%s waits: %s, and its window opens %s", e.UID, e.Wait.Code, e.Due.Opens)
	case !slices.Contains([]Code{CodeLimit, CodeNew, CodeWindow, CodeRefused}, e.Wait.Code) && e.Wait.By == "":
		return fmt.Errorf("%s waits for nobody: %s", e.UID, e.Wait.Code)
	case e.Refused && e.WriteTurn != e.turn():
		return fmt.Errorf("%s, which is refused, is given the turn %v", e.UID, e.WriteTurn)
	case e.Overtakes && slices.ContainsFunc(in.Backups, func(b Backup) bool { return b.UID == e.Wait.By && b.Refused }):
		return fmt.Errorf("%s overtakes %s, whose turn stays", e.UID, e.Wait.By)
	}
	return nil
}

// positioned says what is wrong with a position, behind last.
func positioned(in Input, e Entry, last int) error {
	switch least := max(e.Place, last+1); {
	case e.Refused && e.Position > 0:
		if e.WritePosition != e.Position {
			return fmt.Errorf("%s is written as %d, and cannot be", e.UID, e.WritePosition)
		}
	case (in.Exact || e.Place <= exactPositions) && e.WritePosition != least:
		return fmt.Errorf("%s at %d is written as %d", e.UID, e.Place, e.WritePosition)
	case e.WritePosition <= last:
		return fmt.Errorf("%s is written as %d, behind %d", e.UID, e.WritePosition, last)
	case e.WritePosition >= 2*least || e.Place >= 2*e.WritePosition:
		return fmt.Errorf("%s at %d is written as %d", e.UID, e.Place, e.WritePosition)
	case needless(in, e, last):
		return fmt.Errorf("%s at %d is written as %d, and %d would do", e.UID, e.Place, e.WritePosition, e.Position)
	}
	return nil
}

// needless: the position is written anew, and what stands there would do.
func needless(in Input, e Entry, last int) bool {
	due := in.Exact || e.Place <= exactPositions || e.Position <= last || e.Position >= 2*max(e.Place, last+1) || e.Place >= 2*e.Position
	return e.Position != e.WritePosition && !due
}

// overlapping says which two that run would share a namespace because of what
// has just been started.
func overlapping(m model, starts []string) error {
	for i, a := range m.backups {
		for _, b := range m.backups[:i] {
			fresh := slices.Contains(starts, a.UID) || slices.Contains(starts, b.UID)
			if fresh && (a.running() || slices.Contains(starts, a.UID)) && (b.running() || slices.Contains(starts, b.UID)) && m.overlap(a, b) {
				return fmt.Errorf("%s and %s run together", a.UID, b.UID)
			}
		}
	}
	return nil
}

func TestQueueModel(t *testing.T) {
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := world(r, r.IntN(14))
		require.NoError(t, agree(in), "seed %d", seed)
		require.NoError(t, agree(refusing(r, in)), "seed %d", seed)
	}
}

// refusing is the same world, some of whose Backups the API server refuses to change.
func refusing(r *rand.Rand, in Input) Input {
	in.Backups = slices.Clone(in.Backups)
	for i := range in.Backups {
		in.Backups[i].Refused = r.IntN(4) == 0
	}
	return in
}

func FuzzQueue(f *testing.F) {
	f.Add(uint64(1), uint8(10))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		if err := agree(world(rand.New(rand.NewPCG(seed, 2)), int(n%40))); err != nil {
			t.Error(err)
		}
	})
}

func FuzzPatterns(f *testing.F) {
	for _, p := range []string{"", "*", "a[b-c]?", "[", "]", "[]", "**", "\\", "[^a]", "a\\"} {
		f.Add(p, "abc")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		n := NewNamespaces([]string{name, "x"})
		s := n.Resolve([]string{pattern}, nil)
		if s.Invalid == nil && s.Rejected == nil {
			ok, err := path.Match(pattern, name)
			require.NoError(t, err)
			if !strings.ContainsAny(pattern, "*?[") {
				ok = pattern == name // no sign of a pattern, no escape
			}
			assert.Equal(t, ok, slices.Contains(n.Names(s), name))
		}
	})
}
