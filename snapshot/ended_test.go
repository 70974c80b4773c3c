package snapshot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A workload that is gone and met its own limit stalled for a part of the window.
func TestEndedMemoryStall(t *testing.T) {
	h := &History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	second := func(i int, hits uint64, there bool) float64 {
		at := time.Duration(i) * time.Second
		s := &Sample{Monotonic: at, Boottime: at, Workloads: []Workload{{Cgroup: "/other", Inode: 2, At: at, CPUMicroseconds: Some(uint64(i))}}}
		if there {
			w := Workload{Cgroup: "/job", Inode: 1, At: at, LimitHits: Some(hits)}
			w.Pressure.Memory.Full = Some(uint64(i) * 500_000)
			s.Workloads = append([]Workload{w}, s.Workloads...)
		}
		w, _ := h.Add(s).Over(10 * time.Second)
		return w.EndedMemoryStall()
	}
	for i := 1; i <= 20; i++ {
		assert.Zero(t, second(i, uint64(i), true), "it is there, and counts as what it is")
	}
	for i := 21; i <= 100; i++ {
		assert.InDelta(t, max(0, 0.5*float64(31-i)/10), second(i, 0, false), 1e-9, "%d", i)
	}
	assert.Empty(t, h.ended, "the history does not reach back to it")
	assert.Len(t, h.workloads.free, 1, "its slot is free")

	for i := 101; i <= 110; i++ {
		second(i, 7, true)
	}
	assert.Zero(t, second(111, 0, false), "it did not meet its limit")
	for i := 112; i <= 120; i++ {
		second(i, uint64(i), true)
	}
	assert.NotZero(t, second(121, 0, false))
	assert.Zero(t, second(200, 0, false), "no window reaches over a gap")
	assert.Len(t, h.workloads.free, 1)
}
