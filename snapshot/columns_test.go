package snapshot

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// someWorkloads is a node of workloads that come and go, and work, stall or rest by chance.
type someWorkloads struct {
	random *rand.Rand
	list   map[int]*Workload
	made   uint64
}

func (n *someWorkloads) tick(at time.Duration) *Sample {
	s := &Sample{Time: time.Unix(0, 0).Add(at), Monotonic: at, Boottime: at, BootID: "a"}
	grow := func(o *Opt[uint64], odds int) {
		if n.random.IntN(odds) == 0 {
			v, _ := o.Get()
			*o = Some(v + uint64(1+n.random.IntN(1000)))
		}
	}
	for i := range 12 {
		w := n.list[i]
		if w == nil || n.random.IntN(60) == 0 {
			n.made++
			w = &Workload{Cgroup: fmt.Sprintf("/w%02d", i), Inode: n.made, CPUMicroseconds: u64(1)}
			n.list[i] = w
		}
		busy := 1 + i*i // the last ones hardly ever change
		w.At = at
		grow(&w.CPUMicroseconds, busy)
		grow(&w.LimitHits, 4*busy)
		grow(&w.Pressure.Memory.Some, 2*busy)
		if n.random.IntN(3) > 0 { // not as of each tick
			w.ThrottledAt = at
			grow(&w.ThrottledMicroseconds, 4*busy)
		}
		if n.random.IntN(busy) == 0 {
			w.IO = n.moreIO(w.IO)
		}
		s.Workloads = append(s.Workloads, *w)
	}
	return s
}

func (n *someWorkloads) moreIO(was []WorkloadIO) []WorkloadIO {
	io := append([]WorkloadIO{}, was...)
	if len(io) < 4 && n.random.IntN(8) == 0 {
		io = append(io, WorkloadIO{Number: fmt.Sprintf("8:%d", 16*n.random.IntN(3)+len(io))})
	}
	for j := range io {
		io[j].Reads += uint64(n.random.IntN(50))
	}
	return io
}

// TestColumnsEqualSamples compares each window of each Snapshot, also of old ones, with
// the samples themselves.
func TestColumnsEqualSamples(t *testing.T) {
	n := &someWorkloads{random: rand.New(rand.NewPCG(1, 2)), list: map[int]*Workload{}}
	h := &History{Window: 3 * testTick, Keep: 20 * testTick, MaxGap: 3 * testTick}
	var samples []*Sample
	var snapshots []*Snapshot
	chunks := 0
	for i := range 4000 {
		samples = append(samples, n.tick(time.Duration(i+1)*testTick))
		snapshots = append(snapshots, h.Add(samples[i]))
		chunks = max(chunks, len(h.columns.details.chunks), len(h.columns.stalls.chunks), len(h.columns.io.chunks))
		if i%7 != 0 {
			continue
		}
		old := max(0, i-n.random.IntN(100))
		equalSamples(t, snapshots[old], samples[:old+1])
	}
	assert.Less(t, chunks, 12, "what no point refers to is dropped")
}

func equalSamples(t *testing.T, s *Snapshot, samples []*Sample) {
	t.Helper()
	for back := 1; back < len(s.points); back++ {
		w, covered := s.Over(time.Duration(back) * testTick)
		require.True(t, covered)
		was := samples[len(samples)-1-back]
		for i := range s.Workloads {
			now, then := &s.Workloads[i].Workload, &was.Workloads[i]
			if now.Inode != then.Inode {
				continue // the window begins with its series
			}
			r, ok := w.Workload(now).Get()
			require.True(t, ok)
			assert.Equal(t, per(now.CPUMicroseconds, then.CPUMicroseconds, float64(back)*1e6), r.CPUCores)
			assert.Equal(t, increase(now.LimitHits, then.LimitHits), r.LimitHits)
			assert.Equal(t, per(now.ThrottledMicroseconds, then.ThrottledMicroseconds, (now.ThrottledAt-then.ThrottledAt).Seconds()*1e6), r.ThrottledRatio)
			assert.Equal(t, share(now.Pressure.Memory.Some, then.Pressure.Memory.Some, float64(back)), r.Pressure.Memory.Some)
			assert.Equal(t, readsPerSecond(now.IO, then.IO, float64(back)), readsOf(r.IO))
		}
	}
}

// What a workload at rest has is kept once, also while it is as of each tick.
func TestColumnsOnce(t *testing.T) {
	h := &History{Window: 3 * testTick, Keep: 20 * testTick, MaxGap: 3 * testTick}
	for i := range 100 {
		at := time.Duration(i+1) * testTick
		h.Add(&Sample{Monotonic: at, Boottime: at, Workloads: []Workload{{Cgroup: "/a", At: at, DetailAt: 1, ThrottledAt: at, ThrottledMicroseconds: u64(7)}}})
	}
	assert.Equal(t, 1, h.columns.details.used)
}

func readsPerSecond(now, then []WorkloadIO, seconds float64) map[string]float64 {
	rates := map[string]float64{}
	for _, a := range now {
		for _, b := range then {
			if a.Number == b.Number {
				rates[a.Number] = float64(a.Reads-b.Reads) / seconds
			}
		}
	}
	return rates
}

func readsOf(io []WorkloadIORates) map[string]float64 {
	rates := map[string]float64{}
	for _, r := range io {
		rates[r.Number] = r.ReadsPerSecond
	}
	return rates
}
