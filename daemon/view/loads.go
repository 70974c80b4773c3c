package view

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// Loads is what the agent does about Velero's data movers on its node.
type Loads struct {
	// DryRun: no budget is published, and nobody is slowed down.
	DryRun bool `json:"dryRun"`
	// Running movers: their pods are here.
	Running int `json:"running"`
	// Level of what they press: disks, network, memory. Absent is why it is not
	// known.
	Level  plugins.Level `json:"level"`
	Absent string        `json:"absent,omitempty"`
	// Budget is how many may run; absent where only Velero's own configuration
	// limits them. None starts before HoldUntil. Why, in words.
	Budget    *int      `json:"budget,omitempty"`
	HoldUntil time.Time `json:"holdUntil,omitzero"`
	Why       string    `json:"why,omitempty"`
	// Throttled movers, by cgroup and disk; nil: none.
	Throttled []Throttled `json:"throttled,omitempty"`
	// Problem is why the last change of limits did not come through in full.
	Problem string `json:"problem,omitempty"`
}

// Throttled is a mover that is slowed down, or in a dry run would be.
type Throttled struct {
	Cgroup string `json:"cgroup"`
	Name   string `json:"name"`
	// Disk that it may use less of; empty: of the CPU.
	Disk string `json:"disk,omitempty"`
	// Percent of what it used before, and what that is: bytes per second of a
	// disk, or cores.
	Percent int        `json:"percent"`
	May     vgdp.Rates `json:"may"`
	// Expires: whoever finds it later takes it away.
	Expires time.Time `json:"expires"`
	// Foreign: somebody else has set one of its limits since, which is left as it
	// is.
	Foreign bool `json:"foreign,omitempty"`
}

// Text is a mover that is slowed down, in a line.
func (t Throttled) Text() string {
	may := "CPU limited to " + Number(t.May.CPU) + " cores"
	if t.Disk != "" {
		may = Printable(t.Disk) + " limited to " + ByteRate(t.May.Read) + " read, " + ByteRate(t.May.Write) + " write"
	}
	text := Printable(t.Name) + ": " + may + ", " + Count(uint64(t.Percent)) + " % of its previous use"
	if t.Foreign {
		text += "; another program changed this limit since, it is left unchanged"
	}
	return text
}

// Text is the budget in a line.
func (l *Loads) Text() string {
	text := Count(uint64(l.Running)) + " running"
	if l.Budget != nil {
		text += ", budget " + Count(uint64(*l.Budget))
	}
	if !l.HoldUntil.IsZero() {
		text += ", start hold until " + Clock(l.HoldUntil) + " UTC"
	}
	if n := len(l.Throttled); n > 0 {
		text += ", " + Count(uint64(n)) + " throttled"
	}
	if l.DryRun {
		text += " (dry run: budget not published, no mover throttled)"
	}
	return text
}
