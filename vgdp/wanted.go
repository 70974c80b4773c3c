package vgdp

import (
	"math"
	"slices"
	"time"
)

// Wanted is what is wanted of the Backup that a load is part of; zero: nothing.
//
// Those who run Velero write it on Schedules and Backups, and a tenant on its namespace,
// within the bounds of package backup; a tenant can also make its Backup take long, which
// makes LatestStart early. So it orders loads within a rank alone: by a lie, loads pass
// others of their rank that were created less than one Aging before them, and no restore or
// frozen application. PostponedUntil is never of a tenant's window: a Backup whose loads wait
// may keep a slot of the queue.
type Wanted struct {
	// LatestStart is when what is left of the Backup must begin, taking as long as it is
	// expected to, to be complete by its deadline; zero: it has none.
	LatestStart time.Time
	// PostponedUntil is when its next window opens, where its own has ended and onMiss is
	// postpone; zero: it is not postponed.
	PostponedUntil time.Time
	// Unknown: it is not known yet, as after a change of leader. What was postponed before
	// stays so, as its Note says.
	Unknown bool
}

// MaxPostponement of a load, from its creation: a window opens each day, and one day of
// the year has 25 h. The admission policies contain the same number (gate.MaxPostponement).
const MaxPostponement = 25 * time.Hour

// latestStart orders the loads of a rank: the lower comes first. Where any load has a latest
// start, restores and urgent loads come before it; those that have none come last.
func latestStart(r *capacity, a *candidate) int64 {
	switch {
	case r.deadlines && (a.load.restore() || a.urgent):
		return math.MinInt64
	case a.load.Wanted.LatestStart.IsZero():
		return math.MaxInt64
	}
	return a.load.Wanted.LatestStart.Unix()
}

// postponement is until when its Backup is postponed, where that concerns it; zero: it
// does not. A load on its way goes on. A restore is never postponed, nor is a
// PodVolumeBackup for which an application may be frozen, also where it is not urgent.
func (l *Load) postponement(now time.Time) time.Time {
	until := l.Wanted.PostponedUntil
	if l.Wanted.Unknown {
		until = l.Note.PostponedUntil
	}
	if !until.After(now) || !l.unaccepted() || l.restore() || l.Hooks && l.Kind == PodVolumeBackup {
		return time.Time{}
	}
	return until
}

// postponed tells whether it waits until the window of its Backup opens. It does not where
// that is so late that Velero would cancel it: if it must run outside of the window, then
// at once, and not later in the day with less time left.
func (l *Load) postponed(now time.Time) bool {
	until := l.postponement(now)
	return !until.IsZero() && !until.After(l.Created.Add(min(MaxPostponement, l.timeout()-l.timeout()/4)))
}

// waitsSince is since when it waits for its turn, which raises its rank: while it was
// postponed it did not, and with a ticket that was not used it had its turn.
func (l *Load) waitsSince() time.Time {
	return slices.MaxFunc([]time.Time{l.Created, l.Note.PostponedUntil, l.Note.UnusedAt}, time.Time.Compare)
}

// CancelledAt is when Velero cancels it, by which clock.
func (l *Load) CancelledAt() (at time.Time, clock string) {
	at, clock = l.Created.Add(l.timeout()), l.Clock
	if clock == "" {
		clock = "Velero's " + VeleroTimeout.String() + ", counted from " + utc(l.Created)
	}
	return at, clock
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
