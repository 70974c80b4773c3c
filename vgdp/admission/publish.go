package admission

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Reasons of Events.
const (
	ReasonPressure = "LoadHeldByPressure"
	ReasonOverdue  = "LoadOverdue"
	ReasonNoNode   = "LoadUnschedulable"
	// ReasonPostponed and ReasonNotPostponed are of loads of a postponed Backup.
	ReasonPostponed    = "LoadPostponed"
	ReasonNotPostponed = "LoadNotPostponed"
	// ReasonUnknownMover is that of a load whose data mover Velero's node-agents serve, and
	// this program does not know.
	ReasonUnknownMover = "LoadUnknownDataMover"
)

// publisher logs, publishes as Events and counts what a round found and wrote.
type publisher struct {
	log      *slog.Logger
	events   reconcile.Events
	counters *counters.Group[Counts]
	clock    *clock
	failed   map[string]string // the last error, by Velero
	// frequencyFailed is the last error of writing a maintenance frequency, by Velero.
	frequencyFailed map[string]string
}

func name(l *vgdp.Load) string { return string(l.Kind) + " " + l.Namespace + "/" + l.Name }

// reference is the object of an Event.
func reference(l *vgdp.Load) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: Resource(l.Kind).GroupVersion().String(), Kind: string(l.Kind), Namespace: l.Namespace, Name: l.Name, UID: types.UID(l.UID),
	}
}

// logWrite logs a successful write.
func (p *publisher) logWrite(e *edit) {
	l := e.load
	switch e.kind {
	case KindAdmit:
		waited := max(0, p.clock.now().Sub(l.Created))
		p.counters.Change(func(c *Counts) { c.Waits.Add(l.Kind, waited, Buckets()) })
		p.log.Info("issued ticket to accept data mover load", "load", name(l), "waited", waited.Round(time.Millisecond), "epoch", e.grant.Ticket.Epoch, "overdue", e.grant.Overdue)
		p.publishOverdue(e)
		p.publishNotPostponed(e)
	case KindStart:
		p.log.Info("issued ticket to start data mover load", "load", name(l), "node", e.grant.Ticket.Node, "overdue", e.grant.Overdue)
		p.publishOverdue(e)
	case KindRevoke:
		p.log.Info("revoked ticket of data mover load", "load", name(l), "code", string(e.note.Reason))
	case KindRelease:
		p.log.Info("released hidden data mover load", "load", name(l))
	case KindHide, KindNote:
		p.logWait(e)
	case KindDiagnose:
		p.log.Info("data mover load is not prepared", "load", name(l), "diagnosis", e.annotations[gate.Diagnosis])
	case KindPostpone, KindHandBack: // of BackupRepositories: recordFrequency
	}
}

// publishOverdue publishes a ticket in spite of pressure, with the timeout that forced it.
func (p *publisher) publishOverdue(e *edit) {
	if !e.grant.Overdue {
		return
	}
	p.counters.Change(func(c *Counts) { c.Overdue++ })
	l := e.load
	_, clock := l.CancelledAt()
	p.events.Event(reference(l), corev1.EventTypeWarning, ReasonOverdue, "overdue: goes on despite pressure, before Velero cancels it ("+clock+")")
}

// publishNotPostponed publishes a ticket outside of the backup window.
func (p *publisher) publishNotPostponed(e *edit) {
	if e.grant.NotPostponed.IsZero() {
		return
	}
	at, clock := e.load.CancelledAt()
	p.events.Event(reference(e.load), corev1.EventTypeWarning, ReasonNotPostponed, fmt.Sprintf(
		"not postponed until %s, when the backup window of its Backup opens: Velero cancels it at %s (%s), and a quarter of that time must be left to run; set a longer one to postpone it",
		utc(e.grant.NotPostponed), utc(at), clock))
}

