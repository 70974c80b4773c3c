package snapshot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testTick = time.Second

func testHistory() *History {
	return &History{Window: 10 * testTick, Keep: 2 * time.Minute, MaxGap: 3 * testTick}
}

// feed adds samples that differ only in what change does to them; the clocks
// move by one tick each.
func feed(h *History, n int, change func(i int, s *Sample)) (last *Snapshot) {
	for i := range n {
		at := time.Duration(i+1) * testTick
		s := &Sample{Time: time.Unix(0, 0).Add(at), Monotonic: at, Boottime: at, BootID: "a"}
		change(i, s)
		last = h.Add(s)
	}
	return last
}

func u64(n uint64) Opt[uint64] { return Some(n) }

func oneDisk(d Disk) func(*Sample) {
	return func(s *Sample) { s.Disks = []Disk{d} }
}

func TestRatesFirstSample(t *testing.T) {
	s := feed(testHistory(), 1, func(_ int, s *Sample) { oneDisk(Disk{Name: "sda"})(s) })
	assert.True(t, s.Disks[0].Rates.IsZero())
	assert.Zero(t, s.WindowSeconds)
	assert.Contains(t, s.Absent["rates"], "first sample")
}

func TestRatesMeasuredWindow(t *testing.T) {
	h := testHistory()
	at := time.Duration(0)
	var s *Snapshot
	for i := range 5 { // ticks of 1.5 s: whole seconds would be wrong by a third
		at += 1500 * time.Millisecond
		s = h.Add(&Sample{Monotonic: at, Boottime: at, Disks: []Disk{{Name: "sda", DiskCounters: DiskCounters{
			Reads: uint64(i * 300), Writes: uint64(i * 60), ReadMs: uint64(i * 600), WriteMs: uint64(i * 240),
		}}}})
	}
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok)
	assert.InDelta(t, 200, r.ReadsPerSecond, 1e-9)
	assert.InDelta(t, 40, r.WritesPerSecond, 1e-9, "writes are not stored over reads")
	await, ok := r.ReadAwaitSeconds.Get()
	require.True(t, ok)
	assert.InDelta(t, 0.002, await, 1e-9)
	await, ok = r.WriteAwaitSeconds.Get()
	require.True(t, ok)
	assert.InDelta(t, 0.004, await, 1e-9)
}

func TestRatesIgnoreWallClock(t *testing.T) {
	s := feed(testHistory(), 4, func(i int, s *Sample) {
		s.Time = time.Unix(0, 0).Add(-time.Duration(i) * time.Hour) // set back an hour each second
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: uint64(i * 7)}})(s)
	})
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok)
	assert.InDelta(t, 7, r.ReadsPerSecond, 1e-9)
}

func TestRatesWrap32(t *testing.T) {
	const before = 1<<32 - 250
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		ms := uint64(uint32(before + i*200)) // wraps between the second and the third
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: uint64(i * 100), ReadMs: ms, WriteMs: ms, WeightedMs: ms, BusyMs: ms}})(s)
	})
	d := s.Disks[0]
	for _, total := range []uint64{d.ReadMs, d.WriteMs, d.WeightedMs, d.BusyMs} {
		assert.EqualValues(t, before+400, total, "the total is unwrapped")
	}
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok)
	assert.InDelta(t, 0.2, r.BusyRatio, 1e-9)
	assert.InDelta(t, 0.2, r.QueueLength, 1e-9)
}

func TestRatesCounterReset(t *testing.T) {
	reads := []uint64{1000, 1100, 5, 55, 105}
	var after []Opt[DiskRates]
	for n := 1; n <= len(reads); n++ {
		s := feed(testHistory(), n, func(i int, s *Sample) {
			oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: reads[i]}})(s)
		})
		after = append(after, s.Disks[0].Rates)
	}
	assert.True(t, after[2].IsZero(), "no rate over a reset")
	for _, i := range []int{1, 3, 4} {
		r, ok := after[i].Get()
		require.True(t, ok, i)
		assert.InDelta(t, map[int]float64{1: 100, 3: 50, 4: 50}[i], r.ReadsPerSecond, 1e-9)
	}
}

func TestRatesDeviceRecreated(t *testing.T) {
	for _, c := range []struct {
		name string
		next func(*Disk)
	}{
		{"another sequence", func(d *Disk) { d.Sequence = Some(uint64(8)) }},
		{"another number", func(d *Disk) { d.Number = "8:16" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := testHistory()
			s := feed(h, 3, func(i int, s *Sample) {
				d := Disk{Name: "sda", Number: "8:0", Sequence: Some(uint64(7)), DiskCounters: DiskCounters{Reads: uint64(1000 * (i + 1))}}
				if i == 2 { // it did more than the old one: only identity tells
					c.next(&d)
				}
				oneDisk(d)(s)
			})
			assert.True(t, s.Disks[0].Rates.IsZero())
		})
	}
}

func TestRatesNICRecreated(t *testing.T) {
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		n := NIC{Name: "veth0", Index: Some(4), Address: Some("02:00"), NICCounters: NICCounters{ReceiveBytes: uint64(1000 * (i + 1))}}
		if i == 2 {
			n.Index = Some(5)
		}
		s.NICs = []NIC{n}
	})
	assert.True(t, s.NICs[0].Rates.IsZero())
}

