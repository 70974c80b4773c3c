package admission

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// hide selects the loads to hide from Velero's node-agents, which otherwise try
// each waiting load every 5 s on every node: the DataUploads and DataDownloads of
// a Velero with more than so many waiting, if plimsoll-release-hidden releases them once the
// Gate does not hold them. A load that is accepted meanwhile fails the write's
// version check.
//
// They are hidden after their creation. A policy that hid them at creation would refuse
// them (503) on an API server that has just started and does not know their schema yet,
// and Velero does not retry the creation.
func (r *Reconciler) hide(ctx context.Context, above int, in *vgdp.Input, d *vgdp.Decision, objects map[string]*Object) (list []*vgdp.Waiting) {
	waiting := map[*velero]int{}
	visible := map[*velero][]*vgdp.Waiting{}
	for i := range d.Waiting {
		w := &d.Waiting[i]
		if !isNew(w.Load) || w.Kind != vgdp.DataUpload && w.Kind != vgdp.DataDownload {
			continue
		}
		v := r.veleros[w.Namespace]
		waiting[v]++
		if !w.Hidden && !w.Cancel && !w.Deleted && v.needsTicket(w.Load, in.Time.Add(time.Minute)) {
			visible[v] = append(visible[v], w)
		}
	}
	for v, all := range visible {
		if waiting[v] > above && r.releasable(ctx, v, in.Time, all[0].Load, objects[all[0].UID]) {
			list = append(list, all...)
		}
	}
	return list
}

// releasable tells whether a hidden load would be released, as last tested: by a dry
// run that hides a cancelled load, which the Gate does not hold.
func (r *Reconciler) releasable(ctx context.Context, v *velero, now time.Time, l *vgdp.Load, o *Object) bool {
	if now.Sub(v.releaseTestedAt) < selfTestInterval {
		return v.releasable
	}
	was, first := v.releasable, v.releaseTestedAt.IsZero()
	v.releaseTestedAt = now
	known, heals := r.testRelease(ctx, l, o)
	if !known {
		return v.releasable
	}
	v.releasable = heals
	switch {
	case was == heals && !first:
	case heals:
		r.Log.Info("hiding waiting data mover loads: more than vgdp.hideAbove", "velero", v.Namespace)
	default:
		r.Log.Warn("cannot hide waiting data mover loads: policy plimsoll-release-hidden would not release them; apply deploy/gate-mutating.yaml (Kubernetes 1.36 or later)", "velero", v.Namespace)
	}
	return heals
}

func (r *Reconciler) testRelease(ctx context.Context, l *vgdp.Load, o *Object) (known, heals bool) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{gate.OriginalDataMover: l.Mover}},
		"spec":     map[string]any{"datamover": gate.HiddenMover, "cancel": true},
	})
	if err != nil {
		return false, false
	}
	u, err := r.dryRun(ctx, l.Kind, o, body)
	if err != nil {
		return false, false // it was deleted, or the API server is unreachable
	}
	mover, _, err := unstructured.NestedString(u.Object, "spec", "datamover")
	return err == nil, mover != gate.HiddenMover
}
