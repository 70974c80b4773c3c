// Package gate names what the controller writes to hold and release Velero's
// loads, as the admission policies of deploy/gate.yaml and
// deploy/gate-mutating.yaml read it. Nothing here decides and nothing calls the
// API server.
//
// # Usage
//
// The controller renews the object [Main] in each of Velero's namespaces, and
// writes the object [Holds] where a node's hold begins, is prolonged or ends. A
// load is let go by a [Ticket] in its annotations. Without a fresh Main nothing
// is held.
package gate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The Gates of a namespace of Velero's, by name. Others mean nothing.
const (
	Main  = "main"
	Holds = "holds"
)

// Annotations of loads. Only the controller writes them, but for Priority, which
// is the user's.
const (
	// Admitted is a Ticket: the load may be accepted.
	Admitted = "plimsoll.dev/admitted"
	// Started is a Ticket of a node: the load may start there although the node
	// holds new ones.
	Started = "plimsoll.dev/started"
	// HeldDataMover is the data mover that a load named which is held quietly;
	// empty for Velero's own.
	HeldDataMover = "plimsoll.dev/held-datamover"
	// Waiting says why a load waits, as JSON.
	Waiting = "plimsoll.dev/waiting"
	// Diagnosis is what was found of a load that does not get on, in lines, at most
	// 4 KiB.
	Diagnosis = "plimsoll.dev/diagnosis"
	// Priority is an int32, higher first.
	Priority = "plimsoll.dev/priority"
)

// HeldMover is the data mover of a DataUpload or DataDownload while it is held
// quietly: Velero's node-agents leave movers alone that they do not know.
const HeldMover = "plimsoll.dev/held"

// MaxHold is how long a load is held at most after its creation, or after some
// load was last on its way, whatever else the Gate says: a controller that only
// says that it is there, or gives tickets that nobody can use, holds nobody for
// ever. It stands in the policies too.
const MaxHold = 30 * time.Minute

// Resource of Gates.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "plimsoll.dev", Version: "v1alpha1", Resource: "gates"}
}

// Gate is the object.
type Gate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec `json:"spec"`
}

// Spec of a Gate. Main has all but the last two, which Holds has, with Epoch.
type Spec struct {
	// RenewTime is when the controller was last heard of: best the time of an API
	// server's answer, since theirs is the clock it is compared with.
	RenewTime *metav1.MicroTime `json:"renewTime,omitempty"`
	// LeaseDurationSeconds after RenewTime everything passes.
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`
	// Epoch counts leaders. A Ticket of another one is void.
	Epoch int64 `json:"epoch,omitempty"`
	// Limited is whether loads need a Ticket to be accepted.
	Limited bool `json:"limited,omitempty"`
	// ProgressTime is when a load was last seen accepted, prepared or running; nil:
	// none was yet. At most RenewTime.
	ProgressTime *metav1.MicroTime `json:"progressTime,omitempty"`
	// Holds is until when a node takes no new loads, by its name. A lapsed one
	// means nothing. At most a lease duration ahead: it is not compared with
	// RenewTime.
	Holds map[string]metav1.Time `json:"holds,omitempty"`
	// Steer is whether the pods of new data movers stay away from the nodes of
	// Holds. Not where that were all.
	Steer bool `json:"steer,omitempty"`
}

// HoldsUntil is until when a load of that creation is held at most.
func (s *Spec) HoldsUntil(created time.Time) time.Time {
	if s.ProgressTime != nil && s.ProgressTime.After(created) {
		created = s.ProgressTime.Time
	}
	return created.Add(MaxHold)
}
