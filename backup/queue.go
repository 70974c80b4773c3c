package backup

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// Phase of a Backup, as Velero writes it. Those not listed here are final, or do
// not concern the queue.
type Phase string

// The phases. An empty one is New too.
const (
	New        Phase = "New"
	Queued     Phase = "Queued"
	Ready      Phase = "ReadyToStart" // Velero may take it up
	InProgress Phase = "InProgress"
	// Of those that have begun and take no slot any more: data mover loads work, and Velero
	// completes them.
	WaitingForOperations        Phase = "WaitingForPluginOperations"
	WaitingForOperationsPartial Phase = "WaitingForPluginOperationsPartiallyFailed"
	Finalizing                  Phase = "Finalizing"
	FinalizingPartial           Phase = "FinalizingPartiallyFailed"
	// Completed is the one of those that have ended that is good.
	Completed Phase = "Completed"
	// Of those that have ended and are not good. Velero gives one that fails its validation neither
	// a start nor an end.
	FailedValidation Phase = "FailedValidation"
	PartiallyFailed  Phase = "PartiallyFailed"
	Failed           Phase = "Failed"
	// Deleting leaves no trace of how the Backup ended, but when.
	Deleting Phase = "Deleting"
)

// Backup is a Backup as the queue needs it.
type Backup struct {
	UID, Namespace, Name string
	Phase                Phase
	// Version is its resource version.
	Version uint64
	// Position in its status; 0: none.
	Position int
	// Turn in its annotation; zero: none.
	Turn    Turn
	Created time.Time
	// Include and Exclude are its patterns of namespaces.
	Include, Exclude []string
	// Priority set by the user; the higher comes first.
	Priority int32
	// Schedule that created it; empty: created by hand.
	Schedule string
	// ReadySince is when it became ReadyToStart; zero: unknown, or it is not.
	ReadySince time.Time
	// Refused: the API server refuses to change it, so that it cannot start, nor have another
	// turn or position.
	Refused bool
	// Due is when it may start, and by when it is to be complete; zero: any time.
	Due objective.Due
	// Postponed: it is to wait until its next window opens, also where it is ReadyToStart and
	// Velero has not taken it up (OnMissPostpone).
	Postponed bool
	// Takes is how long it runs until it is complete, as far as that is known, and Holds how
	// long of that it takes a slot: all of it, where that is not known.
	Takes, Holds durations.Estimate
	// Began is when Velero took it up; zero: not yet, or unknown.
	Began time.Time
}

func (b *Backup) isNew() bool   { return b.Phase == "" || b.Phase == New }
func (b *Backup) waits() bool   { return b.isNew() || b.Phase == Queued }
func (b *Backup) running() bool { return b.Phase == Ready || b.Phase == InProgress }

// untaken tells whether the queue let it start, and Velero has not taken it up.
func (b *Backup) untaken() bool { return b.Phase == Ready && !b.ReadySince.IsZero() }

// finishing tells whether it takes no slot any more and is not complete.
func (b *Backup) finishing() bool { return b.Phase.Finishing() }

// Finishing tells whether a Backup of this phase takes no slot any more and has not ended.
func (p Phase) Finishing() bool {
	return p == WaitingForOperations || p == Finalizing || p.failing()
}

// failing tells whether a Backup of this phase has not ended, and will not be good.
func (p Phase) failing() bool { return p == WaitingForOperationsPartial || p == FinalizingPartial }

// failed tells whether a Backup of this phase has ended and is not good.
func (p Phase) failed() bool { return p == FailedValidation || p == PartiallyFailed || p == Failed }

// begun tells whether Velero may have taken it up, and it has not ended.
func (b *Backup) begun() bool { return b.running() || b.finishing() }

// holds is how long it takes a slot.
func (b *Backup) holds() durations.Estimate {
	if b.Holds.Known() && b.Holds.Mid < b.Takes.Mid {
		return b.Holds
	}
	return b.Takes
}

