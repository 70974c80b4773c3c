package plugins

import (
	"reflect"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// Set asks the inner plugins, once per tick, and remembers their verdicts.
type Set struct {
	config   Config
	inners   []Inner
	started  time.Duration // monotonic, of the first snapshot
	since    time.Duration // monotonic, since this configuration is in force
	previous map[string][]Verdict
	usual    Baselines
	begun    bool
	warm     bool // from the start
}

// NewSet is a Set for a configuration that goes on with what another has
// learned.
func NewSet(c Config, usual Baselines) *Set {
	return &Set{config: c, inners: Inners(c), previous: map[string][]Verdict{}, usual: usual.Clone()}
}

// SetOf is a Set of one plugin, whatever it is; Configure is not for it.
func SetOf(p Inner, usual Baselines) *Set {
	return &Set{inners: []Inner{p}, previous: map[string][]Verdict{}, usual: usual.Clone()}
}

// Usual is what has been learned of the disks, to be given to the next Set.
func (s *Set) Usual() Baselines { return s.usual.Clone() }

// Configure puts a changed configuration in force: all timers start anew, as
// if the rules had never been met.
func (s *Set) Configure(c Config) {
	if reflect.DeepEqual(c, s.config) {
		return
	}
	s.config, s.inners = c, Inners(c)
	s.previous = map[string][]Verdict{}
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
	view := View{Snapshot: snap, Monotonic: now, Since: s.since, WarmingUp: s.warmingUp(snap, now), Usual: s.usual}
	l := &Levels{Time: snap.Time}
	for _, p := range s.inners {
		view.Previous = s.previous[p.Name()]
		verdicts := p.Threshold(view)
		for i := range verdicts {
			v := &verdicts[i]
			was := view.Was(v.Scope)
			v.Plugin, v.Since = p.Name(), was.Since
			if was.Plugin == "" || was.Level != v.Level {
				v.Since = snap.Time
			}
			if v.Level > None && v.Absent == "" {
				v.Candidates = p.Top(view, *v, MaxCandidates)
			}
		}
		s.previous[p.Name()] = verdicts
		l.Verdicts = append(l.Verdicts, verdicts...)
	}
	s.usual.learn(snap, l)
	return l
}

// Warm tells that the agent has run for long when the first snapshot comes: of
// the warm-up only that of a node that has just booted is left.
func (s *Set) Warm() { s.warm = true }

func (s *Set) warmingUp(snap *probes.Snapshot, now time.Duration) bool {
	return !s.warm && now-s.started < s.config.WarmUp || snap.UptimeSeconds < s.config.WarmUp.Seconds()
}
