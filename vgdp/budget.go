package vgdp

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// The pace of a Budget.
const (
	// ShrinkSoft and ShrinkHard are how long a smaller budget is given to show its
	// effect before it shrinks again.
	ShrinkSoft = 30 * time.Second
	ShrinkHard = 10 * time.Second
	// Grow is how long there must be no pressure before one more load may run, and
	// then again before the next.
	Grow = time.Minute
	// HoldStep is what each hold is longer than the one before, up to LongestHoldOff;
	// after Forget without pressure it is one step shorter again.
	HoldStep       = 10 * time.Second
	LongestHoldOff = 2 * time.Minute
	Forget         = 5 * time.Minute
)

// Budget is how many loads a node may run, as its pressure allows. The zero
// value is that of a node that suffers nothing. It is all that is remembered.
type Budget struct {
	// Places for loads; 0: as many as are configured.
	Places int `json:"places,omitempty"`
	// HoldUntil: none starts before, so that one that has just started shows what
	// it does. Hold is how long that was.
	HoldUntil time.Time     `json:"holdUntil,omitzero"`
	Hold      time.Duration `json:"hold,omitempty"`
	// Level that was seen last.
	Level plugins.Level `json:"level"`
	// Changed is when Places did, ClearSince since when there is no pressure, and
	// Forgot when Hold was last shortened.
	Changed    time.Time `json:"changed,omitzero"`
	ClearSince time.Time `json:"clearSince,omitzero"`
	Forgot     time.Time `json:"forgot,omitzero"`
	// Why, in words.
	Why string `json:"why,omitempty"`
}

// Strain is what a node suffers at one moment.
type Strain struct {
	Time time.Time
	// Level of what data movers press: disks, network, memory. Absent is why it is
	// not known; then nothing shrinks, and nothing grows.
	Level  plugins.Level
	Absent string
	Why    string
	// Configured is how many loads all Veleros run there at most, Running how many
	// do.
	Configured, Running int
}

// NewStrain of what the inner plugins said.
func NewStrain(l *plugins.Levels) Strain {
	s := Strain{Time: l.Time, Absent: "no plugin judges disks, network or memory"}
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		if v.Resource != plugins.Disk && v.Resource != plugins.NetworkIO && v.Resource != plugins.Memory {
			continue
		}
		switch why := unseen(v); {
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

// unseen is why it is not known whether there is pressure. A level is seen, also
// where the plugin cannot tell by whom.
func unseen(v *plugins.Verdict) string {
	switch {
	case v.Level > plugins.None:
		return ""
	case v.Absent == "" && v.Partial:
		return "some rules cannot judge yet: the agent or the node has just started"
	}
	return v.Absent
}

// Next budget, after what is seen now.
func (b Budget) Next(s Strain) Budget {
	if b.Changed.After(s.Time) { // the clock was set: else it would last until then
		b = Budget{}
	}
	switch {
	case s.Level > plugins.None:
		b = b.press(s)
		b.Why = s.Why
	case s.Absent != "":
		b.ClearSince = time.Time{}
		return b
	default:
		b = b.relieve(s)
	}
	b.Level = s.Level
	return b
}

func (b Budget) press(s Strain) Budget {
	b.ClearSince = time.Time{}
	rose := s.Level > b.Level
	places := b.Places
	if places == 0 || places > s.Configured {
		places = s.Configured
	}
	pause := ShrinkSoft
	if s.Level == plugins.Hard {
		pause = ShrinkHard
	}
	switch {
	case b.Level == plugins.None: // as many as run: nothing new
		places = min(places, s.Running)
	case rose:
		places /= 2
	case s.Time.Sub(b.Changed) >= pause:
		places--
	}
	if places = max(Floor, places); places != b.Places {
		b.Places, b.Changed = places, s.Time
	}
	// Where nothing runs, one may start when the hold is over: backups stay alive.
	if rose || !s.Time.Before(b.HoldUntil) && s.Running >= Floor {
		b.Hold = min(b.Hold+HoldStep, LongestHoldOff)
		b.HoldUntil = s.Time.Add(b.Hold)
	}
	return b
}

func (b Budget) relieve(s Strain) Budget {
	if b.ClearSince.IsZero() || b.Level > plugins.None {
		b.ClearSince, b.Forgot = s.Time, s.Time
		if b.Changed.Before(s.Time) {
			b.Changed = s.Time
		}
	}
	for ; b.Hold > 0 && s.Time.Sub(b.Forgot) >= Forget; b.Forgot = b.Forgot.Add(Forget) {
		b.Hold -= HoldStep
	}
	for ; b.Places > 0 && s.Time.Sub(b.Changed) >= Grow; b.Changed = b.Changed.Add(Grow) {
		if b.Places++; b.Places >= s.Configured {
			b.Places, b.Why = 0, ""
		}
	}
	return b
}

// Pressure that others are told; nil: none.
func (b Budget) Pressure(now time.Time) *Pressure {
	p := &Pressure{Why: b.Why}
	if b.Places > 0 {
		p.Budget = new(b.Places)
	}
	if now.Before(b.HoldUntil) {
		p.HoldUntil = b.HoldUntil
	}
	if p.Budget == nil && p.HoldUntil.IsZero() {
		return nil
	}
	return p
}
