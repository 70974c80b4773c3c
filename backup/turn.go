package backup

import "cmp"

// Turn orders two waiting Backups, the lower first. It is derived from the
// Backup's own object, is written when the Backup is queued, and stays.
// (status.queuePosition only informs people and Velero, and is rewritten often:
// two leaders may each write one of two positions.)
//
// So leaders with caches of different age agree on the order of any two Backups
// that both know. A cache is a prefix of one history, and resource versions only
// rise: a Backup that a leader does not know yet comes after all that it knows. A
// turn changes only to become the latest one (yield), which gives its Backup a new
// version: a leader that knows the earlier turn cannot start that Backup any more.
type Turn struct {
	// Version is the Backup's resource version when it was queued.
	Version uint64 `json:"version,omitempty"`
	// Position given by Velero's own queue, with version 0: Backups queued before come
	// first.
	Position int `json:"position,omitempty"`
}

// turn is that of a waiting Backup, also before it is written.
func (b *Backup) turn() Turn {
	switch {
	case b.Turn != Turn{}:
		return b.Turn
	case b.Position > 0:
		return Turn{Position: b.Position}
	}
	return Turn{Version: b.Version}
}

// compareTurn is a total order, since its tie-breakers never change.
func compareTurn(a, b *Backup) int {
	x, y := a.turn(), b.turn()
	return cmp.Or(
		cmp.Compare(x.Version, y.Version), cmp.Compare(x.Position, y.Position),
		a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}
