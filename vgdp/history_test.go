package vgdp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// history is a cluster that lives: node-agents that take every step they are
// not kept from, a gate, and controllers that decide on what they saw a moment
// ago and write only what has not changed since.
type history struct {
	t       *testing.T
	r       *rand.Rand
	in      Input // what is so
	version map[string]int
	writes  map[string]int
	revoked map[string]bool
	limited map[string]bool // the gate's
	leaders []leader
	passed  []passed
	slow    bool // an API server stores late what it has let pass
	admits  []string
	most    int // Accepted and Prepared at a time
}

// passed is a load that a node-agent accepts: the gate has let it pass, and it is
// stored when the API server gets to that, if nobody has changed it meanwhile.
type passed struct{ load, version int }

// leader is a controller that thinks it leads.
type leader struct {
	epoch int64
	saw   []Load
	at    map[string]int
}

func newHistory(t *testing.T, seed uint64, limit int, fleet []Node) *history {
	h := &history{t: t, r: rand.New(rand.NewPCG(seed, 3)), version: map[string]int{}, writes: map[string]int{}, revoked: map[string]bool{}, limited: map[string]bool{"velero": limit > 0}}
	h.in = world(limit, fleet)
	h.in.Holds = map[string]time.Time{}
	h.leaders = []leader{{epoch: 7}}
	return h
}

func (h *history) load(i int) *Load { return &h.in.Loads[i] }

// change a load: whoever saw it before has seen another one.
func (h *history) change(i int, do func(*Load)) {
	do(h.load(i))
	h.version[h.in.Loads[i].UID]++
}

// write is a change by a leader, which fails when somebody else was first.
func (h *history) write(l leader, uid string, do func(*Load)) {
	i := slices.IndexFunc(h.in.Loads, func(l Load) bool { return l.UID == uid })
	if h.version[uid] != l.at[uid] {
		return
	}
	h.writes[uid]++
	h.change(i, do)
	l.at[uid]++
}

// look takes in what is so.
func (h *history) look(l *leader) {
	l.saw, l.at = slices.Clone(h.in.Loads), maps.Clone(h.version)
}

// lead decides on what the leader saw and writes the differences.
func (h *history) lead(l *leader) {
	in := h.in
	in.Loads = l.saw
	in.Veleros = map[string]Velero{"velero": {Epoch: l.epoch, PrepareLimit: h.in.Veleros["velero"].PrepareLimit}}
	d := Decide(in)
	h.sameShuffled(in, d)
	h.budgets(in, d)
	noted := map[string]Note{}
	for _, n := range d.Notes(in.Time) {
		noted[n.UID] = n.Note
	}
	for _, v := range d.Revoke {
		h.revoked[v.UID] = true
		h.write(*l, v.UID, func(o *Load) {
			if v.Start {
				o.Started = nil
			} else {
				o.Ticket = nil
			}
			o.Note = noted[v.UID]
		})
		delete(noted, v.UID)
	}
	for _, g := range d.Admit {
		h.write(*l, g.UID, func(o *Load) { o.Ticket = &g.Ticket })
	}
	for _, g := range d.Start {
		h.write(*l, g.UID, func(o *Load) { o.Started = &g.Ticket })
	}
	for uid, n := range noted {
		h.write(*l, uid, func(o *Load) { o.Note = n })
	}
	if l.epoch == h.in.Veleros["velero"].Epoch { // the gate takes no other's word
		h.in.Holds, h.limited = d.Holds, d.Limited
		for _, g := range d.Admit {
			h.admits = append(h.admits, g.UID)
		}
	}
}

// sameShuffled: the order in which loads are listed has no say.
func (h *history) sameShuffled(in Input, d Decision) {
	in.Loads = slices.Clone(in.Loads)
	h.r.Shuffle(len(in.Loads), func(i, j int) { in.Loads[i], in.Loads[j] = in.Loads[j], in.Loads[i] })
	again := Decide(in)
	require.Equal(h.t, admitted(d), admitted(again))
	require.Equal(h.t, why(d), why(again))
	require.Len(h.t, again.Start, len(d.Start))
	require.Len(h.t, again.Revoke, len(d.Revoke))
}

