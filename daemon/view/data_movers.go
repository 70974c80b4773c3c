package view

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// DataMovers is the state of Velero's data movers on the agent's node.
type DataMovers struct {
	// DryRun: the data mover budget is not published, and no mover is throttled.
	DryRun bool `json:"dryRun"`
	// Running counts the movers whose pods are on this node.
	Running int `json:"running"`
	// Level of the resources that movers use: disks, network, memory. Absent is
	// why it is unknown.
	Level  plugins.Level `json:"level"`
	Absent string        `json:"absent,omitempty"`
	// Budget is the data mover budget; absent where only Velero's configuration
	// limits them. StartHoldUntil is the end of the start hold. Why is the reason for
	// both.
	Budget         *int      `json:"budget,omitempty"`
	StartHoldUntil time.Time `json:"holdUntil,omitzero"`
	Reason         string    `json:"why,omitempty"`
	// Throttled movers, by cgroup and disk; nil: none.
	Throttled []Throttled `json:"throttled,omitempty"`
	// Problem is why the last change of limits failed, also in part.
	Problem string `json:"problem,omitempty"`
}

// Throttled is a mover with a limit, which a dry run does not apply.
type Throttled struct {
	Cgroup string `json:"cgroup"`
	Name   string `json:"name"`
	// Disk whose use is limited; empty: the CPU's.
	Disk string `json:"disk,omitempty"`
	// Percent of its previous use, and May is the limit: bytes per second of a
	// disk, or cores.
	Percent int        `json:"percent"`
	Limit   vgdp.Rates `json:"may"`
	// Expires: an agent that finds the limit later removes it.
	Expires time.Time `json:"expires"`
	// Foreign: another program changed one of the limits since; that one is left
	// unchanged.
	Foreign bool `json:"foreign,omitempty"`
}

// Text is a throttled mover in one line.
func (t Throttled) Text() string {
	may := "CPU limited to " + Number(t.Limit.CPU) + " cores"
	if t.Disk != "" {
		may = Printable(t.Disk) + " limited to " + ByteRate(t.Limit.Read) + " read, " + ByteRate(t.Limit.Write) + " write"
	}
	text := Printable(t.Name) + ": " + may + ", " + Count(uint64(t.Percent)) + " % of its previous use"
	if t.Foreign {
		text += "; another program changed this limit since, it is left unchanged"
	}
	return text
}

// Text is running movers, budget, start hold and throttled movers in one line.
func (l *DataMovers) Text() string {
	text := Count(uint64(l.Running)) + " running"
	if l.Budget != nil {
		text += ", budget " + Count(uint64(*l.Budget))
	}
	if !l.StartHoldUntil.IsZero() {
		text += ", start hold until " + Clock(l.StartHoldUntil) + " UTC"
	}
	if n := len(l.Throttled); n > 0 {
		text += ", " + Count(uint64(n)) + " throttled"
	}
	if l.DryRun {
		text += " (dry run: budget not published, no mover throttled)"
	}
	return text
}
