package advise

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Alarms are the times at which a level was on, each counted in exactly one
// class, as far as a recording tells. One that is still on at the end is in none:
// how long it lasts, and what comes of it, is not known.
type Alarms struct {
	Times          uint64  `json:"times"`
	Seconds        float64 `json:"seconds"`
	LongestSeconds float64 `json:"longestSeconds"`
	// Ongoing: still on at the end, for OngoingSeconds until then.
	Ongoing        bool    `json:"ongoing,omitempty"`
	OngoingSeconds float64 `json:"ongoingSeconds,omitempty"`
	// OOMKilled: an OOM kill meanwhile, or in the minute after.
	OOMKilled uint64 `json:"oomKilled"`
	// Real: real, with contention; where it is not known who waits, it lasted and was
	// well beyond the threshold.
	Real uint64 `json:"real"`
	// False alarms: NoContention (it is known that no workload waited because of
	// others), Brief (its rule was met for less than ten seconds), or Marginal (the
	// threshold was exceeded by less than a tenth).
	NoContention uint64 `json:"falseNoContention"`
	Brief        uint64 `json:"falseBrief"`
	Marginal     uint64 `json:"falseMarginal"`
}

// False is how many of them were false, as far as a recording tells.
func (a Alarms) False() uint64 { return a.NoContention + a.Brief + a.Marginal }

const (
	brief     = 10 * time.Second
	marginal  = 1.1
	maxScopes = 1000
)

type alarmKey struct {
	plugin, scope string
	level         plugins.Level
}

// alarms of each plugin, scope and level.
type alarms struct {
	list map[alarmKey]*alarmRecord
}

type alarmRecord struct {
	Alarms
	on             bool
	seconds        float64 // of the present alarm
	metSeconds     float64 // the part in which the rule was met
	worst          float64 // largest ratio to the threshold
	killed         bool
	contention     bool // at some moment
	unknown        bool // at some moment the kernel did not tell who waits
	sufferersKnown bool // at every moment, if the rule is about waiting
	ended          *time.Duration
}

func (a *alarms) watch(m replay.Moment, killed bool) {
	if a.list == nil {
		a.list = map[alarmKey]*alarmRecord{}
	}
	said := map[*alarmRecord]bool{}
	for i := range m.Levels.Verdicts {
		v := &m.Levels.Verdicts[i]
		for level := plugins.Soft; level <= v.Level; level++ {
			if s := a.of(alarmKey{v.Plugin, v.Scope, level}); s != nil {
				said[s] = true
				s.watch(m, v, level)
			}
		}
	}
	for k, s := range a.list {
		s.pass(m.Offset, said[s], killed && k.plugin == "memory-stall")
	}
}

// pass updates whether the level is on. An alarm that ended is counted a minute
// later, when OOM kills after it are known.
func (s *alarmRecord) pass(now time.Duration, on, killed bool) {
	s.killed = s.killed || s.on && killed
	if s.on && !on && s.ended == nil {
		s.ended = &now
	}
	if s.ended != nil && now-*s.ended > harmWindow {
		s.close()
	}
}

func (a *alarms) of(k alarmKey) *alarmRecord {
	s := a.list[k]
	if s == nil && len(a.list) < maxScopes {
		s = &alarmRecord{}
		a.list[k] = s
	}
	return s
}

// watch takes a moment at which the level is on.
func (s *alarmRecord) watch(m replay.Moment, v *plugins.Verdict, level plugins.Level) {
	if s.ended != nil {
		s.close()
	}
	if s.on && !m.Gap {
		s.seconds += m.Step.Seconds()
		if v.MetLevel >= level {
			s.metSeconds += m.Step.Seconds()
		}
	}
	s.on = true
	s.worst = max(s.worst, excess(v))
	if v.PerWorkload { // who waits is not its subject
		return
	}
	switch v.Resource {
	case plugins.Memory:
		s.contended(stateOf(m, snapshot.SharedMemory, ""))
	case plugins.Disk:
		s.contended(stateOf(m, snapshot.SharedDisk, v.Scope))
	case plugins.NetworkIO, plugins.Filesystem, plugins.CPU: // nothing is known of their sufferers
	}
}

// contended takes whether workloads wait at a moment. One at which that is unknown leaves
// open whether any waited.
func (s *alarmRecord) contended(state snapshot.ContentionState) {
	s.contention = s.contention || state == snapshot.ContentionPresent
	s.unknown = s.unknown || state == snapshot.ContentionUnknown
	s.sufferersKnown = !s.unknown
}

// excess is the ratio of the observed value to its threshold.
func excess(v *plugins.Verdict) float64 {
	is, ok1 := v.Observed.Get()
	line, ok2 := v.Threshold.Get()
	switch {
	case !ok1 || !ok2 || is == 0 || line == 0:
		return 0
	case v.Operator == "<" || v.Operator == "<=":
		return line / is
	}
	return is / line
}

// end is the end of the recording.
func (s *alarmRecord) end() {
	if !s.on || s.ended != nil {
		s.close()
		return
	}
	s.Ongoing, s.OngoingSeconds = true, s.seconds
	*s = alarmRecord{Alarms: s.Alarms}
}

// close counts the present alarm in its class.
func (s *alarmRecord) close() {
	if !s.on {
		return
	}
	a := &s.Alarms
	a.Times++
	a.Seconds += s.seconds
	a.LongestSeconds = max(a.LongestSeconds, s.seconds)
	switch {
	case s.killed:
		a.OOMKilled++
	case s.sufferersKnown && !s.contention:
		a.NoContention++
	case s.metSeconds < brief.Seconds():
		a.Brief++
	case s.worst < marginal:
		a.Marginal++
	default:
		a.Real++
	}
	*s = alarmRecord{Alarms: s.Alarms}
}
