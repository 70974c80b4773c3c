package peers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// stalling is a node of 2 GiB without swap, of which all tasks stall on memory for a
// share of each second.
func stalling(seconds int, share float64, memory snapshot.Memory) []*snapshot.Sample {
	var list []*snapshot.Sample
	for i := range seconds {
		at := time.Duration(i+1) * time.Second
		s := &snapshot.Sample{Time: time.Unix(1000, 0).Add(at), Monotonic: at, Memory: memory}
		total := uint64(share * float64(at.Microseconds()))
		s.Pressure.Memory = snapshot.Stall{Some: snapshot.Some(total), Full: snapshot.Some(total)}
		s.Pressure.IO = snapshot.Stall{Some: snapshot.Some[uint64](0), Full: snapshot.Some[uint64](0)}
		list = append(list, s)
	}
	return list
}

// plenty of memory, of which none is reclaimed.
func plenty() snapshot.Memory {
	return snapshot.Memory{
		TotalBytes: snapshot.Some[uint64](2 << 30), AvailableBytes: snapshot.Some[uint64](1 << 30),
		FreeBytes: snapshot.Some[uint64](1 << 30), InactiveFileBytes: snapshot.Some[uint64](0),
		SwapTotalBytes: snapshot.Some[uint64](0), SwapFreeBytes: snapshot.Some[uint64](0),
	}
}

// reclaiming is the same samples with pages reclaimed until a second.
func reclaiming(list []*snapshot.Sample, until int) []*snapshot.Sample {
	for i, s := range list {
		s.Memory.ScansKswapd = snapshot.Some(uint64(min(i, until)))
	}
	return list
}

// times are the seconds from the first sample at which a judge has any level.
func times(t *testing.T, list []*snapshot.Sample, j judgement.Judge) (seconds []float64) {
	t.Helper()
	for _, s := range list {
		answers, lacks := j.Judge(s)
		require.Empty(t, lacks)
		if len(answers) > 0 {
			seconds = append(seconds, s.Monotonic.Seconds()-1)
		}
	}
	return seconds
}

// first is the first of these; -1: none.
func first(t *testing.T, list []*snapshot.Sample, j judgement.Judge) float64 {
	t.Helper()
	if all := times(t, list, j); len(all) > 0 {
		return all[0]
	}
	return -1
}

// The kernel's avg10 of a stall of all tasks passes 10 % with the first update, 60 %
// with the fifth and 75 % with the seventh: 1-e^(-t/10) every two seconds; avg60
// passes 10 % with the fourth.
func TestAverages(t *testing.T) {
	var a averages
	require.False(t, a.add(time.Second, snapshot.Opt[uint64]{}))
	for _, s := range stalling(62, 1, plenty()) {
		require.True(t, a.add(s.Monotonic, s.Pressure.Memory.Full))
	}
	assert.InDelta(t, 100*(1-0.0025), a.avg10, 0.05) // 1-e^-6
	assert.InDelta(t, 63.2, a.avg60, 0.05)           // 1-e^-1
}

func TestNaivePSI(t *testing.T) {
	assert.InDelta(t, 2, first(t, stalling(60, 1, plenty()), &naivePSI{}), 0)
	assert.InDelta(t, -1, first(t, stalling(200, 0.1, plenty()), &naivePSI{}), 0, "10 % is not above 10 %")
	list := stalling(60, 0, plenty())
	for i, s := range list {
		s.Pressure.IO.Full = snapshot.Some(uint64(1e6 * i))
	}
	answers, lacks := (&naivePSI{}).Judge(list[0])
	require.Empty(t, lacks)
	require.Empty(t, answers)
	assert.InDelta(t, 2, first(t, list, &naivePSI{}), 0, "of a disk")
}

// The KEP's four scenarios: avg60 and avg10 above sets the condition, avg60 below
// clears it, and avg10 below leaves it.
func TestKEP5394(t *testing.T) {
	set := func(threshold float64, line Line, list []*snapshot.Sample) []float64 {
		return times(t, list, KEP5394(threshold, line).New(judgement.Label{}, list))
	}
	t.Run("it waits for avg60", func(t *testing.T) {
		at := set(50, Full, stalling(200, 1, plenty()))
		require.NotEmpty(t, at)
		assert.InDelta(t, 50, at[0], 0, "avg60 is 50 % after 42 s, and conditions are written every 10 s")
	})
	t.Run("both averages", func(t *testing.T) {
		var c condition
		for _, step := range []struct {
			avg10, avg60 float64
			set          bool
		}{
			{4, 4, false}, {6, 4, false}, // avg10 alone
			{4, 6, false},              // avg60 alone: it is falling
			{5, 5, true}, {4, 6, true}, // falling leaves it
			{6, 4.9, false},
		} {
			c.avg10, c.avg60 = step.avg10, step.avg60
			c.update(5)
			assert.Equal(t, step.set, c.set, "%+v", step)
		}
	})
	t.Run("it stays while avg60 falls", func(t *testing.T) {
		list := stalling(120, 1, plenty())
		for i, s := range list[60:] { // nothing stalls from 60 s on
			s.Pressure.Memory.Full = list[59].Pressure.Memory.Full
			_ = i
		}
		at := set(30, Full, list)
		require.NotEmpty(t, at)
		assert.InDelta(t, 30, at[0], 0)
		assert.InDelta(t, 109, at[len(at)-1], 0, "avg60 is 30 % 44 s after the end")
	})
	t.Run("the line", func(t *testing.T) {
		list := stalling(60, 1, plenty())
		for _, s := range list {
			s.Pressure.Memory.Full = snapshot.Some[uint64](0)
		}
		assert.Empty(t, set(10, Full, list))
		assert.NotEmpty(t, set(10, Some, list))
	})
}

