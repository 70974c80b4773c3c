package advise

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Alarms are how often and how long a level was on, and what it was about as far as
// a recording tells: each is counted in exactly one of the classes.
type Alarms struct {
	Times          uint64  `json:"times"`
	Seconds        float64 `json:"seconds"`
	LongestSeconds float64 `json:"longestSeconds"`
	// Killed: the kernel killed for want of memory meanwhile, or a minute later.
	Killed uint64 `json:"killed"`
	// Hurt: somebody waited for another's sake; of a resource of which nobody
	// knows who waits, it lasted and was well beyond the line.
	Hurt uint64 `json:"hurt"`
	// False alarms: NobodyWaited for another's sake, it was Brief (its rule was
	// met for less than ten seconds), or only Grazed its line (by a tenth).
	NobodyWaited uint64 `json:"falseNobodyWaited"`
	Brief        uint64 `json:"falseBrief"`
	Grazed       uint64 `json:"falseGrazed"`
}

// False is how many of them were for nothing, as far as a recording tells.
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
	seconds float64 // of the one that is on
	met     float64 // of which the rule was met
	worst   float64 // times its threshold
	waited  bool
	killed  bool
	told    bool // who waits is known of this resource
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

// pass notes that the level is on or not; one that ended is counted when a
// minute has shown what came of it.
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
		s.told, s.waited = true, s.waited || waits(m, probes.SharedMemory, "")
	case plugins.Disk:
		s.told, s.waited = true, s.waited || waits(m, probes.SharedDisk, v.Scope)
	}
}

// beyond is how many times its threshold the observed value is.
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

// close counts the alarm that was on, in its class.
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
