package advise

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// A slow and obvious quantile: sort, and count.
func TestQuantileErrorBound(t *testing.T) {
	holds := func(values []uint32, q uint8) bool {
		share := float64(q%100+1) / 100
		var h histogram
		var all []float64
		for _, v := range values {
			f := float64(v) / 1e6
			all = append(all, f)
			h.add(f, true)
		}
		if len(all) == 0 {
			return h.quantile(share) == 0
		}
		slices.Sort(all)
		want := all[int(math.Ceil(share*float64(len(all))))-1]
		got := h.quantile(share)
		return got >= want*0.999999 && got <= max(want, smallest)*1.0500001
	}
	require.NoError(t, quick.Check(holds, &quick.Config{MaxCount: 500}))
}

func TestAdviseNeverLowersOrExceedsBound(t *testing.T) {
	holds := func(now, most, seen uint16, lacks bool) bool {
		l := threshold{key: "k", unit: "ratio", now: float64(now%100+1) / 100, most: float64(most%100+1) / 100, step: 0.01, seen: float64(seen) / 1000}
		if lacks {
			l.missing = "not enough"
		}
		p := l.judge()
		safe := p.Value >= p.Now-1e-9 && p.Value <= max(p.Now, l.most)+1e-6
		changed := p.Value > p.Now+1e-9
		return safe && changed == (p.Outcome == Change) && !(lacks && changed) && p.Reason != ""
	}
	require.NoError(t, quick.Check(holds, &quick.Config{MaxCount: 5000}))
}

// said is a moment with one verdict of one plugin.
type said struct {
	level, pressing     plugins.Level
	observed            float64
	waits, unknown      bool // whether a workload does
	perWorkload, killed bool
}

// alarmsOf plays moments a second apart; the threshold is 1.
func alarmsOf(resource plugins.Resource, moments ...said) Alarms {
	var a alarms
	plugin := "memory-stall"
	shared, device := snapshot.SharedMemory, ""
	if resource == plugins.Disk {
		plugin, shared, device = "disk-contention", snapshot.SharedDisk, "sda"
	}
	scope := device
	for i, s := range moments {
		state := snapshot.ContentionBusy
		switch {
		case s.waits:
			state = snapshot.ContentionPresent
		case s.unknown:
			state = snapshot.ContentionUnknown
		}
		a.watch(replay.Moment{
			Offset: time.Duration(i) * time.Second, Step: time.Second,
			Snapshot: &snapshot.Snapshot{Contention: []snapshot.Contention{{Resource: shared, Device: device, State: state}}},
			Levels: &plugins.Levels{Verdicts: []plugins.Verdict{{
				Plugin: plugin, Scope: scope, Resource: resource, PerWorkload: s.perWorkload, Level: s.level, MetLevel: s.pressing, Operator: ">=",
				Observed: snapshot.Some(s.observed), Threshold: snapshot.Some(1.0),
			}}},
		}, s.killed)
	}
	for _, s := range a.list {
		s.end()
	}
	if s := a.list[alarmKey{plugin, scope, plugins.Soft}]; s != nil {
		return s.Alarms
	}
	return Alarms{}
}