// budgets: where pressure may hold it, nothing is let start above what is allowed.
func (h *history) budgets(in Input, d Decision) {
	m := model{in: in}
	for _, g := range d.Start {
		node := in.Topology.nodes[in.Topology.index[g.Node]]
		running, _ := m.prepared(g.Node)
		let := 0
		for _, o := range d.Start {
			if o.Node == g.Node {
				let++
			}
		}
		if !newCapacity(&in).exempt(g.Load) {
			require.LessOrEqual(h.t, running+1, m.allowed(node), "%s on %s, with %d let", g.Name, g.Node, let)
		}
	}
}

// accept as a node-agent does, if the gate lets it.
func (h *history) accept(i int) {
	l := h.load(i)
	ticket := l.Ticket != nil && l.Ticket.Epoch == h.in.Veleros["velero"].Epoch
	if (!h.limited["velero"] || ticket) && h.r.IntN(3) == 0 {
		h.passed = append(h.passed, passed{i, h.version[l.UID]})
	}
}

// store what the gate has let pass, some of it later.
func (h *history) store() {
	h.passed = slices.DeleteFunc(h.passed, func(j passed) bool {
		if h.slow && h.r.IntN(5) > 0 {
			return false
		}
		if h.version[h.load(j.load).UID] == j.version {
			h.change(j.load, func(l *Load) { l.Phase, l.AcceptedAt = Accepted, h.in.Time })
		}
		return true
	})
}

// agents take every step that they may, each after a while.
func (h *history) agents() {
	defer h.store()
	for _, i := range h.r.Perm(len(h.in.Loads)) {
		l := h.load(i)
		switch {
		case l.Phase == New && l.canceling():
			h.change(i, func(l *Load) { l.Phase = Canceled })
		case l.Phase == New:
			h.accept(i)
		case l.Phase == Accepted && h.r.IntN(4) == 0:
			h.change(i, func(l *Load) {
				l.Phase, l.PreparedAt = Prepared, h.in.Time
				if l.Node == "" {
					reach := h.in.Topology.ReachOf(l)
					l.Node = reach.Nodes[h.r.IntN(len(reach.Nodes))]
				}
			})
		case l.Phase == Prepared:
			h.begin(i)
		case l.Phase == InProgress && h.r.IntN(8) == 0:
			h.change(i, func(l *Load) { l.Phase = Completed })
		}
	}
}

// begin as a node-agent does: within its concurrency, and if the gate lets it.
func (h *history) begin(i int) {
	l, running := h.load(i), 0
	for _, o := range h.in.Loads {
		if o.running() && o.Node == l.Node {
			running++
		}
	}
	held := h.in.Time.Before(h.in.Holds[l.Node])
	ticket := l.Started != nil && l.Started.Node == l.Node && l.Started.Epoch == h.in.Veleros["velero"].Epoch
	if running < h.in.Topology.agentsOf("velero")[h.in.Topology.index[l.Node]].Concurrency && (!held || ticket) {
		h.change(i, func(l *Load) { l.Phase = InProgress })
	}
}

// step is five seconds of a cluster: somebody looks, things go on, then it writes.
func (h *history) step() {
	for i := range h.leaders {
		h.look(&h.leaders[i])
		if h.r.IntN(2) == 0 {
			h.agents()
		}
		h.lead(&h.leaders[i])
	}
	h.agents()
	preparing, backups := 0, 0
	for i := range h.in.Loads {
		if l := h.load(i); l.preparing() {
			preparing++
			if l.Kind == DataUpload || l.Kind == PodVolumeBackup {
				backups++
			}
		}
	}
	h.most = max(h.most, preparing)
	if limit := h.in.Veleros["velero"].PrepareLimit; limit > 0 {
		require.LessOrEqual(h.t, preparing, limit, "never above prepareQueueLength")
		require.LessOrEqual(h.t, backups, max(1, limit-1), "a slot is left for restores")
	}
	h.in.Time = h.in.Time.Add(5 * time.Second)
}

func (h *history) done() bool {
	return !slices.ContainsFunc(h.in.Loads, func(l Load) bool { return l.unaccepted() || l.preparing() || l.running() })
}

