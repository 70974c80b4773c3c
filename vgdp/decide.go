package vgdp

import (
	"cmp"
	"slices"
	"time"
)

// Input of a decision: all that is known at one moment.
type Input struct {
	Time time.Time
	// Veleros by namespace; loads elsewhere are nobody's and are left alone.
	Veleros map[string]Velero
	Loads   []Load // in any order
	Fleet   *Fleet
	// Pressure of the nodes whose agents report; a node without has none.
	Pressure map[string]Pressure
	// Holds that the gate has now, by node.
	Holds map[string]time.Time
	// HoldFor is how long a hold lasts unless it is renewed; 0: HoldFor.
	HoldFor time.Duration
}

// Velero is one installation.
type Velero struct {
	Epoch int64 // of its gate: tickets of another are void
	// PrepareLimit is how many of its loads may be Accepted or Prepared; 0: all.
	PrepareLimit int
}

// Pressure of a node, as its agent decided it.
type Pressure struct {
	// Budget is how many loads may run there, of all Veleros together; nil: as
	// many as are configured.
	Budget *int
	// HoldUntil: nothing but what keeps backups alive starts before.
	HoldUntil time.Time
	// Why, in words.
	Why string
}

// Floor is how many loads may run on a node, whatever it suffers: backups stay
// alive.
const Floor = 1

// Decision of what may go on.
type Decision struct {
	// Limited Veleros are those whose loads need tickets; of the others nothing
	// is touched, but what was held is given back.
	Limited map[string]bool
	// Admit may be accepted, with these tickets.
	Admit []Grant
	// Start may run on their held nodes, with these tickets.
	Start []Grant
	// Revoke are the tickets that are taken back. Each counts until it is gone.
	Revoke []Revocation
	// Release are held loads that get their data mover back without a ticket.
	Release []*Load
	// Holds are the nodes on which nothing starts without a ticket, and until
	// when unless renewed.
	Holds map[string]time.Time
	// Waiting are all others that could go on, in order, and why they do not:
	// first those that are to be accepted, then those that are to start.
	Waiting []Waiting
}

// Grant of a ticket.
type Grant struct {
	*Load
	Ticket Ticket
	// Overdue: a node suffers, and has held it for as long as it may.
	Overdue bool
}

// Revocation of a ticket.
type Revocation struct {
	*Load
	// Start: it is the one to start, not that to be accepted.
	Start bool
	Why   Code
}

// Waiting is a load that waits.
type Waiting struct {
	*Load
	Wait Wait
}

// HoldFor is how long a hold lasts unless it is renewed; it is when half of it
// is over.
const HoldFor = time.Minute

// Decide says who may be accepted and who may start, and why each other one
// waits. It looks at the loads in order, and gives a ticket to each that could
// run: a slot of its Velero is free, and a node that it can run on has room. So
// a load that could not run takes no slot from one that can. What no node will
// do for comes last, see probe.
func Decide(in Input) Decision {
	d := &decider{in: &in, room: newRoom(&in)}
	d.out.Limited, d.out.Holds = d.limited(), d.holds()
	d.keepOrRevoke()
	line := d.room.line()
	free := d.room.free(len(line.rest))
	d.out.Admit, d.out.Waiting = make([]Grant, 0, free), make([]Waiting, 0, len(line.rest)-free)
	for a := line.next(false); a != nil; {
		wait := d.admit(a)
		if wait.Code != "" {
			d.out.Waiting = append(d.out.Waiting, Waiting{a.load, wait})
		}
		if wait.Code == CodeNoNode && a.load.Node == "" {
			d.homeless = append(d.homeless, a)
		}
		a = line.next(wait.Code == "")
	}
	d.probe()
	d.start()
	return d.out
}

type decider struct {
	in   *Input
	room *room
	out  Decision

	homeless []*applicant // no node will do for them
}

func (d *decider) limited() map[string]bool {
	out := map[string]bool{}
	for namespace, v := range d.room.veleros {
		out[namespace] = v.limited
	}
	return out
}

// holds of the nodes that have not the room that is configured.
func (d *decider) holds() map[string]time.Time {
	out := map[string]time.Time{}
	for name := range d.in.Pressure {
		i, there := d.in.Fleet.index[name]
		if !there || !d.room.tight[i] {
			continue
		}
		out[name] = d.in.Holds[name]
		if lasts := cmp.Or(d.in.HoldFor, HoldFor); out[name].Sub(d.in.Time) < lasts/2 {
			out[name] = d.in.Time.Add(lasts)
		}
	}
	return out
}

// keepOrRevoke goes through the tickets that are out, the oldest first, and
// through the held loads that need none.
func (d *decider) keepOrRevoke() {
	for i := range d.in.Loads {
		l := &d.in.Loads[i]
		if v := d.room.veleros[l.Namespace]; l.Held && l.fresh() && v != nil && (l.leaving() || !v.limited) {
			d.out.Release = append(d.out.Release, l)
		}
	}
	for _, l := range d.room.tickets {
		if why := d.room.stale(l); why != "" {
			d.out.Revoke = append(d.out.Revoke, Revocation{Load: l, Why: why})
		}
	}
	for _, l := range d.room.unstarted {
		d.out.Revoke = append(d.out.Revoke, Revocation{Load: l, Start: true, Why: CodeRetry})
	}
}

// admit a load, or say why not.
func (d *decider) admit(a *applicant) Wait {
	if a.early {
		return d.in.early(a.load)
	}
	wait := d.room.take(a)
	if wait.Code == "" {
		d.grant(a)
	}
	return wait
}

func (d *decider) grant(a *applicant) {
	g := Grant{Load: a.load, Ticket: Ticket{Epoch: a.velero.Epoch, At: d.in.Time}}
	g.Overdue = a.free && !a.spared && d.room.suffering(a.reach)
	d.out.Admit = append(d.out.Admit, g)
}

// probe lets one of those go on for which no node will do, if a slot is left
// over: a node that is made on demand is made for a pod that nobody else takes.
// Until it is there the others wait, and take no slots.
func (d *decider) probe() {
	for _, a := range d.homeless {
		v := a.velero
		if v.homeless > 0 || v.slots >= v.PrepareLimit {
			continue
		}
		v.homeless++
		v.slot(a.load)
		d.grant(a)
		d.out.Waiting = slices.DeleteFunc(d.out.Waiting, func(w Waiting) bool { return w.Load == a.load })
	}
}

// early says why a load could not use a ticket now; the zero value: it could.
func (in *Input) early(l *Load) Wait {
	if l.NotYet != "" {
		return Wait{Code: CodeNotYet, Detail: l.NotYet}
	}
	if l.bound() && l.Node == "" {
		return Wait{Code: CodeNotYet, Detail: "its pod is not scheduled yet"}
	}
	if at := l.retry(); in.Time.Before(at) {
		return Wait{Code: CodeRetry, Until: at}
	}
	return Wait{}
}
