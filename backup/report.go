package backup

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/backup/objective"
)

// Report describes the queue of one Velero.
type Report struct {
	// Namespace of the Velero.
	Namespace string `json:"namespace"`
	Limit     int    `json:"limit"`
	// Running is how many slots are taken.
	Running int            `json:"running"`
	Active  []Active       `json:"active"`
	Waiting []QueuedBackup `json:"waiting"`
}

// Active is a Backup that is ReadyToStart or InProgress.
type Active struct {
	Name    string    `json:"name"`
	Phase   Phase     `json:"phase"`
	Created time.Time `json:"created"`
	// ReadySince is when it became ReadyToStart; absent once Velero has taken it up.
	ReadySince time.Time `json:"readySince,omitzero"`
	// Stuck: Velero does not take it up, and it has lost its slot, where no more are stuck than
	// the limit.
	Stuck bool `json:"stuck,omitempty"`
}

// QueuedBackup of a waiting Backup.
type QueuedBackup struct {
	Name string `json:"name"`
	// Place in the queue, from 1; Position is the one in its status, which may be higher.
	Place       int       `json:"place"`
	Position    int       `json:"queuePosition,omitempty"`
	Phase       Phase     `json:"phase"`
	Priority    int32     `json:"priority,omitempty"`
	Schedule    string    `json:"schedule,omitempty"`
	Created     time.Time `json:"created"`
	WaitSeconds float64   `json:"waitSeconds"`
	// Opens is when its window opens, or has, and Deadline by when it is to be complete; absent:
	// it could start when it was created, no deadline.
	Opens    time.Time `json:"opens,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// First: what opens is the window of first Backups.
	First bool `json:"first,omitempty"`
	// Reason why it waits; starts: it becomes ReadyToStart at once; overtakes: soon.
	Reason     Code     `json:"reason"`
	BlockedBy  string   `json:"blockedBy,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Shared     int      `json:"sharedNamespaces,omitempty"`
	Invalid    string   `json:"invalid,omitempty"`
}

// CouldStartSeconds is for how long it could have started but for other Backups: since it was
// created, or its window opened.
func (p *QueuedBackup) CouldStartSeconds() float64 {
	return max(0, p.WaitSeconds-max(0, p.Opens.Sub(p.Created).Seconds()))
}

// CodeStarts is the reason of a Backup that starts with this decision.
const CodeStarts Code = "starts"

// CodeOvertakes is the reason of one that starts when the Backup that blocks it has a later
// turn.
const CodeOvertakes Code = "overtakes"

// NewReport describes a decision about the Backups of one Velero.
func NewReport(namespace string, in Input, d Decision) Report {
	r := Report{Namespace: namespace, Limit: d.Limit, Running: d.Running, Active: []Active{}, Waiting: []QueuedBackup{}}
	names := map[string]string{}
	for i := range in.Backups {
		b := &in.Backups[i]
		names[b.UID] = b.Name
		if b.running() {
			r.Active = append(r.Active, Active{Name: b.Name, Phase: b.Phase, Created: b.Created, ReadySince: b.ReadySince, Stuck: slices.Contains(d.Stuck, b)})
		}
	}
	slices.SortFunc(r.Active, func(a, b Active) int { return cmp.Compare(a.Name, b.Name) })
	for i := range d.Queue {
		e := &d.Queue[i]
		p := QueuedBackup{
			Name: e.Name, Place: e.Place, Position: e.Position, Phase: cmp.Or(e.Phase, New), Priority: e.Priority, Schedule: e.Schedule,
			Opens: e.Due.Opens, First: e.Due.First, Deadline: e.Due.Deadline, Created: e.Created, WaitSeconds: in.Time.Sub(e.Created).Seconds(),
			Reason: e.Wait.Code, BlockedBy: names[e.Wait.By], Namespaces: e.Wait.Namespaces, Shared: e.Wait.Shared,
		}
		switch {
		case e.Start:
			p.Reason = CodeStarts
		case e.Overtakes:
			p.Reason = CodeOvertakes
		}
		if e.Wait.Invalid != nil {
			p.Invalid = e.Wait.Invalid.Error()
		}
		r.Waiting = append(r.Waiting, p)
	}
	return r
}

// Backups are the active ones, the input of the queue.
func Backups(objects []*Object) []Backup {
	var list []Backup
	for _, o := range objects {
		if o.active() {
			list = append(list, o.Backup)
		}
	}
	return list
}

// Why it waits, for people.
func (p *QueuedBackup) Why() string {
	w := Wait{Namespaces: p.Namespaces, Shared: p.Shared}
	if p.Invalid != "" {
		w.Invalid = ErrPattern
	}
	why := ""
	switch p.Reason {
	case CodeRunning:
		why = "shares " + namespacesOf(w) + " with " + p.BlockedBy + ", which runs"
	case CodeAhead:
		why = "shares " + namespacesOf(w) + " with " + p.BlockedBy + ", which waits ahead of it"
	case CodeLimit:
		why = "the limit of running Backups is reached"
	case CodeWindow:
		why = objective.Due{Opens: p.Opens, First: p.First}.Waits()
	case CodeRefused:
		if why = "the API server refuses to change it"; p.BlockedBy != "" {
			why = "shares " + namespacesOf(w) + " with " + p.BlockedBy + ", which was queued before it and which the API server refuses to change"
		}
	case CodeOvertakes:
		why = "it starts before " + p.BlockedBy + " as soon as that has a later turn"
	case CodeNew:
		why = "it is not queued yet"
	case CodeStarts:
		why = "it starts now"
	case CodeVelero:
		why = "Velero has not taken it up yet"
	}
	if p.Invalid != "" {
		why += " (" + p.Invalid + ")"
	}
	return why
}
