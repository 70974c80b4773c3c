package snapshot

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWindowCovered(t *testing.T) {
	for n := 1; n <= 8; n++ {
		s := feed(testHistory(), n, func(int, *Sample) {})
		w, covered := s.Over(5 * time.Second)
		assert.Equal(t, n >= 6, covered, "%d samples", n)
		assert.Equal(t, time.Duration(min(n-1, 5))*testTick, w.Elapsed())
	}
}

func TestWindowWithoutHistory(t *testing.T) {
	s := &Snapshot{Sequence: 7} // decoded from JSON
	w, covered := s.Over(testTick)
	assert.False(t, covered)
	assert.Zero(t, w.Elapsed())
	assert.True(t, s.Within(testTick).Workload(&Workload{}).IsZero())
	assert.True(t, s.Within(testTick).Disk(&Disk{}).IsZero())
}

func TestWindowLeastNUMAFree(t *testing.T) {
	free := []uint64{1, 90, 70, 80, 75}
	var skip int
	run := func(n int) Opt[uint64] {
		s := feed(testHistory(), n, func(i int, s *Sample) {
			if i != skip {
				s.NUMANodes = []NUMANode{{ID: 3}, {ID: 4, FreeBytes: Some(free[i])}}
			}
		})
		w, _ := s.Over(3 * time.Second)
		assert.Zero(t, w.MinNUMAFree(3), "not measured")
		assert.Zero(t, w.MinNUMAFree(0), "no such NUMA node")
		return w.MinNUMAFree(4)
	}
	skip = -1
	assert.Equal(t, Some[uint64](70), run(5), "the first sample is not in the window")
	skip = 2
	assert.Zero(t, run(5), "one sample lacks it")
}

func TestWindowTickEarly(t *testing.T) {
	h := testHistory()
	h.Add(&Sample{Monotonic: time.Second, Boottime: time.Second})
	w, covered := h.Add(&Sample{Monotonic: 5960 * time.Millisecond, Boottime: 5960 * time.Millisecond}).Over(5 * time.Second)
	assert.False(t, covered, "nothing was covered over a gap")
	assert.Zero(t, w.Elapsed())
	h = &History{Window: time.Second, Keep: time.Minute, MaxGap: time.Minute}
	h.Add(&Sample{Monotonic: time.Second})
	_, covered = h.Add(&Sample{Monotonic: 5960 * time.Millisecond}).Over(5 * time.Second)
	assert.True(t, covered)
	h = &History{Window: time.Second, Keep: time.Minute, MaxGap: time.Minute}
	h.Add(&Sample{Monotonic: time.Second})
	_, covered = h.Add(&Sample{Monotonic: 5940 * time.Millisecond}).Over(5 * time.Second)
	assert.False(t, covered)
}

// Peers subtract unsigned numbers without looking, or wrap a 32-bit counter
// into 2^64.
func TestRatesNeverHuge(t *testing.T) {
	now := []uint64{100, 0} // every counter went back
	s := feed(testHistory(), 2, func(i int, s *Sample) {
		n := now[i]
		c := Some(n)
		s.Memory = Memory{ScansDirect: c, ScansKswapd: c, Refaults: c, Reclaimed: c, OOMKills: c, SwapIns: c}
		s.Network = Network{TCPSegmentsSent: c, TCPRetransmits: c, ListenDrops: c, SoftnetSqueezed: c}
		s.CPU = CPU{Online: Some(1), Seconds: map[string]float64{"user": float64(n)}}
		s.NICs = []NIC{{Name: "eth0", NICCounters: NICCounters{TransmitDrops: n}}}
		s.Disks = []Disk{{Name: "sda", DiskCounters: DiskCounters{WrittenBytes: n}}}
		s.Workloads = []Workload{{
			Cgroup: "/a", ThrottledMicroseconds: c, LimitHits: c, IO: []WorkloadIO{{Number: "8:0", Reads: n}},
			Pressure: Pressure{CPU: Stall{Some: c}},
		}}
	})
	assert.Zero(t, s.Memory.MemoryRates)
	assert.Zero(t, s.Network.TCPRetransmitRatio)
	assert.Zero(t, s.Network.ListenDropsPerSecond)
	assert.Zero(t, s.Network.SoftnetSqueezedPerSecond)
	assert.Zero(t, s.CPU.BusyRatio)
	assert.Zero(t, s.NICs[0].Rates)
	assert.Zero(t, s.Disks[0].Rates)
	r, ok := s.Workloads[0].Rates.Get()
	require.True(t, ok)
	assert.Equal(t, WorkloadRates{WindowSeconds: 1}, r)
}

