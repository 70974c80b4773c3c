package history

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// scene makes states of a node, one after the other.
type scene struct {
	at        time.Time
	busy      snapshot.Opt[float64] // of the CPUs
	disks     map[string]float64    // bytes read per second; negative: no rates
	nics      []snapshot.NICState
	workloads []snapshot.WorkloadState
	verdicts  []plugins.Verdict
}

func (s *scene) state() (*snapshot.Snapshot, *plugins.Levels) {
	snap := &snapshot.Snapshot{Time: s.at, Workloads: s.workloads, NICs: s.nics}
	snap.CPU.BusyRatio = s.busy
	for name, read := range s.disks {
		d := snapshot.DiskState{Disk: snapshot.Disk{Name: name, Number: "8:0", Layer: snapshot.LayerLeaf}}
		if read >= 0 {
			d.Rates = snapshot.Some(snapshot.DiskRates{ReadBytesPerSecond: read, BusyRatio: 0.5})
		}
		snap.Disks = append(snap.Disks, d)
	}
	return snap, &plugins.Levels{Time: s.at, Verdicts: s.verdicts}
}

func (s *scene) add(store *Store) { store.Add(s.state()) }

// workload of a scene.
func workload(cgroup string, cores, memory, disk, io float64) snapshot.WorkloadState {
	w := snapshot.WorkloadState{Workload: snapshot.NewWorkload(cgroup), WorkingSetBytes: snapshot.Some(uint64(memory))}
	r := snapshot.WorkloadRates{CPUCores: snapshot.Some(cores), IO: []snapshot.WorkloadIORates{{Number: "8:0", ReadBytesPerSecond: disk}}}
	r.Pressure.IO.Some, r.Pressure.Memory.Some = snapshot.Some(io), snapshot.Some(0.0)
	w.Rates = snapshot.Some(r)
	return w
}

func podCgroup(i int) string {
	return fmt.Sprintf("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%08d_1111_4111_8111_111111111111.slice", i)
}

func podUID(i int) string { return fmt.Sprintf("%08d-1111-4111-8111-111111111111", i) }

func rangeOf(t *testing.T, name string, now time.Time) Range {
	t.Helper()
	r, err := ParseRange(map[string][]string{"range": {name}}, now)
	require.NoError(t, err)
	return r
}

// naive keeps every value of every step, and computes answers from that.
type naive struct {
	values map[int64]float64 // by fine step; NaN: unknown
	levels map[int64]plugins.Level
}

// answer is the mean and the highest of each step of a range.
func (n naive) answer(r Range, step time.Duration) (mean, highest []float64) {
	for from := r.From; from.Before(r.To); from = from.Add(step) {
		sum, top, count := 0.0, 0.0, 0.0
		for at := from; at.Before(from.Add(step)); at = at.Add(fineStep) {
			if v, ok := n.values[at.Unix()/10]; ok && !math.IsNaN(v) {
				sum, top, count = sum+v, math.Max(top, v), count+1
			}
		}
		if count == 0 {
			sum, top, count = math.NaN(), math.NaN(), 1
		}
		mean, highest = append(mean, sum/count), append(highest, top)
	}
	return mean, highest
}

func assertValues(t *testing.T, want, is []float64, where string) {
	t.Helper()
	require.Len(t, is, len(want))
	for i := range want {
		switch {
		case math.IsNaN(want[i]):
			require.True(t, math.IsNaN(is[i]), "%s, step %d: nothing was measured, and it is %v", where, i, is[i])
		case want[i] < 1e-7:
			require.Less(t, is[i], 1e-6, "%s, step %d", where, i)
		default:
			require.InEpsilon(t, want[i], is[i], 0.012, "%s, step %d", where, i)
		}
	}
}

