package plugins

import (
	"reflect"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Set runs the inner plugins once per tick and stores their verdicts for the next.
type Set struct {
	config     Config
	inners     []Inner
	started    time.Duration // monotonic, of the first snapshot
	since      time.Duration // monotonic, when this configuration came into force
	previous   map[string][]Verdict
	baselines  Baselines
	begun      bool
	skipWarmUp bool // no warm-up after the start of the agent

	watches    diskWatches
	capacities []DiskCapacity // of the last snapshot
}

// NewSet is a Set for a configuration, with the baselines that were learned before.
func NewSet(c Config, usual Baselines) *Set {
	return &Set{config: c, inners: Inners(c), previous: map[string][]Verdict{}, baselines: usual.Clone(), watches: diskWatches{}}
}

// SetOf is a Set of one plugin; Configure must not be called.
func SetOf(p Inner, usual Baselines) *Set {
	return &Set{inners: []Inner{p}, previous: map[string][]Verdict{}, baselines: usual.Clone(), watches: diskWatches{}}
}

// Baselines returns the learned baselines, for the next Set.
func (s *Set) Baselines() Baselines { return s.baselines.Clone() }

// Configure applies a changed configuration: all timers and latched levels are
// reset.
func (s *Set) Configure(c Config) {
	if reflect.DeepEqual(c, s.config) {
		return
	}
	s.config, s.inners = c, Inners(c)
	s.previous = map[string][]Verdict{}
	s.since = -1
}

// MaxCandidates bounds the candidates of a verdict. It is as large as the number of
// workloads of a node, since the first ones may all be protected.
const MaxCandidates = 1000

// Judge runs every plugin on a snapshot.
func (s *Set) Judge(snap *snapshot.Snapshot) *Levels {
	now := snap.Monotonic()
	if !s.begun {
		s.begun, s.started, s.since = true, now, now
	}
	if s.since < 0 {
		s.since = now
	}
	view := View{Snapshot: snap, Monotonic: now, Since: s.since, WarmingUp: s.warmingUp(snap, now), Baselines: s.baselines, Capacities: s.capacities}
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
	s.baselines.learn(snap, l)
	s.capacities = s.watches.learn(snap, s.baselines)
	l.Disks = s.capacities
	return l
}

// SkipWarmUp skips the warm-up after the start of the agent; that after the boot of the
// node remains.
func (s *Set) SkipWarmUp() { s.skipWarmUp = true }

func (s *Set) warmingUp(snap *snapshot.Snapshot, now time.Duration) bool {
	return !s.skipWarmUp && now-s.started < s.config.WarmUp || snap.UptimeSeconds < s.config.WarmUp.Seconds()
}
