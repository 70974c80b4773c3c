package admission

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// observation is all that a decision depends on, at one moment.
type observation struct {
	vgdp.Input
	// objects of the loads, by UID.
	objects map[string]*Object
	// gates and tests of the Veleros that are decided about, by namespace.
	gates map[string]gateState
	tests map[string]lastTests
	// facts of the loads that linger, by UID.
	facts        map[string]*vgdp.Facts
	maintenances vgdp.Maintenances
	// hideAbove so many waiting DataUploads and DataDownloads of a Velero they are hidden.
	hideAbove int
}

// lastTests are the times of the last dry runs, and since when nothing would release a hidden
// load by them; zero: something would, or it is unknown.
type lastTests struct{ accept, release, unreleased time.Time }

// plan is what to write, in this order: the Gates, then the dry runs, then the edits.
type plan struct {
	vgdp.Decision
	// progress are the Veleros with a load on its way.
	progress map[string]bool
	// desired Gates, and the dry runs that are due, by Velero.
	desired     map[string]desiredGates
	tests       map[string][]test
	edits       []edit
	maintenance vgdp.MaintenanceDecision
	// stuck are the diagnosed loads, by UID; the zero value: it is not stuck.
	stuck map[string]vgdp.Stuck
}

// decide is what to do about an observation. It does no I/O. The error is of edits that
// cannot be encoded; they are left out.
func decide(o *observation) (*plan, error) {
	p := &plan{
		Decision: vgdp.Decide(o.Input), progress: map[string]bool{}, desired: map[string]desiredGates{}, tests: map[string][]test{}, stuck: map[string]vgdp.Stuck{},
	}
	for i := range o.Loads {
		if l := &o.Loads[i]; l.OnItsWay(o.Time) {
			p.progress[l.Namespace] = true
		}
	}
	p.maintenance = o.maintenances.Decide(o.Time)
	gates := map[string]gateState{} // as they will be
	for namespace, g := range o.gates {
		desired := o.desiredGates(namespace, &p.Decision)
		if !o.maintenances.Off[namespace] {
			desired.away = p.maintenance.Away
		}
		p.desired[namespace] = desired
		g.limited = desired.limited
		gates[namespace] = g
	}
	o.testGates(p, gates)
	list, err := edits(&p.Decision, o.hides(p, gates), o.Time)
	p.edits = slices.Concat(list, o.endedHides(gates), o.diagnose(p))
	// A load whose writes hang delays no other.
	slices.SortStableFunc(p.edits, func(a, b edit) int { return cmp.Compare(min(a.load.Failed, 1), min(b.load.Failed, 1)) })
	return p, err
}

// desiredGates is the desired content of a Velero's Gates.
func (o *observation) desiredGates(namespace string, d *vgdp.Decision) desiredGates {
	w := desiredGates{limited: d.Limited[namespace], holds: map[string]time.Time{}}
	if !w.limited {
		return w
	}
	for node, until := range d.Holds {
		if o.Topology.HasAgent(node, namespace) {
			w.holds[node] = until
		}
	}
	w.steer = len(w.holds) > 0 && o.steerable(namespace, w.holds, d)
	return w
}

// steerable tells whether each load whose pod may be created now has a node without a
// start hold.
func (o *observation) steerable(namespace string, holds map[string]time.Time, d *vgdp.Decision) bool {
	stuck := func(l *vgdp.Load) bool {
		return l.Namespace == namespace && l.Node == "" && !slices.ContainsFunc(o.Topology.ReachOf(l).Nodes, func(node string) bool {
			_, held := holds[node]
			return !held
		})
	}
	for i := range d.Admit {
		if stuck(d.Admit[i].Load) {
			return false
		}
	}
	for i := range o.Loads {
		if l := &o.Loads[i]; (l.Phase == vgdp.Accepted || isNew(l) && l.Ticket != nil) && stuck(l) {
			return false
		}
	}
	return true
}

// testGates adds the self-tests of the Gates that hold loads: a dry run of what a
// node-agent would write to accept a load without a ticket. While no load waits there is
// none, and the result is unknown.
func (o *observation) testGates(p *plan, gates map[string]gateState) {
	for i := range o.Loads {
		l := &o.Loads[i]
		g := gates[l.Namespace]
		if len(p.tests[l.Namespace]) > 0 || l.Failed > 0 || o.Time.Sub(o.tests[l.Namespace].accept).Abs() < selfTestInterval {
			continue
		}
		if l.Ticket == nil && isNew(l) && !l.Cancel && !l.Deleted && g.needsTicket(l, o.Time.Add(time.Minute)) {
			p.tests[l.Namespace] = append(p.tests[l.Namespace], test{load: l, object: o.objects[l.UID]})
		}
	}
}

