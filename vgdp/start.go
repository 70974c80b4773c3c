package vgdp

import "slices"

// start issues tickets to prepared loads on tight nodes. On all other nodes Velero
// starts them by itself.
func (d *decider) start() {
	list := make([]sortKey, 0, len(d.capacity.prepared))
	for _, l := range d.capacity.prepared {
		list = append(list, newSortKey(d.capacity, &candidate{load: l, urgent: d.capacity.urgent[l]}))
	}
	slices.SortFunc(list, sortKey.compare)
	for _, s := range list {
		l := s.load
		if wait := d.startWait(l); wait.Code != "" {
			d.out.Waiting = append(d.out.Waiting, Waiting{l, wait})
			continue
		}
		node := d.in.Topology.index[l.Node]
		d.out.Start = append(d.out.Start, Grant{
			Load: l, Ticket: Ticket{Node: l.Node, Epoch: d.in.Veleros[l.Namespace].Epoch, At: d.in.Time},
			Overdue: !d.capacity.neverHeld(l) && d.capacity.running[node] >= d.capacity.allowed[node],
		})
		d.capacity.running[node]++
		d.capacity.veleros[l.Namespace].running[node]++
	}
}

func (d *decider) startWait(l *Load) Wait {
	node := d.in.Topology.index[l.Node]
	if l.Refused != "" {
		return Wait{Code: CodeNotReady, Detail: l.Refused}
	}
	if at := l.retry(); d.in.Time.Before(at) {
		return Wait{Code: CodeBackoff, Until: at}
	}
	v := d.capacity.veleros[l.Namespace]
	if v.running[node] >= v.agents[node].Concurrency { // Velero would not use a ticket
		return Wait{Code: CodeFull, Node: l.Node, Count: 1, By: d.capacity.oldest[node]}
	}
	if d.capacity.exempt(l) || d.capacity.running[node] < d.capacity.allowed[node] {
		return Wait{}
	}
	return Wait{
		Code: CodePressure, Node: l.Node, Count: 1, Detail: d.in.Pressure[l.Node].Why,
		Since: l.prepared(), Until: l.startUntil(),
	}
}
