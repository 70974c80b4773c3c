package vgdp

import (
	"cmp"
	"slices"
)

// capacity is the remaining capacity, slots and places on nodes, while a decision is made.
type capacity struct {
	in      *Input
	veleros map[string]*velero
	// By node: how many loads pressure allows, whether that is fewer than are configured,
	// how many run or will, and how many run now.
	allowed       []int
	underPressure []bool
	used, running []int
	oldest        []*Load // the load that has used the node for longest

	tickets    []*Load // with a ticket to be accepted, the oldest first
	prepared   []*Load // on tight nodes, without a ticket to start
	unstarted  []*Load // with an expired ticket to start
	placements map[placementKey]*placements
	urgent     map[*Load]bool // an application is frozen until it is done
	deadlines  bool           // a load has a latest start
}

// velero is the remaining capacity of one installation.
type velero struct {
	Velero
	limited bool
	// slots that are taken; kept of them by loads that node-agents count and by
	// tickets that stay.
	slots, kept    taken
	unschedulable  int     // in a slot, with a pod that is or will be pending: no node is possible
	oldest         *Load   // the load that has had a slot for longest
	mine           []int   // by node: how many of its loads run or will
	heldByPressure []int   // of them: prepared and held by pressure
	running        []int   // of them: running, or with a ticket to start
	agents         []Agent // by node
	shares         map[string]*share
	agentLimit     int // the highest limit that its node-agents read at their start
}

func newCapacity(in *Input) *capacity {
	n := len(in.Topology.nodes)
	r := &capacity{
		in: in, veleros: map[string]*velero{}, allowed: make([]int, n), underPressure: make([]bool, n),
		used: make([]int, n), running: make([]int, n), oldest: make([]*Load, n), placements: map[placementKey]*placements{},
	}
	for namespace, v := range in.Veleros {
		r.veleros[namespace] = &velero{
			Velero: v, shares: map[string]*share{}, limited: v.PrepareLimit > 0 || v.Postponing, mine: make([]int, n), heldByPressure: make([]int, n), running: make([]int, n),
			agents: in.Topology.agentsOf(namespace), agentLimit: in.Topology.prepare[namespace],
		}
	}
	r.applyPressure()
	r.applyWanted()
	r.urgent = r.selectUrgent()
	r.countLoads()
	return r
}

// applyPressure applies the nodes' pressure, and limits the Veleros with node-agents there.
func (r *capacity) applyPressure() {
	for name, p := range r.in.Pressure {
		i, there := r.in.Topology.index[name]
		switch {
		case !there:
			continue
		case r.in.Time.Before(p.HoldUntil):
			r.allowed[i] = 0
		case p.Budget != nil:
			r.allowed[i] = max(MinBudget, *p.Budget)
		default:
			continue
		}
		agents := r.in.Topology.nodes[i].Agents
		configured := 0
		for _, a := range agents {
			configured += a.Concurrency
		}
		r.underPressure[i] = r.allowed[i] < configured
		for namespace := range agents {
			if v := r.veleros[namespace]; v != nil && r.underPressure[i] {
				v.limited = true
			}
		}
	}
}

// applyWanted limits the Veleros with a postponed load, which must not be accepted.
func (r *capacity) applyWanted() {
	for i := range r.in.Loads {
		l := &r.in.Loads[i]
		r.deadlines = r.deadlines || !l.Wanted.LatestStart.IsZero()
		if v := r.veleros[l.Namespace]; v != nil && l.Holdable() && !l.canceling() && l.postponed(r.in.Time) {
			v.limited = true
		}
	}
}

// countLoads takes the capacity of all loads that are on their way.
func (r *capacity) countLoads() {
	var floating []*Load
	for i := range r.in.Loads {
		l := &r.in.Loads[i]
		v := r.veleros[l.Namespace]
		if v == nil || !l.ByVelero() || !l.running() && !l.Slot(v.Velero) {
			continue
		}
		if !l.running() {
			v.keepSlot(l)
		}
		node, there := r.in.Topology.index[l.Node]
		switch {
		case l.unaccepted():
			if v.limited {
				r.tickets = append(r.tickets, l)
			}
		case !there:
			floating = append(floating, l)
		default:
			r.countOnNode(v, l, node)
		}
	}
	slices.SortFunc(r.tickets, func(a, b *Load) int {
		return cmp.Or(a.Ticket.At.Compare(b.Ticket.At), cmp.Compare(a.UID, b.UID))
	})
	r.countFloating(floating)
}

// countFloating counts loads whose node is not known, or gone.
func (r *capacity) countFloating(floating []*Load) {
	slices.SortFunc(floating, func(a, b *Load) int { return cmp.Compare(a.UID, b.UID) })
	for _, l := range floating {
		v := r.veleros[l.Namespace]
		if r.place(v, l, r.in.Topology.ReachOf(l), true) == CodeUnschedulable && l.Phase == Accepted && l.Node == "" {
			v.addUnschedulable(l)
		}
	}
}

// freeSlots is the number of free slots, at most the number of loads.
func (r *capacity) freeSlots(loads int) (n int) {
	for _, v := range r.veleros {
		switch {
		case v.PrepareLimit > 0:
			n += max(0, v.PrepareLimit-v.slots.all)
		case v.limited:
			return loads
		}
	}
	return min(n, loads)
}

// keepSlot takes the slot that a load already has.
func (v *velero) keepSlot(l *Load) {
	v.slot(l, l.restore())
	v.oldest = older(v.oldest, l)
	if l.preparing() {
		v.kept.add(l.restore())
	}
}