// Config of the queue.
type Config struct {
	Limit       int           `yaml:"limit" unit:"backups" why:"How many Backups may run at once; less than 1 counts as 1. Velero's server must be started with the same number of --concurrent-backups."`
	Priorities  bool          `yaml:"priorities" why:"Whether the annotation plimsoll.dev/priority orders the queue; false: deadlines do where they are enabled, else first in, first out, as in Velero."`
	ManualFirst bool          `yaml:"manualFirst" why:"With priorities: whether Backups that no schedule created come first among those of the same priority."`
	Aging       time.Duration `yaml:"aging" why:"With priorities or deadlines: a Backup that has waited this long comes before all later ones, whatever they have, so that none starves. 0: none does; with deadlines it counts as 24h."`
	StuckAfter  time.Duration `yaml:"stuckAfter" why:"A Backup that has been ReadyToStart this long without Velero taking it up is stuck: it loses its slot, unless more than the limit are stuck; its namespaces stay reserved."`
}

// Settings of the queue in a cluster.
type Settings struct {
	Enabled bool          `yaml:"enabled" why:"Whether this queue starts Backups. Velero's server must then run with --disable-controllers=backup-queue, otherwise two queues start them. When it is disabled, the queue is handed back to Velero: every position is written exactly."`
	Resync  time.Duration `yaml:"resync" why:"How often the queue is reconciled without an event: time alone ages Backups and makes them stuck."`
	Config  `yaml:",inline"`

	Deadlines DeadlineSettings `yaml:"deadlines" why:"Deadlines of Backups: how old the newest good one may become, and in which time of the day they run."`
}

// DefaultSettings are those of a fresh install: disabled, Velero's own queue works.
func DefaultSettings() Settings {
	return Settings{Resync: time.Minute, Config: DefaultConfig(), Deadlines: DeadlineSettings{OnMiss: OnMissRun}}
}

// DefaultConfig is that of a fresh install.
func DefaultConfig() Config {
	return Config{Limit: 1, Aging: 24 * time.Hour, StuckAfter: 10 * time.Minute}
}

const (
	maxLimit = 1000
	maxAging = 30 * 24 * time.Hour
)

// Validate says which values must not be used.
func (s Settings) Validate(at problems.Section) {
	at.Duration("resync", s.Resync, time.Second, time.Hour)
}

// Validate says which values must not be used.
func (c Config) Validate(at problems.Section) {
	at.Int("limit", c.Limit, 0, maxLimit)
	at.Duration("aging", c.Aging, 0, maxAging)
	at.Duration("stuckAfter", c.StuckAfter, 0, problems.MaxDuration)
}

// queue are the waiting Backups in a total order: first in, first out, by their turns;
// where any has an objective, by deadlines. While the queue is handed back they are ordered
// by the written positions, because turns are removed one by one.
func (in *Input) queue() []*Backup {
	var list []*Backup
	for i := range in.Backups {
		if in.Backups[i].waits() {
			list = append(list, &in.Backups[i])
		}
	}
	compare := compareTurn
	if in.HandBack {
		compare = func(a, b *Backup) int { return cmp.Or(comparePosition(a, b), compareTurn(a, b)) }
	}
	switch first := compare; {
	case in.deadlines():
		return in.byDeadline(list)
	case in.Config.Priorities:
		compare = func(a, b *Backup) int {
			return cmp.Or(in.comparePriority(a, b), a.Created.Compare(b.Created), first(a, b))
		}
	}
	slices.SortFunc(list, compare)
	return list
}

func comparePosition(a, b *Backup) int {
	return cmp.Or(compareBool(a.Position > 0, b.Position > 0), cmp.Compare(a.Position, b.Position))
}

// comparePriority orders by priority, but aged Backups come first, among
// themselves by age alone.
func (in *Input) comparePriority(a, b *Backup) int {
	agedA, agedB := in.aged(a), in.aged(b)
	if agedA || agedB {
		return compareBool(agedA, agedB)
	}
	return in.compareClass(a, b)
}

// compareClass orders by priority, where they count, and with ManualFirst those that no
// schedule created before others of the same.
func (in *Input) compareClass(a, b *Backup) int {
	manual := 0
	switch {
	case !in.Config.Priorities:
		return 0
	case in.Config.ManualFirst:
		manual = compareBool(a.Schedule == "", b.Schedule == "")
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), manual)
}

func (in *Input) aged(b *Backup) bool {
	return in.Config.Aging > 0 && in.Time.Sub(b.Created) >= in.Config.Aging
}

// compareBool puts true first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
