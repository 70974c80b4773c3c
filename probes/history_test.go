package probes

import (
	"fmt"
	"math/rand/v2"
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

func oneDisk(d Disk) func(*Sample) {
	return func(s *Sample) { s.Disks = []Disk{d} }
}

func TestTheFirstSampleHasNoRatesAndSaysWhy(t *testing.T) {
	s := feed(testHistory(), 1, func(_ int, s *Sample) { oneDisk(Disk{Name: "sda"})(s) })
	assert.True(t, s.Disks[0].Rates.IsZero())
	assert.Zero(t, s.WindowSeconds)
	assert.Contains(t, s.Absent["rates"], "first sample")
}

func TestRatesAreDividedByTheWindowThatWasReallyMeasured(t *testing.T) {
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

func TestTheWallClockHasNoSayInRates(t *testing.T) {
	s := feed(testHistory(), 4, func(i int, s *Sample) {
		s.Time = time.Unix(0, 0).Add(-time.Duration(i) * time.Hour) // set back an hour each second
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: uint64(i * 7)}})(s)
	})
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok)
	assert.InDelta(t, 7, r.ReadsPerSecond, 1e-9)
}

func TestATimeThatWrapsAt32BitsGoesOn(t *testing.T) {
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

func TestACounterThatWentBackStartsAnewAndIsNeverHuge(t *testing.T) {
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

func TestADeviceMadeAnewUnderItsNameIsAnotherOne(t *testing.T) {
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

func TestANICMadeAnewUnderItsNameIsAnotherOne(t *testing.T) {
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		n := NIC{Name: "veth0", Index: Some(4), Address: Some("02:00"), NICCounters: NICCounters{ReceiveBytes: uint64(1000 * (i + 1))}}
		if i == 2 {
			n.Index = Some(5)
		}
		s.NICs = []NIC{n}
	})
	assert.True(t, s.NICs[0].Rates.IsZero())
}

func TestACgroupMadeAnewUnderItsPathIsAnotherOne(t *testing.T) {
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		w := Workload{Cgroup: "/a", Inode: 10, CPUMicroseconds: Some(uint64(1_000_000 * (i + 1)))}
		if i == 2 {
			w.Inode = 11
		}
		s.Workloads = []Workload{w}
	})
	assert.True(t, s.Workloads[0].Rates.IsZero())
}

