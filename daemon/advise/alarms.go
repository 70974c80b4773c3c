package advise

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Alarms are the times at which a level was on, each counted in exactly one
// class, as far as a recording tells.
type Alarms struct {
	Times          uint64  `json:"times"`
	Seconds        float64 `json:"seconds"`
	LongestSeconds float64 `json:"longestSeconds"`
	// Killed: an OOM kill meanwhile, or in the minute after.
	Killed uint64 `json:"killed"`
	// Hurt: real, with contention; for a resource whose sufferers are never
	// known, it lasted and was well beyond the threshold.
	Hurt uint64 `json:"hurt"`
	// False alarms: NobodyWaited (no contention), Brief (its rule was met for
	// less than ten seconds), or Grazed (the threshold was exceeded by less
	// than a tenth).
	NobodyWaited uint64 `json:"falseNobodyWaited"`
	Brief        uint64 `json:"falseBrief"`
	Grazed       uint64 `json:"falseGrazed"`
}

// False is how many of them were false, as far as a recording tells.
func (a Alarms) False() uint64 { return a.NobodyWaited + a.Brief + a.Grazed }

const (
	brief     = 10 * time.Second
	grazed    = 1.1
	maxScopes = 1000
)

type alarmKey struct {
	plugin, scope string
	level         plugins.Level
}

// alarms of each plugin, scope and level.
type alarms struct {
	list map[alarmKey]*alarmSeen
}

type alarmSeen struct {
	Alarms
	on      bool
	seconds float64 // of the present alarm
	met     float64 // the part in which the rule was met
	worst   float64 // largest ratio to the threshold
	waited  bool
	killed  bool
	told    bool // sufferers of this resource can be known
	ended   *time.Duration
}

func (a *alarms) watch(m replay.Moment, killed bool) {
	if a.list == nil {
		a.list = map[alarmKey]*alarmSeen{}
	}
	said := map[*alarmSeen]bool{}
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
func (s *alarmSeen) pass(now time.Duration, on, killed bool) {
	s.killed = s.killed || killed
	if s.on && !on && s.ended == nil {
		s.ended = &now
	}
	if s.ended != nil && now-*s.ended > harmAfter {
		s.close()
	}
}

func (a *alarms) of(k alarmKey) *alarmSeen {
	s := a.list[k]
	if s == nil && len(a.list) < maxScopes {
		s = &alarmSeen{}
		a.list[k] = s
	}
	return s
}

// watch takes a moment at which the level is on.
func (s *alarmSeen) watch(m replay.Moment, v *plugins.Verdict, level plugins.Level) {
	if s.ended != nil {
		s.close()
	}
	if s.on && !m.Gap {
		s.seconds += m.Step.Seconds()
		if v.Pressing >= level {
			s.met += m.Step.Seconds()
		}
	}
	s.on = true
	s.worst = max(s.worst, beyond(v))
	switch v.Resource {
	case plugins.Memory:
		s.told, s.waited = true, s.waited || waits(m, snapshot.SharedMemory, "")
	case plugins.Disk:
		s.told, s.waited = true, s.waited || waits(m, snapshot.SharedDisk, v.Scope)
	}
}

// beyond is the ratio of the observed value to its threshold.
func beyond(v *plugins.Verdict) float64 {
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

// close counts the present alarm in its class.
func (s *alarmSeen) close() {
	if !s.on {
		return
	}
	a := &s.Alarms
	a.Times++
	a.Seconds += s.seconds
	a.LongestSeconds = max(a.LongestSeconds, s.seconds)
	switch {
	case s.killed:
		a.Killed++
	case s.told && !s.waited:
		a.NobodyWaited++
	case s.met < brief.Seconds():
		a.Brief++
	case s.worst < grazed:
		a.Grazed++
	default:
		a.Hurt++
	}
	*s = alarmSeen{Alarms: s.Alarms}
}
