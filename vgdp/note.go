package vgdp

import "time"

// Note is what the object of a load that waits says of it: the annotation
// plimsoll.dev/waiting, as JSON. It is all that is remembered between two
// decisions, so that whoever decides next decides the same.
type Note struct {
	Reason    Code      `json:"reason,omitempty"`
	Since     time.Time `json:"since,omitzero"` // when the reason was written
	BlockedBy string    `json:"blockedBy,omitempty"`
	// PressureSince is when it first waited for pressure.
	PressureSince time.Time `json:"pressureSince,omitzero"`
	// Unused tickets that it was given and that were taken back, and when the last
	// was.
	Unused   int       `json:"unusedTickets,omitempty"`
	UnusedAt time.Time `json:"unusedAt,omitzero"`
}

// The times that keep notes few.
const (
	// NoteAfter is how old a load is before it has one: most that are new go on at
	// once.
	NoteAfter = 10 * time.Second
	// NoteAgain is how long a reason must have stood before another takes its place.
	NoteAgain = 30 * time.Minute
)

// Noted is a note to be written.
type Noted struct {
	*Load
	Note Note
}

// Notes that are worth a write: the first of a load, that it waits for pressure,
// whose time counts from then on, what has changed after long, and that a ticket
// was taken back.
func (d *Decision) Notes(now time.Time) []Noted {
	var list []Noted
	for i := range d.Waiting {
		w := &d.Waiting[i]
		if note, news := w.NoteAt(now); news {
			list = append(list, Noted{w.Load, note})
		}
	}
	for _, r := range d.Revoke {
		note := r.Note
		note.Reason, note.Since, note.BlockedBy = r.Why, now, ""
		if r.Why == CodeRetry {
			note.Unused, note.UnusedAt = note.Unused+1, now
		}
		list = append(list, Noted{r.Load, note})
	}
	return list
}

// NoteAt is what there is to note of a load that waits, and whether that is worth
// a write.
func (w *Waiting) NoteAt(now time.Time) (n Note, news bool) {
	n = w.Load.Note
	n.Reason, n.Since, n.BlockedBy = w.Wait.Code, now, w.Wait.BlockedBy()
	pressed := w.Wait.Code == CodePressure && w.fresh() && n.PressureSince.IsZero()
	if pressed {
		n.PressureSince = w.Wait.Since
	}
	switch {
	case pressed:
		return n, true
	case w.Load.Note.Reason == "":
		return n, now.Sub(w.Created) >= NoteAfter
	}
	return n, n.Reason != w.Load.Note.Reason && now.Sub(w.Load.Note.Since) >= NoteAgain
}
