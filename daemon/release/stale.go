package release

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Stale releases the hidden data mover loads that no Gate holds any more, because no
// controller renews it. It touches nothing else, also while controllers run.
func (r *Release) Stale(ctx context.Context) error {
	held := 0
	err := r.sweep(ctx, func(ctx context.Context) (err error) {
		held, err = r.staleLoads(ctx)
		return err
	})
	if err == nil {
		r.print("%d data mover loads released, %d hidden ones are held by a controller", r.done, held)
	}
	return err
}

// staleLoads is one pass. Without the Gates nothing is known of any load.
func (r *Release) staleLoads(ctx context.Context) (held int, err error) {
	gates := map[string]*gate.Gate{}
	err = r.each(ctx, gate.Resource(), func(u *unstructured.Unstructured) error {
		if u.GetName() != gate.Main {
			return nil
		}
		g := &gate.Gate{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, g); err != nil {
			return err
		}
		gates[u.GetNamespace()] = g
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("gates: %w", err)
	}
	var errs []error
	for _, kind := range []vgdp.Kind{vgdp.DataUpload, vgdp.DataDownload} {
		of := admission.Resource(kind)
		errs = append(errs, r.each(ctx, of, func(u *unstructured.Unstructured) error {
			body, hidden, err := admission.StalePatch(u, gates[u.GetNamespace()], r.Now())
			if hidden && body == nil {
				held++
			}
			if err != nil || body == nil {
				return err
			}
			if err := r.patch(ctx, of, u, types.MergePatchType, body); err != nil {
				return err
			}
			r.report("%s: released, no controller holds it any more", nameOf(u))
			return nil
		}))
	}
	return held, errors.Join(errs...)
}