func (p *publisher) logWait(e *edit) {
	if e.wait == nil {
		return
	}
	p.log.Info("data mover load waits", "load", name(e.load), "reason", e.wait.Sentence(), "code", string(e.wait.Code), "blockedBy", e.wait.BlockedBy(), "hidden", e.kind == KindHide)
	switch e.wait.Code {
	case vgdp.CodePressure:
		p.events.Event(reference(e.load), corev1.EventTypeNormal, ReasonPressure, e.wait.Sentence())
	case vgdp.CodeUnschedulable:
		p.events.Event(reference(e.load), corev1.EventTypeWarning, ReasonNoNode, e.wait.Sentence())
	case vgdp.CodePostponed:
		p.events.Event(reference(e.load), corev1.EventTypeNormal, ReasonPostponed, e.wait.Sentence())
	case vgdp.CodeLimit, vgdp.CodeFull, vgdp.CodeNotReady, vgdp.CodeBackoff, vgdp.CodeAgent, vgdp.CodeLeader:
	}
}

// countBypassed records loads that were accepted since the last round without the ticket
// that they needed.
func (p *publisher) countBypassed(v *velero) {
	g := v.gate()
	for _, o := range v.takeAccepted() {
		if g.needsTicket(&o.Load, p.clock.now()) && (o.Load.Ticket == nil || o.Load.Ticket.Epoch != g.epoch) {
			p.counters.Change(func(c *Counts) { c.Bypassed.Add(v.Namespace) })
			p.log.Warn("data mover load was accepted without a valid ticket; was the Gate open (kubectl get gates -A)?", "velero", v.Namespace, "load", name(&o.Load), "epoch", g.epoch)
		}
	}
}

// logFailure logs an error of a Velero when it begins, changes and ends.
func (p *publisher) logFailure(velero string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == p.failed[velero]:
	case text == "":
		p.log.Info("gate renewal recovered", "velero", velero)
	default:
		p.log.Warn("gate renewal failed; retrying", "velero", velero, "error", err)
	}
	p.failed[velero] = text
}

// ReasonStuck is that of an Event.
const ReasonStuck = "LoadStuck"

// publishStuck logs and publishes a stuck load with the remedy. The controller does
// not touch the pod itself: it must not have the right to change pods.
func (p *publisher) publishStuck(l *vgdp.Load, stuck vgdp.Stuck) {
	text := stuck.Why
	if stuck.Touch == "pod" {
		text += fmt.Sprintf("; to resolve: kubectl annotate pod -n %s %s example.com/touched=%d --overwrite", l.Namespace, l.Name, p.clock.now().Unix())
	}
	p.log.Warn("data mover load is stuck", "load", name(l), "reason", stuck.Why)
	p.events.Event(reference(l), corev1.EventTypeWarning, ReasonStuck, text)
}

// publishMovers logs each data mover that is none of Velero's own once, and again, with
// an Event, when Velero's node-agents are found to serve it.
func (p *publisher) publishMovers(v *velero, examples map[string]*Object) {
	for _, m := range v.others {
		served := m.Served > 0
		before, told := v.told[m.Name]
		if told && (before || !served) || !told && len(v.told) >= maxTold {
			continue
		}
		v.told[m.Name] = served
		if !served {
			p.log.Info("data mover loads of another data mover are not held or counted", "velero", v.Namespace, "dataMover", m.Name)
			continue
		}
		o := examples[m.Name]
		p.log.Warn("data mover loads are not held: velero's node-agents serve a data mover that plimsoll does not know; upgrade plimsoll",
			"velero", v.Namespace, "dataMover", m.Name, "load", name(&o.Load))
		p.events.Event(reference(&o.Load), corev1.EventTypeWarning, ReasonUnknownMover,
			fmt.Sprintf("not held: Velero's node-agents serve data mover %q, which Plimsoll does not know; upgrade Plimsoll", m.Name))
	}
}

// logStartedAtOnce logs which kinds are not held, when that changes.
func (p *publisher) logStartedAtOnce(v *velero) {
	kinds := v.startedAtOnce()
	if slices.Equal(kinds, v.toldStarted) {
		return
	}
	v.toldStarted = kinds
	if len(kinds) == 0 {
		p.log.Info("node-agents accept all kinds of data mover loads before they start them: all can be held", "velero", v.Namespace)
		return
	}
	p.log.Info("data mover loads of these kinds are not held: node-agents start them at once (velero 1.16 or earlier)", "velero", v.Namespace, "kinds", kinds)
}
