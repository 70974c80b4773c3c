package advise

import (
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Watcher collects the data for an Advice from a replay, in bounded memory.
type Watcher struct {
	seconds float64 // observed
	kills   uint64  // OOM kills
	// unseen are the OOM kills without a level of memory before them.
	unseen  uint64
	memory  memorySeen
	disks   []*diskSeen
	network networkSeen
	alarms  alarms
	last    *snapshot.Snapshot
	judged  bool          // memory was at a level at least once
	level   time.Duration // offset of the last time
}

// harmAfter is how long before and after an OOM kill or a hard level the node
// does not count as healthy.
const harmAfter = time.Minute

// Watch takes the next moment of a replay.
func (w *Watcher) Watch(m replay.Moment) {
	killed := w.killed(m)
	if !m.Gap {
		w.seconds += m.Step.Seconds()
	}
	if m.Levels.Of(plugins.Memory) > plugins.None {
		w.judged, w.level = true, m.Offset
	} else if killed > 0 && (!w.judged || m.Offset-w.level > harmAfter) {
		w.unseen += killed
	}
	w.kills += killed
	w.memory.watch(m, killed > 0)
	w.watchDisks(m)
	w.network.watch(m)
	w.alarms.watch(m, killed > 0)
	w.last = m.Snapshot
}

// killed is the number of OOM kills since the previous moment.
func (w *Watcher) killed(m replay.Moment) uint64 {
	if w.last == nil || w.last.BootID() != m.Snapshot.BootID() {
		return 0
	}
	was, ok1 := w.last.Memory.Memory.OOMKills.Get()
	is, ok2 := m.Snapshot.Memory.Memory.OOMKills.Get()
	if !ok1 || !ok2 || is < was {
		return 0
	}
	return is - was
}

// memorySeen is the stall of the healthy node while memory was scarce.
type memorySeen struct {
	scarce  float64 // seconds, healthy
	soft    highest
	hard    highest
	waiting []stalled // pending until no harm followed for harmAfter
	harmed  time.Duration
	begun   bool
}

// highest value, and its time.
type highest struct {
	value float64
	at    time.Time
}

type stalled struct {
	offset     time.Duration
	at         time.Time
	seconds    float64
	soft, hard float64
}

// scarceAt is the multiple of the soft rule's share of available memory below
// which memory is scarce. With more memory available no stall counts.
const scarceAt = 2

func (s *memorySeen) watch(m replay.Moment, killed bool) {
	now := m.Offset
	v, there := verdict(m.Levels, "memory-stall")
	if killed || m.Gap || there && (v.Level == plugins.Hard || scarce(v) && serveless(v)) {
		s.waiting = s.waiting[:0] // the node was not healthy before it
		s.harmed, s.begun = now, true
		return
	}
	for len(s.waiting) > 0 && now-s.waiting[0].offset > harmAfter {
		s.take(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
	}
	if !there || s.begun && now-s.harmed <= harmAfter || !scarce(v) {
		return
	}
	soft, _ := stallOf(v, plugins.Soft).Get()
	hard, _ := stallOf(v, plugins.Hard).Get()
	s.waiting = append(s.waiting, stalled{now, m.Snapshot.Time, m.Step.Seconds(), soft, hard})
}

// end takes the pending values: the recording ends without harm.
func (s *memorySeen) end() {
	for _, v := range s.waiting {
		s.take(v)
	}
	s.waiting = nil
}

func (s *memorySeen) take(v stalled) {
	s.scarce += v.seconds
	s.soft.raise(v.soft, v.at)
	s.hard.raise(v.hard, v.at)
}

func (h *highest) raise(v float64, at time.Time) {
	if v > h.value {
		h.value, h.at = v, at
	}
}

// scarce reports whether memory was so scarce that only the stall keeps the
// rule from being met: little is available, and global reclaim scans.
func scarce(v *plugins.Verdict) bool {
	little, moves := false, false
	for _, e := range v.Evidence {
		is, known := e.Observed.Get()
		switch {
		case e.Rule != plugins.Soft || !known:
		case e.What == "memory available":
			little = is < scarceAt*e.Threshold
		case strings.HasPrefix(e.What, "global reclaim"):
			moves = e.Met
		}
	}
	return little && moves
}

// serveless reports whether the stall alone is harm; see the bounds.
func serveless(v *plugins.Verdict) bool {
	soft, _ := stallOf(v, plugins.Soft).Get()
	hard, _ := stallOf(v, plugins.Hard).Get()
	return soft >= mostSoftStall || hard >= mostHardStall
}

func stallOf(v *plugins.Verdict, rule plugins.Level) (o snapshot.Opt[float64]) {
	for _, e := range v.Evidence {
		if e.Rule == rule && strings.HasPrefix(e.What, "memory stall") {
			return e.Observed
		}
	}
	return o
}

// verdict is the first verdict of a plugin.
func verdict(l *plugins.Levels, plugin string) (*plugins.Verdict, bool) {
	i := slices.IndexFunc(l.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == plugin })
	if i < 0 {
		return nil, false
	}
	return &l.Verdicts[i], true
}