func TestADeviceThatCameWithinTheWindowHasRatesSinceThen(t *testing.T) {
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

func TestSuspendDropsTheWindowAndIsCounted(t *testing.T) {
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
	assert.Contains(t, s.Absent["rates"], "8h0m1s without a sample")
	_, covered := s.Over(time.Second)
	assert.False(t, covered)

	s = feed(testHistory(), 8, suspended)
	r, ok := s.Disks[0].Rates.Get()
	require.True(t, ok, "it goes on by itself")
	assert.InDelta(t, 100, r.ReadsPerSecond, 1e-9)
}

func TestATimeThatWrappedBeforeAGapIsNotForgotten(t *testing.T) {
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

func TestAnotherBootIsNeverComparedWithTheOneBefore(t *testing.T) {
	s := feed(testHistory(), 3, func(i int, s *Sample) {
		if i == 2 {
			s.BootID = "b"
		}
		oneDisk(Disk{Name: "sda", DiskCounters: DiskCounters{Reads: uint64(i * 100)}})(s)
	})
	assert.True(t, s.Disks[0].Rates.IsZero())
	assert.Contains(t, s.Absent["rates"], "booted")
}

func TestWhatWasNotMeasuredIsAbsentAndNotZero(t *testing.T) {
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

func TestASnapshotDoesNotChangeWhenTimeGoesOn(t *testing.T) {
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

// machine is a made-up kernel whose truth is known in full width.
type machine struct {
	rnd              *rand.Rand
	mono, boot       time.Duration
	reads, readMs    uint64
	weightedMs       uint64
	diskseq, ifidx   uint64
	rx, cpu, full    uint64
	inode            uint64
	bootID           int
	fresh            map[string]bool // objects that were made anew at this tick
	gap              bool
	wraps, accidents int
}

// step lets one tick pass; now and then something happens that a naive
// difference gets wrong.
func (m *machine) step() {
	m.fresh, m.gap = map[string]bool{}, false
	d := time.Duration(900+m.rnd.IntN(200)) * time.Millisecond
	m.mono, m.boot = m.mono+d, m.boot+d
	m.reads += m.rnd.Uint64N(5000)
	m.readMs += m.rnd.Uint64N(900)
	before := m.weightedMs >> 32
	m.weightedMs += 128_000 * uint64(d) / uint64(time.Second) // queue depth 128: wraps every 9.3 h
	if m.weightedMs>>32 != before {
		m.wraps++
	}
	m.rx += m.rnd.Uint64N(1 << 30)
	m.cpu += m.rnd.Uint64N(2_000_000)
	m.full += m.rnd.Uint64N(uint64(d.Microseconds()))
	switch m.rnd.IntN(2000) {
	case 0:
		m.diskseq++
		m.reads, m.readMs, m.weightedMs = m.rnd.Uint64N(1e9), 0, 0
		m.fresh["disk"] = true
	case 1:
		m.ifidx++
		m.rx = m.rnd.Uint64N(1 << 40)
		m.fresh["nic"] = true
	case 2:
		m.inode++
		m.cpu = m.rnd.Uint64N(1e12)
		m.fresh["workload"] = true
	case 3:
		m.boot += time.Duration(m.rnd.IntN(7200)+4) * time.Second // suspend
		m.gap = true
	case 4:
		m.bootID++
		m.reads, m.readMs, m.weightedMs, m.rx, m.cpu, m.full = 0, 0, 0, 0, 0, 0
		m.gap = true
	case 5:
		m.reads = 0 // the driver reset its counters, same device
		m.fresh["disk"] = true
	default:
		return
	}
	m.accidents++
}

func (m *machine) sample() *Sample {
	return &Sample{
		Monotonic: m.mono, Boottime: m.boot, BootID: fmt.Sprint(m.bootID),
		Pressure: Pressure{Memory: Stall{Full: Some(m.full)}},
		Disks: []Disk{{Name: "sda", Number: "8:0", Sequence: Some(m.diskseq), DiskCounters: DiskCounters{
			Reads: m.reads, ReadMs: uint64(uint32(m.readMs)), WeightedMs: uint64(uint32(m.weightedMs)),
		}}},
		NICs:      []NIC{{Name: "eth0", Index: Some(int(m.ifidx)), NICCounters: NICCounters{ReceiveBytes: m.rx}}},
		Workloads: []Workload{{Cgroup: "/a", Inode: m.inode, CPUMicroseconds: Some(m.cpu)}},
	}
}

// truth keeps, per object, the states since its series began.
type truth struct {
	at    []time.Duration
	value []uint64
}

func (tr *truth) add(fresh bool, at time.Duration, v uint64) {
	if fresh {
		tr.at, tr.value = nil, nil
	}
	tr.at, tr.value = append(tr.at, at), append(tr.value, v)
	if len(tr.at) > 40 {
		tr.at, tr.value = tr.at[1:], tr.value[1:]
	}
}

// rate is the slow obvious answer: the oldest state no more than one sample
// older than the window.
func (tr *truth) rate(window time.Duration) (float64, bool) {
	last := len(tr.at) - 1
	from := last
	for from > 0 && tr.at[last]-tr.at[from] < window-jitter {
		from--
	}
	if from == last {
		return 0, false
	}
	return float64(tr.value[last]-tr.value[from]) / (tr.at[last] - tr.at[from]).Seconds(), true
}

// A day of virtual time: every rate equals the truth of a machine that wraps,
// resets, suspends, boots and makes its devices anew; none is ever guessed.
func TestADayOfWrapsResetsAndSuspend(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &machine{rnd: rand.New(rand.NewPCG(seed, 1)), readMs: 1<<32 - 5000, weightedMs: 1<<32 - 1000}
	h := testHistory()
	var disk, weighted, nic, workload, full truth
	check := func(what string, got Opt[float64], tr *truth) {
		want, ok := tr.rate(h.Window)
		v, there := got.Get()
		require.Equal(t, ok, there, "%s at %s", what, m.mono)
		require.InDelta(t, want, v, 1e-6*max(1, want), "%s at %s", what, m.mono)
	}
	for m.mono < 24*time.Hour {
		m.step()
		s := h.Add(m.sample())
		disk.add(m.gap || m.fresh["disk"], m.mono, m.reads)
		weighted.add(m.gap || m.fresh["disk"], m.mono, m.weightedMs)
		nic.add(m.gap || m.fresh["nic"], m.mono, m.rx)
		workload.add(m.gap || m.fresh["workload"], m.mono, m.cpu)
		full.add(m.gap, m.mono, m.full)

		d, w, n := s.Disks[0].Rates, s.Workloads[0].Rates, s.NICs[0].Rates
		check("reads", part(d, func(r DiskRates) float64 { return r.ReadsPerSecond }), &disk)
		check("queue", part(d, func(r DiskRates) float64 { return r.QueueLength * 1000 }), &weighted)
		check("receive", part(n, func(r NICRates) float64 { return r.ReceiveBytesPerSecond }), &nic)
		check("cpu", part(w, func(r WorkloadRates) float64 { c, _ := r.CPUCores.Get(); return c * 1e6 }), &workload)
		check("stall", part(s.Pressure.Memory.Full, func(r float64) float64 { return r * 1e6 }), &full)
	}
	require.Greater(t, m.wraps, 0)
	require.Greater(t, m.accidents, 50)
	t.Logf("%d samples, %d wraps, %d accidents, %d gaps", h.seq, m.wraps, m.accidents, h.gaps)
}

func part[T any](o Opt[T], of func(T) float64) Opt[float64] {
	v, ok := o.Get()
	if !ok {
		return Opt[float64]{}
	}
	return Some(of(v))
}
