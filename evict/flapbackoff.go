package evict

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/backoff"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// FlapBackoff is the flap backoff (exponential backoff) of a taint that comes and
// goes: each change moves pods.
type FlapBackoff struct {
	Minimum time.Duration `yaml:"minimum" why:"The shortest time that a taint stays on, and a soft one off; doubled each time that the taint comes back (exponential backoff). A hard taint is set at once, because an eviction needs it."`
	Maximum time.Duration `yaml:"maximum" why:"The upper bound of the doubling. After this time without the taint the backoff is reset."`
}

// Validate says which values must not be used.
func (f FlapBackoff) Validate(at problems.Section) {
	at.Duration("minimum", f.Minimum, 0, problems.MaxDuration)
	at.Duration("maximum", f.Maximum, 0, problems.MaxDuration)
	at.AtLeast(problems.Period{Key: "maximum", Value: f.Maximum}, problems.Period{Key: "minimum", Value: f.Minimum}, 1)
}

// duration is how long a taint that came back so many times stays on, or off.
func (f FlapBackoff) duration(flaps int) time.Duration {
	return backoff.Exponential{First: f.Minimum, Longest: f.Maximum}.Doubled(flaps)
}

// updateTaint updates the taint of a condition. level includes the transition period.
func (s MarkState) updateTaint(level plugins.Level, now time.Time, f FlapBackoff) MarkState {
	s.TaintedAt, s.UntaintedAt = earlier(s.TaintedAt, now), earlier(s.UntaintedAt, now) // a clock that was set back
	least := f.duration(s.Flaps)
	switch {
	case level > plugins.None && s.TaintLevel > plugins.None:
		s.TaintLevel = level
	case level > plugins.None:
		if level < plugins.Hard && now.Before(s.UntaintedAt.Add(least)) {
			return s
		}
		flaps := 0
		if now.Sub(s.UntaintedAt) < f.Maximum {
			flaps = s.Flaps + 1
		}
		s.TaintedAt, s.TaintLevel, s.Flaps = now, level, flaps
	case s.TaintLevel > plugins.None && !now.Before(s.TaintedAt.Add(least)):
		s.UntaintedAt, s.TaintLevel = now, plugins.None
	}
	return s
}

// expired reports whether the condition's state can be dropped.
func (s MarkState) expired(level plugins.Level, now time.Time, f FlapBackoff) bool {
	return level == plugins.None && s.TaintLevel == plugins.None && now.Sub(s.UntaintedAt) >= f.Maximum
}
