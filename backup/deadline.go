package backup

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// deadlines tells whether the queue is ordered by deadlines: where no Backup that waits has
// an objective, it is not, and every decision is as without them.
func (in *Input) deadlines() bool {
	for i := range in.Backups {
		if b := &in.Backups[i]; b.waits() && b.timed() {
			return !in.HandBack
		}
	}
	return false
}

// timed tells whether it has a window or a deadline.
func (b *Backup) timed() bool { return !b.Due.Opens.IsZero() || !b.Due.Deadline.IsZero() }

// reordered tells whether a Backup may come before one that was queued earlier.
func (in *Input) reordered() bool { return in.Config.Priorities || in.deadlines() }

// closed tells whether the window of a Backup is not open yet.
func (in *Input) closed(b *Backup) bool { return !in.HandBack && b.Due.Opens.After(in.Time) }

// agingWithDeadlines is the aging of a configuration that has none: without it a Backup
// that has no deadline would wait for as long as others have.
const agingWithDeadlines = 24 * time.Hour

func (in *Input) aging() time.Duration {
	if in.Config.Aging > 0 {
		return in.Config.Aging
	}
	return agingWithDeadlines
}

// dueBackup is a waiting Backup with what orders it.
type dueBackup struct {
	*Backup
	tier tier
	// at is when it is due: its deadline, but no later than when it has aged, so that each
	// Backup has one, and none is overtaken by those that are created later than that.
	at, aged time.Time
	// bounded is a deadline that a namespace's owner chose; zero: none is in force.
	bounded time.Time
	given   bool // its deadline is given up
	// slot in which it is planned, and for how long it takes it.
	slot int
	hold time.Duration
}

// tier of a waiting Backup: the lower comes first.
type tier uint8

const (
	tierAged   tier = iota // it has waited so long that it comes first
	tierDue                // ordered by priority, and among equal ones by deadline
	tierClosed             // its window is not open yet
)

// byDeadline orders Backups: those that have aged, by age; then by priority, and by
// deadline (earliest deadline first); last those whose window is not open yet. A Backup
// that can keep neither its deadline nor its window any more, or only in place of several
// others, is due when it has aged.
func (in *Input) byDeadline(list []*Backup) []*Backup {
	due := make([]dueBackup, 0, len(list))
	for _, b := range list {
		d := dueBackup{Backup: b, aged: b.Created.Add(in.aging()), tier: tierDue, hold: b.holds().Mid}
		switch {
		case in.closed(b):
			d.tier = tierClosed
		case !d.aged.After(in.Time):
			d.tier = tierAged
		}
		d.at = d.aged
		switch by := b.Due.Still(in.Time.Add(b.Takes.Low)); {
		case by.IsZero() || !by.Before(d.aged):
		case b.Due.BoundedAt(by):
			d.bounded = by
		default:
			d.at = by
		}
		due = append(due, d)
	}
	in.arrange(due, false)
	if isBounded := func(d dueBackup) bool { return !d.bounded.IsZero() }; slices.ContainsFunc(due, isBounded) {
		in.arrange(due, true)
	}
	for i := range due {
		list[i] = due[i].Backup
	}
	return list
}

// arrange puts Backups in order: first without the deadlines that namespaces' owners chose, then
// with them (bounded), when they are the only ones that are given up.
func (in *Input) arrange(due []dueBackup, bounded bool) {
	for i := range due {
		if d := &due[i]; bounded && !d.bounded.IsZero() {
			d.at = d.bounded
		}
	}
	slices.SortFunc(due, in.compareDue)
	if in.giveUp(due, bounded) {
		slices.SortFunc(due, in.compareDue)
	}
}

// compareDue is a total order.
func (in *Input) compareDue(a, b dueBackup) int {
	if c := cmp.Compare(a.tier, b.tier); c != 0 {
		return c
	}
	if a.tier == tierDue {
		if c := in.compareUrgency(a, b); c != 0 {
			return c
		}
	}
	return cmp.Or(a.Created.Compare(b.Created), compareTurn(a.Backup, b.Backup))
}

// compareUrgency orders by priority, where they count, and by deadline; of those that are
// due at the same time, as at the end of a window, the shortest comes first, so that as many
// as possible are in time where all takes longer than was expected.
func (in *Input) compareUrgency(a, b dueBackup) int {
	return cmp.Or(in.compareClass(a.Backup, b.Backup), a.at.Compare(b.at), cmp.Compare(a.Takes.Mid, b.Takes.Mid))
}

