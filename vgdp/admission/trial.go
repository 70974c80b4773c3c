package admission

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// trialEvery is the interval of the gate's self-test.
const trialEvery = 5 * time.Second

// open is the result of a failed self-test.
const open = "a data mover load without a ticket would be accepted: gate.yaml is not applied, or the API server does not know the Gate's kind yet"

// tryGates self-tests the Gates of limited Veleros: a dry run of what a node-agent
// would write to accept a load without a ticket. While no load waits the result is
// unknown.
func (r *Reconciler) tryGates(ctx context.Context, in *vgdp.Input, objects map[string]*Object) {
	for namespace, v := range r.veleros {
		if !v.wish.limited || v.keeper.epoch == 0 {
			v.open = ""
			continue
		}
		if in.Time.Sub(v.tried) < trialEvery {
			continue
		}
		for i := range in.Loads {
			l := &in.Loads[i]
			if l.Namespace == namespace && l.Ticket == nil && isNew(l) && !l.Cancel && !l.Deleted && v.needed(l, in.Time.Add(time.Minute)) {
				v.tried = in.Time
				known, passes := r.try(ctx, l, objects[l.UID])
				r.tellTrial(v, known, passes)
				break
			}
		}
	}
}

// try accepts a load in a dry run: whether there is a result, and whether it would
// pass.
func (r *Reconciler) try(ctx context.Context, l *vgdp.Load, o *Object) (known, passes bool) {
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": o.ResourceVersion, "annotations": map[string]any{gate.HeldDataMover: nil}},
		"status":   map[string]any{"phase": string(vgdp.Accepted)},
	}
	if l.Held {
		patch["spec"] = map[string]any{"datamover": nil}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return false, false
	}
	_, err = r.dryRun(ctx, l.Kind, o, body)
	switch {
	case err == nil:
		return true, true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "plimsoll-admit"):
		return true, false
	}
	return false, false // it changed meanwhile, or the API server is unreachable
}

// dryRun sends a merge patch as a dry run.
func (r *Reconciler) dryRun(ctx context.Context, kind vgdp.Kind, o *Object, body []byte) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return r.Dynamic.Resource(Resource(kind)).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
}

func (r *Reconciler) tellTrial(v *velero, known, passes bool) {
	was := v.open
	switch {
	case !known:
		return
	case passes:
		v.open = open
	default:
		v.open = ""
	}
	switch {
	case v.open == was:
	case passes:
		r.Log.Warn("gate does not hold data mover loads", "velero", v.Namespace, "why", v.open)
	default:
		r.Log.Info("gate holds data mover loads", "velero", v.Namespace)
	}
}
