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

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// selfTestInterval is the interval of the gate's self-test.
const selfTestInterval = 5 * time.Second

// gateOpenReason is the result of a failed self-test.
const gateOpenReason = "a data mover load without a ticket would be accepted: gate.yaml is not applied, or the API server does not know the Gate's kind yet"

// test is a dry run to make.
type test struct {
	// release: whether a hidden load would be released. Otherwise: whether a load would be
	// accepted without a ticket.
	release bool
	load    *vgdp.Load
	object  *Object
}

// run makes a dry run, and keeps its result.
func (v *velero) run(ctx context.Context, t test, now time.Time) {
	if t.release {
		v.testRelease(ctx, t, now)
		return
	}
	v.testedAt = now
	known, passes := v.tryAccept(ctx, t.load, t.object)
	v.logSelfTest(known, passes)
}

// tryAccept accepts a load in a dry run: whether there is a result, and whether it would
// pass.
func (v *velero) tryAccept(ctx context.Context, l *vgdp.Load, o *Object) (known, passes bool) {
	patch := map[string]any{
		"metadata": map[string]any{
			"resourceVersion": o.ResourceVersion, "annotations": map[string]any{gate.OriginalDataMover: nil}, "labels": map[string]any{names.ExposeLabel: "true"},
		},
		"status": map[string]any{"phase": string(vgdp.Accepted)},
	}
	if l.Hidden {
		patch["spec"] = map[string]any{"datamover": nil}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return false, false
	}
	_, err = v.dryRun(ctx, l.Kind, o, body)
	switch {
	case err == nil:
		return true, true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "plimsoll-admit"):
		return true, false
	}
	return false, false // it changed meanwhile, or the API server is unreachable
}

// dryRun sends a merge patch as a dry run.
func (v *velero) dryRun(ctx context.Context, kind vgdp.Kind, o *Object, body []byte) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	return v.dynamic.Resource(Resource(kind)).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: reconcile.FieldManager, DryRun: []string{metav1.DryRunAll}})
}

func (v *velero) logSelfTest(known, passes bool) {
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
		v.log.Warn("gate does not hold data mover loads", "velero", v.Namespace, "reason", v.gateOpen)
	default:
		v.log.Info("gate holds data mover loads", "velero", v.Namespace)
	}
}

// What releases a hidden load that no Gate holds any more.
const (
	byPolicy = "policy " + gate.ReleaseHidden
	byJob    = "CronJob " + gate.ReleaseHidden
)

// testRelease tests whether a hidden load would be released: by a policy, which a dry run
// tells that hides a cancelled load, which the Gate does not hold; else by the CronJob.
// Without a result the last one stays.
func (v *velero) testRelease(ctx context.Context, t test, now time.Time) {
	was, first := v.releasedBy, v.releaseTestedAt.IsZero()
	v.releaseTestedAt = now
	known, heals := v.tryRelease(ctx, t.load, t.object)
	switch {
	case !known:
		return
	case heals:
		v.releasedBy = byPolicy
	case v.jobWorks != nil && v.jobWorks():
		v.releasedBy = byJob
	default:
		v.releasedBy = ""
	}
	if v.releasedBy != "" {
		v.unreleasedSince = time.Time{}
	} else if v.unreleasedSince.IsZero() {
		v.unreleasedSince = now
	}
	switch {
	case was == v.releasedBy && !first:
	case v.releasedBy != "":
		v.log.Info("can hide waiting data mover loads", "velero", v.Namespace, "releasedBy", v.releasedBy)
	default:
		v.log.Warn("cannot hide waiting data mover loads; those that are hidden are released unless that changes", "velero", v.Namespace, "after", maxUnreleased, "reason", notHiddenReason)
	}
}

// maxUnreleased is how long loads stay hidden while nothing would release them. An API server
// that has just started does not know the policy and its Gate yet, for up to 31 s.
const maxUnreleased = time.Minute

// notHiddenReason is why loads are not hidden although many wait.
const notHiddenReason = "nothing would release them when no controller does: neither policy plimsoll-release-hidden (deploy/gate-mutating.yaml) nor a working CronJob plimsoll-release-hidden (deploy/release-hidden.yaml)"

// notHidden is why the loads that wait are not hidden, or do not stay so; empty: they are,
// or there was nothing to hide of late.
func (v *velero) notHidden() string {
	if v.unreleasedSince.IsZero() || v.clock.now().Sub(v.releaseTestedAt) > 2*selfTestInterval {
		return ""
	}
	return notHiddenReason
}

func (v *velero) tryRelease(ctx context.Context, l *vgdp.Load, o *Object) (known, heals bool) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{gate.OriginalDataMover: l.Mover}},
		"spec":     map[string]any{"datamover": gate.HiddenMover, "cancel": true},
	})
	if err != nil {
		return false, false
	}
	u, err := v.dryRun(ctx, l.Kind, o, body)
	if err != nil {
		return false, false // it was deleted, or the API server is unreachable
	}
	mover, _, err := unstructured.NestedString(u.Object, "spec", "datamover")
	return err == nil, mover != gate.HiddenMover
}
