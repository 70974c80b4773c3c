package vgdp

import "slices"

// start issues tickets to prepared loads on tight nodes. On all other nodes Velero
// starts them by itself.
func (d *decider) start() {
	list := make([]standing, 0, len(d.room.prepared))
	for _, l := range d.room.prepared {
		list = append(list, (&applicant{load: l, urgent: d.room.urgent[l]}).standing(d.in.Time))
	}
	slices.SortFunc(list, standing.compare)
	for _, s := range list {
		l := s.load
		if wait := d.startWait(l); wait.Code != "" {
			d.out.Waiting = append(d.out.Waiting, Waiting{l, wait})
			continue
		}
		node := d.in.Fleet.index[l.Node]
		d.out.Start = append(d.out.Start, Grant{
			Load: l, Ticket: Ticket{Node: l.Node, Epoch: d.in.Veleros[l.Namespace].Epoch, At: d.in.Time},
			Overdue: !d.room.spared(l) && d.room.running[node] >= d.room.allowed[node],
		})
		d.room.running[node]++
		d.room.veleros[l.Namespace].running[node]++
	}
}

func (d *decider) startWait(l *Load) Wait {
	node := d.in.Fleet.index[l.Node]
	if at := l.retry(); d.in.Time.Before(at) {
		return Wait{Code: CodeRetry, Until: at}
	}
	v := d.room.veleros[l.Namespace]
	if v.running[node] >= v.agents[node].Concurrency { // Velero would not use a ticket
		return Wait{Code: CodeFull, Node: l.Node, Count: 1, By: d.room.first[node]}
	}
	if d.room.exempt(l) || d.room.running[node] < d.room.allowed[node] {
		return Wait{}
	}
	return Wait{
		Code: CodePressure, Node: l.Node, Count: 1, Detail: d.in.Pressure[l.Node].Why,
		Since: l.prepared(), Until: l.startUntil(),
	}
}