func (v *velero) slot(l *Load, restore bool) {
	v.slots.add(restore)
	if v.oldest == nil {
		v.oldest = l
	}
}

// addUnschedulable counts a load in a slot as unschedulable. It may keep the slot for half an
// hour, so a restore takes one of backups, and leaves the kept one to those that can run.
func (v *velero) addUnschedulable(l *Load) {
	v.unschedulable++
	if l.restore() {
		v.slots.restores--
	}
}

// taken counts slots that are taken: all of them, and those of restores.
type taken struct{ all, restores int }

func (t *taken) add(restore bool) {
	t.all++
	if restore {
		t.restores++
	}
}

// free tells whether one of limit slots is free for a restore or a backup.
func (t taken) free(restore bool, limit int) bool {
	return SlotFree(restore, t.all, t.restores, limit)
}

// SlotFree tells whether one of limit slots is free for a restore or a backup, where all are
// taken, so many of them by restores.
func SlotFree(restore bool, all, restores, limit int) bool {
	return all < limit && (restore || all-restores < slotsOfBackups(limit))
}

// slotsOfBackups are how many of limit slots backups may take at once. The last one is
// kept for restores: else one would wait until a backup is prepared, which can take half
// an hour. A single slot is for all, or no backup would ever get it.
func slotsOfBackups(limit int) int { return max(min(limit, 1), limit-1) }

// older is the older of two loads.
func older(a, b *Load) *Load {
	if c := a.Created.Compare(b.Created); c < 0 || c == 0 && a.UID < b.UID {
		return a
	}
	return b
}

func (r *capacity) occupy(v *velero, l *Load, node int) {
	r.used[node]++
	v.mine[node]++
	if r.oldest[node] == nil {
		r.oldest[node] = l
	}
}

// countOnNode counts a load on its node: the place it takes, whether it runs or has a
// ticket to start, or, prepared on a tight node, that it waits for one.
func (r *capacity) countOnNode(v *velero, l *Load, node int) {
	r.occupy(v, l, node)
	r.oldest[node] = older(r.oldest[node], l)
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
	case l.Phase == Prepared && r.underPressure[node] && !l.canceling():
		r.prepared = append(r.prepared, l)
		if !r.exempt(l) {
			v.heldByPressure[node]++
		}
	}
}

// stale says why a ticket must be revoked; empty: it stays. Either way its load takes
// its slot and its place as long as the object has the ticket.
func (r *capacity) stale(l *Load) Code {
	v, reach := r.veleros[l.Namespace], r.in.Topology.ReachOf(l)
	fits := r.place(v, l, reach, r.exempt(l))
	if node, there := r.in.Topology.index[l.Node]; fits != "" && there {
		r.occupy(v, l, node)
	}
	switch {
	case l.Ticket.Epoch < v.Epoch:
		return CodeLeader
	case l.Ticket.Epoch > v.Epoch: // of a later leader
	case !r.in.Time.Before(l.Ticket.At.Add(TicketLife)):
		return CodeBackoff
	case v.PrepareLimit > 0 && !v.kept.free(l.restore(), v.PrepareLimit):
		return CodeLimit
	case l.canceling(): // Velero cancels it before it accepts it
	case l.Node != "" && (fits == CodePressure || fits == CodeUnschedulable): // without a fixed node it may run elsewhere
		return fits
	case fits == CodeUnschedulable:
		v.addUnschedulable(l)
	}
	v.kept.add(l.restore())
	return ""
}

// take takes a slot and a place for a candidate, or says what is missing.
func (r *capacity) take(a *candidate) Wait {
	v := a.velero
	switch {
	case len(a.reach.nodes) > 0:
	case v.PrepareLimit == 0 && a.load.Node == "": // no slots are counted
		return Wait{}
	default:
		return Wait{Code: CodeUnschedulable, reach: a.reach}
	}
	if v.PrepareLimit > 0 && !v.slots.free(a.restore, v.PrepareLimit) {
		return Wait{Code: CodeLimit, By: v.oldest, Count: v.PrepareLimit, kept: v.slots.all < v.PrepareLimit}
	}
	limit := v.agentLimit
	if a.reach.bound {
		limit = v.agents[a.reach.nodes[0]].PrepareLimit
	}
	if limit > 0 && !v.slots.free(a.restore, limit) {
		return Wait{Code: CodeAgent, Node: a.load.Node, Count: limit}
	}
	if code := r.place(v, a.load, a.reach, a.exempt); code != "" {
		return r.waitReason(a, code)
	}
	v.slot(a.load, a.restore)
	return Wait{}
}

// waitReason is the Wait of a candidate without a place; the first such node stands for
// all.
func (r *capacity) waitReason(a *candidate, code Code) Wait {
	node := a.reach.nodes[0]
	if !a.reach.bound {
		s := r.placementsFor(a.velero, a.reach, a.exempt)
		if node = s.firstFull; code == CodePressure {
			node = s.firstPressed
		}
	}
	name := r.in.Topology.nodes[node].Name
	wait := Wait{Code: code, Count: len(a.reach.nodes), Node: name, By: r.oldest[node]}
	if code == CodePressure {
		wait.By = nil // it waits for the node, not for the loads there
		wait.Detail, wait.Since = r.in.Pressure[name].Why, a.load.pressureSince()
		if wait.Since.IsZero() {
			wait.Since = r.in.Time
		}
		wait.Until = wait.Since.Add(a.load.maxHold())
	}
	return wait
}

// allPressed tells whether every possible node is under pressure.
func (r *capacity) allPressed(reach *Reach) bool {
	return len(reach.nodes) > 0 && !slices.ContainsFunc(reach.nodes, func(i int) bool { return !r.underPressure[i] })
}
