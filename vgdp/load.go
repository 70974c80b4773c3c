package vgdp

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/backoff"
	"github.com/plimsoll-dev/plimsoll/names"
)

// Kind of a data mover load.
type Kind = names.MoverKind

// The kinds that decisions tell apart.
const (
	DataUpload       = names.DataUpload
	DataDownload     = names.DataDownload
	PodVolumeBackup  = names.PodVolumeBackup
	PodVolumeRestore = names.PodVolumeRestore
)

// Phase of a load, as Velero writes it; an empty one is New too.
type Phase string

// The phases.
const (
	New        Phase = "New"
	Accepted   Phase = "Accepted"
	Prepared   Phase = "Prepared"
	InProgress Phase = "InProgress"
	Canceling  Phase = "Canceling"
	Canceled   Phase = "Canceled"
	Completed  Phase = "Completed"
	Failed     Phase = "Failed"
)

// Ticket permits a load one step: from New to Accepted, or from Prepared to
// InProgress. It is void under another epoch than its own (fencing token).
type Ticket struct {
	Node  string // the node that may use it; empty: any
	Epoch int64
	At    time.Time // when it was given
}

// Load is one data mover load, as admission needs it.
type Load struct {
	UID, Namespace, Name string // the namespace is that of its Velero
	Kind                 Kind
	Phase                Phase
	Created              time.Time
	// AcceptedAt and PreparedAt are the times of these phases; zero: unknown.
	AcceptedAt, PreparedAt time.Time
	// Mover is the load's data mover, as its creator wrote it.
	Mover string
	// Direct: its node-agent starts it at once, without accepting it, and fails it when that
	// write is refused. So it is neither held nor given a ticket. It takes a place on its
	// node.
	Direct bool
	// Hidden: it is hidden, the mover in its spec is Plimsoll's, so that no node-agent takes
	// it up.
	Hidden bool
	// Cancel was requested. Deleted: it is being deleted, which Velero turns into a
	// cancellation.
	Cancel, Deleted bool
	// Node where it runs, or must run: that of the mover's pod, else the one that a
	// PodVolumeBackup or PodVolumeRestore is bound to. Empty: unknown.
	Node string
	// Place is where a DataUpload or DataDownload may run.
	Place Place
	// Repository that it reads or writes; zero: unknown.
	Repository RepositoryKey
	// Backup is the Backup or Restore that it is part of, the unit of fair sharing.
	Backup string
	// Wanted of that Backup; zero for a restore.
	Wanted Wanted
	// Scheduled: a Schedule created the Backup.
	Scheduled bool
	// Hooks: a hook runs before the pod is backed up, so that the application may be
	// frozen until this PodVolumeBackup is done. The pod's owner controls this.
	Hooks bool
	// PodNamespace of the pod whose volume it moves; empty: unknown, or none.
	PodNamespace string
	// Priority that the user gave it, on the scale of ranks; nil: none.
	Priority *int32
	// Timeout from its creation after which Velero cancels it; 0: Velero's default. Clock
	// is the setting that it comes from, and since when that counts; empty: none.
	Timeout time.Duration
	Clock   string
	// NotReady is why no node-agent can accept it now, such as a missing target volume;
	// empty: one can.
	NotReady string
	// Refused is why nothing can be written to it now, as the API server answered, so that it
	// can get no ticket; empty: it can. Failed is how often in a row that was so: it comes
	// behind others of its rank, or its slot would be tried first for ever.
	Refused string
	Failed  int
	// Ticket to be accepted, and Started, the one to start.
	Ticket, Started *Ticket
	// Note is the state of its waiting. HeldSince is when pressure first held it, as the
	// leader saw it, where its Note does not say it yet; zero: it did not.
	Note      Note
	HeldSince time.Time
}

// unaccepted tells whether it is not accepted yet.
func (l *Load) unaccepted() bool { return l.Phase == "" || l.Phase == New }

// ByVelero tells whether a data mover of Velero's own does it. Loads of others are neither
// held nor counted: Velero's node-agent does not touch them.
func (l *Load) ByVelero() bool { return names.IsVelerosMover(l.Mover) }

// Holdable tells whether a gate may refuse a step of it: others must not need tickets.
func (l *Load) Holdable() bool { return l.ByVelero() && !l.Direct }

// canceling tells whether Velero cancels it, which needs no ticket.
func (l *Load) canceling() bool { return l.Cancel || l.Deleted }

// preparing tells whether prepareQueueLength counts it.
func (l *Load) preparing() bool { return l.Phase == Accepted || l.Phase == Prepared }

