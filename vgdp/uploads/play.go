package uploads

import (
	"container/heap"
	"time"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// Player plays the loads of a State forward.
type Player struct {
	*State

	usual    *usual
	expected []expected
	unknown  []bool // loads of which nothing is known
	nodes    []Node
	names    []string
	reaches  []reach
	reachOf  []int   // of each load; -1: none is possible
	byNode   [][]int // reaches
}

// reach is a set of nodes that loads share.
type reach struct {
	nodes   []int
	pressed bool // one of them is
}

// NewPlayer learns from the loads that have ended.
func NewPlayer(s *State) *Player {
	p := &Player{State: s, usual: learn(s.Ended)}
	index, known := map[string]int{}, map[*string]map[int]int{}
	for i := range s.Loads {
		l := &s.Loads[i]
		e, is := p.usual.expect(l, s.Time)
		p.expected, p.unknown = append(p.expected, e), append(p.unknown, !is)
		p.reachOf = append(p.reachOf, p.reach(l.Nodes, index, known))
	}
	return p
}

// reach of these nodes. Loads with the same slice have the same.
func (p *Player) reach(of []string, index map[string]int, known map[*string]map[int]int) int {
	if len(of) == 0 {
		return -1
	}
	if known[&of[0]] == nil {
		known[&of[0]] = map[int]int{}
	}
	if r, there := known[&of[0]][len(of)]; there {
		return r
	}
	var r reach
	for _, name := range of {
		i, there := index[name]
		if !there {
			i = len(p.nodes)
			index[name], p.nodes, p.names, p.byNode = i, append(p.nodes, p.Nodes[name]), append(p.names, name), append(p.byNode, nil)
		}
		r.nodes, r.pressed = append(r.nodes, i), r.pressed || p.nodes[i].Pressed
		p.byNode[i] = append(p.byNode[i], len(p.reaches))
	}
	p.reaches = append(p.reaches, r)
	known[&of[0]][len(of)] = len(p.reaches) - 1
	return len(p.reaches) - 1
}

// ran is what became of a load in a play.
type ran struct {
	begins, ends time.Time // begins is zero: it did not
	node         int       // -1: none
	// before are the loads that waited and began before it, on its node and on all.
	before, beforeAll int
}

// play of the loads.
type play struct {
	*Player

	now      time.Time
	takes    []time.Duration
	ran      []ran
	used     []int // places, by node
	slots    int   // that are taken
	restores int   // slots that restores have taken
	waited   []int // loads that waited and began, by node
	all      int   // of them all
	events   events
	// queues of each reach: one of loads that pressure may hold, one of the others.
	queues []queue
	ready  ready
}

// Play until each load has ended; share is the probability with which the next load takes no
// longer. It returns what becomes of the loads of each Backup; one that has a load of which
// nothing is known is not among them.
func (p *Player) Play(share func() float64) map[string]Future { return p.futures(p.run(share)) }

func (p *Player) run(share func() float64) []ran {
	y := &play{
		Player: p, now: p.Time, ran: make([]ran, len(p.Loads)), used: make([]int, len(p.nodes)), waited: make([]int, len(p.nodes)),
		queues: make([]queue, 2*len(p.reaches)), takes: make([]time.Duration, len(p.Loads)),
	}
	y.ready.queues = y.queues
	for i := range y.queues {
		y.queues[i].at = -1
	}
	for i := range p.nodes {
		if n := &p.nodes[i]; n.Pressed && n.HoldUntil.After(p.Time) {
			y.push(n.HoldUntil, eventNode, i)
		}
	}
	for i := range p.Loads {
		y.takes[i] = p.expected[i].at(share())
		y.add(i)
	}
	for {
		y.place()
		if len(y.events) == 0 {
			return y.ran
		}
		y.now = y.events[0].at
		for len(y.events) > 0 && y.events[0].at.Equal(y.now) {
			y.happen(heap.Pop(&y.events).(event))
		}
	}
}

// add a load to the play. What never begins ends when Velero cancels it.
func (y *play) add(i int) {
	l, r := &y.Loads[i], &y.ran[i]
	r.node, r.ends = -1, later(l.Cancelled, y.Time.Add(time.Second))
	of := y.reachOf[i]
	if l.Stage == Prepares {
		y.take(i, 1)
	}
	switch {
	case l.Stage == Runs:
		if of >= 0 {
			r.node = y.reaches[of].nodes[0]
			y.used[r.node]++
		}
		y.begin(i, y.takes[i])
	case of >= 0:
		y.push(later(l.From, y.Time), eventEnter, i)
		fallthrough
	default:
		y.push(r.ends, eventCancel, i)
	}
}

// begin a load, which ends after some time, and no later than Velero cancels it.
func (y *play) begin(i int, takes time.Duration) {
	r := &y.ran[i]
	r.begins = y.now
	if at := y.now.Add(takes); at.Before(r.ends) {
		r.ends = at
	}
	if r.node >= 0 {
		y.push(r.ends, eventPlace, r.node)
	}
}

func (y *play) happen(e event) {
	switch e.kind {
	case eventPlace:
		y.used[e.of]--
		y.free(e.of)
	case eventNode:
		y.free(e.of)
	case eventSlot:
		y.take(e.of, -1)
	case eventEnter:
		y.enter(e.of)
	case eventCancel:
		if y.ran[e.of].begins.IsZero() && y.Loads[e.of].Stage == Prepares {
			y.take(e.of, -1)
		}
	}
}

// free tells those that wait for a node that there may be a place.
func (y *play) free(node int) {
	for _, r := range y.byNode[node] {
		y.ready.wake(2 * r)
		y.ready.wake(2*r + 1)
	}
}

// enter a queue: that of those that pressure may hold, and when it may not any more, the
// other.
func (y *play) enter(i int) {
	l, of := &y.Loads[i], y.reachOf[i]
	k := 2*of + 1
	switch {
	case !y.ran[i].begins.IsZero():
		return
	case l.Stage == Waits && y.reaches[of].pressed && l.HeldUntil.After(y.now):
		k = 2 * of
		y.push(l.HeldUntil, eventEnter, i)
	}
	heap.Push(&y.queues[k].loads, i)
	y.ready.wake(k)
}

// place the loads that may begin now, in their order. The first that could run and has no
// slot ends it.
func (y *play) place() {
	for len(y.ready.list) > 0 {
		k := y.ready.list[0]
		q := &y.queues[k]
		if len(q.loads) == 0 {
			heap.Pop(&y.ready)
			continue
		}
		i := q.loads[0]
		if r := &y.ran[i]; !r.begins.IsZero() || !y.now.Before(r.ends) { // or Velero has cancelled it
			heap.Pop(&q.loads)
			heap.Fix(&y.ready, 0)
			continue
		}
		node := y.best(k)
		if node < 0 {
			heap.Pop(&y.ready)
			continue
		}
		if !y.slot(&y.Loads[i]) {
			return
		}
		heap.Pop(&q.loads)
		heap.Fix(&y.ready, 0)
		y.start(i, node)
	}
}

// slot tells whether a load has a slot, or may take one.
func (y *play) slot(l *Load) bool {
	return y.Slots == 0 || l.Stage == Prepares || vgdp.SlotFree(l.Backup == "", y.slots, y.restores, y.Slots)
}

// take so many slots for a load.
func (y *play) take(i, n int) {
	y.slots += n
	if y.Loads[i].Backup == "" {
		y.restores += n
	}
}

// start a load on a node. It has a slot until it is prepared.
func (y *play) start(i, node int) {
	l, r := &y.Loads[i], &y.ran[i]
	prepares := y.usual.prepares[l.Kind]
	r.node, r.before, r.beforeAll = node, y.waited[node], y.all
	switch {
	case l.Stage == Waits:
		y.take(i, 1)
		y.waited[node]++
		y.all++
	case !l.Since.IsZero():
		prepares = max(0, prepares-max(0, y.now.Sub(l.Since)))
	}
	y.used[node]++
	y.push(y.now.Add(prepares), eventSlot, i)
	y.begin(i, prepares+y.takes[i])
}

// best is the node for the loads of a queue: one without pressure, else the one with fewest
// loads, else the first; -1: none has a place.
func (y *play) best(k int) int {
	best, most := -1, 0
	for _, node := range y.reaches[k/2].nodes {
		n := &y.nodes[node]
		places := n.Places
		if k%2 == 0 {
			places = n.allowed(y.now)
		}
		score := y.used[node]
		if n.Pressed {
			score += 1 << 30
		}
		if y.used[node] < places && (best < 0 || score < most) {
			best, most = node, score
		}
	}
	return best
}

func (y *play) push(at time.Time, kind eventKind, of int) {
	heap.Push(&y.events, event{at, kind, of})
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// futures of the Backups, after a play.
func (p *Player) futures(all []ran) map[string]Future {
	out, open := map[string]Future{}, map[string]bool{}
	for i := range p.Loads {
		l, r := &p.Loads[i], &all[i]
		if l.Backup == "" {
			continue
		}
		open[l.Backup] = open[l.Backup] || p.unknown[i]
		f := out[l.Backup]
		f.Now = p.Time
		if l.Kind.Facts().InProgress {
			f.Frees = later(f.Frees, r.ends)
		}
		if !r.ends.Before(f.Ends) { // of those that end together the last in order
			f.Ends, f.Last = r.ends, p.last(i, r)
		}
		out[l.Backup] = f
	}
	for of := range open {
		if open[of] {
			delete(out, of)
		}
	}
	return out
}

// last describes the load of a Backup that ends last.
func (p *Player) last(i int, r *ran) Last {
	l := &p.Loads[i]
	out := Last{Stage: l.Stage, Code: l.Code, Nodes: len(l.Nodes), Before: r.before, From: l.From}
	if l.Code == vgdp.CodeLimit {
		out.Before = r.beforeAll
	}
	if p.reachOf[i] < 0 {
		return out
	}
	nodes := p.reaches[p.reachOf[i]].nodes
	out.Pressed, out.Node = true, p.names[nodes[0]]
	for _, node := range nodes {
		out.Pressed = out.Pressed && p.nodes[node].Pressed
	}
	if r.node >= 0 {
		out.Node = p.names[r.node]
	}
	if out.Pressed {
		out.Before = r.before
	}
	return out
}
