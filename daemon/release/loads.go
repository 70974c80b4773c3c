package release

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// gates deletes the Gates: without a Gate nothing is held.
func (r *Release) gates(ctx context.Context) error {
	return r.each(ctx, gate.Resource(), func(u *unstructured.Unstructured) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := r.Dynamic.Resource(gate.Resource()).Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			r.report("%s: deleted", nameOf(u))
		}
		return err
	})
}

// loads releases hidden data mover loads and removes tickets and reasons from
// all.
func (r *Release) loads(ctx context.Context) error {
	var errs []error
	for _, kind := range admission.Kinds() {
		of := admission.Resource(kind)
		errs = append(errs, r.each(ctx, of, func(u *unstructured.Unstructured) error {
			body, hidden, err := admission.ReleasePatch(u)
			if err != nil || body == nil {
				return err
			}
			if err := r.patch(ctx, of, u, types.MergePatchType, body); err != nil {
				return err
			}
			if hidden {
				r.report("%s: released", nameOf(u))
				return nil
			}
			r.done, r.cleaned = r.done+1, r.cleaned+1
			return nil
		}))
	}
	return errors.Join(errs...)
}

// backups removes reasons; the Backups keep their order for Velero's own queue.
func (r *Release) backups(ctx context.Context) error {
	return r.each(ctx, backup.Resource(), func(u *unstructured.Unstructured) error {
		body, returned, err := backup.ReleasePatch(backup.Read(u), time.Now())
		if err != nil || body == nil {
			return err
		}
		if err := r.patch(ctx, backup.Resource(), u, types.MergePatchType, body); err != nil {
			return err
		}
		if returned {
			r.report("%s: queued again, Velero had not started it", nameOf(u))
			return nil
		}
		r.report("%s: reason removed", nameOf(u))
		return nil
	})
}