// Slot tells whether it takes one of its Velero's prepareQueueLength slots: it is being
// prepared, or may be accepted at any moment. A ticket takes its slot until it is seen
// to be removed, because it is valid until then. So does a void one where slots are
// counted: an API server that has evaluated a write by it may still be about to store
// that write, and only a change of the load (optimistic concurrency) prevents it.
func (l *Load) Slot(v Velero) bool {
	return l.preparing() || l.unaccepted() && !l.Direct && l.Ticket != nil && (l.Ticket.Epoch == v.Epoch || v.PrepareLimit > 0)
}

// running tells whether it takes one of its node's places: Velero frees the place of a
// canceled one when it has ended.
func (l *Load) running() bool { return l.Phase == InProgress || l.Phase == Canceling }

// restore tells whether it restores data.
func (l *Load) restore() bool { return l.Kind.Facts().Restores }

// bound tells whether its node is fixed from the beginning.
func (l *Load) bound() bool { return l.Kind.Facts().NodeFixed }

// How long pressure may hold a load.
const (
	// VeleroTimeout is that of itemOperationTimeout and fs-backup-timeout, unless
	// Velero is told otherwise.
	VeleroTimeout = 4 * time.Hour
	// MaxAcceptHold of a load that waits to be accepted, but at most a quarter of its
	// timeout: it must have time left to run.
	MaxAcceptHold = 30 * time.Minute
	// MaxPreparedHold of a prepared one, but at most a quarter of its timeout: its pod and
	// volumes exist, and each refused start costs Velero a retry.
	MaxPreparedHold = 5 * time.Minute
)

// overdue tells whether pressure has held it for as long as it may: it is overdue.
func (l *Load) overdue(now time.Time) bool {
	if l.Phase == Prepared {
		return !now.Before(l.startUntil())
	}
	since := l.pressureSince()
	return !since.IsZero() && !now.Before(since.Add(l.maxHold()))
}

// pressureSince is when pressure first held it; zero: it did not.
func (l *Load) pressureSince() time.Time {
	if l.Note.PressureSince.IsZero() {
		return l.HeldSince
	}
	return l.Note.PressureSince
}

// HeldUntil is until when pressure may hold it before it is accepted, where it does so from
// now on; zero: it never does. More loads with a hook than are urgent are held, which this
// does not know.
func (l *Load) HeldUntil(now time.Time) time.Time {
	switch {
	case l.restore() || l.Hooks && l.Kind == PodVolumeBackup:
		return time.Time{}
	case l.pressureSince().IsZero():
		return now.Add(l.maxHold())
	}
	return l.pressureSince().Add(l.maxHold())
}

func (l *Load) maxHold() time.Duration { return min(MaxAcceptHold, l.timeout()/4) }

// startUntil is until when pressure may hold a prepared load.
func (l *Load) startUntil() time.Time {
	return l.prepared().Add(min(MaxPreparedHold, l.timeout()/4))
}

func (l *Load) timeout() time.Duration {
	if l.Timeout <= 0 {
		return VeleroTimeout
	}
	return l.Timeout
}

// LongestRun is how long a restore counts as on its way at least: a timeout of its own is in
// its Restore, which is not read.
const LongestRun = 25 * time.Hour

// OnItsWay tells whether it is accepted, prepared or running, within its timeout.
func (l *Load) OnItsWay(now time.Time) bool {
	lasts := l.timeout()
	if l.restore() {
		lasts = max(lasts, LongestRun)
	}
	return l.ByVelero() && (l.preparing() || l.Phase == InProgress) && now.Before(l.Created.Add(lasts))
}

// prepared is when it was prepared, or the latest earlier moment that is known.
func (l *Load) prepared() time.Time {
	switch {
	case !l.PreparedAt.IsZero():
		return l.PreparedAt
	case !l.AcceptedAt.IsZero():
		return l.AcceptedAt
	}
	return l.Created
}

// Lifetime and retries of a ticket.
const (
	// TicketLife is how long a ticket may stay unused.
	TicketLife = time.Minute
	// firstRetry and lastRetry bound the exponential backoff after unused tickets.
	firstRetry = 30 * time.Second
	lastRetry  = 10 * time.Minute
)

// retry is when it may get a ticket again.
func (l *Load) retry() time.Time {
	if l.Note.Unused <= 0 {
		return time.Time{}
	}
	return l.Note.UnusedAt.Add(backoff.Exponential{First: firstRetry, Longest: lastRetry}.Doubled(l.Note.Unused - 1))
}
