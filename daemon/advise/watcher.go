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
	// killsAtOwnLimit are the OOM kills while memory was ample, and killsWithoutLevel those
	// of the others without a level of memory before them.
	killsAtOwnLimit, killsWithoutLevel uint64

	actions       actions
	memory        memoryRecord
	disks         []*diskRecord
	network       networkRecord
	alarms        alarms
	last          *snapshot.Snapshot
	memoryJudged  bool          // memory was at a level at least once
	memoryLevelAt time.Duration // offset of the last time
}

// harmWindow is how long before and after an OOM kill or a hard level the node
// does not count as healthy.
const harmWindow = time.Minute

// Watch takes the next moment of a replay.
func (w *Watcher) Watch(m replay.Moment) {
	killed := w.killed(m)
	w.kills += killed
	if ample(verdict(m.Levels, "memory-stall")) { // it was not the node's shortage
		w.killsAtOwnLimit += killed
		killed = 0
	}
	if !m.Gap {
		w.seconds += m.Step.Seconds()
	}
	if m.Levels.Of(plugins.Memory) > plugins.None {
		w.memoryJudged, w.memoryLevelAt = true, m.Offset
	} else if killed > 0 && (!w.memoryJudged || m.Offset-w.memoryLevelAt > harmWindow) {
		w.killsWithoutLevel += killed
	}
	w.memory.watch(m, killed > 0)
	w.watchDisks(m)
	w.network.watch(m)
	w.alarms.watch(m, killed > 0)
	w.actions.watch(m)
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

// memoryRecord is the stall of the healthy node while memory was scarce.
type memoryRecord struct {
	measured float64 // seconds in which the stall was measured
	scarce   float64 // seconds of it, healthy
	soft     highest
	hard     highest
	pending  []stalled // until no harm followed for harmWindow: what comes after the recording is not known
	harmedAt time.Duration
	harmSeen bool
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

// scarceFactor is the multiple of the soft rule's share of available memory below
// which memory is scarce. With more memory available no stall counts.
const scarceFactor = 2

func (s *memoryRecord) watch(m replay.Moment, killed bool) {
	now := m.Offset
	v := verdict(m.Levels, "memory-stall")
	soft, hard, measured := stalls(v)
	if measured && !m.Gap {
		s.measured += m.Step.Seconds()
	}
	// A stall beyond the bounds is harm by itself.
	if killed || m.Gap || v.Level == plugins.Hard || scarce(v) && (soft >= mostSoftStall || hard >= mostHardStall) {
		s.pending = s.pending[:0] // the node was not healthy before it
		s.harmedAt, s.harmSeen = now, true
		return
	}
	for len(s.pending) > 0 && now-s.pending[0].offset > harmWindow {
		s.take(s.pending[0])
		s.pending = slices.Delete(s.pending, 0, 1)
	}
	if !measured || s.harmSeen && now-s.harmedAt <= harmWindow || !scarce(v) {
		return
	}
	s.pending = append(s.pending, stalled{now, m.Snapshot.Time, m.Step.Seconds(), soft, hard})
}

func (s *memoryRecord) take(v stalled) {
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
	little, moves, known := shortage(v)
	return known && little && moves
}

// ample reports whether it is known that the node is not short of memory: much is available,
// and global reclaim does not scan, as it does before the kernel kills for want of memory.
func ample(v *plugins.Verdict) bool {
	little, moves, known := shortage(v)
	return known && !little && !moves
}

// shortage reports whether little memory is available, and whether global reclaim scans.
func shortage(v *plugins.Verdict) (little, moves, known bool) {
	available, reclaim := evidence(v, plugins.Soft, "memory available"), evidence(v, plugins.Soft, "global reclaim")
	is, ok := available.Observed.Get()
	return is < scarceFactor*available.Threshold, reclaim.Met, ok && !reclaim.Observed.IsZero()
}

// stalls are the stalls over the windows of soft and of hard; measured: both are known.
func stalls(v *plugins.Verdict) (soft, hard float64, measured bool) {
	soft, ok1 := evidence(v, plugins.Soft, "memory stall").Observed.Get()
	hard, ok2 := evidence(v, plugins.Hard, "memory stall").Observed.Get()
	return soft, hard, ok1 && ok2
}

// evidence is a rule's comparison of this; without a value if there is none.
func evidence(v *plugins.Verdict, rule plugins.Level, of string) plugins.Evidence {
	for _, e := range v.Evidence {
		if what, _, _ := strings.Cut(e.What, ","); e.Rule == rule && what == of {
			return e
		}
	}
	return plugins.Evidence{}
}

// verdict is the first verdict of a plugin; without evidence if there is none.
func verdict(l *plugins.Levels, plugin string) *plugins.Verdict {
	i := slices.IndexFunc(l.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == plugin })
	if i < 0 {
		return &plugins.Verdict{}
	}
	return &l.Verdicts[i]
}

func (w *Watcher) watchDisks(m replay.Moment) {
	for _, d := range w.disks {
		d.seen = false
	}
	for i := range m.Snapshot.Disks {
		disk := &m.Snapshot.Disks[i].Disk
		if d := w.disk(disk, m.Snapshot.BootID()); d != nil {
			d.watch(m, disk)
		}
	}
	for _, d := range w.disks {
		if !d.seen {
			d.since = 0
		}
	}
}

// disk is the record of a disk; nil for stacked ones and beyond maxDisks.
func (w *Watcher) disk(d *snapshot.Disk, bootID string) *diskRecord {
	if d.Layer != snapshot.LayerLeaf {
		return nil
	}
	key := plugins.DiskKey(d, bootID)
	for _, known := range w.disks {
		if known.key == key {
			return known
		}
	}
	if len(w.disks) == maxDisks {
		return nil
	}
	rotational, _ := d.Rotational.Get()
	known := &diskRecord{key: key, name: d.Name, rotational: rotational}
	w.disks = append(w.disks, known)
	return known
}
