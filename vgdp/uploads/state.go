package uploads

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// State is what is known of the data mover loads of one Velero at one moment.
type State struct {
	Time time.Time
	// Loads that have not ended, in the order in which they go on: before those that wait
	// are those that have a slot.
	Loads []Load
	// Nodes where they may run, by name.
	Nodes map[string]Node
	// Slots of prepareQueueLength; 0: no limit.
	Slots int
	// Ended are those that are Completed.
	Ended []Ended
	// Sizes of Backups, by name; of those that have ended too.
	Sizes map[string]Size
}

// Volume that a load moves.
type Volume struct {
	Kind                    names.MoverKind
	Namespace, Name, Volume string
}

// Stage of a load that has not ended.
type Stage uint8

// The stages.
const (
	Waits    Stage = iota // for a slot or a place
	Prepares              // it has a slot of prepareQueueLength
	Runs
)

// Load is a data mover load that has not ended.
type Load struct {
	Volume

	// Backup that it is part of; empty: a restore.
	Backup string
	Stage  Stage
	// Since when it prepares or runs; zero: unknown.
	Since time.Time
	// Nodes where it may run, or the one where it is; none: none is possible. Loads that
	// share the slice are placed together.
	Nodes []string
	// Done of Total bytes.
	Done, Total int64
	// Code is why it waits; empty: it does not. From is until when it waits in any case, and
	// HeldUntil until when pressure may hold it; zero: not at all.
	Code            vgdp.Code
	From, HeldUntil time.Time
	// Cancelled is when Velero cancels it.
	Cancelled time.Time
}

// Node is what bounds the loads of one Velero on a node.
type Node struct {
	// Places for loads that run, as configured.
	Places int
	// Pressed: it is under pressure, and no more than Allowed run, none before HoldUntil.
	Pressed   bool
	Allowed   int
	HoldUntil time.Time
}

// allowed is how many loads pressure allows at a time.
func (n *Node) allowed(at time.Time) int {
	switch {
	case !n.Pressed:
		return n.Places
	case at.Before(n.HoldUntil):
		return 0
	}
	return min(n.Allowed, n.Places)
}

// Ended is a load that is Completed.
type Ended struct {
	Volume

	Accepted, Started, Completed time.Time // zero: unknown
}

// Size of the loads of a Backup.
type Size struct {
	// Total bytes, and New ones since the Backup before. Velero 1.18 leaves out a number that
	// is 0, and earlier ones have none of new bytes: where New is 0 it is not known.
	Total, New int64
	// Open loads have not ended, and of Unknown ones no total is known yet.
	Open, Unknown int
}

// mostBytes bounds a sum: numbers are written by data movers.
const mostBytes = 1 << 60

// Add a load of so many bytes, and so many new ones.
func (s *Size) Add(ended bool, total, fresh int64) {
	total = min(max(0, total), mostBytes)
	fresh = min(max(0, fresh), total)
	if !ended {
		s.Open++
		if total == 0 {
			s.Unknown++
		}
	}
	s.Total, s.New = min(s.Total+total, mostBytes), min(s.New+fresh, mostBytes)
}

// Future of the loads of one Backup.
type Future struct {
	// Ends is when the last of them ends, and Frees when the last does that the Backup keeps
	// its slot for; zero: there is none.
	Ends, Frees time.Time
	// Last is the one that ends last, and Now when the play begins.
	Last Last
	Now  time.Time
}

// Last is the load of a Backup that ends last.
type Last struct {
	Stage Stage
	Code  vgdp.Code
	// Node is the one where it runs in the play, or a pressed one of its Nodes; empty: none.
	Node    string
	Nodes   int
	Pressed bool // all of its nodes are, now
	// Before is how many that wait begin before it, on its node, or, where it waits for a
	// slot, on any.
	Before int
	From   time.Time
}

// Because is why it ends so late, for people.
func (f *Future) Because() string {
	l := &f.Last
	before := fmt.Sprintf("%d uploads wait before it", l.Before)
	if l.Before == 1 {
		before = "1 upload waits before it"
	}
	switch {
	case l.Stage != Waits:
		text := "one of its uploads takes " + problems.Minutes(f.Ends.Sub(f.Now)) + " more"
		if l.Pressed {
			text += " on node " + l.Node + ", which is pressed"
		}
		return text
	case l.Nodes == 0:
		return "no node can run one of its uploads, which Velero cancels then"
	case l.Code == vgdp.CodePostponed:
		return "one of its uploads is postponed until " + l.From.UTC().Format(time.RFC3339)
	}
	where := "node " + l.Node + " is pressed"
	if l.Nodes > 1 {
		where = fmt.Sprintf("all %d nodes where one of its uploads can run are pressed, such as %s", l.Nodes, l.Node)
	}
	switch {
	case l.Pressed && l.Before > 0:
		return where + " and " + before
	case l.Pressed:
		return where
	case l.Code == vgdp.CodeLimit && l.Before > 0:
		return "all slots of prepareQueueLength are taken and " + before
	case l.Before > 0:
		return "as many run on node " + l.Node + " as may and " + before
	}
	return "one of its uploads waits for node " + l.Node
}
