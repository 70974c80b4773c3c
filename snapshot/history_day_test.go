package snapshot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine is a made-up kernel whose counters are known in full width.
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

// step advances one tick, sometimes with an event that a naive difference gets
// wrong.
func (m *machine) step() {
	m.fresh, m.gap = map[string]bool{}, false
	d := time.Duration(900+m.rnd.IntN(200)) * time.Millisecond
	m.mono, m.boot = m.mono+d, m.boot+d
	readsBefore := m.reads
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
	case 5: // the driver reset its counters, same device
		if readsBefore == 0 {
			return // a reset from 0 to 0 is invisible
		}
		m.reads = 0
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

// truth has, per object, the states since its series began.
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

// rate is the slow reference: from the oldest state at most one sample older
// than the window.
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

// A day of virtual time: every rate equals that of a machine that wraps,
// resets, suspends, boots and re-creates its devices; none is guessed.
func TestHistoryDayOfWrapsAndSuspend(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &machine{rnd: rand.New(rand.NewPCG(seed, 1)), readMs: 1<<32 - 5000, weightedMs: 1<<32 - 1000}
	h := testHistory()
	var disk, weighted, nic, workload, full truth
	check := func(what string, got Opt[float64], tr *truth) {
		want, ok := tr.rate(h.Window)
		v, there := got.Get()
		if ok != there || math.Abs(want-v) > 1e-6*max(1, want) { // half a million times: an assertion takes longer than what it holds
			t.Fatalf("%s at %s is %v (%t), not %v (%t)", what, m.mono, v, there, want, ok)
		}
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
