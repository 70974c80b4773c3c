package admission

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// hide from Velero's node-agents, which try each load that waits every 5 s, on
// every node: the DataUploads and DataDownloads of a Velero of which more than so
// many wait, where plimsoll-heal hands them back once nobody holds them. One that
// somebody accepts meanwhile is another by then, and is left alone.
//
// They are hidden after they were made. A policy that hides them while they are
// made refuses them (503) where an API server has just started and does not know
// their schema yet, and Velero makes them once.
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
		if !w.Held && !w.Cancel && !w.Deleted && v.needed(w.Load, in.Time.Add(time.Minute)) {
			visible[v] = append(visible[v], w)
		}
	}
	for v, all := range visible {
		if waiting[v] > above && r.heals(ctx, v, in.Time, all[0].Load, objects[all[0].UID]) {
			list = append(list, all...)
		}
	}
	return list
}

// heals tells whether a load that is hidden would be handed back, as far as it
// was tried: by a dry run of hiding a load that is cancelled, which nobody holds.
func (r *Reconciler) heals(ctx context.Context, v *velero, now time.Time, l *vgdp.Load, o *Object) bool {
	if now.Sub(v.healTried) < trialEvery {
		return v.heals
	}
	was, first := v.heals, v.healTried.IsZero()
	v.healTried = now
	known, heals := r.tryHeal(ctx, l, o)
	if !known {
		return v.heals
	}
	if v.heals = heals; was != heals || first {
		r.Log.Info("too many data mover loads wait", "velero", v.Namespace, "hidden", heals)
	}
	return heals
}

func (r *Reconciler) tryHeal(ctx context.Context, l *vgdp.Load, o *Object) (known, heals bool) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{gate.HeldDataMover: l.Mover}},
		"spec":     map[string]any{"datamover": gate.HeldMover, "cancel": true},
	})
	if err != nil {
		return false, false
	}
	u, err := r.dryRun(ctx, l.Kind, o, body)
	if err != nil {
		return false, false // it is gone by now, or the API server is away
	}
	mover, _, err := unstructured.NestedString(u.Object, "spec", "datamover")
	return err == nil, mover != gate.HeldMover
}
