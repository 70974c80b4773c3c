package plugins

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// Set asks the inner plugins, once per tick, and remembers their verdicts.
type Set struct {
	config   Config
	inners   []Inner
	started  time.Duration // monotonic, of the first snapshot
	since    time.Duration // monotonic, since this configuration is in force
	previous map[string]Verdict
	begun    bool
}

// NewSet is a Set for a configuration.
func NewSet(c Config) *Set {
	return &Set{config: c, inners: Inners(c), previous: map[string]Verdict{}}
}

// Configure puts a changed configuration in force: all timers start anew, as
// if the rules had never been met.
func (s *Set) Configure(c Config) {
	if c == s.config {
		return
	}
	s.config, s.inners = c, Inners(c)
	s.previous = map[string]Verdict{}
	s.since = -1
}

// MaxCandidates a plugin may name: as many as a node has workloads, for those
// named first may all be protected.
const MaxCandidates = 1000

// Judge asks every plugin about a snapshot.
func (s *Set) Judge(snap *probes.Snapshot) *Levels {
	now := snap.Monotonic()
	if !s.begun {
		s.begun, s.started, s.since = true, now, now
	}
	if s.since < 0 {
		s.since = now
	}
	view := View{Snapshot: snap, Monotonic: now, Since: s.since, WarmingUp: s.warmingUp(snap, now)}
	l := &Levels{Time: snap.Time}
	for _, p := range s.inners {
		view.Previous = s.previous[p.Name()]
		v := p.Threshold(view)
		v.Plugin = p.Name()
		v.Since = view.Previous.Since
		if view.Previous.Plugin == "" || view.Previous.Level != v.Level {
			v.Since = snap.Time
		}
		if v.Level > None && v.Absent == "" {
			v.Candidates = p.Top(view, MaxCandidates)
		}
		s.previous[p.Name()] = v
		l.Verdicts = append(l.Verdicts, v)
	}
	return l
}

func (s *Set) warmingUp(snap *probes.Snapshot, now time.Duration) bool {
	return now-s.started < s.config.WarmUp || snap.UptimeSeconds < s.config.WarmUp.Seconds()
}
