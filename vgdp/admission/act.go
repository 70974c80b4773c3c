package admission

import (
	"context"
	"errors"
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

// write makes the edits in order until maxWriteTime is over; the next round finds the rest.
func (r *Reconciler) write(ctx context.Context, list []edit, objects map[string]*Object) {
	until := time.Now().Add(maxWriteTime)
	notes := r.noteLimit()
	for i := range list {
		e := &list[i]
		if ctx.Err() != nil || time.Now().After(until) {
			r.wake.Set()
			return
		}
		if e.kind == KindNote && !notes.TryAccept() || e.kind == KindHide && !r.veleros[e.load.Namespace].releasable {
			continue
		}
		r.recordWrite(ctx, e, r.patch(ctx, e, objects[e.load.UID]))
	}
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
		v := r.veleros[o.Namespace] // until the next test
		v.releasable, v.releaseTestedAt = false, r.clock.now()
		return errNotHeld
	}
	return nil
}

// errNotHeld: a load was released as soon as it was hidden, since the API server
// does not know yet that the Gate holds it.
var errNotHeld = errors.New("load was released at once: the API server does not know yet that the Gate holds it")

// recordWrite records the result of an edit. A load that changed meanwhile is decided anew in
// the next round.
func (r *Reconciler) recordWrite(ctx context.Context, e *edit, err error) {
	switch {
	case err == nil:
		r.counters.Change(func(c *Counts) { c.Writes.Add(e.kind) })
		r.logWrite(e)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), errors.Is(err, errNotHeld):
		r.counters.Change(func(c *Counts) { c.Conflicts++ })
	case ctx.Err() != nil:
	default:
		r.counters.Change(func(c *Counts) { c.Failures++ })
		r.Log.Warn("failed to write data mover load; retrying", "load", name(e.load), "write", string(e.kind), "error", err)
	}
}
