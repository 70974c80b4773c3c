package evict

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Flapping is the flap backoff (exponential backoff) of a taint that comes and
// goes: each change moves pods.
type Flapping struct {
	Minimum time.Duration `yaml:"minimum" why:"The shortest time that a taint stays on, and a soft one off; doubled each time that the taint comes back (exponential backoff). A hard taint is set at once, because an eviction needs it."`
	Maximum time.Duration `yaml:"maximum" why:"The upper bound of the doubling. After this time without the taint the backoff is reset."`
}

// least is how long a taint that came back so many times stays on, or off.
func (f Flapping) least(flaps int) time.Duration {
	return min(f.Maximum, f.Minimum<<min(flaps, 10))
}

// wear updates the taint of a condition. level includes the transition period.
func (s Seen) wear(level plugins.Level, now time.Time, f Flapping) Seen {
	s.On, s.Off = earlier(s.On, now), earlier(s.Off, now) // a clock that was set back
	least := f.least(s.Flaps)
	switch {
	case level > plugins.None && s.Worn > plugins.None:
		s.Worn = level
	case level > plugins.None:
		if level < plugins.Hard && now.Before(s.Off.Add(least)) {
			return s
		}
		flaps := 0
		if now.Sub(s.Off) < f.Maximum {
			flaps = s.Flaps + 1
		}
		s.On, s.Worn, s.Flaps = now, level, flaps
	case s.Worn > plugins.None && !now.Before(s.On.Add(least)):
		s.Off, s.Worn = now, plugins.None
	}
	return s
}

// forgotten reports whether the condition's state can be dropped.
func (s Seen) forgotten(level plugins.Level, now time.Time, f Flapping) bool {
	return level == plugins.None && s.Worn == plugins.None && now.Sub(s.Off) >= f.Maximum
}
