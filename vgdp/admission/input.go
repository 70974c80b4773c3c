package admission

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// input builds the input of a decision, and returns the loads' objects by UID.
func (r *Reconciler) input(ctx context.Context, s Settings) (vgdp.Input, map[string]*Object) {
	now := r.clock.now()
	in := vgdp.Input{
		Time: now, Veleros: map[string]vgdp.Velero{}, Topology: r.topology(), Pressure: map[string]vgdp.Pressure{},
		Holds: map[string]time.Time{}, HoldLifetime: s.LeaseDuration,
	}
	if s.Enabled {
		for _, l := range r.leases.List() {
			if p := l.pressure(time.Now(), now, r.Grace()); p != nil {
				in.Pressure[l.Name] = *p
			}
		}
	}
	objects := map[string]*Object{}
	r.targets.left = targetsPerRound
	for namespace, v := range r.veleros {
		if !v.ready() || now.Before(v.keeper.ticketsFrom) {
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
	r.dropStale(objects)
	return in, objects
}

// loads appends the loads of a Velero that have not ended.
func (r *Reconciler) loads(ctx context.Context, v *velero, list []vgdp.Load, objects map[string]*Object, now time.Time) []vgdp.Load {
	nodes := v.moverNodes()
	for _, loads := range v.loads {
		for _, o := range loads.List() {
			if ended(&o.Load) {
				continue
			}
			l := o.Load
			if l.Node == "" && !isNew(&l) {
				l.Node = nodes[loadKey{l.Kind, l.Namespace, l.Name}]
			}
			v.parentOf(o, &l)
			if v.desired.limited {
				r.addTarget(ctx, o, &l, now)
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
	for _, p := range v.movers.List() {
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
	if p, there := v.backups.Get(v.Namespace, o.Backup); there && o.Backup != "" {
		l.Scheduled, l.Hooks, l.Timeout = p.Scheduled, p.Hooks, p.Timeout
	}
}

// addTarget adds what a load's target says. An accepted load has its target; what a hook
// says of the application counts until the load has ended.
func (r *Reconciler) addTarget(ctx context.Context, o *Object, l *vgdp.Load, now time.Time) {
	if l.Kind == vgdp.DataUpload || o.Target.Name == "" || !isNew(l) && l.Kind != vgdp.PodVolumeBackup {
		return
	}
	t := r.targets.of(ctx, o, now)
	l.Hooks = l.Hooks || t.hooks
	l.NotReady = t.notReady
	if l.Node == "" {
		l.Node = t.node
	}
}

// dropStale drops cached facts of loads that do not exist any more.
func (r *Reconciler) dropStale(objects map[string]*Object) {
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

// topology is cached until a node, a node-agent or a configuration changes.
func (r *Reconciler) topology() *vgdp.Topology {
	now := [2]uint64{r.nodes.Changes(), r.agents.Changes()}
	if r.cachedTopology != nil && now == r.topologyVersion {
		return r.cachedTopology
	}
	agents := map[string]map[string]vgdp.Agent{} // by node and namespace
	labels := map[string]map[string]string{}
	nodes := r.nodes.List()
	for _, n := range nodes {
		labels[n.Name] = n.Labels
	}
	for _, v := range r.veleros {
		v.config.drift = 0
	}
	for _, p := range r.agents.List() {
		v := r.veleros[p.Namespace]
		if v == nil || p.Node == "" || agents[p.Node][p.Namespace].Ready {
			continue
		}
		if agents[p.Node] == nil {
			agents[p.Node] = map[string]vgdp.Agent{}
		}
		agents[p.Node][p.Namespace] = v.config.agent(p, labels[p.Node])
	}
	r.cachedTopology, r.topologyVersion = vgdp.NewTopology(withAgents(nodes, agents)), now
	return r.cachedTopology
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
