package vgdp

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// single is a node that runs one load at a time, as Velero does by default, and
// suffers. Its budget follows that, and its node-agent tries every 5 s.
type single struct {
	in      Input
	budget  Budget
	level   func(second int) plugins.Level
	runs    time.Duration // each load
	ends    time.Time     // of the one that runs
	free    time.Time     // since when none does
	idle    time.Duration // the longest time in which none did although one could
	tickets int
	back    int // of them were taken back
}

func (n *single) second(s int) {
	n.in.Time = at(time.Duration(s) * time.Second)
	running := 0
	for i := range n.in.Loads {
		switch l := &n.in.Loads[i]; {
		case l.Phase == InProgress && n.in.Time.Before(n.ends):
			running++
		case l.Phase == InProgress:
			l.Phase, n.free = Completed, n.in.Time
		}
	}
	n.budget = n.budget.Next(NodePressure{Time: n.in.Time, Level: n.level(s), Configured: 1, Running: running, Why: "disk"})
	delete(n.in.Pressure, "n1")
	if p := n.budget.Pressure(n.in.Time); p != nil {
		n.in.Pressure["n1"] = *p
	}
	n.decide()
	if s%5 == 0 && running == 0 {
		n.start()
	}
}

// decide and write what was decided.
func (n *single) decide() {
	d := Decide(n.in)
	n.in.Holds = d.Holds
	for _, r := range d.Revoke {
		n.back++
		r.Load.Started = nil
	}
	for _, note := range d.Notes(n.in.Time) {
		note.Load.Note = note.Note
	}
	for i := range d.Start {
		n.tickets++
		d.Start[i].Started = &d.Start[i].Ticket
	}
}

// start the first that the gate lets, as the node-agent does.
func (n *single) start() {
	for i := range n.in.Loads {
		if l := &n.in.Loads[i]; l.Phase == Prepared && (!n.in.Time.Before(n.in.Holds["n1"]) || l.Started != nil) {
			l.Phase, n.ends = InProgress, n.in.Time.Add(n.runs)
			n.idle = max(n.idle, n.in.Time.Sub(n.free))
			return
		}
	}
}

func (n *single) done() bool {
	for i := range n.in.Loads {
		if n.in.Loads[i].Phase != Completed {
			return false
		}
	}
	return true
}

// queue so many loads that are prepared once the node has suffered for an hour,
// and let all run.
func (n *single) queue(loads int) {
	const before = 3600
	for s := range before {
		n.second(s)
	}
	n.free = at(before * time.Second)
	for i := range loads {
		n.in.Loads = append(n.in.Loads, load(fmt.Sprint("l", i), PodVolumeBackup, in(Prepared), on("n1"), func(l *Load) { l.PreparedAt = n.free }))
	}
	for s := before; !n.done() && s < 24*3600; s++ {
		n.second(s)
	}
}

// A ticket that Velero cannot use, because another load runs, only costs writes
// and the delay after it.
func TestSingleConcurrencyHoldBounded(t *testing.T) {
	const loads = 8
	for _, row := range []struct {
		name  string
		level func(second int) plugins.Level
		least time.Duration
	}{
		{"soft", func(int) plugins.Level { return plugins.Soft }, 0},
		{"hard", func(int) plugins.Level { return plugins.Hard }, 0},
		{"soft now and then, each time for longer", func(s int) plugins.Level { return plugins.Level(s / 30 % 2) }, MaxPreparedHold},
	} {
		for _, limit := range []int{0, loads} {
			for _, runs := range []time.Duration{30 * time.Second, 20 * time.Minute} {
				n := &single{in: world(limit, nodes(1, 1)), level: row.level, runs: runs}
				n.queue(loads)
				t.Logf("%s, limit %d, each runs %s: at most %s without one; %d tickets, %d taken back", row.name, limit, runs, n.idle, n.tickets, n.back)
				assert.True(t, n.done())
				assert.LessOrEqual(t, n.idle, MaxPreparedHold+5*time.Second, "and the node-agent's own 5 s")
				assert.GreaterOrEqual(t, n.idle, row.least)
				assert.LessOrEqual(t, n.tickets, loads)
				assert.Zero(t, n.back)
			}
		}
	}
}
