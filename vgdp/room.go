package vgdp

import (
	"cmp"
	"slices"
)

// room is the remaining capacity, slots and places on nodes, while a decision is made.
type room struct {
	in      *Input
	veleros map[string]*velero
	// By node: how many loads pressure allows, whether that is fewer than are configured,
	// how many run or will, and how many run now.
	allowed       []int
	tight         []bool
	used, running []int
	first         []*Load // the load that has used the node for longest

	tickets   []*Load // with a ticket to be accepted, the oldest first
	prepared  []*Load // on tight nodes, without a ticket to start
	unstarted []*Load // with an expired ticket to start
	seats     map[seatKey]*seats
	urgent    map[*Load]bool // an application is frozen until it is done
}

// velero is the remaining capacity of one installation.
type velero struct {
	Velero
	limited bool
	// slots that are taken; kept of them by loads that node-agents count and by
	// tickets that stay.
	slots, kept int
	homeless    int     // in a slot and unschedulable
	longest     *Load   // the load that has had a slot for longest
	mine        []int   // by node: how many of its loads run or will
	parked      []int   // of them: prepared and held by pressure
	running     []int   // of them: running, or with a ticket to start
	agents      []Agent // by node
	shares      map[string]*share
	agentLimit  int // the highest limit that its node-agents read at their start
}

func newRoom(in *Input) *room {
	n := len(in.Fleet.nodes)
	r := &room{
		in: in, veleros: map[string]*velero{}, allowed: make([]int, n), tight: make([]bool, n),
		used: make([]int, n), running: make([]int, n), first: make([]*Load, n), seats: map[seatKey]*seats{},
	}
	for namespace, v := range in.Veleros {
		r.veleros[namespace] = &velero{
			Velero: v, shares: map[string]*share{}, limited: v.PrepareLimit > 0, mine: make([]int, n), parked: make([]int, n), running: make([]int, n),
			agents: in.Fleet.agentsOf(namespace), agentLimit: in.Fleet.prepare[namespace],
		}
	}
	r.press()
	r.urgent = r.standstill()
	r.count()
	return r
}

// press applies the nodes' pressure, and limits the Veleros with node-agents there.
func (r *room) press() {
	for name, p := range r.in.Pressure {
		i, there := r.in.Fleet.index[name]
		switch {
		case !there:
			continue
		case r.in.Time.Before(p.HoldUntil):
			r.allowed[i] = 0
		case p.Budget != nil:
			r.allowed[i] = max(Floor, *p.Budget)
		default:
			continue
		}
		agents := r.in.Fleet.nodes[i].Agents
		configured := 0
		for _, a := range agents {
			configured += a.Concurrency
		}
		r.tight[i] = r.allowed[i] < configured
		for namespace := range agents {
			if v := r.veleros[namespace]; v != nil && r.tight[i] {
				v.limited = true
			}
		}
	}
}

// count takes the capacity of all loads that are on their way.
func (r *room) count() {
	var floating []*Load
	for i := range r.in.Loads {
		l := &r.in.Loads[i]
		v := r.veleros[l.Namespace]
		if v == nil || !l.ours() || !l.running() && !l.Slot(v.Velero) {
			continue
		}
		if !l.running() {
			v.keep(l)
		}
		node, there := r.in.Fleet.index[l.Node]
		switch {
		case l.fresh():
			if v.limited {
				r.tickets = append(r.tickets, l)
			}
		case !there:
			floating = append(floating, l)
		default:
			r.runs(v, l, node)
		}
	}
	slices.SortFunc(r.tickets, func(a, b *Load) int {
		return cmp.Or(a.Ticket.At.Compare(b.Ticket.At), cmp.Compare(a.UID, b.UID))
	})
	slices.SortFunc(floating, func(a, b *Load) int { return cmp.Compare(a.UID, b.UID) })
	for _, l := range floating {
		v := r.veleros[l.Namespace]
		if r.seat(v, l, r.in.Fleet.Of(l), true) == CodeNoNode {
			v.homeless++
		}
	}
}

// free is the number of free slots, at most the number of loads.
func (r *room) free(loads int) (n int) {
	for _, v := range r.veleros {
		switch {
		case v.PrepareLimit > 0:
			n += max(0, v.PrepareLimit-v.slots)
		case v.limited:
			return loads
		}
	}
	return min(n, loads)
}

// keep takes the slot that a load already has.
func (v *velero) keep(l *Load) {
	v.slot(l)
	v.longest = longer(v.longest, l)
	if l.preparing() {
		v.kept++
	}
}

