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

	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// selfTestInterval is the interval of the gate's self-test.
const selfTestInterval = 5 * time.Second

// gateOpenReason is the result of a failed self-test.
const gateOpenReason = "a data mover load without a ticket would be accepted: gate.yaml is not applied, or the API server does not know the Gate's kind yet"

// selfTestGates self-tests the Gates of limited Veleros: a dry run of what a node-agent
// would write to accept a load without a ticket. While no load waits the result is
// unknown.
func (r *Reconciler) selfTestGates(ctx context.Context, in *vgdp.Input, objects map[string]*Object) {
	for namespace, v := range r.veleros {
		if !v.desired.limited || v.keeper.epoch == 0 {
			v.gateOpen = ""
			continue
		}
		if in.Time.Sub(v.testedAt) < selfTestInterval {
			continue
		}
		for i := range in.Loads {
			l := &in.Loads[i]
			if l.Namespace == namespace && l.Ticket == nil && isNew(l) && !l.Cancel && !l.Deleted && v.needsTicket(l, in.Time.Add(time.Minute)) {
				v.testedAt = in.Time
				known, passes := r.tryAccept(ctx, l, objects[l.UID])
				r.logSelfTest(v, known, passes)
				break
			}
		}
	}
}

// tryAccept accepts a load in a dry run: whether there is a result, and whether it would
// pass.
func (r *Reconciler) tryAccept(ctx context.Context, l *vgdp.Load, o *Object) (known, passes bool) {
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": o.ResourceVersion, "annotations": map[string]any{gate.OriginalDataMover: nil}},
		"status":   map[string]any{"phase": string(vgdp.Accepted)},
	}
	if l.Hidden {
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
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	return r.Dynamic.Resource(Resource(kind)).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: reconcile.FieldManager, DryRun: []string{metav1.DryRunAll}})
}

func (r *Reconciler) logSelfTest(v *velero, known, passes bool) {
	was := v.gateOpen
	switch {
	case !known:
		return
	case passes:
		v.gateOpen = gateOpenReason
	default:
		v.gateOpen = ""
	}
	switch {
	case v.gateOpen == was:
	case passes:
		r.Log.Warn("gate does not hold data mover loads", "velero", v.Namespace, "why", v.gateOpen)
	default:
		r.Log.Info("gate holds data mover loads", "velero", v.Namespace)
	}
}