// Workloads that are dear to read are read every ten seconds, and ticks are a little early.
func TestRatesReadSeldom(t *testing.T) {
	h := &History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	read, at := Workload{}, time.Hour
	for i := range uint64(60) {
		at += 999_990 * time.Microsecond
		if at >= read.At+10*time.Second {
			read = Workload{Cgroup: "/a", At: at, CPUMicroseconds: Some(uint64(at / time.Microsecond / 2))}
		}
		s := h.Add(&Sample{Monotonic: at, Boottime: at, Workloads: []Workload{read}})
		if i < 22 {
			continue
		}
		for _, d := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second} {
			w, _ := s.Over(d)
			r, ok := w.Workload(&s.Workloads[0].Workload).Get()
			require.True(t, ok, "second %d over %s", i, d)
			cores, _ := r.CPUCores.Get()
			require.InDelta(t, 0.5, cores, 1e-3)
		}
	}
}

func TestRatesDiskColumns(t *testing.T) {
	s := feed(testHistory(), 2, func(i int, s *Sample) {
		n := uint64(i)
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{
			Reads: n * 2, Writes: n * 3, ReadBytes: n * 5, WrittenBytes: n * 7, ReadMs: n * 22, WriteMs: n * 39, BusyMs: n * 170, WeightedMs: n * 1900,
		}})(s)
	})
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok)
	assert.Equal(t, DiskRates{
		WindowSeconds: 1, ReadsPerSecond: 2, WritesPerSecond: 3, ReadBytesPerSecond: 5, WrittenBytesPerSecond: 7,
		ReadAwaitSeconds: Some(0.011), WriteAwaitSeconds: Some(0.013), QueueLength: 1.9, BusyRatio: 0.17,
	}, r)
}

func TestRatesDiskIdleNoAwait(t *testing.T) {
	s := feed(testHistory(), 2, func(_ int, s *Sample) { oneDisk(Disk{Name: "sda"})(s) })
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok)
	assert.Equal(t, DiskRates{WindowSeconds: 1}, r)
}

func TestRatesNICColumns(t *testing.T) {
	s := feed(testHistory(), 2, func(i int, s *Sample) {
		n := uint64(i)
		s.NICs = []NIC{{Name: "eth0", SpeedBytesPerSecond: u64(1000), NICCounters: NICCounters{
			ReceiveBytes: n * 200, ReceivePackets: n * 3, ReceiveErrors: n * 5, ReceiveDrops: n * 7,
			TransmitBytes: n * 1100, TransmitPackets: n * 13, TransmitErrors: n * 17, TransmitDrops: n * 19,
		}}}
	})
	r, ok := s.NICs[0].Rates.Get()
	require.True(t, ok)
	assert.Equal(t, NICRates{
		WindowSeconds: 1, ReceiveBytesPerSecond: 200, TransmitBytesPerSecond: 1100, ReceivePacketsPerSecond: 3, TransmitPacketsPerSecond: 13,
		ErrorsPerSecond: 22, DropsPerSecond: 26, ReceiveUtilizationRatio: Some(0.2), TransmitUtilizationRatio: Some(1.1),
	}, r)
}

func TestWindowSegmentsAndOOMKills(t *testing.T) {
	s := feed(testHistory(), 4, func(i int, s *Sample) {
		n := uint64(i * i)
		s.Network = Network{TCPSegmentsSent: Some(100 * n), TCPRetransmits: Some(3 * n)}
		s.Workloads = []Workload{{Cgroup: "/a", OOMKills: Some(5 + n)}, {Cgroup: "/b"}}
		if i == 3 {
			s.Workloads = append(s.Workloads, Workload{Cgroup: "/new", OOMKills: Some(uint64(9))})
		}
	})
	for d, want := range map[time.Duration]uint64{testTick: 9 - 4, 2 * testTick: 9 - 1, time.Minute: 9} {
		w, _ := s.Over(d)
		sent, again := w.TCP()
		assert.Equal(t, u64(100*want), sent)
		assert.Equal(t, u64(3*want), again)
		assert.Equal(t, u64(want), w.OOMKills(&s.Workloads[0].Workload))
		assert.Zero(t, w.OOMKills(&s.Workloads[1].Workload), "absent is not zero")
		assert.Zero(t, w.OOMKills(&s.Workloads[2].Workload), "what it had counted before is not known")
	}
	none, _ := s.Over(0)
	sent, again := none.TCP()
	assert.Zero(t, sent)
	assert.Zero(t, again)
	back := feed(testHistory(), 2, func(i int, s *Sample) {
		s.Workloads = []Workload{{Cgroup: "/a", OOMKills: Some(uint64(1 - i))}}
	})
	w, _ := back.Over(time.Minute)
	assert.Zero(t, w.OOMKills(&back.Workloads[0].Workload), "a container's count went with it")
}