func (v *velero) slot(l *Load) {
	v.slots++
	if v.longest == nil {
		v.longest = l
	}
}

// longer is the older of two loads.
func longer(a, b *Load) *Load {
	if c := a.Created.Compare(b.Created); c < 0 || c == 0 && a.UID < b.UID {
		return a
	}
	return b
}

func (r *room) use(v *velero, l *Load, node int) {
	r.used[node]++
	v.mine[node]++
	if r.first[node] == nil {
		r.first[node] = l
	}
}

// runs counts a load on its node: the place it takes, whether it runs or has a
// ticket to start, or, prepared on a tight node, that it waits for one.
func (r *room) runs(v *velero, l *Load, node int) {
	r.use(v, l, node)
	r.first[node] = longer(r.first[node], l)
	started := l.Phase == Prepared && l.Started != nil && l.Started.Epoch == v.Epoch && l.Started.Node == l.Node
	if l.running() || started {
		r.running[node]++
		v.running[node]++
	}
	switch {
	case l.running():
	case started:
		if !r.in.Time.Before(l.Started.At.Add(TicketLife)) {
			r.unstarted = append(r.unstarted, l)
		}
	case l.Phase == Prepared && r.tight[node] && !l.leaving():
		r.prepared = append(r.prepared, l)
		if !r.exempt(l) {
			v.parked[node]++
		}
	}
}

// stale says why a ticket must be revoked; empty: it stays. Either way its load takes
// its slot and its place as long as the object has the ticket.
func (r *room) stale(l *Load) Code {
	v, reach := r.veleros[l.Namespace], r.in.Fleet.Of(l)
	fits := r.seat(v, l, reach, r.exempt(l))
	if node, there := r.in.Fleet.index[l.Node]; fits != "" && there {
		r.use(v, l, node)
	}
	switch {
	case l.Ticket.Epoch < v.Epoch:
		return CodeLimit
	case l.Ticket.Epoch > v.Epoch: // of a later leader
	case !r.in.Time.Before(l.Ticket.At.Add(TicketLife)):
		return CodeRetry
	case v.PrepareLimit > 0 && v.kept >= v.PrepareLimit:
		return CodeLimit
	case l.leaving(): // Velero cancels it before it accepts it
	case l.Node != "" && (fits == CodePressure || fits == CodeNoNode): // without a fixed node it may run elsewhere
		return fits
	case fits == CodeNoNode:
		v.homeless++
	}
	v.kept++
	return ""
}

// take takes a slot and a place for a candidate, or says what is missing.
func (r *room) take(a *applicant) Wait {
	v := a.velero
	switch {
	case len(a.reach.nodes) > 0:
	case v.PrepareLimit == 0 && a.load.Node == "": // no slots are counted
		return Wait{}
	default:
		return Wait{Code: CodeNoNode, reach: a.reach}
	}
	if v.PrepareLimit > 0 && v.slots >= v.PrepareLimit {
		return Wait{Code: CodeLimit, By: v.longest, Count: v.PrepareLimit}
	}
	limit := v.agentLimit
	if a.reach.bound {
		limit = v.agents[a.reach.nodes[0]].PrepareLimit
	}
	if limit > 0 && v.slots >= limit {
		return Wait{Code: CodeAgent, Node: a.load.Node, Count: limit}
	}
	if code := r.seat(v, a.load, a.reach, a.free); code != "" {
		return r.nowhere(a, code)
	}
	v.slot(a.load)
	return Wait{}
}

// nowhere is the Wait of a candidate without a place; the first such node stands for
// all.
func (r *room) nowhere(a *applicant, code Code) Wait {
	node := a.reach.nodes[0]
	if !a.reach.bound {
		s := r.seatsFor(a.velero, a.reach, a.free)
		if node = s.full; code == CodePressure {
			node = s.pressed
		}
	}
	name := r.in.Fleet.nodes[node].Name
	wait := Wait{Code: code, Count: len(a.reach.nodes), Node: name, By: r.first[node]}
	if code == CodePressure {
		wait.By = nil // it waits for the node, not for the loads there
		wait.Detail, wait.Since = r.in.Pressure[name].Why, a.load.Note.PressureSince
		if wait.Since.IsZero() {
			wait.Since = r.in.Time
		}
		wait.Until = wait.Since.Add(a.load.longest())
	}
	return wait
}

// suffering tells whether every possible node is under pressure.
func (r *room) suffering(reach *Reach) bool {
	return len(reach.nodes) > 0 && !slices.ContainsFunc(reach.nodes, func(i int) bool { return !r.tight[i] })
}
