package admission

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// actFor so long is written before the next look: the Gates must be renewed, and
// who could go must not wait for a long queue of notes.
const actFor = 500 * time.Millisecond

// write edits in order, until it is time for the next look, which finds what is
// still to be done.
func (r *Reconciler) write(ctx context.Context, list []edit, objects map[string]*Object) {
	until := time.Now().Add(actFor)
	notes := r.noteLimit()
	for i := range list {
		e := &list[i]
		if ctx.Err() != nil || time.Now().After(until) {
			r.ring()
			return
		}
		if e.kind == KindNote && !notes.TryAccept() || e.kind == KindHide && !r.veleros[e.load.Namespace].heals {
			continue
		}
		r.wrote(ctx, e, r.patch(ctx, e, objects[e.load.UID]))
	}
}

// noteLimit as configured.
func (r *Reconciler) noteLimit() flowcontrol.RateLimiter {
	if n := r.Settings().NotesPerSecond; r.notes == nil || n != r.notesFor {
		r.notesFor, r.notes = n, flowcontrol.NewTokenBucketRateLimiter(float32(n), n)
	}
	return r.notes
}

// patch one load, if it is still as it was seen.
func (r *Reconciler) patch(ctx context.Context, e *edit, o *Object) error {
	body, err := e.body(o.ResourceVersion)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	u, err := r.Dynamic.Resource(Resource(e.load.Kind)).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return err
	}
	r.pending[loadKey{e.load.Kind, o.Namespace, o.Name}] = u.GetResourceVersion()
	if e.kind == KindHide && fields(u.Object).text("spec", "datamover") != gate.HeldMover {
		v := r.veleros[o.Namespace] // until it is tried again
		v.heals, v.healTried = false, r.clock.now()
		return errNotHeld
	}
	return nil
}

// errNotHeld: a load that was hidden was handed back at once, since the API server
// does not know yet that the Gate holds.
var errNotHeld = errors.New("load was released at once: the API server does not know yet that the Gate holds it")

// wrote or not: who is another by now is looked at again anyway.
func (r *Reconciler) wrote(ctx context.Context, e *edit, err error) {
	switch {
	case err == nil:
		r.tally.wrote(e.kind)
		r.done(e)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), errors.Is(err, errNotHeld):
		r.tally.missed()
	case ctx.Err() != nil:
	default:
		r.tally.failed()
		r.Log.Warn("failed to write data mover load; retrying", "load", name(e.load), "write", string(e.kind), "error", err)
	}
}
