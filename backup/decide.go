package backup

import (
	mathbits "math/bits"
	"time"
)

// Input of a decision.
type Input struct {
	Time       time.Time
	Config     Config
	Namespaces *Namespaces
	// Backups of one Velero, in any order.
	Backups []Backup
	// Exact: the queue has not changed for a while, so every position is written exactly.
	Exact bool
	// HandBack: Velero's own queue takes over, which orders by the written positions,
	// not by turns.
	HandBack bool
}

// Decision of the queue.
type Decision struct {
	Limit int
	// Running is how many slots are taken: of those that run or start now, and of stuck ones
	// beyond the limit.
	Running int
	// Queue has all waiting Backups in order, and those that start now.
	Queue []Entry
	// Stuck are the ReadyToStart ones that Velero does not take up.
	Stuck []*Backup
	// Postponed are the ReadyToStart ones that are to wait for their next window.
	Postponed []*Backup
}

// Entry is a Backup that waits or starts now.
type Entry struct {
	*Backup
	// Start: set it ReadyToStart, with position 0.
	Start bool
	// Place among the Backups that keep waiting, from 1; 0 for one that starts.
	Place int
	// WritePosition is the position that its status should have. Further back positions are
	// only approximate, and an unchanged value is not written: otherwise each Backup
	// that leaves the queue would cause a write of all behind it.
	WritePosition int
	// WriteTurn is the turn to write: its own, or a later one where it yields to a
	// Backup of higher priority.
	WriteTurn Turn
	// Wait is why it does not start.
	Wait Wait
	// Overtakes: it starts before the one that it waits for, as soon as that has a later turn.
	Overtakes bool
}

// Code is why a Backup waits, in one word.
type Code string

// The codes.
const (
	CodeNew     Code = "new"     // it is not Queued yet
	CodeRunning Code = "running" // it shares a namespace with a running Backup
	CodeAhead   Code = "ahead"   // it shares a namespace with a Backup ahead of it
	CodeLimit   Code = "limit"   // the limit of running Backups is reached
	CodeWindow  Code = "window"  // its window is not open yet
	// CodeRefused: the API server refuses to change it; or the one that it waits for, which was
	// queued before it and comes after it by priority or deadline.
	CodeRefused Code = "refused"
	// CodeVelero: it is ReadyToStart and Velero has not taken it up yet.
	CodeVelero Code = "velero"
)

// Wait is why a Backup waits; the zero value: it does not.
type Wait struct {
	Code Code
	// By is the UID of the first Backup that it waits for, if any.
	By string
	// Namespaces that it shares with By, the first of them, and how many there are.
	Namespaces []string
	Shared     int
	// Invalid is why it, or By, counts as overlapping with every other, or why Velero will
	// reject it.
	Invalid error
}

// maxNames bounds the namespaces in a Wait, which people read in a status and a
// log line.
const maxNames = 10

// Decide says which Backups start, in which order the others wait, and for which
// one. A Backup may start while fewer than Limit run and it shares no namespace
// with any that runs or waits ahead of it. So no two that overlap run together,
// and smaller ones cannot overtake a large one for ever. One that Velero rejects as soon
// as it starts shares none: it waits for a slot alone, and then no other waits for it.
// One whose window is not open yet waits for it, and no other for it. One that the API server
// refuses to change takes no slot and keeps its namespaces, also from those that come before it
// only by priority or deadline: another leader may start it.
func Decide(in Input) Decision {
	d := Decision{Limit: max(1, in.Config.Limit)}
	r := newReserved(in.Namespaces)
	for i := range in.Backups {
		b := &in.Backups[i]
		if !b.running() {
			continue
		}
		r.take(b, in.Namespaces.setOf(b))
		if b.Phase == Ready && b.Postponed {
			d.Postponed = append(d.Postponed, b)
		}
		if in.stuck(b) {
			d.Stuck = append(d.Stuck, b)
			continue
		}
		d.Running++
	}
	d.Running += beyond(len(d.Stuck), d.Limit)
	queue := in.queue()
	d.Queue = make([]Entry, 0, len(queue))
	for i, b := range queue {
		e := Entry{Backup: b, WriteTurn: b.turn()}
		set := in.Namespaces.setOf(b)
		if in.closed(b) { // behind all that may start, so that it keeps none of them waiting
			e.Wait.Code = CodeWindow
			d.Queue = append(d.Queue, e)
			continue
		}
		e.Wait = r.conflict(set)
		switch {
		case e.Wait.Code != "":
		case b.Refused:
			e.Wait.Code = CodeRefused
		case d.Running >= d.Limit:
			e.Wait.Code, e.Wait.Invalid = CodeLimit, set.Rejected
		case b.Phase != Queued:
			e.Wait.Code, e.Wait.Invalid = CodeNew, set.Rejected
		case in.held(&e, set, queue[i+1:]):
		default:
			e.Start = true
			d.Running++
		}
		d.Queue = append(d.Queue, e)
		r.take(b, set)
	}
	in.yield(&d)
	in.place(d.Queue, in.reordered())
	return d
}

// held tells whether e, which could start, waits for one behind it that overlaps with it and has an
// earlier turn, because the API server refuses to change that: its turn stays.
func (in *Input) held(e *Entry, set Set, behind []*Backup) bool {
	for _, b := range behind {
		if !b.Refused || compareTurn(b, e.Backup) > 0 {
			continue
		}
		if other := in.Namespaces.setOf(b); set.overlaps(other) {
			r := newReserved(in.Namespaces)
			r.take(b, other)
			e.Wait = r.conflict(set)
			e.Wait.Code = CodeRefused
			return true
		}
	}
	return false
}

