package vgdp

import (
	"cmp"
	"slices"
	"time"
)

// Input of a decision: the whole cluster at one moment.
type Input struct {
	Time time.Time
	// Veleros by namespace; loads in other namespaces are ignored.
	Veleros  map[string]Velero
	Loads    []Load // in any order
	Topology *Topology
	// Pressure of the nodes whose agents report; a node without has none.
	Pressure map[string]Pressure
	// Holds are the start holds in the Gate now, by node.
	Holds map[string]time.Time
	// HoldLifetime is the lifetime of a start hold unless it is renewed; 0: HoldLifetime.
	HoldLifetime time.Duration
}

// Velero is one installation.
type Velero struct {
	Epoch int64 // of its Gate, a fencing token: tickets of another epoch are void
	// PrepareLimit is how many of its loads may be Accepted or Prepared; 0: no limit.
	PrepareLimit int
	// Postponing: a Backup of it that runs is postponed, so that its loads need tickets
	// before there is any.
	Postponing bool
}

// Pressure of a node, as its agent published it.
type Pressure struct {
	// Budget is how many data mover loads may run there, of all Veleros together; nil: as
	// many as are configured.
	Budget *int
	// HoldUntil ends the start hold: before it only loads start that pressure does not
	// hold.
	HoldUntil time.Time
	// Why, in words.
	Why string
}

// MinBudget is how many data mover loads may run on a node under any pressure, so that
// backups progress.
const MinBudget = 1

// Decision about all data mover loads.
type Decision struct {
	// Limited are the Veleros whose loads need tickets. Loads of the others are not
	// touched, except to release what was held.
	Limited map[string]bool
	// Admit are the tickets for loads that may be accepted.
	Admit []Grant
	// Start are the tickets for loads that may run on nodes with a start hold.
	Start []Grant
	// Revoke are the tickets to revoke. Each counts until it is gone from the object.
	Revoke []Revocation
	// Release are hidden loads that get their data mover back without a ticket.
	Release []*Load
	// Holds are the nodes with a start hold, and until when unless renewed.
	Holds map[string]time.Time
	// Waiting are the loads without a ticket, in order, with the reason: first those that
	// wait to be accepted, then those that wait to start.
	Waiting []Waiting
}

// Grant of a ticket.
type Grant struct {
	*Load
	Ticket Ticket
	// Overdue: the ticket is issued in spite of pressure, because Velero would cancel the
	// load.
	Overdue bool
	// NotPostponed is when the window of its Backup opens, where that is postponed and the
	// ticket is issued all the same, because Velero would cancel the load before, or soon
	// after; zero: it is not so.
	NotPostponed time.Time
}

// Revocation of a ticket.
type Revocation struct {
	*Load
	// Start: it is the ticket to start, not the one to be accepted.
	Start bool
	Why   Code
}

// Waiting is a load that waits.
type Waiting struct {
	*Load
	Wait Wait
}

// HoldLifetime is the lifetime of a start hold unless it is renewed, which happens at half
// of it.
const HoldLifetime = time.Minute

// Decide says which loads may be accepted, which may start, and why each other one
// waits. It goes through the loads in order and gives a ticket to each that could
// run: its Velero has a free slot, and a node that it can run on has capacity. So
// a load that could not run takes no slot from one that can. Unschedulable loads
// come last, see probe, but for one that waits for long, see hasTurn.
func Decide(in Input) Decision {
	d := &decider{in: &in, capacity: newCapacity(&in)}
	d.out.Limited, d.out.Holds = d.limited(), d.holds()
	d.checkTickets()
	line := newQueue(d.capacity)
	free := d.capacity.freeSlots(len(line.rest))
	d.out.Admit, d.out.Waiting = make([]Grant, 0, free), make([]Waiting, 0, len(line.rest)-free)
	for a := line.next(false); a != nil; {
		wait := d.admit(a)
		if wait.Code != "" {
			d.out.Waiting = append(d.out.Waiting, Waiting{a.load, wait})
		}
		a = line.next(wait.Code == "")
	}
	d.probe()
	d.start()
	return d.out
}

type decider struct {
	in       *Input
	capacity *capacity
	out      Decision

	unschedulable []*candidate // unschedulable ones
}

func (d *decider) limited() map[string]bool {
	out := map[string]bool{}
	for namespace, v := range d.capacity.veleros {
		out[namespace] = v.limited
	}
	return out
}

// holds are the start holds: nodes that may run fewer loads than are configured.
func (d *decider) holds() map[string]time.Time {
	out := map[string]time.Time{}
	for name := range d.in.Pressure {
		i, there := d.in.Topology.index[name]
		if !there || !d.capacity.underPressure[i] {
			continue
		}
		out[name] = d.in.Holds[name]
		if lasts := cmp.Or(d.in.HoldLifetime, HoldLifetime); out[name].Sub(d.in.Time) < lasts/2 {
			out[name] = d.in.Time.Add(lasts)
		}
	}
	return out
}

