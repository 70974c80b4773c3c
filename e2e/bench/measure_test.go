package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func TestMedianOfMeans(t *testing.T) {
	ticks := []time.Duration{ms, 3 * ms, ms, 3 * ms, ms, 300 * ms}
	assert.Equal(t, 2*ms, medianOfMeans(ticks, 2))
	assert.Equal(t, 2*ms, medianOfMeans([]time.Duration{ms, 3 * ms, 0}, 2), "a rest does not count")
	assert.Equal(t, 2*ms, medianOfMeans(ticks[:2], 15), "but when it is all there is")
	assert.Zero(t, medianOfMeans(nil, 15))
}

func TestQuantileIsAValue(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(200-i))
	}
	assert.EqualValues(t, 198, quantile(all, 0.99))
	assert.EqualValues(t, 100, median(all))
	assert.EqualValues(t, 200, quantile(all, 1))
	assert.EqualValues(t, 1, quantile(all, 0))
	assert.EqualValues(t, 7, quantile([]time.Duration{7}, 0.99))
	assert.Zero(t, quantile(nil, 0.99))
}

func TestShortDurations(t *testing.T) {
	assert.Equal(t, "0.50 µs", short(500))
	assert.Equal(t, "12.3 µs", short(12_345))
	assert.Equal(t, "1.23 ms", short(1_234_567))
	assert.Equal(t, "999 ms", short(999*ms))
	assert.Equal(t, "2.00 s", short(2*time.Second))
}

func TestCheaperOrDearer(t *testing.T) {
	assert.Equal(t, "4.00 × cheaper", cheaper(4))
	assert.Equal(t, "4.00 × dearer", cheaper(0.25))
}

func TestSideBySideTakesTurns(t *testing.T) {
	var order []string
	named := func(name string) *contender {
		return &contender{name: name, run: func(int) error { order = append(order, name); return nil }}
	}
	a, b := named("a"), named("b")
	betweens := 0
	require.NoError(t, sideBySide(t.Context(), 2, 1, func() error { betweens++; return nil }, []*contender{a, b}))
	assert.Equal(t, []string{"a", "b", "b", "a", "a", "b"}, order)
	assert.Equal(t, 3, betweens)
	assert.Len(t, a.took, 2, "what is warm-up does not count")
	assert.Len(t, b.took, 2)
}

func TestSideBySideEndsOnError(t *testing.T) {
	broken := errors.New("no such file")
	all := []*contender{{name: "peer", run: func(int) error { return broken }}}
	err := sideBySide(t.Context(), 4, 0, func() error { return nil }, all)
	require.ErrorIs(t, err, broken)
	assert.ErrorContains(t, err, "peer")
}

func TestCPUTimeIsNotWallTime(t *testing.T) {
	start := time.Now()
	slept, err := cpuTime(func() error { return wait(t.Context(), 50*ms) })
	require.NoError(t, err)
	assert.Less(t, slept, time.Since(start)/2)
	worked, err := cpuTime(func() error {
		first, err := processClock()
		for now := first; err == nil && now-first < 5*ms; {
			now, err = processClock()
		}
		return err
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, worked, 5*ms)
}

func TestAllocationsAreCounted(t *testing.T) {
	var kept [][]byte
	n, err := allocations(func() error {
		for range 1000 {
			kept = append(kept, make([]byte, 100))
		}
		return nil
	})
	require.NoError(t, err)
	assert.Len(t, kept, 1000)
	assert.GreaterOrEqual(t, n, uint64(1000))
	assert.Less(t, n, uint64(2000))
}
