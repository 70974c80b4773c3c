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
	// Quiet: the queue has not changed for a while, and every position is to be
	// written exactly.
	Quiet bool
	// HandBack: Velero's own queue takes over, and goes by the positions that are
	// written, not by turns.
	HandBack bool
}

// Decision of the queue.
type Decision struct {
	Limit   int
	Running int // slots that are taken, those of the Backups that start now too
	// Queue has all Backups that wait, in order, and those that start now.
	Queue []Entry
	// Stuck are those that Velero does not take up.
	Stuck []*Backup
}

// Entry is a Backup that waits or starts now.
type Entry struct {
	*Backup
	// Start: it becomes ReadyToStart, with position 0.
	Start bool
	// Place among those who go on waiting, from 1; 0 for who starts.
	Place int
	// Write is the position that its status should have. Where it is what stands
	// there already there is nothing to write: the positions further back are
	// followed only roughly, or a queue that drains would be written again for
	// each that leaves it.
	Write int
	// WriteTurn is the turn that is to be written down with it: its own, or a
	// later one where it yields to a more important Backup.
	WriteTurn Turn
	// Wait is why it does not start.
	Wait Wait
}

// Code is why a Backup waits, in one word.
type Code string

// The codes.
const (
	CodeNew     Code = "new"     // it is taken into the queue first
	CodeRunning Code = "running" // a Backup that runs shares a namespace with it
	CodeAhead   Code = "ahead"   // one ahead in the queue does
	CodeLimit   Code = "limit"   // as many run as may
	// CodeVelero is that of one which may start: Velero has not taken it up yet.
	CodeVelero Code = "velero"
)

// Wait is why a Backup waits; the zero value: it does not.
type Wait struct {
	Code Code
	// By is the first Backup that it waits for, where there is one: its UID.
	By string
	// Namespaces that both have, the first of them, and how many there are.
	Namespaces []string
	Shared     int
	// Invalid is why it overlaps with every other, or why By does.
	Invalid error
}

// namesShown of the namespaces in conflict: a status and a log line are read by
// people.
const namesShown = 10

// Decide says who starts, in which order the others wait, and for whom. A
// Backup may start while fewer than Limit run, and it shares no namespace with
// any that runs nor with any that waits ahead of it: so no two that overlap run
// together, and a large one is not overtaken by small ones for ever.
func Decide(in Input) Decision {
	d := Decision{Limit: max(1, in.Config.Limit)}
	r := newReserved(in.Namespaces)
	for i := range in.Backups {
		b := &in.Backups[i]
		if !b.running() {
			continue
		}
		r.take(b, in.Namespaces.Resolve(b.Include, b.Exclude))
		if in.stuck(b) {
			d.Stuck = append(d.Stuck, b)
			continue
		}
		d.Running++
	}
	queue := in.queue()
	d.Queue = make([]Entry, 0, len(queue))
	for _, b := range queue {
		e := Entry{Backup: b, WriteTurn: b.turn()}
		set := in.Namespaces.Resolve(b.Include, b.Exclude)
		e.Wait = r.conflict(set)
		switch {
		case e.Wait.Code != "":
		case d.Running >= d.Limit:
			e.Wait.Code = CodeLimit
		case b.Phase != Queued:
			e.Wait.Code = CodeNew
		default:
			e.Start = true
			d.Running++
		}
		d.Queue = append(d.Queue, e)
		r.take(b, set)
	}
	in.yield(&d)
	in.place(d.Queue)
	return d
}

func (in *Input) stuck(b *Backup) bool {
	return b.Phase == Ready && !b.ReadySince.IsZero() && in.Config.StuckAfter > 0 && in.Time.Sub(b.ReadySince) >= in.Config.StuckAfter
}

// reserved are the namespaces of those who run and of those who wait ahead.
type reserved struct {
	names *Namespaces
	bits  bits
	by    []*Backup // who was first to take each
	any   *Backup   // who was first of all
	every *Backup   // who overlaps with every other, and why
	why   error
}

func newReserved(names *Namespaces) *reserved {
	return &reserved{names: names, bits: newBits(len(names.names)), by: make([]*Backup, len(names.names))}
}

func (r *reserved) take(b *Backup, s Set) {
	if r.any == nil {
		r.any = b
	}
	if s.Invalid != nil {
		if r.every == nil {
			r.every, r.why = b, s.Invalid
		}
		return
	}
	for w := range s.bits {
		for fresh := s.bits[w] &^ r.bits[w]; fresh != 0; fresh &= fresh - 1 {
			r.by[w*64+mathbits.TrailingZeros64(fresh)] = b
		}
		r.bits[w] |= s.bits[w]
	}
}

// conflict with what is reserved; the zero Wait: there is none.
func (r *reserved) conflict(s Set) Wait {
	switch {
	case s.Invalid != nil && r.any != nil:
		return Wait{Code: waits(r.any), By: r.any.UID, Invalid: s.Invalid}
	case r.every != nil:
		return Wait{Code: waits(r.every), By: r.every.UID, Invalid: r.why}
	case !r.bits.overlaps(s.bits):
		return Wait{}
	}
	w := Wait{Shared: r.bits.shared(s.bits)}
	for i := range r.bits.both(s.bits) {
		if w.By == "" {
			w.Code, w.By = waits(r.by[i]), r.by[i].UID
		}
		if w.Namespaces = append(w.Namespaces, r.names.names[i]); len(w.Namespaces) == namesShown {
			break
		}
	}
	return w
}

// waits is why one waits for b.
func waits(b *Backup) Code {
	if b.running() {
		return CodeRunning
	}
	return CodeAhead
}

// exactly so many first positions are always written as they are.
const exactly = 3

// place numbers those who go on waiting, and says what is to be written.
func (in *Input) place(queue []Entry) {
	place, last := 0, 0
	ahead := time.Time{}
	for i := range queue {
		e := &queue[i]
		if e.Start {
			continue
		}
		place++
		e.Place = place
		if in.Config.Priorities && !e.Created.Equal(ahead) {
			last = 0
		}
		e.Write = in.position(place, e.Position, last)
		last, ahead = e.Write, e.Created
	}
}

// position to write for a place, where now is what stands there, and last what
// is written of the one ahead. A written position is lowered when it can be
// halved: that is log2 of the queue's length in all. It must go up from one to
// the next, for Velero's own queue goes by it; with priorities that is so among
// those of one second alone, for of others last is 0, and one that was overtaken
// by many is written again when its place has doubled.
func (in *Input) position(place, now, last int) int {
	want := max(place, last+1)
	overtaken := in.Config.Priorities && place >= 2*now
	if in.Quiet || place <= exactly || now <= last || now >= 2*want || overtaken {
		return want
	}
	return now
}