// checkTickets checks the tickets that are out, the oldest first, and releases hidden
// loads that need none.
func (d *decider) checkTickets() {
	for i := range d.in.Loads {
		l := &d.in.Loads[i]
		if v := d.capacity.veleros[l.Namespace]; l.Hidden && l.unaccepted() && v != nil && (l.canceling() || !v.limited) {
			d.out.Release = append(d.out.Release, l)
		}
	}
	for _, l := range d.capacity.tickets {
		if why := d.capacity.stale(l); why != "" {
			d.out.Revoke = append(d.out.Revoke, Revocation{Load: l, Why: why})
		}
	}
	for _, l := range d.capacity.unstarted {
		d.out.Revoke = append(d.out.Revoke, Revocation{Load: l, Start: true, Why: CodeBackoff})
	}
}

// admit grants a ticket, or says why not.
func (d *decider) admit(a *candidate) Wait {
	if a.notReady {
		return d.in.notReady(a.load)
	}
	wait := d.capacity.take(a)
	switch {
	case wait.Code == "":
		d.grant(a)
	case wait.Code != CodeUnschedulable || a.load.Node != "":
	case d.hasTurn(a):
		d.admitUnschedulable(a)
		return Wait{}
	default:
		d.unschedulable = append(d.unschedulable, a)
	}
	return wait
}

// hasTurn tells whether an unschedulable load takes a slot in its order, as a backup does: it
// has waited for one Aging, no other such load of its Velero has a slot, and backups have
// another one beside it. Else it would starve for as long as other loads take all slots.
func (d *decider) hasTurn(a *candidate) bool {
	v := a.velero
	limit := InForce(v.PrepareLimit, v.agentLimit)
	waits := d.in.Time.Sub(a.load.waitsSince())
	return waits >= Aging && v.unschedulable == 0 && slotsOfBackups(limit) > 1 && SlotFree(false, v.slots.all, v.slots.restores, limit)
}

func (d *decider) admitUnschedulable(a *candidate) {
	a.velero.slot(a.load, a.restore)
	a.velero.addUnschedulable(a.load)
	d.grant(a)
}

func (d *decider) grant(a *candidate) {
	g := Grant{Load: a.load, Ticket: Ticket{Epoch: a.velero.Epoch, At: d.in.Time}}
	g.Overdue = a.exempt && !a.neverHeld && d.capacity.allPressed(a.reach)
	g.NotPostponed = a.load.postponement(d.in.Time)
	d.out.Admit = append(d.out.Admit, g)
}

// probe admits one unschedulable load of each Velero, if a slot is left beside the one
// that is kept for restores: a cluster autoscaler creates a node only for a pod that is
// pending. Until the node is there the others wait and take no slots. It may keep its slot
// for half an hour, so where loads of its Velero wait for a node that there is, one more
// slot must be left for them.
func (d *decider) probe() {
	for _, a := range d.unschedulable {
		v := a.velero
		left := slotsOfBackups(v.PrepareLimit) - v.slots.all
		if v.unschedulable > 0 || left <= 0 || left == 1 && d.waitsForNode(a.load.Namespace) {
			continue
		}
		d.admitUnschedulable(a)
		d.out.Waiting = slices.DeleteFunc(d.out.Waiting, func(w Waiting) bool { return w.Load == a.load })
	}
}

// waitsForNode tells whether a load of a Velero waits until one of its nodes takes it.
func (d *decider) waitsForNode(namespace string) bool {
	return slices.ContainsFunc(d.out.Waiting, func(w Waiting) bool {
		return w.Namespace == namespace && (w.Wait.Code == CodeFull || w.Wait.Code == CodePressure || w.Wait.Code == CodeAgent)
	})
}

// notReady says why a load could not use a ticket now; the zero value: it could.
func (in *Input) notReady(l *Load) Wait {
	if l.Refused != "" {
		return Wait{Code: CodeNotReady, Detail: l.Refused}
	}
	if l.NotReady != "" {
		return Wait{Code: CodeNotReady, Detail: l.NotReady}
	}
	if l.bound() && l.Node == "" {
		return Wait{Code: CodeNotReady, Detail: "its pod is not scheduled yet"}
	}
	if l.postponed(in.Time) { // what is frozen is known once it is ready
		at, clock := l.CancelledAt()
		return Wait{Code: CodePostponed, Until: l.postponement(in.Time), Detail: "Velero cancels it at " + utc(at) + " (" + clock + ")"}
	}
	if at := l.retry(); in.Time.Before(at) {
		return Wait{Code: CodeBackoff, Until: at}
	}
	return Wait{}
}