func TestRatesWorkloadColumns(t *testing.T) {
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		n := uint64(i)
		w := Workload{
			Cgroup: "/a", CPUMicroseconds: Some(n * 3e6), ThrottledMicroseconds: Some(n * 2e6), LimitHits: Some(n * 4),
			IO:       []WorkloadIO{{Number: "8:0", Reads: n * 2, Writes: n * 3, ReadBytes: n * 5, WrittenBytes: n * 7}},
			Pressure: Pressure{Memory: Stall{Some: Some(n * 5e5), Full: Some(n * 25e4)}},
		}
		if i == 2 { // a device without a line before: since when is not known
			w.IO = append(w.IO, WorkloadIO{Number: "8:16", Reads: 9})
		}
		s.Workloads = []Workload{w}
	})
	r, ok := s.Workloads[0].Rates.Get()
	require.True(t, ok)
	assert.Equal(t, WorkloadRates{
		WindowSeconds: 2, CPUCores: Some(3.0), ThrottledRatio: Some(2.0), LimitHits: u64(8),
		IO:       []WorkloadIORates{{Number: "8:0", ReadsPerSecond: 2, WritesPerSecond: 3, ReadBytesPerSecond: 5, WrittenBytesPerSecond: 7}},
		Pressure: Ratios{Memory: StallRatio{Some: Some(0.5), Full: Some(0.25)}},
	}, r)
}

func TestRatesScansOfKnown(t *testing.T) {
	s := feed(testHistory(), 2, func(i int, s *Sample) {
		s.Memory = Memory{ScansDirect: Some(uint64(i * 3)), ScansKswapd: Some(uint64(i * 4))}
	})
	assert.Equal(t, Some(7.0), s.Memory.ScansPerSecond)
	s = feed(testHistory(), 2, func(i int, s *Sample) { s.Memory = Memory{ScansKswapd: Some(uint64(i * 4))} })
	assert.Equal(t, Some(4.0), s.Memory.ScansPerSecond)
	s = feed(testHistory(), 2, func(int, *Sample) {})
	assert.Zero(t, s.Memory.ScansPerSecond)
}

func TestRatioAtMostOne(t *testing.T) {
	s := feed(testHistory(), 2, func(i int, s *Sample) { // the file was read a little after the clock
		s.Pressure.IO.Full = Some(uint64(i) * 1_000_500)
		s.CPU = CPU{Online: Some(1), Seconds: map[string]float64{"user": float64(i) * 1.01}}
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{BusyMs: uint64(i) * 1004}})(s)
	})
	assert.Equal(t, Some(1.0), s.Pressure.IO.Full)
	assert.Equal(t, Some(1.0), s.CPU.BusyRatio)
	r, _ := s.Disks[0].Rates.Get()
	assert.InDelta(t, 1, r.BusyRatio, 0)
}

// No kernel says so, but a recording may.
func TestRatesAbsurdSamples(t *testing.T) {
	s := feed(testHistory(), 2, func(_ int, s *Sample) {
		s.CPU = CPU{Online: Some(0), Seconds: map[string]float64{"user": 1}}
		s.NICs = []NIC{{Name: "eth0", SpeedBytesPerSecond: u64(0)}}
	})
	assert.Zero(t, s.CPU.BusyRatio)
	r, _ := s.NICs[0].Rates.Get()
	assert.Zero(t, r.ReceiveUtilizationRatio)
	s = feed(testHistory(), 2, func(_ int, s *Sample) {
		s.CPU = CPU{Online: Some(1), Seconds: map[string]float64{"user": math.MaxFloat64, "system": math.MaxFloat64}}
	})
	assert.Zero(t, s.CPU.BusyRatio)
}

func TestRatesCPUNotRead(t *testing.T) {
	s := feed(testHistory(), 2, func(i int, s *Sample) {
		s.CPU.Online = Some(1)
		if i == 0 {
			s.CPU.Seconds = map[string]float64{"user": 0}
		}
	})
	assert.Zero(t, s.CPU.BusyRatio)
}

func TestWindowMaxAvailable(t *testing.T) {
	s := feed(testHistory(), 4, func(i int, s *Sample) { s.Memory.AvailableBytes = Some([]uint64{900, 5, 7, 6}[i]) })
	w, _ := s.Over(2 * time.Second)
	assert.Equal(t, u64(7), w.MaxAvailable())
	s = feed(testHistory(), 4, func(i int, s *Sample) {
		if i != 2 {
			s.Memory.AvailableBytes = u64(5)
		}
	})
	w, _ = s.Over(2 * time.Second)
	assert.Zero(t, w.MaxAvailable())
}