func TestRatesCgroupRecreated(t *testing.T) {
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		w := Workload{Cgroup: "/a", Inode: 10, CPUMicroseconds: Some(uint64(1_000_000 * (i + 1)))}
		if i == 2 {
			w.Inode = 11
		}
		s.Workloads = []Workload{w}
	})
	assert.True(t, s.Workloads[0].Rates.IsZero())
}

func TestRatesDeviceAddedInWindow(t *testing.T) {
	s := feed(testHistory(), 8, func(i int, s *Sample) {
		if i >= 5 {
			oneDisk(Disk{Name: "sdb", DiskCounters: DiskCounters{Writes: uint64(i * 10)}})(s)
		}
	})
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok)
	assert.InDelta(t, 2, r.WindowSeconds, 1e-9)
	assert.InDelta(t, 10, r.WritesPerSecond, 1e-9)
}

func TestRatesSuspend(t *testing.T) {
	h := testHistory()
	suspended := func(i int, s *Sample) {
		if i >= 5 { // the monotonic clock stood still, the other did not
			s.Boottime += 8 * time.Hour
		}
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: uint64(i * 100)}})(s)
	}
	s := feed(h, 6, suspended)
	assert.True(t, s.Disks[0].Rates.IsZero())
	assert.EqualValues(t, 1, s.Gaps)
	assert.Contains(t, s.Absent["rates"], "no sample for 8h0m1s")
	_, covered := s.Over(time.Second)
	assert.False(t, covered)

	s = feed(testHistory(), 8, suspended)
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok, "it goes on by itself")
	assert.InDelta(t, 100, r.ReadsPerSecond, 1e-9)
}

func TestRatesWrapBeforeGap(t *testing.T) {
	s := feed(testHistory(), 6, func(i int, s *Sample) {
		if i >= 4 {
			s.Boottime += time.Minute
		}
		ms := uint64(uint32(1<<32 - 250 + i*200))
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{ReadMs: ms}})(s)
	})
	require.EqualValues(t, 1, s.Gaps)
	assert.EqualValues(t, 1<<32-250+1000, s.Disks[0].ReadMs, "no counter reset is shown where there was none")
}

func TestRatesReboot(t *testing.T) {
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		if i == 2 {
			s.BootID = "b"
		}
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: uint64(i * 100)}})(s)
	})
	assert.True(t, s.Disks[0].Rates.IsZero())
	assert.Contains(t, s.Absent["rates"], "booted")
}

func TestRatesUnmeasuredAbsent(t *testing.T) {
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		s.Workloads = []Workload{{Cgroup: "/a", Inode: 1}}
		if i == 0 {
			s.Pressure.Memory.Full = Some(uint64(5)) // and later no more
		}
	})
	r, ok := s.Workloads[0].Rates.Get()
	require.True(t, ok)
	assert.True(t, r.CPUCores.IsZero())
	assert.True(t, r.Pressure.Memory.Full.IsZero())
	assert.True(t, s.Pressure.Memory.Full.IsZero())
	assert.True(t, s.CPU.BusyRatio.IsZero())
	assert.True(t, s.Memory.AvailableRatio.IsZero())
}

func TestSnapshotNeverChanges(t *testing.T) {
	h := testHistory()
	change := func(i int, s *Sample) {
		s.Pressure.Memory.Full = Some(uint64(i * 100_000))
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: uint64(i * 100)}})(s)
	}
	s := feed(h, 20, change)
	w, covered := s.Over(15 * time.Second)
	require.True(t, covered)
	full, trend := w.Pressure().Memory.Full, s.Trend()
	for i := range 200 {
		at := time.Duration(21+i) * testTick
		n := &Sample{Monotonic: at, Boottime: at, BootID: "a"}
		change(1000+i, n)
		h.Add(n)
	}
	w, _ = s.Over(15 * time.Second)
	assert.Equal(t, full, w.Pressure().Memory.Full)
	assert.Equal(t, trend, s.Trend())
	assert.LessOrEqual(t, len(h.points), 122, "history is bounded")
}

func TestBreak(t *testing.T) {
	h := testHistory()
	h.Break("before the first sample")
	with := func(i int, s *Sample) {
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: uint64(i * 100)}})(s)
		if i == 3 {
			h.Break("another agent")
		}
	}
	var windows []float64
	for i := range 6 {
		at := time.Duration(i+1) * testTick
		s := &Sample{Time: time.Unix(0, 0).Add(at), Monotonic: at, Boottime: at, BootID: "a"}
		with(i, s)
		snap := h.Add(s)
		windows = append(windows, snap.WindowSeconds)
		assert.Equal(t, snap.WindowSeconds == 0, snap.Disks[0].Rates.IsZero())
		if i == 3 {
			assert.Equal(t, "window dropped: another agent", snap.Absent["rates"])
			assert.Equal(t, uint64(1), snap.Gaps)
		}
	}
	assert.Equal(t, []float64{0, 1, 2, 0, 1, 2}, windows)
}