// hides are the loads to hide from Velero's node-agents, which otherwise try
// each waiting load every 5 s on every node: the DataUploads and DataDownloads of
// a Velero with more than so many waiting, if plimsoll-release-hidden releases them once
// the Gate does not hold them, which is tested first, and while any is hidden. A load that is
// accepted meanwhile fails the write's version check.
//
// They are hidden after their creation. A policy that hid them at creation would refuse
// them (503) on an API server that has just started and does not know their schema yet,
// and Velero does not retry the creation.
func (o *observation) hides(p *plan, gates map[string]gateState) (list []*vgdp.Waiting) {
	waiting := map[string]int{}
	visible, hidden := map[string][]*vgdp.Waiting{}, map[string]*vgdp.Load{}
	for i := range p.Waiting {
		w := &p.Waiting[i]
		if !isNew(w.Load) || !w.Kind.Facts().HasMover {
			continue
		}
		waiting[w.Namespace]++
		switch {
		case w.Cancel || w.Deleted || w.Refused != "":
		case w.Hidden:
			hidden[w.Namespace] = w.Load
		case gates[w.Namespace].needsTicket(w.Load, o.Time.Add(time.Minute)):
			visible[w.Namespace] = append(visible[w.Namespace], w)
		}
	}
	for namespace, n := range waiting {
		tested := hidden[namespace]
		if all := visible[namespace]; n > o.hideAbove && len(all) > 0 {
			tested, list = all[0].Load, append(list, all...)
		}
		if tested != nil && o.Time.Sub(o.tests[namespace].release).Abs() >= selfTestInterval {
			p.tests[namespace] = append(p.tests[namespace], test{release: true, load: tested, object: o.objects[tested.UID]})
		}
	}
	return list
}

// endedHides are the hidden loads that the policies do not hold, since they are too old or the
// Gate could not be renewed, and those that nothing would release without a controller: they are
// released.
func (o *observation) endedHides(gates map[string]gateState) (list []edit) {
	for i := range o.Loads {
		l := &o.Loads[i]
		since := o.tests[l.Namespace].unreleased
		unreleased := !since.IsZero() && o.Time.Sub(since) >= maxUnreleased
		if g := gates[l.Namespace]; l.Hidden && isNew(l) && (unreleased || !g.fresh(o.Time) || !o.Time.Before(g.holdsUntil(l))) {
			list = append(list, edit{load: l, kind: KindRelease, restoreMover: true, annotations: map[string]any{}})
		}
	}
	return list
}

// diagnose explains loads that are not prepared for long, or do not continue by
// themselves. The annotation is updated while they are so, and stays when they end:
// Velero then deletes the objects in question.
func (o *observation) diagnose(p *plan) (list []edit) {
	for i := range o.Loads {
		l := &o.Loads[i]
		f := o.facts[l.UID]
		if f == nil {
			continue
		}
		stuck := vgdp.StuckAt(o.Time, l, f, hasCapacity(&o.Input, l), o.Time.Before(o.Holds[l.Node]))
		p.stuck[l.UID] = stuck
		if text := diagnosis(&o.Input, l, f, stuck); text != o.objects[l.UID].Diagnosis {
			list = append(list, edit{load: l, kind: KindDiagnose, annotations: map[string]any{gate.Diagnosis: text}})
		}
	}
	return list
}

// edits of a decision, in the order in which they are made: revocations, then
// tickets and releases, then hiding, then notes.
func edits(d *vgdp.Decision, hidden []*vgdp.Waiting, now time.Time) ([]edit, error) {
	list, notes, err := noteEdits(d, now)
	errs := []error{err}
	for i := range d.Admit {
		e, err := admit(&d.Admit[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, e)
	}
	for i := range d.Start {
		g := &d.Start[i]
		list = append(list, edit{load: g.Load, kind: KindStart, grant: g, annotations: map[string]any{gate.Started: gate.Ticket{Node: g.Ticket.Node, Epoch: g.Ticket.Epoch}.String()}})
	}
	for _, l := range d.Release {
		list = append(list, edit{load: l, kind: KindRelease, restoreMover: true, annotations: map[string]any{}})
	}
	noted := map[*vgdp.Load]*edit{}
	for i := range notes {
		noted[notes[i].load] = &notes[i]
	}
	hides := map[*vgdp.Load]bool{}
	for _, w := range hidden {
		e, err := hide(w, now)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e.instead = noted[w.Load]
		hides[w.Load], list = true, append(list, e)
	}
	for i := range notes {
		if !hides[notes[i].load] {
			list = append(list, notes[i])
		}
	}
	return list, errors.Join(errs...)
}

// noteEdits are the revocations with their reasons, and the other notes.
func noteEdits(d *vgdp.Decision, now time.Time) (revokes, notes []edit, err error) {
	revoked := map[*vgdp.Load]string{}
	for _, r := range d.Revoke {
		revoked[r.Load] = gate.Admitted
		if r.Start {
			revoked[r.Load] = gate.Started
		}
	}
	waits := map[*vgdp.Load]*vgdp.Wait{}
	for i := range d.Waiting {
		waits[d.Waiting[i].Load] = &d.Waiting[i].Wait
	}
	for _, n := range d.Notes(now) {
		e := edit{load: n.Load, kind: KindNote, annotations: map[string]any{}, wait: waits[n.Load], note: &n.Note}
		if bad := annotate(e.annotations, n.Note); bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		if ticket, is := revoked[n.Load]; is {
			e.kind, e.annotations[ticket] = KindRevoke, nil
			revokes = append(revokes, e)
			continue
		}
		notes = append(notes, e)
	}
	return revokes, notes, err
}