// beyond is how many stuck Backups keep their slots. As many as the limit free theirs: a Velero
// that takes up nothing is given twice the limit at most.
func beyond(stuck, limit int) int { return max(0, stuck-limit) }

func (in *Input) stuck(b *Backup) bool {
	return b.Phase == Ready && !b.ReadySince.IsZero() && in.Config.StuckAfter > 0 && in.Time.Sub(b.ReadySince) >= in.Config.StuckAfter
}

// reserved are the namespaces of the Backups that run and of those that wait ahead.
type reserved struct {
	names     *Namespaces
	taken     bitset
	by        []*Backup // the first to reserve each
	first     *Backup   // the first of all
	universal *Backup   // overlaps with every other; why is the reason
	why       error
}

func newReserved(names *Namespaces) *reserved {
	return &reserved{names: names, taken: newBitset(len(names.names)), by: make([]*Backup, len(names.names))}
}

func (r *reserved) take(b *Backup, s Set) {
	if r.first == nil {
		r.first = b
	}
	if s.Invalid != nil {
		if r.universal == nil {
			r.universal, r.why = b, s.Invalid
		}
		return
	}
	for w := range s.members {
		for fresh := s.members[w] &^ r.taken[w]; fresh != 0; fresh &= fresh - 1 {
			r.by[w*64+mathbits.TrailingZeros64(fresh)] = b
		}
		r.taken[w] |= s.members[w]
	}
}

// conflict is the Wait for what is reserved; the zero Wait: no conflict.
func (r *reserved) conflict(s Set) Wait {
	switch {
	case s.Invalid != nil && r.first != nil:
		return Wait{Code: waitCode(r.first), By: r.first.UID, Invalid: s.Invalid}
	case r.universal != nil:
		return Wait{Code: waitCode(r.universal), By: r.universal.UID, Invalid: r.why}
	case !r.taken.overlaps(s.members):
		return Wait{}
	}
	w := Wait{Shared: r.taken.shared(s.members)}
	for i := range r.taken.both(s.members) {
		if w.By == "" {
			w.Code, w.By = waitCode(r.by[i]), r.by[i].UID
		}
		if w.Namespaces = append(w.Namespaces, r.names.names[i]); len(w.Namespaces) == maxNames {
			break
		}
	}
	return w
}

// waitCode is the code of a Backup that waits for b.
func waitCode(b *Backup) Code {
	if b.running() {
		return CodeRunning
	}
	return CodeAhead
}

// exactPositions is how many first positions are always written exactly.
const exactPositions = 3

// place numbers the Backups that keep waiting, and sets the positions to write. reordered:
// one may come before another that was queued earlier.
func (in *Input) place(queue []Entry, reordered bool) {
	place, last := 0, 0
	ahead := time.Time{}
	for i := range queue {
		e := &queue[i]
		if e.Start {
			continue
		}
		place++
		e.Place = place
		if reordered && !e.Created.Equal(ahead) {
			last = 0
		}
		if e.WritePosition = e.Position; !e.Refused || e.Position == 0 {
			e.WritePosition = in.position(place, e.Position, last, reordered)
		}
		last, ahead = max(last, e.WritePosition), e.Created
	}
}

// position to write for a place; now is the written one, and last what is written
// for the Backup ahead. To save writes a position is only lowered when it can be
// halved: log2 of the queue's length writes for each Backup. Positions must rise
// from one to the next, because Velero's own queue orders by them. With priorities or
// deadlines that holds only among Backups created in the same second (last is 0 for others),
// and an overtaken Backup is written again when its place has doubled.
func (in *Input) position(place, now, last int, reordered bool) int {
	want := max(place, last+1)
	overtaken := reordered && place >= 2*now
	if in.Exact || place <= exactPositions || now <= last || now >= 2*want || overtaken {
		return want
	}
	return now
}

// yield delays the start of a Backup that comes first only by priority or deadline.
// Overlapping Backups with an earlier turn are first given a later one: another
// leader may not know the Backup of higher priority yet, or not order by priority,
// and both could be started.
func (in *Input) yield(d *Decision) {
	var newest uint64
	for i := range in.Backups {
		newest = max(newest, in.Backups[i].Version)
	}
	for i := range d.Queue {
		e := &d.Queue[i]
		if !e.Start {
			continue
		}
		if e.Wait = in.delayOverlapping(e, d.Queue[i+1:], Turn{Version: newest}); e.Wait.Code != "" {
			e.Start = false
			d.Running--
		}
	}
}

// delayOverlapping gives a later turn to Backups that overlap with e and have an earlier one;
// it returns for which e waits until that is written. None of them is refused (held).
func (in *Input) delayOverlapping(e *Entry, behind []Entry, until Turn) Wait {
	r := newReserved(in.Namespaces)
	set := in.Namespaces.setOf(e.Backup)
	for i := range behind {
		b := behind[i].Backup
		if compareTurn(b, e.Backup) > 0 {
			continue
		}
		if other := in.Namespaces.setOf(b); set.overlaps(other) {
			behind[i].WriteTurn = until
			e.Overtakes = true
			r.take(b, other)
		}
	}
	return r.conflict(set)
}
