package vgdp

import "time"

// Kind of a load.
type Kind string

// The kinds, as the API server calls them.
const (
	DataUpload       Kind = "DataUpload"
	DataDownload     Kind = "DataDownload"
	PodVolumeBackup  Kind = "PodVolumeBackup"
	PodVolumeRestore Kind = "PodVolumeRestore"
)

// PodLabel is the label of the pod that moves a load's data; its value is the
// load's name.
func (k Kind) PodLabel() string {
	switch k {
	case DataUpload:
		return "velero.io/data-upload"
	case DataDownload:
		return "velero.io/data-download"
	case PodVolumeBackup:
		return "velero.io/pod-volume-backup"
	}
	return "velero.io/pod-volume-restore"
}

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

// Ticket lets a load go on: from New to Accepted, or from Prepared to
// InProgress. It is void under another epoch than its own.
type Ticket struct {
	Node  string // that may take it; empty: any
	Epoch int64
	At    time.Time // when it was given
}

// Load is what admission knows of one.
type Load struct {
	UID, Namespace, Name string // the namespace is that of its Velero
	Kind                 Kind
	Phase                Phase
	Created              time.Time
	// AcceptedAt and PreparedAt are when it got there; zero: not known.
	AcceptedAt, PreparedAt time.Time
	// Mover is the data mover that shall do it, as its maker wrote it.
	Mover string
	// Held: the mover in its spec is our own, so that nobody takes it up.
	Held bool
	// Cancel was asked for, or it is being deleted, which Velero turns into the same.
	Cancel, Deleted bool
	// Node where it runs, or must run: that of the data mover's pod, else the one
	// that a PodVolumeBackup or PodVolumeRestore is bound to. Empty: not known yet.
	Node string
	// Place is where a DataUpload or DataDownload may run.
	Place Place
	// Backup is what it is part of, a Backup or a Restore: they share fairly.
	Backup string
	// Scheduled: a schedule made the Backup.
	Scheduled bool
	// Hooks: a hook runs before the pod is backed up, so that an application may
	// stand still until this PodVolumeBackup is done. Who owns the pod can say so.
	Hooks bool
	// PodNamespace of the pod whose volume it moves; empty: not known, or none.
	PodNamespace string
	// Priority that the user gave it, on the scale of ranks; nil: none.
	Priority *int32
	// Timeout after which Velero cancels it, from its creation; 0: Velero's
	// default.
	Timeout time.Duration
	// NotYet is why no node-agent can accept it now, such as a target volume that
	// is not there; empty: one can.
	NotYet string
	// Ticket to be accepted, and Started to be run.
	Ticket, Started *Ticket
	// Note is what is remembered of its waiting.
	Note Note
}

// fresh: nobody has accepted it.
func (l *Load) fresh() bool { return l.Phase == "" || l.Phase == New }

// ours: Velero's own data mover does it. What others move is neither held nor
// counted: Velero's node-agent does not touch it.
func (l *Load) ours() bool { return l.Mover == "" || l.Mover == "velero" }

// leaving: Velero cancels it by itself, and it needs no ticket for that.
func (l *Load) leaving() bool { return l.Cancel || l.Deleted }

// preparing: it is one of those that prepareQueueLength counts.
func (l *Load) preparing() bool { return l.Phase == Accepted || l.Phase == Prepared }

// Slot tells whether it has one of its Velero's prepareQueueLength: it is being
// prepared, or it may be accepted at any moment. A ticket holds its slot until it
// is seen to be gone, for until then it is good. A void one does, too, where
// slots are counted: an API server that has judged somebody's write by it may
// still be about to store that, and only a change of the load keeps it from it.
func (l *Load) Slot(v Velero) bool {
	return l.preparing() || l.fresh() && l.Ticket != nil && (l.Ticket.Epoch == v.Epoch || v.PrepareLimit > 0)
}

// running tells whether it has one of the places of its node: Velero gives one
// back when a canceled one has ended.
func (l *Load) running() bool { return l.Phase == InProgress || l.Phase == Canceling }

// restore tells whether it brings data back.
func (l *Load) restore() bool { return l.Kind == DataDownload || l.Kind == PodVolumeRestore }

// bound to a node from the beginning.
func (l *Load) bound() bool { return l.Kind == PodVolumeBackup || l.Kind == PodVolumeRestore }

// The times for which pressure may hold a load.
const (
	// VeleroTimeout is that of itemOperationTimeout and fs-backup-timeout, unless
	// Velero is told otherwise.
	VeleroTimeout = 4 * time.Hour
	// LongestHold of a load that waits to be accepted, at most the quarter of its
	// timeout: it must have time left to run.
	LongestHold = 30 * time.Minute
	// LongestStart is how long a prepared one may be held, at most the quarter of its
	// timeout: its pod and volumes are there, and each refusal costs Velero something.
	LongestStart = 5 * time.Minute
)

// waited for pressure for as long as it may hold a load.
func (l *Load) waited(now time.Time) bool {
	if l.Phase == Prepared {
		return !now.Before(l.startUntil())
	}
	return !l.Note.PressureSince.IsZero() && !now.Before(l.Note.PressureSince.Add(l.longest()))
}

func (l *Load) longest() time.Duration { return min(LongestHold, l.timeout()/4) }

// startUntil pressure may hold a prepared one.
func (l *Load) startUntil() time.Time {
	return l.prepared().Add(min(LongestStart, l.timeout()/4))
}

func (l *Load) timeout() time.Duration {
	if l.Timeout <= 0 {
		return VeleroTimeout
	}
	return l.Timeout
}

// OnItsWay tells whether it is accepted, prepared or running, within its timeout.
func (l *Load) OnItsWay(now time.Time) bool {
	return l.ours() && (l.preparing() || l.Phase == InProgress) && now.Before(l.Created.Add(l.timeout()))
}

// prepared is when it was, or the latest moment before that is known.
func (l *Load) prepared() time.Time {
	switch {
	case !l.PreparedAt.IsZero():
		return l.PreparedAt
	case !l.AcceptedAt.IsZero():
		return l.AcceptedAt
	}
	return l.Created
}

// The times of a ticket.
const (
	// TicketLife is how long a ticket waits to be used.
	TicketLife = time.Minute
	// firstRetry and lastRetry are the delays after an unused ticket; each is
	// twice the one before.
	firstRetry = 30 * time.Second
	lastRetry  = 10 * time.Minute
)

// retry is when it may have a ticket again.
func (l *Load) retry() time.Time {
	if l.Note.Unused <= 0 {
		return time.Time{}
	}
	delay := lastRetry
	if n := l.Note.Unused - 1; n < 10 {
		delay = min(lastRetry, firstRetry<<n)
	}
	return l.Note.UnusedAt.Add(delay)
}