// arrive at some time, bound or not.
func (h *history) arrive() {
	i := len(h.in.Loads)
	l := someLoad(h.r, i)
	l.Namespace, l.Phase, l.Created, l.Mover, l.Direct = "velero", New, h.in.Time, "", false
	l.Note, l.Ticket, l.NotReady, l.Cancel, l.Deleted, l.AcceptedAt, l.PreparedAt, l.Started = Note{}, nil, "", false, false, time.Time{}, time.Time{}, nil
	l.Node = h.in.Topology.nodes[h.r.IntN(len(h.in.Topology.nodes))].Name
	if !l.bound() {
		l.Node = ""
	}
	h.in.Loads = append(h.in.Loads, l)
}

// press some nodes anew.
func (h *history) press() {
	for _, n := range h.in.Topology.nodes {
		delete(h.in.Pressure, n.Name)
		if h.r.IntN(2) == 0 {
			h.in.Pressure[n.Name] = Pressure{Budget: new(1 + h.r.IntN(3)), HoldUntil: h.in.Time.Add(time.Duration(h.r.IntN(60)) * time.Second), Why: "disk"}
		}
	}
}

// elect another leader; the one before goes on for a while.
func (h *history) elect() {
	v := h.in.Veleros["velero"]
	v.Epoch++
	h.in.Veleros["velero"] = v
	h.leaders = append(h.leaders[len(h.leaders)-1:], leader{epoch: v.Epoch})
}

func TestLoadHistoryWithinLimits(t *testing.T) {
	seeds := uint64(120)
	if race {
		seeds = 40
	}
	above := 0
	for seed := range seeds {
		h := newHistory(t, seed, int(seed%5), nodes(1+int(seed%4), 1+int(seed%3)))
		h.slow = seed%2 == 1
		for step := 0; step < 60 || !h.done(); step++ {
			require.Less(t, step, 6000, "seed %d: all end", seed)
			if step < 60 {
				h.disturb()
			} else {
				h.leaders = h.leaders[len(h.leaders)-1:]
			}
			h.step()
		}
		if h.most > 4 {
			above++
		}
	}
	assert.Positive(t, above, "without a limit more are prepared")
}

// disturb what goes on.
func (h *history) disturb() {
	switch h.r.IntN(12) {
	case 0, 1, 2, 3, 4:
		h.arrive()
	case 5:
		h.press()
	case 6:
		h.elect()
	case 7:
		h.leaders = h.leaders[len(h.leaders)-1:] // the old one has noticed
	case 8:
		if len(h.in.Loads) > 0 {
			i := h.r.IntN(len(h.in.Loads))
			h.change(i, func(l *Load) { l.Cancel = l.unaccepted() })
		}
	}
}

// The ticket, and at most a note, one that pressure holds it, and a ticket to
// start.
func TestLoadWritesFew(t *testing.T) {
	for _, pressed := range []bool{false, true} {
		h := newHistory(t, 1, 4, nodes(5, 2))
		for range 200 {
			h.arrive()
		}
		if pressed {
			h.in.Pressure["n1"] = Pressure{Budget: new(1), Why: "disk"}
		}
		for step := 0; !h.done(); step++ {
			require.Less(t, step, 6000)
			h.step()
		}
		total, most := 0, 0
		for uid, n := range h.writes {
			if total += n; !h.revoked[uid] {
				most = max(most, n)
			}
		}
		t.Logf("pressed %v: %d loads in %v, %.2f writes each, %d at most where no ticket was taken back (it was from %d)",
			pressed, len(h.in.Loads), h.in.Time.Sub(noon), float64(total)/200, most, len(h.revoked))
		assert.Less(t, float64(total)/200, 3.0)
		assert.LessOrEqual(t, len(h.revoked), 2)
		assert.LessOrEqual(t, most, 4)
		assert.Len(t, h.writes, 200)
		assert.Equal(t, 4, h.most, "the queue is full")
	}
}

func ExampleWait_Sentence() {
	d := Decide(world(1, nodes(2, 1), load("du-1", DataUpload, in(Accepted)), load("du-2", DataUpload)))
	fmt.Println(d.Waiting[0].Name, "waits:", d.Waiting[0].Wait.Sentence())
	// Output: du-2 waits: all 1 slots of prepareQueueLength are taken; DataUpload velero/du-1 has had one for longest
}
