package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	tick   = time.Second
	window = time.Second
)

// sampled runs a loop at the rhythm of tick, whose samples take as long as
// given, and returns when each began, in ms; a woken one is negative.
func sampled(t *testing.T, runs, takes time.Duration, stall func(wake func())) (began []int64) {
	t.Helper()
	return sampledUntilShort(t, runs, takes, stall, func(time.Duration) time.Duration { return 0 })
}

// sampledUntilShort is the same where memory is short that long after a sample.
func sampledUntilShort(t *testing.T, runs, takes time.Duration, stall func(wake func()), shortIn func(since time.Duration) time.Duration) (began []int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), runs)
		defer cancel()
		p := pace{woken: make(chan struct{}, 1)}
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		go stall(func() { wake(p.woken) })
		start := time.Now()
		for p.next(ctx, ticker.C, window, shortIn(time.Since(start))) {
			at := time.Since(start).Milliseconds()
			if p.woke {
				at = -at
			}
			began = append(began, at)
			time.Sleep(takes)
		}
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		woken := uint64(0)
		for _, at := range began {
			if at < 0 {
				woken++
			}
		}
		assert.Equal(t, woken, p.count)
		cancel()
		synctest.Wait()
	})
	return began
}

// at wakes at these milliseconds.
func at(ms ...time.Duration) func(func()) {
	return func(wake func()) {
		for i, m := range ms {
			before := time.Duration(0)
			if i > 0 {
				before = ms[i-1]
			}
			time.Sleep((m - before) * time.Millisecond)
			wake()
		}
	}
}

func TestSampleWokenByTriggerKeepsTicks(t *testing.T) {
	assert.Equal(t, []int64{1000, -1500, 2000, 3000}, sampled(t, 3500*time.Millisecond, 0, at(1500)))
}

func TestSampleMinimumGap(t *testing.T) {
	assert.Equal(t, []int64{1000, -1230, 2000}, sampled(t, 2500*time.Millisecond, 30*time.Millisecond, at(1010)),
		"fired while a sample was taken: looked at again 200 ms after its end")
	assert.Equal(t, []int64{-500, 1000, 2000}, sampled(t, 2950*time.Millisecond, 0, at(500, 700)), "the tick came before and serves it")
}

func TestSampleServesTickRightAfter(t *testing.T) {
	assert.Equal(t, []int64{1000, -1990, 3000}, sampled(t, 3500*time.Millisecond, 0, at(1990)))
	assert.Equal(t, []int64{1000, -1700, 2000, 3000}, sampled(t, 3500*time.Millisecond, 0, at(1700)))
	assert.Equal(t, []int64{1000, -1900, 3000}, sampled(t, 3500*time.Millisecond, 150*time.Millisecond, at(1900)),
		"also when the tick came while it was taken: a tick is no reason to sample without a pause")
}

// Between two ticks, when memory is estimated to become short; no sooner than the least gap,
// and the ticks stay.
func TestSampleWhenMemoryIsShort(t *testing.T) {
	for shortIn, want := range map[time.Duration][]int64{
		0:                      {1000, 2000},
		time.Millisecond:       {1000, 1200, 2000},
		450 * time.Millisecond: {1000, 1450, 2000},
		900 * time.Millisecond: {1000, 1900}, // which serves the tick right after it
		3 * time.Second:        {1000, 2000},
	} {
		assert.Equal(t, want, sampledUntilShort(t, 2500*time.Millisecond, 0, at(), func(since time.Duration) time.Duration {
			if since == time.Second {
				return shortIn
			}
			return 0
		}), "%s", shortIn)
	}
}

func TestSampleLongStallOnePerWindow(t *testing.T) {
	began := sampled(t, 60*time.Second, 20*time.Millisecond, func(wake func()) {
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			wake()
		}
	})
	woken, ticks := 0, 0
	for i, at := range began {
		if at < 0 {
			woken++
		} else {
			ticks++
			assert.Zero(t, at%1000, "the ticker keeps its rhythm")
		}
		if i > 0 {
			assert.GreaterOrEqual(t, max(at, -at)-max(began[i-1], -began[i-1]), minSampleGap.Milliseconds())
		}
	}
	assert.InDelta(t, 60, woken, 2)
	assert.InDelta(t, 60, ticks, 2)
}

// A sample that takes longer than a tick is followed by the next at once, as
// without triggers: they change nothing about a node that is that slow.
func TestSampleSlowNeverOverlaps(t *testing.T) {
	began := sampled(t, 10*time.Second, 1300*time.Millisecond, func(wake func()) {
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			wake()
		}
	})
	for i := 1; i < len(began); i++ {
		assert.GreaterOrEqual(t, max(began[i], -began[i])-max(began[i-1], -began[i-1]), int64(1300))
	}
	assert.GreaterOrEqual(t, len(began), 6)
}

// Only where one could be held: an agent of a cluster that throttles, whose rule of memory
// is on.
func TestShortIn(t *testing.T) {
	c := config.Default()
	h := snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: time.Minute}
	var s *snapshot.Snapshot
	for i, available := range []uint64{1000, 700} { // of 2 GiB, of which 400 MiB must be available
		now := time.Duration(1+i) * time.Second
		s = h.Add(&snapshot.Sample{Time: time.Unix(int64(i), 0), Monotonic: now, Boottime: now, Memory: snapshot.Memory{TotalBytes: snapshot.Some[uint64](2 << 30), AvailableBytes: snapshot.Some(available << 20)}})
	}
	a := &Agent{config: &c, cluster: &cluster{}}
	a.state.Store(&view.State{Snapshot: s})
	assert.Equal(t, time.Second, a.shortIn())
	c.Throttle.Enabled = false
	assert.Zero(t, a.shortIn())
	c.Throttle.Enabled, c.Plugins.Inner.MemoryStall.Enabled = true, false
	assert.Zero(t, a.shortIn())
	c.Plugins.Inner.MemoryStall.Enabled, a.cluster = true, nil
	assert.Zero(t, a.shortIn())
}
