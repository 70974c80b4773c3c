package admission

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Preview is the current decision about one Velero.
type Preview struct {
	Input    vgdp.Input
	Decision vgdp.Decision
	Report   Report
	// All loads, ended ones included.
	All []*Object
	// Gate as it is; nil: it does not exist, and nothing is held.
	Gate *gate.Gate
}

// Preview computes what a leader would decide now about the Velero of a namespace. It lists
// what it needs and writes nothing.
func (r *Reconciler) Preview(ctx context.Context, namespace string) (*Preview, error) {
	r.reset()
	v := r.newVelero(r.configured(namespace))
	r.veleros[namespace] = v
	if err := r.list(ctx, v); err != nil {
		return nil, err
	}
	if err := v.keeper.read(ctx); err != nil {
		return nil, err
	}
	v.watching = true
	if main := v.keeper.main; main != nil {
		v.keeper.epoch, v.desired.limited = main.Spec.Epoch, main.Spec.Limited
	}
	v.config.read(ctx, r.Core.ConfigMaps(namespace), r.configMapOf(v), time.Now())
	s := r.Settings()
	s.Enabled = true // as if admission were enabled
	a := &Preview{Gate: v.keeper.main}
	a.Input, _ = r.input(ctx, s)
	a.Decision = vgdp.Decide(a.Input)
	r.report(&a.Input, &a.Decision)
	a.Report = r.Reports()[0]
	for _, s := range v.loads {
		a.All = append(a.All, s.List()...)
	}
	return a, nil
}

// list fills the caches once, instead of a leader's watches.
func (r *Reconciler) list(ctx context.Context, v *velero) error {
	for kind, s := range v.loads {
		if err := store.Fill(ctx, s, r.Dynamic.Resource(Resource(kind)).Namespace(v.Namespace), ""); err != nil {
			return err
		}
		for _, o := range s.List() { // the time of issue is unknown: count it as new
			o.Load.Ticket, o.Load.Started = keepIssueTime(nil, o.Load.Ticket, time.Now()), keepIssueTime(nil, o.Load.Started, time.Now())
		}
	}
	if err := store.Fill(ctx, v.backups, r.Dynamic.Resource(backups()).Namespace(v.Namespace), ""); err != nil {
		return err
	}
	if err := store.Fill(ctx, v.movers, r.Core.Pods(v.Namespace), roleOther); err != nil {
		return err
	}
	if err := store.Fill(ctx, r.agents, r.Core.Pods(v.Namespace), roleAgent); err != nil {
		return err
	}
	if err := store.Fill(ctx, r.leases, r.Leases.Leases(lease.Namespace), ""); err != nil {
		return err
	}
	return store.Fill(ctx, r.nodes, r.Core.Nodes(), "")
}
