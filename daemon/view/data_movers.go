package view

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// DataMovers is the state of Velero's data movers on the agent's node.
type DataMovers struct {
	// DryRun: the data mover budget is not published, and no mover is throttled.
	DryRun bool `json:"dryRun"`
	// Running counts the movers whose pods are on this node, in protected namespaces.
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
	// Problem is why the budget could not be saved.
	Problem string `json:"problem,omitempty"`
}

// Text is running movers, budget and start hold in one line.
func (l *DataMovers) Text() string {
	text := Count(uint64(l.Running)) + " running"
	if l.Budget != nil {
		text += ", budget " + Count(uint64(*l.Budget))
	}
	if !l.StartHoldUntil.IsZero() {
		text += ", start hold until " + Clock(l.StartHoldUntil) + " UTC"
	}
	if l.DryRun {
		text += " (dry run: budget not published, no mover throttled)"
	}
	return text
}