func TestAlarmCountedInOneClass(t *testing.T) {
	on := func(n int, s said) []said {
		s.level, s.pressing = plugins.Soft, plugins.Soft
		return slices.Repeat([]said{s}, n)
	}
	calm := slices.Repeat([]said{{}}, 70)
	kept := slices.Repeat([]said{{level: plugins.Soft, observed: 0.9, waits: true}}, 30) // by hysteresis alone
	for _, c := range []struct {
		name     string
		resource plugins.Resource
		moments  [][]said
		want     Alarms
	}{
		{"contention", plugins.Disk, [][]said{on(21, said{observed: 2, waits: true}), calm[:1]}, Alarms{Times: 1, Seconds: 20, LongestSeconds: 20, Real: 1}},
		{"no contention", plugins.Disk, [][]said{on(21, said{observed: 2}), calm[:1]}, Alarms{Times: 1, Seconds: 20, LongestSeconds: 20, NoContention: 1}},
		{"it is unknown who waits", plugins.Memory, [][]said{on(21, said{observed: 2, unknown: true}), calm[:1]}, Alarms{Times: 1, Seconds: 20, LongestSeconds: 20, Real: 1}},
		{"it is unknown at one moment who waits", plugins.Disk, [][]said{on(10, said{observed: 2}), on(1, said{observed: 2, unknown: true}), on(10, said{observed: 2}), calm[:1]}, Alarms{Times: 1, Seconds: 20, LongestSeconds: 20, Real: 1}},
		{"it is about single workloads", plugins.Memory, [][]said{on(21, said{observed: 2, perWorkload: true}), calm[:1]}, Alarms{Times: 1, Seconds: 20, LongestSeconds: 20, Real: 1}},
		{"it is brief and kept by hysteresis", plugins.Disk, [][]said{on(6, said{observed: 2, waits: true}), kept, calm[:1]}, Alarms{Times: 1, Seconds: 35, LongestSeconds: 35, Brief: 1}},
		{"it grazes", plugins.Memory, [][]said{on(21, said{observed: 1.05, waits: true}), calm[:1]}, Alarms{Times: 1, Seconds: 20, LongestSeconds: 20, Marginal: 1}},
		{"a kill follows within a minute", plugins.Memory, [][]said{on(6, said{observed: 1.05}), calm[:40], {{killed: true}}, calm}, Alarms{Times: 1, Seconds: 5, LongestSeconds: 5, OOMKilled: 1}},
		{"a kill comes much later", plugins.Memory, [][]said{on(6, said{observed: 2}), calm, {{killed: true}}}, Alarms{Times: 1, Seconds: 5, LongestSeconds: 5, NoContention: 1}},
		{"a kill between two", plugins.Memory, [][]said{on(6, said{observed: 2}), calm, {{killed: true}}, calm, on(21, said{observed: 2}), calm}, Alarms{Times: 2, Seconds: 25, LongestSeconds: 20, NoContention: 2}},
		{"twice", plugins.Disk, [][]said{on(21, said{observed: 2, waits: true}), calm[:5], on(11, said{observed: 2}), calm[:1]}, Alarms{Times: 2, Seconds: 30, LongestSeconds: 20, Real: 1, NoContention: 1}},
		{"it is on at the end", plugins.Disk, [][]said{on(6, said{observed: 2, waits: true})}, Alarms{Ongoing: true, OngoingSeconds: 5}},
		{"the second is on at the end", plugins.Disk, [][]said{on(21, said{observed: 2}), calm[:5], on(11, said{observed: 2})}, Alarms{Times: 1, Seconds: 20, LongestSeconds: 20, NoContention: 1, Ongoing: true, OngoingSeconds: 10}},
		{"never", plugins.Disk, [][]said{calm}, Alarms{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, alarmsOf(c.resource, slices.Concat(c.moments...)...))
		})
	}
}

func TestWatcherStateBounded(t *testing.T) {
	var w Watcher
	assert.Nil(t, w.disk(&snapshot.Disk{Name: "dm-0", Layer: snapshot.LayerStacked}, "boot"), "what stands on others repeats their IO")
	for i := range 3000 {
		w.disk(&snapshot.Disk{Name: fmt.Sprintf("sd%d", i), Layer: snapshot.LayerLeaf}, "boot")
	}
	w.alarms.list = map[alarmKey]*alarmRecord{}
	assert.Len(t, w.disks, maxDisks)
	for i := range 3000 {
		w.alarms.of(alarmKey{"p", fmt.Sprint(i), plugins.Soft})
	}
	assert.Len(t, w.alarms.list, maxScopes)
}

func TestAdviseContentionMinuteIsNotCalm(t *testing.T) {
	for _, waits := range []bool{false, true} {
		d := newDay().pass(5*time.Minute, 0)
		h := snapshot.History{Window: time.Minute, Keep: time.Hour, MaxGap: time.Hour}
		var w Watcher
		for i, s := range d.samples {
			m := replay.Moment{Snapshot: h.Add(s), Levels: &plugins.Levels{}, Step: step}
			if waits && i == 3 {
				m.Snapshot.Contention = []snapshot.Contention{{Resource: snapshot.SharedDisk, Device: "sda", State: snapshot.ContentionPresent}}
			}
			w.watchDisks(m)
		}
		want := map[bool]uint64{false: 4, true: 3}[waits]
		assert.Equal(t, want, w.disks[0].minutes)
	}
}
