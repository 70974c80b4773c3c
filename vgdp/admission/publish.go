package admission

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Reasons of Events.
const (
	ReasonPressure = "LoadHeldByPressure"
	ReasonOverdue  = "LoadOverdue"
	ReasonNoNode   = "LoadUnschedulable"
)

func name(l *vgdp.Load) string { return string(l.Kind) + " " + l.Namespace + "/" + l.Name }

// reference is the object of an Event.
func reference(l *vgdp.Load) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: Resource(l.Kind).GroupVersion().String(), Kind: string(l.Kind), Namespace: l.Namespace, Name: l.Name, UID: types.UID(l.UID),
	}
}

// logWrite logs a successful write.
func (r *Reconciler) logWrite(e *edit) {
	l := e.load
	switch e.kind {
	case KindAdmit:
		waited := max(0, r.clock.now().Sub(l.Created))
		r.counters.Change(func(c *Counts) { c.Waits.Add(l.Kind, waited, Buckets()) })
		r.Log.Info("issued ticket to accept data mover load", "load", name(l), "waited", waited.Round(time.Millisecond), "epoch", e.grant.Ticket.Epoch, "overdue", e.grant.Overdue)
		r.publishOverdue(e)
	case KindStart:
		r.Log.Info("issued ticket to start data mover load", "load", name(l), "node", e.grant.Ticket.Node, "overdue", e.grant.Overdue)
		r.publishOverdue(e)
	case KindRevoke:
		r.Log.Info("revoked ticket of data mover load", "load", name(l), "code", string(e.note.Reason))
	case KindRelease:
		r.Log.Info("released hidden data mover load", "load", name(l))
	case KindHide, KindNote:
		r.logWait(e)
	case KindDiagnose:
		r.Log.Info("data mover load is not prepared", "load", name(l), "diagnosis", e.annotations[gate.Diagnosis])
	}
}

// publishOverdue publishes a ticket in spite of pressure, with the timeout that forced it.
func (r *Reconciler) publishOverdue(e *edit) {
	if !e.grant.Overdue {
		return
	}
	r.counters.Change(func(c *Counts) { c.Overdue++ })
	l := e.load
	clock := "Velero's 4h0m0s"
	if l.Timeout > 0 {
		clock = fmt.Sprintf("itemOperationTimeout %s of its Backup", l.Timeout)
	}
	r.Events.Event(reference(l), corev1.EventTypeWarning, ReasonOverdue,
		fmt.Sprintf("overdue: goes on despite pressure, before Velero cancels it (%s, counted from %s)", clock, l.Created.UTC().Format(time.RFC3339)))
}

func (r *Reconciler) logWait(e *edit) {
	if e.wait == nil {
		return
	}
	r.Log.Info("data mover load waits", "load", name(e.load), "reason", e.wait.Sentence(), "code", string(e.wait.Code), "blockedBy", e.wait.BlockedBy(), "hidden", e.kind == KindHide)
	switch e.wait.Code {
	case vgdp.CodePressure:
		r.Events.Event(reference(e.load), corev1.EventTypeNormal, ReasonPressure, e.wait.Sentence())
	case vgdp.CodeUnschedulable:
		r.Events.Event(reference(e.load), corev1.EventTypeWarning, ReasonNoNode, e.wait.Sentence())
	case vgdp.CodeLimit, vgdp.CodeFull, vgdp.CodeNotReady, vgdp.CodeBackoff, vgdp.CodeAgent:
	}
}

// logFailure logs an error of a Velero when it begins, changes and ends.
func (r *Reconciler) logFailure(velero string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == r.failed[velero]:
	case text == "":
		r.Log.Info("gate renewal recovered", "velero", velero)
	default:
		r.Log.Warn("gate renewal failed; retrying", "velero", velero, "error", err)
	}
	r.failed[velero] = text
}

// countBypassed records loads that were accepted since the last round without the ticket
// that they needed.
func (r *Reconciler) countBypassed() {
	for _, v := range r.veleros {
		for _, o := range v.takeAccepted() {
			if v.needsTicket(&o.Load, r.clock.now()) && (o.Load.Ticket == nil || o.Load.Ticket.Epoch != v.keeper.epoch) {
				r.counters.Change(func(c *Counts) { c.Bypassed.Add(v.Namespace) })
				r.Log.Warn("data mover load was accepted without a valid ticket; was the Gate open (kubectl get gates -A)?", "velero", v.Namespace, "load", name(&o.Load), "epoch", v.keeper.epoch)
			}
		}
	}
}

// needsTicket tells whether the policies require a ticket of a load.
func (v *velero) needsTicket(l *vgdp.Load, now time.Time) bool {
	return v.keeper.epoch > 0 && v.desired.limited && (l.Mover == "" || l.Mover == "velero") && now.Before(v.keeper.holdsUntil(l.Created))
}
