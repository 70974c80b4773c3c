package backup

import "cmp"

// Turn says which of two Backups that wait goes first: the lower one. It comes
// from the Backup's own object alone, is written down when the Backup is queued,
// and stays. (status.queuePosition tells people and Velero of it, and is written
// again and again: of two leaders each may write one of two positions.)
//
// So leaders whose views are of different age agree on the order of any two
// Backups that both know. A view is a prefix of one history, and resource
// versions only rise: a Backup that a leader does not know yet is behind all
// that it knows. Where a turn changes, it becomes the latest one (yield), and its
// Backup has a new version: a leader that knows the earlier turn cannot let that
// Backup start any more.
type Turn struct {
	// Version is the resource version that the Backup had when it was queued.
	Version uint64 `json:"version,omitempty"`
	// Position is what Velero's own queue had given it, with version 0: those
	// that were queued before go first.
	Position int `json:"position,omitempty"`
}

// turn of a Backup that waits, also before it is written down.
func (b *Backup) turn() Turn {
	switch {
	case b.Turn != Turn{}:
		return b.Turn
	case b.Position > 0:
		return Turn{Position: b.Position}
	}
	return Turn{Version: b.Version}
}

// compareTurn is total: what it falls back on never changes.
func compareTurn(a, b *Backup) int {
	x, y := a.turn(), b.turn()
	return cmp.Or(
		cmp.Compare(x.Version, y.Version), cmp.Compare(x.Position, y.Position),
		a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}

// yield keeps a Backup from starting that goes first by priority alone. What
// overlaps with it and has an earlier turn gets a later one first: another
// leader may not know the more important Backup yet, or may not think it more
// important, and could let both start.
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
		if e.Wait = in.delay(e, d.Queue[i+1:], Turn{Version: newest}); e.Wait.Code != "" {
			e.Start = false
			d.Running--
		}
	}
}

// delay those that overlap with e and have an earlier turn; it returns for which
// e waits until that is written.
func (in *Input) delay(e *Entry, behind []Entry, until Turn) Wait {
	r := newReserved(in.Namespaces)
	set := in.Namespaces.Resolve(e.Include, e.Exclude)
	for i := range behind {
		b := behind[i].Backup
		if compareTurn(b, e.Backup) > 0 {
			continue
		}
		if other := in.Namespaces.Resolve(b.Include, b.Exclude); set.overlaps(other) {
			behind[i].WriteTurn = until
			r.take(b, other)
		}
	}
	return r.conflict(set)
}
