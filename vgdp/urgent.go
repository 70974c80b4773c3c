package vgdp

import (
	"cmp"
	"slices"
)

// How many loads at once may count as urgent: that an application stands still
// until its volume is backed up is said by an annotation, which whoever owns the
// pod may write. So pressure is disregarded by two loads of a node at most, of
// two namespaces, and a namespace goes before other people's backups with four.
// All others with a hook are loads like any of their Backup.
const (
	UrgentOnNode      = 2
	UrgentOfNamespace = 4
)

// urgentOf is what is counted: a node, a namespace, or a namespace on a node.
type urgentOf struct{ node, namespace string }

// standstill says which loads are urgent: those on their way before those that
// wait, then the oldest. One that could not use a ticket is none, or it would
// keep others from being urgent for nothing.
func (r *room) standstill() map[*Load]bool {
	var list []*Load
	for i := range r.in.Loads {
		if l := &r.in.Loads[i]; l.Hooks && l.Kind == PodVolumeBackup && l.ours() && (r.onItsWay(l) || r.couldGo(l)) {
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
	urgent, counted := map[*Load]bool{}, map[urgentOf]int{}
	for _, l := range list {
		node, namespace, both := urgentOf{node: l.Node}, urgentOf{namespace: l.PodNamespace}, urgentOf{l.Node, l.PodNamespace}
		if counted[node] < UrgentOnNode && counted[namespace] < UrgentOfNamespace && counted[both] == 0 {
			urgent[l] = true
			counted[node]++
			counted[namespace]++
			counted[both]++
		}
	}
	return urgent
}

// onItsWay: it has a slot of its Velero or a place on its node.
func (r *room) onItsWay(l *Load) bool {
	v := r.veleros[l.Namespace]
	return v != nil && (l.running() || l.Slot(v.Velero))
}

// couldGo: it waits, and a ticket would be of use to it.
func (r *room) couldGo(l *Load) bool {
	v := r.veleros[l.Namespace]
	return v != nil && v.limited && l.fresh() && !l.leaving() && r.in.early(l).Code == "" && len(r.in.Fleet.Of(l).nodes) > 0
}

// spared by pressure from the beginning: it is a restore, or urgent.
func (r *room) spared(l *Load) bool { return l.restore() || r.urgent[l] }

// exempt from pressure: nothing that a node suffers holds it any more.
func (r *room) exempt(l *Load) bool { return r.spared(l) || l.waited(r.in.Time) }
