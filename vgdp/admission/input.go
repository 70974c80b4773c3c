package admission

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// older compares two resource versions of an object.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// input builds the input of a decision, and returns the loads' objects by UID.
func (r *Reconciler) input(ctx context.Context, s Settings) (vgdp.Input, map[string]*Object) {
	now := r.clock.now()
	in := vgdp.Input{
		Time: now, Veleros: map[string]vgdp.Velero{}, Fleet: r.fleetNow(), Pressure: map[string]vgdp.Pressure{},
		Holds: map[string]time.Time{}, HoldFor: s.LeaseDuration,
	}
	if s.Enabled {
		for _, l := range r.leases.all() {
			if p := l.pressure(time.Now(), now, r.Grace()); p != nil {
				in.Pressure[l.Name] = *p
			}
		}
	}
	objects := map[string]*Object{}
	r.targets.left = targetsAtOnce
	for namespace, v := range r.veleros {
		if !v.ready() || now.Before(v.keeper.from) {
			continue
		}
		known := vgdp.Velero{Epoch: v.keeper.epoch}
		if s.Enabled {
			known.PrepareLimit = v.config.live.PrepareLimit()
		}
		in.Veleros[namespace] = known
		v.keeper.heldInto(in.Holds)
		in.Loads = r.loads(ctx, v, in.Loads, objects, now)
	}
	r.forget(objects)
	return in, objects
}

// loads appends the loads of a Velero that have not ended.
func (r *Reconciler) loads(ctx context.Context, v *velero, list []vgdp.Load, objects map[string]*Object, now time.Time) []vgdp.Load {
	nodes := v.moverNodes()
	for _, shelf := range v.loads {
		for _, o := range shelf.all() {
			if ended(&o.Load) {
				continue
			}
			l := o.Load
			if l.Node == "" && !isNew(&l) {
				l.Node = nodes[loadKey{l.Kind, l.Namespace, l.Name}]
			}
			v.parentOf(o, &l)
			if v.wish.limited {
				r.aim(ctx, o, &l, now)
			}
			l.Place = v.config.place(o)
			list, objects[l.UID] = append(list, l), o
		}
	}
	return list
}

// moverNodes are the nodes of the movers' pods.
func (v *velero) moverNodes() map[loadKey]string {
	nodes := map[loadKey]string{}
	for _, p := range v.movers.all() {
		for _, kind := range Kinds() {
			if load := p.Labels[kind.PodLabel()]; load != "" {
				nodes[loadKey{kind, p.Namespace, load}] = p.Spec.NodeName
			}
		}
	}
	return nodes
}

// parentOf copies what a load inherits from its Backup.
func (v *velero) parentOf(o *Object, l *vgdp.Load) {
	if p, there := v.backups.get(v.Namespace, o.Backup); there && o.Backup != "" {
		l.Scheduled, l.Hooks, l.Timeout = p.Scheduled, p.Hooks, p.Timeout
	}
}

// aim adds what a load's target says. An accepted load has its target; what a hook
// says of the application counts until the load has ended.
func (r *Reconciler) aim(ctx context.Context, o *Object, l *vgdp.Load, now time.Time) {
	if l.Kind == vgdp.DataUpload || o.Target.Name == "" || !isNew(l) && l.Kind != vgdp.PodVolumeBackup {
		return
	}
	t := r.targets.of(ctx, o, now)
	l.Hooks = l.Hooks || t.hooks
	l.NotYet = t.notYet
	if l.Node == "" {
		l.Node = t.node
	}
}

// forget drops cached facts of loads that do not exist any more.
func (r *Reconciler) forget(objects map[string]*Object) {
	for uid := range r.targets.known {
		if objects[string(uid)] == nil {
			delete(r.targets.known, uid)
		}
	}
	for uid := range r.diagnosed {
		if objects[string(uid)] == nil {
			delete(r.diagnosed, uid)
		}
	}
}

// fleetNow is cached until a node, a node-agent or a configuration changes.
func (r *Reconciler) fleetNow() *vgdp.Fleet {
	now := [2]uint64{r.nodes.changes.Load(), r.agents.changes.Load()}
	if r.fleet != nil && now == r.fleetOf {
		return r.fleet
	}
	agents := map[string]map[string]vgdp.Agent{} // by node and namespace
	labels := map[string]map[string]string{}
	nodes := r.nodes.all()
	for _, n := range nodes {
		labels[n.Name] = n.Labels
	}
	for _, v := range r.veleros {
		v.config.drift = 0
	}
	for _, p := range r.agents.all() {
		v := r.veleros[p.Namespace]
		if v == nil || p.Node == "" || agents[p.Node][p.Namespace].Ready {
			continue
		}
		if agents[p.Node] == nil {
			agents[p.Node] = map[string]vgdp.Agent{}
		}
		agents[p.Node][p.Namespace] = v.config.agent(p, labels[p.Node])
	}
	r.fleet, r.fleetOf = vgdp.NewFleet(withAgents(nodes, agents)), now
	return r.fleet
}

func withAgents(nodes []*corev1.Node, agents map[string]map[string]vgdp.Agent) []vgdp.Node {
	var list []vgdp.Node
	for _, n := range nodes {
		list = append(list, vgdp.Node{
			Features: vgdp.Features{Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
			Agents:   agents[n.Name],
		})
	}
	return list
}