func TestSystemdOomd(t *testing.T) {
	t.Run("pressure", func(t *testing.T) {
		assert.InDelta(t, 40, first(t, reclaiming(stalling(60, 1, plenty()), 60), &systemdOomd{}), 0, "30 s above 60 %, which is reached after 10")
		assert.InDelta(t, -1, first(t, stalling(60, 1, plenty()), &systemdOomd{}), 0, "nothing is reclaimed")
		assert.InDelta(t, 40, first(t, reclaiming(stalling(60, 1, plenty()), 11), &systemdOomd{}), 0, "the last reclaim was less than 30 s before")
		assert.InDelta(t, -1, first(t, reclaiming(stalling(60, 1, plenty()), 8), &systemdOomd{}), 0, "the last reclaim was more than 30 s before")
		assert.InDelta(t, -1, first(t, reclaiming(stalling(300, 0.6, plenty()), 300), &systemdOomd{}), 0, "60 % is not above 60 %")
	})
	t.Run("swap", func(t *testing.T) {
		m := plenty()
		m.AvailableBytes, m.SwapTotalBytes, m.SwapFreeBytes = snapshot.Some[uint64](100<<20), snapshot.Some[uint64](1000), snapshot.Some[uint64](99)
		assert.InDelta(t, 0, first(t, stalling(3, 0, m), &systemdOomd{}), 0)
		m.SwapFreeBytes = snapshot.Some[uint64](100)
		assert.InDelta(t, -1, first(t, stalling(3, 0, m), &systemdOomd{}), 0)
		m.SwapFreeBytes, m.AvailableBytes = snapshot.Some[uint64](0), snapshot.Some[uint64](300<<20)
		assert.InDelta(t, -1, first(t, stalling(3, 0, m), &systemdOomd{}), 0, "there is memory left")
	})
}

// etc/desktop.json: 60 for 30 s with reclaim in the last 10 s; swap below 15 %.
func TestOomd(t *testing.T) {
	t.Run("pressure_above and memory_reclaim", func(t *testing.T) {
		assert.InDelta(t, 40, first(t, reclaiming(stalling(60, 1, plenty()), 60), &oomd{}), 0)
		assert.InDelta(t, -1, first(t, reclaiming(stalling(60, 1, plenty()), 25), &oomd{}), 0, "the last reclaim was 15 s before")
		assert.InDelta(t, 40, first(t, reclaiming(stalling(60, 1, plenty()), 31), &oomd{}), 0, "the last reclaim was 9 s before")
	})
	t.Run("swap_free", func(t *testing.T) {
		m := plenty()
		m.SwapTotalBytes, m.SwapFreeBytes = snapshot.Some[uint64](100), snapshot.Some[uint64](15)
		assert.InDelta(t, -1, first(t, stalling(3, 0, m), &oomd{}), 0)
		m.SwapFreeBytes = snapshot.Some[uint64](14)
		assert.InDelta(t, 0, first(t, stalling(3, 0, m), &oomd{}), 0)
	})
}

// The example of its README: 7842 MiB, of which 2170 are available, and 1023 MiB of
// swap, of which 231 are free, is well; both below 10 % is not.
func TestEarlyoom(t *testing.T) {
	for _, c := range []struct {
		name                         string
		total, available, swap, free uint64
		acts                         bool
	}{
		{"its README's node", 7842, 2170, 1023, 231, false},
		{"memory below, swap free", 7842, 700, 1023, 231, false},
		{"both below", 7842, 700, 1023, 100, true},
		{"memory available, swap used", 7842, 2170, 1023, 0, false},
		{"no swap", 7842, 784, 0, 0, true},
		{"just above", 7842, 785, 0, 0, false},
		{"at 10 % of both", 7840, 784, 1000, 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := snapshot.Memory{
				TotalBytes: snapshot.Some(c.total << 20), AvailableBytes: snapshot.Some(c.available << 20),
				SwapTotalBytes: snapshot.Some(c.swap << 20), SwapFreeBytes: snapshot.Some(c.free << 20),
			}
			assert.Equal(t, c.acts, first(t, stalling(3, 0, m), &earlyoom{}) == 0)
		})
	}
}

func TestKubelet(t *testing.T) {
	mib := func(free, inactive uint64) snapshot.Memory {
		return snapshot.Memory{FreeBytes: snapshot.Some(free << 20), InactiveFileBytes: snapshot.Some(inactive << 20)}
	}
	list := append(stalling(5, 0, mib(500, 0)), stalling(60, 0, mib(40, 40))[5:]...)
	assert.InDelta(t, 10, first(t, list, &kubelet{}), 0, "it looks every 10 s")
	assert.InDelta(t, -1, first(t, stalling(60, 0, mib(40, 80)), &kubelet{}), 0)
}

