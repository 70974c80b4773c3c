package vgdp

import "time"

// ForeseeWithin is how soon no memory must be expected to be available for a start hold:
// a data mover load that starts takes some of it.
const ForeseeWithin = 2 * time.Minute

// Foreseen is a start hold for an exhaustion of memory that is only expected. Any pod can
// bring one about by taking memory and releasing it again, so a series of them lasts no
// longer than MaxStartHold, and the next may begin after HoldDecay without one.
type Foreseen struct {
	// Since is when the series began, Until when the newest hold of it ends.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// foresee holds the start of further loads while memory is about to be exhausted. What
// runs is left alone, and the limit too: nothing is under pressure yet.
func (b Budget) foresee(s NodePressure) Budget {
	e, shrinks := s.Exhaustion.Get()
	switch {
	case !shrinks || e.Seconds > ForeseeWithin.Seconds():
		if b.Foreseen != (Foreseen{}) && s.Time.Sub(b.Foreseen.Until) >= HoldDecay {
			b.Foreseen = Foreseen{}
		}
		return b
	case b.Foreseen == (Foreseen{}):
		b.Foreseen.Since = s.Time
	}
	// While a series goes on past its end, its end still moves: one that never stops is
	// never followed by another.
	b.Foreseen.Until = s.Time
	if s.Time.Sub(b.Foreseen.Since) >= MaxStartHold {
		return b
	}
	b.Foreseen.Until = s.Time.Add(HoldStep)
	if b.HoldUntil.Before(b.Foreseen.Until) {
		b.HoldUntil, b.Why = b.Foreseen.Until, "memory is about to be exhausted: "+e.String()
	}
	return b
}