// giveUp gives up deadlines where not all can be met, so that few are missed (after Moore and
// Hodgson): Backups are placed in their order into the slot that is free first; where one
// would be late, the one of those up to it, of the same class, that takes a slot for longest is
// due when it has aged, and what is behind that in its slot moves up. Overlaps are not looked
// at. A Backup whose duration is not known is not given up, and takes no time from others.
//
// bounded: only the deadlines that namespaces' owners chose are given up, of a Backup that would
// be late itself, and of those ahead of another that would be late.
func (in *Input) giveUp(due []dueBackup, bounded bool) (some bool) {
	s := in.newSlots()
	for i := range due {
		d := &due[i]
		if d.tier == tierClosed {
			break
		}
		if i > 0 && in.compareClass(due[i-1].Backup, d.Backup) != 0 {
			s.kept = nil
		}
		if d.given {
			continue
		}
		s.place(d)
		if d.tier == tierAged || d.Takes.Mid == 0 || d.at.Equal(d.aged) {
			continue // it takes time from others, and has no deadline to give up
		}
		some = s.keep(d, in.Time, bounded) || some
	}
	return some
}

// keep the deadline of the Backup that was placed last, or give up one where it would be late.
func (s *slotTimes) keep(d *dueBackup, now time.Time, bounded bool) (gaveUp bool) {
	late := s.late(d, now, bounded)
	switch own := !d.bounded.IsZero(); {
	case own && late:
		s.giveUp(d)
		return true
	case own == bounded:
		heap.Push(&s.kept, d)
	}
	for late && len(s.kept) > 0 {
		longest := heap.Pop(&s.kept).(*dueBackup)
		s.giveUp(longest)
		if longest == d {
			return true
		}
		s.busy[d.slot] -= d.hold
		s.place(d)
		gaveUp = true
		late = bounded && s.late(d, now, bounded) // of others' deadlines one is given up
	}
	return gaveUp
}

func (s *slotTimes) giveUp(d *dueBackup) {
	d.at, d.given = d.aged, true
	s.busy[d.slot] -= d.hold
}

// slotTimes are the slots of the queue as far as they are planned.
type slotTimes struct {
	busy []time.Duration // for how long from now each has work
	kept longestFirst    // whose deadlines are met
}

// newSlots have the Backups that run, and of the stuck ones the longest that keep their slots.
func (in *Input) newSlots() *slotTimes {
	s := &slotTimes{busy: make([]time.Duration, max(1, in.Config.Limit))}
	var left, stuck []time.Duration
	for i := range in.Backups {
		b := &in.Backups[i]
		if !b.running() {
			continue
		}
		if in.stuck(b) {
			stuck = append(stuck, b.holds().Mid)
			continue
		}
		since := in.Time
		if !b.Began.IsZero() {
			since = b.Began
		}
		left = append(left, b.holds().Left(in.Time.Sub(since)).Mid)
	}
	slices.Sort(stuck) // Backups come in any order
	left = append(left, stuck[len(stuck)-beyond(len(stuck), len(s.busy)):]...)
	slices.Sort(left)
	for _, l := range left {
		s.busy[s.first()] += l
	}
	return s
}

// place plans a Backup in the slot that is free first.
func (s *slotTimes) place(d *dueBackup) {
	d.slot = s.first()
	s.busy[d.slot] += d.hold
}

// late tells whether the Backup that was placed last would be late though it took as little as
// its interval says: what is given up is missed, and what is kept in vain costs others little.
// Beside deadlines that namespaces' owners chose (bounded) the median counts: for theirs no
// other is to be late.
func (s *slotTimes) late(d *dueBackup, now time.Time, bounded bool) bool {
	takes := d.Takes.Low
	if bounded {
		takes = d.Takes.Mid
	}
	return now.Add(s.busy[d.slot] - d.hold + takes).After(d.at)
}

// first is the slot that is free first.
func (s *slotTimes) first() int {
	first := 0
	for i := range s.busy {
		if s.busy[i] < s.busy[first] {
			first = i
		}
	}
	return first
}

// longestFirst is a heap (container/heap) of Backups.
type longestFirst []*dueBackup

func (h longestFirst) Len() int { return len(h) }
func (h longestFirst) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[j].hold, h[i].hold), cmp.Compare(h[i].UID, h[j].UID)) < 0
}
func (h longestFirst) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *longestFirst) Push(x any)   { *h = append(*h, x.(*dueBackup)) }
func (h *longestFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
