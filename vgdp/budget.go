package vgdp

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// The control parameters of a Budget.
const (
	// ShrinkCooldownSoft and ShrinkCooldownHard are the cooldown after a decrease: how long its effect is
	// awaited before the next.
	ShrinkCooldownSoft = 30 * time.Second
	ShrinkCooldownHard = 10 * time.Second
	// GrowInterval is how long there must be no pressure before each increase by one load.
	GrowInterval = time.Minute
	// HoldStep is the additive backoff of start holds: each is longer than the one before
	// by it, up to MaxStartHold, and one step shorter again after each Forget without
	// pressure.
	HoldStep     = 10 * time.Second
	MaxStartHold = 2 * time.Minute
	HoldDecay    = 5 * time.Minute
)

// Budget is how many data mover loads a node may run, as its pressure allows: additive
// increase, multiplicative decrease. The zero value is that of a node without pressure.
// It is the whole state.
type Budget struct {
	// Limit for data mover loads; 0: as many as are configured.
	Limit int `json:"places,omitempty"`
	// HoldUntil ends the start hold: a load that has just started must show its effect
	// first. Hold is the length of that hold.
	HoldUntil time.Time     `json:"holdUntil,omitzero"`
	Hold      time.Duration `json:"hold,omitempty"`
	// Level of the last update.
	Level plugins.Level `json:"level"`
	// Changed is when Places last changed, ClearSince since when there is no pressure, and
	// Forgot when Hold was last shortened.
	Changed    time.Time `json:"changed,omitzero"`
	ClearSince time.Time `json:"clearSince,omitzero"`
	Decayed    time.Time `json:"forgot,omitzero"`
	// Foreseen is what was foreseen last.
	Foreseen Foreseen `json:"foreseen,omitzero"`
	// Why, in words.
	Why string `json:"why,omitempty"`
}

// NodePressure is a node's pressure at one moment, as data movers cause it.
type NodePressure struct {
	Time time.Time
	// Level of disks, network and memory. Absent is why it is unknown; then the budget
	// neither shrinks nor grows.
	Level  plugins.Level
	Absent string
	Why    string
	// Exhaustion is when no memory will be available; absent where it does not shrink.
	Exhaustion snapshot.Opt[snapshot.Exhaustion]
	// AtKnee is a disk that is busy with all that it carries, with considerable use by movers;
	// empty: none is.
	AtKnee string
	// Configured is how many loads all Veleros may run there, Running how many do.
	Configured, Running int
}

// NewNodePressure is the highest level of the inner plugins for disks, network and memory.
func NewNodePressure(l *plugins.Levels) NodePressure {
	s := NodePressure{Time: l.Time, Absent: "no plugin judges disks, network or memory"}
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		if v.PerWorkload || v.Resource != plugins.Disk && v.Resource != plugins.NetworkIO && v.Resource != plugins.Memory {
			continue
		}
		switch why := v.NotJudged(); {
		case why == "":
			s.Absent = ""
		case s.Absent != "":
			s.Absent = why
		}
		if v.Level > s.Level {
			s.Level, s.Why = v.Level, fmt.Sprintf("%s %s on %s: %s", v.Resource, v.Level, v.Scope, v.Reason)
		}
	}
	return s
}

// Next is the budget after the pressure at s.Time.
func (b Budget) Next(s NodePressure) Budget {
	if b.Changed.After(s.Time) || b.HoldUntil.After(s.Time.Add(MaxStartHold)) || b.Foreseen.Until.After(s.Time.Add(HoldStep)) { // the clock was set back: reset, or it would last until then
		b = Budget{}
	}
	switch {
	case s.Level > plugins.None:
		b = b.shrink(s)
		b.Why = s.Why
	case s.Absent != "":
		b.ClearSince = time.Time{}
		return b
	default:
		b = b.grow(s).foresee(s)
	}
	b.Level = s.Level
	return b
}

func (b Budget) shrink(s NodePressure) Budget {
	b.ClearSince = time.Time{}
	rose := s.Level > b.Level
	places := b.Limit
	if places == 0 || places > s.Configured {
		places = s.Configured
	}
	pause := ShrinkCooldownSoft
	if s.Level == plugins.Hard {
		pause = ShrinkCooldownHard
	}
	switch {
	case b.Level == plugins.None: // pressure begins: no more than run now
		places = min(places, s.Running)
	case rose:
		places /= 2
	case s.Time.Sub(b.Changed) >= pause:
		places--
	}
	if places = max(MinBudget, places); places != b.Limit {
		b.Limit, b.Changed = places, s.Time
	}
	// Where nothing runs, one may start when the hold ends, so that backups progress.
	if rose || !s.Time.Before(b.HoldUntil) && s.Running >= MinBudget {
		b.Hold = min(b.Hold+HoldStep, MaxStartHold)
		b.HoldUntil = s.Time.Add(b.Hold)
	}
	return b
}

func (b Budget) grow(s NodePressure) Budget {
	if b.ClearSince.IsZero() || b.Level > plugins.None {
		b.ClearSince, b.Decayed = s.Time, s.Time
		if b.Changed.Before(s.Time) {
			b.Changed = s.Time
		}
	}
	for ; b.Hold > 0 && s.Time.Sub(b.Decayed) >= HoldDecay; b.Decayed = b.Decayed.Add(HoldDecay) {
		b.Hold -= HoldStep
	}
	if b.Limit > 0 && s.AtKnee != "" { // one more load gets no more done, and waits with the others
		b.Changed, b.Why = s.Time, s.AtKnee+" is busy with all that it carries; the budget does not grow meanwhile"
	}
	for ; b.Limit > 0 && s.Time.Sub(b.Changed) >= GrowInterval; b.Changed = b.Changed.Add(GrowInterval) {
		if b.Limit++; b.Limit >= s.Configured {
			b.Limit, b.Why = 0, ""
		}
	}
	return b
}

// Pressure is what the agent publishes; nil: none.
func (b Budget) Pressure(now time.Time) *Pressure {
	p := &Pressure{Why: b.Why}
	if b.Limit > 0 {
		p.Budget = new(b.Limit)
	}
	if now.Before(b.HoldUntil) {
		p.HoldUntil = b.HoldUntil
	}
	if p.Budget == nil && p.HoldUntil.IsZero() {
		return nil
	}
	return p
}
