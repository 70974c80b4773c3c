package snapshot

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAvailableRatio(t *testing.T) {
	for want, m := range map[Opt[float64]]Memory{
		Some(0.25): {TotalBytes: u64(400), AvailableBytes: u64(100)},
		Some(0.0):  {TotalBytes: u64(400), AvailableBytes: u64(0)},
	} {
		assert.Equal(t, want, m.availableRatio())
	}
	for _, m := range []Memory{{}, {TotalBytes: u64(4)}, {AvailableBytes: u64(4)}, {TotalBytes: u64(0), AvailableBytes: u64(0)}} {
		assert.Zero(t, m.availableRatio())
	}
}

func TestWorkingSetNoUnderflow(t *testing.T) {
	for _, c := range []struct{ memory, inactive, want Opt[uint64] }{
		{u64(100), u64(30), u64(70)},
		{u64(100), u64(100), u64(0)},
		{u64(100), u64(101), u64(0)}, // two files are not read at one instant
		{u64(100), Opt[uint64]{}, Opt[uint64]{}},
		{Opt[uint64]{}, u64(1), Opt[uint64]{}},
	} {
		w := Workload{MemoryBytes: c.memory, InactiveFileBytes: c.inactive}
		assert.Equal(t, c.want, w.workingSet())
	}
}

func TestTrendOldestFirst(t *testing.T) {
	s := feed(testHistory(), 4, func(i int, s *Sample) {
		s.Pressure.Memory.Full = Some(uint64(i*i) * 100_000)
		s.CPU = CPU{Online: Some(2), Seconds: map[string]float64{"user": float64(i * i), "idle": -float64(i)}}
	})
	trend := s.Trend()
	require.Len(t, trend, 3)
	for i, p := range trend {
		assert.InDelta(t, float64(2-i), p.AgoSeconds, 1e-9)
		full, ok := p.Stall.Memory.Full.Get()
		require.True(t, ok)
		assert.InDelta(t, 0.1*float64(2*i+1), full, 1e-9)
		busy, ok := p.CPUBusy.Get()
		require.True(t, ok)
		assert.InDelta(t, min(1, float64(2*i+1)/2), busy, 1e-9)
	}
}
