package vgdp

import (
	"cmp"
	"slices"
)

// How many loads may be urgent at once. That an application is frozen until its
// volume is backed up is claimed by an annotation, which the pod's owner can
// write. So at most two loads of a node, of two namespaces, are exempt from
// pressure, and at most four of a namespace come before other Backups. All other
// loads with a hook are treated like any of their Backup.
const (
	UrgentOnNode      = 2
	UrgentOfNamespace = 4
)

// urgentKey is the key of a count: a node, a namespace, or a namespace on a node.
type urgentKey struct{ node, namespace string }

// selectUrgent selects the urgent loads: those on their way before those that wait,
// then the oldest. A load that could not use a ticket is not urgent, or it would
// take the place of another for nothing.
func (r *capacity) selectUrgent() map[*Load]bool {
	var list []*Load
	for i := range r.in.Loads {
		if l := &r.in.Loads[i]; l.Hooks && l.Kind == PodVolumeBackup && l.ByVelero() && (r.onItsWay(l) || r.couldUseTicket(l)) {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *Load) int {
		if way := r.onItsWay(a); way != r.onItsWay(b) {
			if way {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	urgent, counted := map[*Load]bool{}, map[urgentKey]int{}
	for _, l := range list {
		node, namespace, both := urgentKey{node: l.Node}, urgentKey{namespace: l.PodNamespace}, urgentKey{l.Node, l.PodNamespace}
		if counted[node] < UrgentOnNode && counted[namespace] < UrgentOfNamespace && counted[both] == 0 {
			urgent[l] = true
			counted[node]++
			counted[namespace]++
			counted[both]++
		}
	}
	return urgent
}

// onItsWay tells whether it has a slot of its Velero or a place on its node.
func (r *capacity) onItsWay(l *Load) bool {
	v := r.veleros[l.Namespace]
	return v != nil && (l.running() || l.Slot(v.Velero))
}

// couldUseTicket tells whether it waits and could use a ticket.
func (r *capacity) couldUseTicket(l *Load) bool {
	v := r.veleros[l.Namespace]
	return v != nil && v.limited && l.unaccepted() && !l.Direct && !l.canceling() && r.in.notReady(l).Code == "" && len(r.in.Topology.ReachOf(l).nodes) > 0
}

// neverHeld tells whether it is exempt from pressure from the beginning: a restore, or
// urgent.
func (r *capacity) neverHeld(l *Load) bool { return l.restore() || r.urgent[l] }

// exempt tells whether pressure does not hold it (any more).
func (r *capacity) exempt(l *Load) bool { return r.neverHeld(l) || l.overdue(r.in.Time) }
