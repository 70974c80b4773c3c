package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// maxWriteTime bounds the time for writes in a round: the Gates must be renewed, and a long
// queue of notes must not delay tickets.
const maxWriteTime = 500 * time.Millisecond

// write writes the Gates, makes the dry runs, publishes the report, and makes the edits.
func (r *Reconciler) write(ctx context.Context, o *observation, p *plan) {
	if r.writeGates(ctx, o, p) {
		r.wake.Set() // the decision is void
		return
	}
	for _, v := range r.veleros {
		r.publisher.countBypassed(v)
	}
	r.runTests(ctx, o, p)
	r.recordDiagnoses(o, p)
	list := reports(&o.Input, &p.Decision, r.veleros, r.publisher.failed)
	maintainer{r}.addMaintenances(list, &p.maintenance)
	r.loop.Publish(list)
	r.forecast.refresh(o, &p.Decision, r.veleros)
	r.writeEdits(ctx, p.edits, o.objects)
	maintainer{r}.writeFrequencies(ctx, &p.maintenance)
}

// writeGates writes the Gates as decided. It is true when an epoch changed, or a Gate begins
// to limit, so that the decision must be repeated: targets are looked up only then.
func (r *Reconciler) writeGates(ctx context.Context, o *observation, p *plan) (again bool) {
	for namespace, desired := range p.desired {
		v := r.veleros[namespace]
		if p.progress[namespace] {
			v.keeper.progress = o.Time
		}
		was := v.gate()
		v.desired = desired
		if v.gatesRead || !desired.limited { // else this round has failed to read or write them, and issues no tickets
			r.publisher.logFailure(namespace, v.writeGates(ctx))
		}
		begins := desired.limited && !was.limited
		if begins { // those accepted until now needed no ticket
			v.takeAccepted()
		}
		renewed := desired.limited && !was.fresh(o.Time) && v.gate().fresh(r.clock.now()) // what was decided is of a Gate that held nothing
		again = again || v.keeper.epoch != was.epoch || begins || renewed
	}
	return again
}

// runTests makes the dry runs. The result for a Gate that should hold nothing is
// dropped.
func (r *Reconciler) runTests(ctx context.Context, o *observation, p *plan) {
	for namespace, v := range r.veleros {
		if g := v.gate(); !g.limited || g.epoch == 0 {
			v.gateOpen = ""
		}
		for _, t := range p.tests[namespace] {
			v.run(ctx, t, o.Time)
		}
	}
}

// recordDiagnoses records why loads are stuck, and publishes new reasons.
func (r *Reconciler) recordDiagnoses(o *observation, p *plan) {
	for i := range o.Loads {
		l := &o.Loads[i]
		stuck, is := p.stuck[l.UID]
		if !is {
			continue
		}
		was := r.diagnosed[types.UID(l.UID)]
		r.diagnosed[types.UID(l.UID)] = diagnosed{o.Time, stuck.Why}
		if stuck.Why != "" && stuck.Why != was.why {
			r.publisher.publishStuck(l, stuck)
		}
	}
}

// writeEdits makes the edits in order until maxWriteTime is over; the next round finds
// the rest.
func (r *Reconciler) writeEdits(ctx context.Context, list []edit, objects map[string]*Object) {
	until := time.Now().Add(maxWriteTime)
	notes := r.noteLimit()
	for len(list) > 0 {
		if ctx.Err() != nil || time.Now().After(until) {
			r.wake.Set()
			return
		}
		n := together(list)
		due := r.due(list[:n], objects, notes)
		for i, err := range r.patchAll(ctx, due, objects) {
			r.record(ctx, due[i], objects[due[i].load.UID], err)
		}
		list = list[n:]
	}
}

// due are the edits that are written, or what is written instead of them.
func (r *Reconciler) due(list []edit, objects map[string]*Object, notes flowcontrol.RateLimiter) (due []*edit) {
	for i := range list {
		e, v, o := &list[i], r.veleros[list[i].load.Namespace], objects[list[i].load.UID]
		switch {
		case r.refused.Held(o.UID, o.ResourceVersion):
			continue // others must not wait for it
		case (e.kind == KindAdmit || e.kind == KindStart) && !v.gatesKnown():
			continue // its ticket could be void
		case e.kind == KindHide && (v.releasedBy == "" || !v.gatesKnown()):
			e = e.instead
		}
		if e != nil && (e.kind != KindNote || notes.TryAccept()) {
			due = append(due, e)
		}
	}
	return due
}

// hidesTogether bounds how many loads are hidden at a time: node-agents keep an API server
// busy with the loads that they see, and it then answers late.
const hidesTogether = 16

// together is how many of the next edits are written at the same time: only hiding is in
// no order.
func together(list []edit) (n int) {
	for n < min(len(list), hidesTogether) && list[n].kind == KindHide {
		n++
	}
	return max(n, 1)
}

// patchAll writes loads at the same time, and has an error or nil for each.
func (r *Reconciler) patchAll(ctx context.Context, list []*edit, objects map[string]*Object) []error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, e := range list {
		all.Go(func() { errs[i] = r.patch(ctx, e, objects[e.load.UID]) })
	}
	all.Wait()
	return errs
}

// noteLimit is the configured rate limit of notes, a token bucket.
func (r *Reconciler) noteLimit() flowcontrol.RateLimiter {
	if n := r.Settings().NotesPerSecond; r.noteBucket == nil || n != r.notesFor {
		r.notesFor, r.noteBucket = n, flowcontrol.NewTokenBucketRateLimiter(float32(n), n)
	}
	return r.noteBucket
}

// patch writes one load, if it is unchanged (optimistic concurrency).
func (r *Reconciler) patch(ctx context.Context, e *edit, o *Object) error {
	body, err := e.body(o.ResourceVersion)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	u, err := r.Dynamic.Resource(Resource(e.load.Kind)).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: reconcile.FieldManager})
	if err != nil {
		return err
	}
	r.veleros[o.Namespace].loads[e.load.Kind].Wrote(o.Namespace, o.Name, u.GetResourceVersion())
	if e.kind == KindHide && fields(u.Object).text("spec", "datamover") != gate.HiddenMover {
		return errNotHeld
	}
	return nil
}

// errNotHeld: a load was released as soon as it was hidden, since the API server
// does not know yet that the Gate holds it.
var errNotHeld = errors.New("load was released at once: the API server does not know yet that the Gate holds it")

// record records the result of an edit. A load that changed meanwhile is decided anew in
// the next round.
func (r *Reconciler) record(ctx context.Context, e *edit, o *Object, err error) {
	switch {
	case err == nil:
		r.counters.Change(func(c *Counts) { c.Writes.Add(e.kind) })
		r.refused.Made()
		r.publisher.logWrite(e)
	case errors.Is(err, errNotHeld):
		v := r.veleros[e.load.Namespace] // until the next test
		v.releasedBy, v.releaseTestedAt = "", r.clock.now()
		r.counters.Change(func(c *Counts) { c.Conflicts++ })
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		r.counters.Change(func(c *Counts) { c.Conflicts++ })
	case ctx.Err() != nil: // the term is over: whether it was written is not known
		r.counters.Change(func(c *Counts) { c.Failures++ })
	default:
		r.counters.Change(func(c *Counts) { c.Failures++ })
		times := r.refused.Failed(o.UID, o.ResourceVersion, err, e.kind == KindAdmit || e.kind == KindStart)
		if times <= 1 {
			r.Log.Warn("failed to write data mover load; retrying", "load", name(e.load), "write", string(e.kind), "error", err, "othersGoOn", times > 0)
		}
	}
}
