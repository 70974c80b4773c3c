package vgdp

import "time"

// Note is the state of a waiting load, stored in its annotation plimsoll.dev/waiting as
// JSON. There is no other state between two decisions, but Load.HeldSince while
// PressureSince waits for its write, so the next leader decides the same.
type Note struct {
	Reason    Code      `json:"reason,omitempty"`
	Since     time.Time `json:"since,omitzero"` // when the reason was written
	BlockedBy string    `json:"blockedBy,omitempty"`
	// PressureSince is when pressure first held it.
	PressureSince time.Time `json:"pressureSince,omitzero"`
	// Unused counts tickets that were revoked unused, UnusedAt is when the last was.
	Unused   int       `json:"unusedTickets,omitempty"`
	UnusedAt time.Time `json:"unusedAt,omitzero"`
	// PostponedUntil is until when it is, or was, postponed. It is stored in an annotation
	// of its own, which the admission policies read.
	PostponedUntil time.Time `json:"-"`
}

// Debouncing of notes, to save writes.
const (
	// NoteMinAge is how old a load must be to get a note: most new ones are admitted at
	// once.
	NoteMinAge = 10 * time.Second
	// NoteInterval is how long a reason must be unchanged before another replaces it.
	NoteInterval = 30 * time.Minute
)

// NoteWrite is a note to be written.
type NoteWrite struct {
	*Load
	Note Note
}

// Notes are the notes worth a write: the first of a load, the beginning of
// pressure (which starts its time limit), a changed postponement, a changed reason after
// NoteInterval, and a revoked ticket.
func (d *Decision) Notes(now time.Time) []NoteWrite {
	var list []NoteWrite
	for i := range d.Waiting {
		w := &d.Waiting[i]
		if note, news := w.NextNote(now); news {
			list = append(list, NoteWrite{w.Load, note})
		}
	}
	for _, r := range d.Revoke {
		note := r.Note
		note.Reason, note.Since, note.BlockedBy = r.Why, now, ""
		if r.Why == CodeBackoff {
			note.Unused, note.UnusedAt = note.Unused+1, now
		}
		list = append(list, NoteWrite{r.Load, note})
	}
	return list
}

// Held tells whether pressure holds it before it is accepted.
func (w *Waiting) Held() bool { return w.Wait.Code == CodePressure && w.unaccepted() }

// NextNote is the note of a waiting load, and whether it is worth a write.
func (w *Waiting) NextNote(now time.Time) (n Note, news bool) {
	n = w.Load.Note
	n.Reason, n.Since, n.BlockedBy = w.Wait.Code, now, w.Wait.BlockedBy()
	pressed := w.Held() && n.PressureSince.IsZero()
	if pressed {
		n.PressureSince = w.Wait.Since
	}
	switch {
	case w.Wait.Code == CodePostponed:
		n.PostponedUntil = w.Wait.Until.Truncate(time.Second)
	case n.PostponedUntil.After(now) && !w.postponed(now): // it waits for its turn from now on
		n.PostponedUntil = now.Truncate(time.Second)
	}
	switch {
	case pressed, !n.PostponedUntil.Equal(w.Load.Note.PostponedUntil):
		return n, true
	case w.Load.Note.Reason == "", w.Load.Note.Reason == CodeLeader: // why it waits was not written yet
		return n, now.Sub(w.Created) >= NoteMinAge
	}
	return n, n.Reason != w.Load.Note.Reason && now.Sub(w.Load.Note.Since) >= NoteInterval
}