// FuzzStore holds the answers of a store against one that keeps everything. Each byte is
// a step: how busy the CPUs are, or a gap, or that the agent is restarted.
func FuzzStore(f *testing.F) {
	day := make([]byte, 9000)
	for i := range day {
		day[i] = byte(i * i / 7)
	}
	f.Add(day)
	f.Add([]byte{1, 2, 3, 250, 4, 251, 5, 252, 6, 255, 255, 7, 0, 0, 0})
	f.Add(append(make([]byte, 500), 100, 100, 254, 3))
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 12000 {
			return
		}
		store, model := &Store{}, naive{map[int64]float64{}, map[int64]plugins.Level{}}
		s := scene{at: noon(0)}
		for i, b := range steps {
			s.at = s.at.Add(fineStep)
			v := float64(b) / 200
			switch {
			case b >= 252:
				store = reloaded(t, store)
			case b >= 250:
				s.at = s.at.Add(time.Duration(b) * 3 * time.Second)
			case b >= 240:
				v = math.NaN()
			}
			s.busy = snapshot.Opt[float64]{}
			if !math.IsNaN(v) {
				s.busy = snapshot.Some(v)
			}
			level := plugins.Level(b % 7 / 3)
			s.verdicts = []plugins.Verdict{{Plugin: "cpu-contention", Resource: plugins.CPU, Scope: "node", Level: level}}
			s.add(store)
			at := s.at.Unix()/10 - 1
			model.values[at], model.levels[at] = v, level
			if i%1000 != 999 && i != len(steps)-1 {
				continue
			}
			r := rangeOf(t, "hour", s.at)
			mean, _ := model.answer(r, fineStep)
			assertValues(t, mean, store.Answer(r, "").Node["cpuBusyRatio"].Mean, "hour")
			checkLevels(t, model, store.Answer(r, ""), r)
		}
	})
}

// checkLevels: at each step of the hour the answer has the level of the model.
func checkLevels(t *testing.T, model naive, a Answer, r Range) {
	t.Helper()
	for at := r.From; at.Before(r.To); at = at.Add(fineStep) {
		want, known := model.levels[at.Unix()/10]
		found := false
		for _, rule := range a.Rules {
			for _, l := range rule.Levels {
				if !at.Before(l.From) && at.Before(l.To) {
					found = true
					require.Equal(t, want, l.Level, at)
				}
			}
		}
		require.Equal(t, known, found, at)
	}
}

// The day has each minute as six steps make it, also where the agent was away.
func TestStoreDay(t *testing.T) {
	store, model := &Store{}, naive{values: map[int64]float64{}}
	s := scene{at: noon(0), disks: map[string]float64{}}
	for i := range 9 * 3600 / 10 {
		s.at = s.at.Add(fineStep)
		if i%700 > 650 {
			continue // away
		}
		v := float64(i%13) * 0.07
		s.busy, s.disks["sda"] = snapshot.Some(v), v*1e8
		s.add(store)
		model.values[s.at.Unix()/10-1] = v
	}
	s.at = s.at.Truncate(time.Minute).Add(time.Minute + fineStep)
	s.add(store) // ends the minute
	model.values[s.at.Unix()/10-1] = func() float64 { v, _ := s.busy.Get(); return v }()
	r := rangeOf(t, "day", s.at)
	mean, highest := model.answer(r, dayStep)
	whole := len(mean) - 5 // the last minute is not whole yet
	is := store.Answer(r, "")
	assertValues(t, mean[:whole], is.Node["cpuBusyRatio"].Mean[:whole], "mean")
	assertValues(t, highest[:whole], is.Node["cpuBusyRatio"].Max[:whole], "highest")
	require.Len(t, is.Disks, 1)
	for i := range mean {
		mean[i] *= 1e8
	}
	assertValues(t, mean[:whole], is.Disks[0].Values["readBytesPerSecond"].Mean[:whole], "disk")
}

func TestStoreLevels(t *testing.T) {
	verdict := func(l plugins.Level) []plugins.Verdict {
		return []plugins.Verdict{{Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Level: l}}
	}
	t.Run("a level of one second between two steps is kept", func(t *testing.T) {
		store := &Store{}
		s := scene{at: noon(0), verdicts: verdict(plugins.None)}
		for range 60 {
			s.verdicts = verdict(plugins.None)
			if s.at.Equal(noon(25 * time.Second)) {
				s.verdicts = verdict(plugins.Hard)
			}
			s.add(store)
			s.at = s.at.Add(time.Second)
		}
		assert.Equal(t, []LevelAnswer{
			{plugins.None, noon(-10 * time.Second), noon(20 * time.Second)},
			{plugins.Hard, noon(20 * time.Second), noon(30 * time.Second)},
			{plugins.None, noon(30 * time.Second), noon(50 * time.Second)},
		}, store.Answer(rangeOf(t, "hour", s.at), "").Rules[0].Levels)
	})
	t.Run("none that was not seen is unknown", func(t *testing.T) {
		store := &Store{}
		for i, v := range []plugins.Verdict{{}, {Absent: "no PSI"}, {Partial: true}, {Absent: "no PSI", Level: plugins.Soft}} {
			v.Plugin, v.Scope = "memory-stall", "node"
			s := scene{at: noon(time.Duration(i+1) * fineStep), verdicts: []plugins.Verdict{v}}
			s.add(store)
		}
		assert.Equal(t, []LevelAnswer{{plugins.None, noon(0), noon(10 * time.Second)}, {plugins.Soft, noon(30 * time.Second), noon(40 * time.Second)}},
			store.Answer(rangeOf(t, "hour", noon(time.Minute)), "").Rules[0].Levels)
	})
}