// A kubelet that ran is asked nothing: what it logged holds from one look to the next.
func TestRealKubelet(t *testing.T) {
	list := stalling(60, 0, plenty())
	l := judgement.Label{Kubelet: &judgement.Kubelet{Version: "1.37.2", Looks: []judgement.Look{
		{At: 9, Available: 300 << 20}, {At: 19, Available: 90 << 20, Reclaims: true}, {At: 29, Available: 200 << 20},
	}}}
	j := realKubelet().New(l, list)
	assert.Equal(t, []float64{19, 20, 21, 22, 23, 24, 25, 26, 27, 28}, times(t, list, j))
	near, is := j.(judgement.Nearness)
	require.True(t, is)
	assert.Equal(t, "it saw at least 90 Mi available", near.Near())

	_, lacks := realKubelet().New(judgement.Label{}, list).Judge(list[0])
	assert.Equal(t, "a kubelet that ran beside the recorder", lacks)
}

// talosNodeOf adds Talos' cgroups, whose tasks stall for these shares of each second.
func talosNodeOf(list []*snapshot.Sample, init, system, podruntime float64) []*snapshot.Sample {
	for _, s := range list {
		for path, share := range map[string]float64{"/init": init, "/system": system, "/podruntime": podruntime} {
			w := snapshot.Workload{Cgroup: path}
			w.Pressure.Memory.Full = snapshot.Some(uint64(share * float64(s.Monotonic.Microseconds())))
			s.Workloads = append(s.Workloads, w)
		}
	}
	return list
}

func TestTalos(t *testing.T) {
	whole := func() judgement.Judge { return talosRule().New(judgement.Label{}, nil) }
	t.Run("node clause", func(t *testing.T) {
		at := times(t, stalling(60, 1, plenty()), &talosNode{})
		require.GreaterOrEqual(t, len(at), 2)
		assert.InDelta(t, 14, at[0], 0, "75 % is reached after 14 s")
		assert.InDelta(t, 25, at[1], 0, "more than 10 s after the last time")
		assert.Empty(t, times(t, stalling(300, 0.75, plenty()), &talosNode{}), "75 % is not above 75 %")
	})
	t.Run("system clause", func(t *testing.T) {
		at := times(t, talosNodeOf(stalling(60, 0, plenty()), 0, 0.5, 0), whole())
		require.NotEmpty(t, at)
		assert.InDelta(t, 2, at[0], 0, "avg10 of a half is 9 % at its first update")
		assert.Len(t, at, 58, "it has no pause")
		assert.Empty(t, times(t, talosNodeOf(stalling(60, 0, plenty()), 0, 0.04, 0), whole()), "avg10 is below 5 %")
		assert.NotEmpty(t, times(t, talosNodeOf(stalling(60, 0, plenty()), 0.02, 0.02, 0.02), whole()), "they count together")
	})
	t.Run("a stall that is over does not grow", func(t *testing.T) {
		list := talosNodeOf(stalling(60, 0, plenty()), 0, 0.5, 0)
		for _, s := range list[30:] {
			s.Workloads = list[29].Workloads
		}
		at := times(t, list, whole())
		assert.InDelta(t, 29, at[len(at)-1], 0)
	})
	t.Run("lacks", func(t *testing.T) {
		_, lacks := whole().Judge(stalling(1, 1, plenty())[0])
		assert.Equal(t, lacksTalos, lacks)
	})
	t.Run("ranking", func(t *testing.T) {
		pod := func(cgroup string, bytes uint64) snapshot.Workload {
			return snapshot.Workload{Cgroup: cgroup, PodUID: "uid", MemoryBytes: snapshot.Some(bytes)}
		}
		burstable := pod("/kubepods/burstable/podABC", 42)
		assert.InDelta(t, 21, talosScore(&burstable), 0, "as in its own test")
		limited := pod("/kubepods/besteffort/podlimited", 1000)
		limited.MemoryLimitBytes = snapshot.Some[uint64](2000)
		service := pod("/system.slice/burstable.service", 5000)
		service.PodUID = ""
		a := talosAnswer(&snapshot.Sample{Workloads: []snapshot.Workload{
			service, limited, burstable, pod("/kubepods/besteffort/pod123", 22), pod("/kubepods/podguaranteed", 900),
		}})
		assert.Equal(t, []string{"/kubepods/besteffort/pod123 uid", "/kubepods/burstable/podABC uid"}, a.Named)
	})
}

// A rule that lacks what it judges by says so: nothing is made up.
func TestLacking(t *testing.T) {
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			answers, lacks := r.New(judgement.Label{}, nil).Judge(&snapshot.Sample{Monotonic: time.Second})
			assert.NotEmpty(t, lacks)
			assert.Empty(t, answers)
			assert.NotEmpty(t, r.Source)
			assert.NotEmpty(t, r.Resources)
			assert.Greater(t, r.Highest, plugins.None)
		})
	}
}
