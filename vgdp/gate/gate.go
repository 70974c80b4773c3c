// Package gate has the names and types of what the controller writes to hold and
// release data mover loads, as the admission policies of deploy/gate.yaml and
// deploy/gate-mutating.yaml read it. It neither decides nor calls the API server.
//
// # Usage
//
// The controller renews the object [Main] in each namespace of a Velero, and writes the
// object [Holds] where a node's start hold begins, is extended or ends. A [Ticket] in a
// load's annotations lets it pass. Without a fresh Main nothing is held.
package gate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-dev/plimsoll/names"
)

// The Gates of a Velero's namespace, by name. Others are ignored.
const (
	Main  = "main"
	Holds = "holds"
)

// Annotations of data mover loads, and the last of BackupRepositories. Only the controller
// writes them, except Priority, which is the user's.
const (
	// Admitted is a Ticket: the load may be accepted.
	Admitted = names.Prefix + "admitted"
	// Started is a Ticket of a node: the load may start there despite a start hold.
	Started = names.Prefix + "started"
	// OriginalDataMover is the original data mover of a hidden load; empty for Velero's own.
	OriginalDataMover = names.Prefix + "held-datamover"
	// Waiting says why a load waits, as JSON.
	Waiting = names.Waiting
	// PostponedUntil is until when a load is, or was, postponed (RFC 3339).
	PostponedUntil = names.Prefix + "postponed-until"
	// Diagnosis says in lines why a load does not continue, at most 4 KiB.
	Diagnosis = names.Prefix + "diagnosis"
	// Priority is an int32, higher first.
	Priority = names.Priority

	// Postponed is on a BackupRepository: a vgdp.Postponed.
	Postponed = names.Prefix + "postponed-maintenance"
)

// HiddenMover is the data mover of a hidden DataUpload or DataDownload: Velero's
// node-agents ignore data movers that they do not know.
const HiddenMover = names.Prefix + "held"

// MaxHold is the longest that a load is held after its creation, after any load was last on
// its way, or after it was postponed, whatever the Gate says: a controller that only renews
// it, or issues tickets that cannot be used, must not hold loads for ever. A load is
// postponed for at most MaxPostponement from its creation. The policies contain the same
// numbers.
const (
	MaxHold         = 30 * time.Minute
	MaxPostponement = 25 * time.Hour
)

// Resource of Gates.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: names.Group, Version: "v1alpha1", Resource: "gates"}
}

// Gate is the object.
type Gate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec `json:"spec"`
}

// Spec of a Gate. Main has all but the last three, Holds has those and Epoch.
type Spec struct {
	// RenewTime is the controller's last renewal, best by the time of an API server's
	// response, since it is compared with an API server's clock.
	RenewTime *metav1.MicroTime `json:"renewTime,omitempty"`
	// LeaseDurationSeconds after RenewTime the Gate is stale: every load passes.
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`
	// Epoch grows with each leader. A Ticket of another one is void (fencing token).
	Epoch int64 `json:"epoch,omitempty"`
	// Limited is whether loads need a Ticket to be accepted.
	Limited bool `json:"limited,omitempty"`
	// ProgressTime is when a load was last seen accepted, prepared or running; nil:
	// none was yet. At most RenewTime.
	ProgressTime *metav1.MicroTime `json:"progressTime,omitempty"`
	// Holds are the start holds: until when no load may start on a node, by its name. An
	// expired one is ignored. At most a lease duration ahead, since it is not compared
	// with RenewTime.
	Holds map[string]metav1.Time `json:"holds,omitempty"`
	// Steer is whether pods of new data movers are kept off the nodes of Holds. Not set
	// where no node would be left.
	Steer bool `json:"steer,omitempty"`
	// Maintenance are the nodes that get no new pod of a maintenance, and until when. Empty
	// where no node would be left.
	Maintenance map[string]metav1.Time `json:"maintenance,omitempty"`
}

// Fresh tells whether a Gate holds loads at all at a time by the API server's clock: one
// that was not renewed in time does not.
func (s *Spec) Fresh(now time.Time) bool {
	return s.Limited && s.RenewTime != nil && now.Before(s.RenewTime.Add(time.Duration(s.LeaseDurationSeconds)*time.Second))
}

// HoldsUntil is until when a load is held at most that was created at one time, and is
// postponed until another; zero: it is not.
func (s *Spec) HoldsUntil(created, postponed time.Time) time.Time {
	from := created
	if s.ProgressTime != nil && s.ProgressTime.After(from) {
		from = s.ProgressTime.Time
	}
	if longest := created.Add(MaxPostponement); postponed.After(longest) {
		postponed = longest
	}
	if postponed.After(from) {
		from = postponed
	}
	return from.Add(MaxHold)
}