func TestStoreClock(t *testing.T) {
	count := func(store *Store, now time.Time) (known int) {
		for _, v := range store.Answer(rangeOf(t, "hour", now), "").Node["cpuBusyRatio"].Mean {
			if !math.IsNaN(v) {
				known++
			}
		}
		return known
	}
	filled := func() (*Store, scene) {
		store, s := &Store{}, scene{at: noon(0), busy: snapshot.Some(0.5)}
		for range 300 {
			s.at = s.at.Add(fineStep)
			s.add(store)
		}
		return store, s
	}
	t.Run("back by a moment keeps all", func(t *testing.T) {
		store, s := filled()
		s.at = s.at.Add(-30 * time.Second)
		for range 10 {
			s.at = s.at.Add(fineStep)
			s.add(store)
		}
		assert.Equal(t, 307, count(store, s.at))
	})
	t.Run("back by more drops what is future now", func(t *testing.T) {
		store, s := filled()
		s.at = noon(20*time.Minute + 10*time.Second)
		s.add(store)
		assert.Equal(t, 121, count(store, s.at))
		s.at = s.at.Add(fineStep)
		s.add(store)
		assert.Equal(t, 122, count(store, s.at))
		assert.Equal(t, 122, count(store, noon(50*time.Minute)), "nothing of the future is left")
	})
	t.Run("forth by a year begins anew", func(t *testing.T) {
		store, s := filled()
		s.at = s.at.AddDate(1, 0, 0)
		s.add(store)
		assert.Equal(t, 1, count(store, s.at))
	})
}

func TestStoreNames(t *testing.T) {
	store, s := &Store{}, scene{at: noon(0), disks: map[string]float64{"sda": 1e6, "sdb": 1e7, "sdc": -1}}
	s.nics = []snapshot.NICState{
		{NIC: snapshot.NIC{Name: "eth0"}, Rates: snapshot.Some(snapshot.NICRates{ReceiveBytesPerSecond: 10})},
		{NIC: snapshot.NIC{Name: "cali123", Kind: "veth"}, Rates: snapshot.Some(snapshot.NICRates{})},
		{NIC: snapshot.NIC{Name: "lo", Kind: "loopback"}, Rates: snapshot.Some(snapshot.NICRates{})},
	}
	first, second := workload(podCgroup(1), 1, 1e6, 1e6, 0.5), workload(podCgroup(2), 2, 1e6, 1e6, 0.5)
	first.Pod = &snapshot.Pod{Namespace: "shop", Name: "db-0"}
	second.Pod = first.Pod
	for i := range 12 {
		s.workloads = []snapshot.WorkloadState{first}
		if i >= 6 {
			s.workloads = []snapshot.WorkloadState{second}
		}
		s.at = s.at.Add(fineStep)
		s.add(store)
	}
	r := rangeOf(t, "hour", s.at)
	t.Run("by cgroup and UID one pod, by name all that had it", func(t *testing.T) {
		for name, want := range map[string]int{podCgroup(1): 1, podUID(2): 1, "shop/db-0": 2, "db-0": 0, "": 0, "shop/": 0} {
			assert.Len(t, store.Answer(r, name).Workloads, want, name)
			assert.Equal(t, want > 0, len(store.Workload(name, r)) > 0, name)
		}
		points := store.Workload("shop/db-0", r)[0].Lines[0].points
		cores := map[float64]int{}
		for _, p := range points {
			if p.known {
				cores[p.mean]++
			}
		}
		assert.Equal(t, map[float64]int{1: 3, 2: 3}, cores, "one follows the other")
	})
	t.Run("devices, those that carry most first", func(t *testing.T) {
		disks, nics := store.Devices(r)
		assert.Equal(t, []string{"sdb", "sda"}, disks, "one that has no value is not among them")
		assert.Equal(t, []string{"eth0"}, nics, "a pod's device on the host is the pod's")
		assert.Len(t, store.Device("sda", r), 3)
		assert.Len(t, store.Device("eth0", r), 2)
		assert.Nil(t, store.Device("cali123", r))
	})
}
