package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is over how many ticks a mean is taken: long enough to hold what is
// read less often than every tick.
const chunk = 15

// contender is one of those that are measured side by side.
type contender struct {
	name string
	run  func(tick int) error
	// measured does what run does and measures it itself; nil: run is measured.
	measured func(tick int) (time.Duration, error)
	took     []time.Duration // of each tick
}

// sideBySide runs the contenders turn and turn about, another one first each
// tick, and keeps the CPU time of this process that each took: that of garbage
// collection too. between prepares a tick. The first warm ticks do not count.
func sideBySide(ctx context.Context, ticks, warm int, between func() error, all []*contender) error {
	cost, err := clockCost()
	if err != nil {
		return err
	}
	for tick := range warm + ticks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := between(); err != nil {
			return err
		}
		for i := range all {
			c := all[(i+tick)%len(all)]
			took, err := c.measure(tick, cost)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if tick >= warm {
				c.took = append(c.took, took)
			}
		}
	}
	return nil
}

// measure is the CPU time of one tick, without the cost of measuring.
func (c *contender) measure(tick int, cost time.Duration) (time.Duration, error) {
	runtime.GC() // what was left before is not this one's
	if c.measured != nil {
		return c.measured(tick)
	}
	took, err := cpuTime(func() error { return c.run(tick) })
	return max(took-cost, 1), err
}

// perTick is the median of the means of chunks of ticks.
func (c *contender) perTick() time.Duration { return medianOfMeans(c.took, chunk) }

func medianOfMeans(all []time.Duration, size int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	var means []time.Duration
	for part := range slices.Chunk(all, size) {
		if len(part) < size && len(means) > 0 {
			break // a rest has not seen what is read rarely
		}
		var total time.Duration
		for _, d := range part {
			total += d
		}
		means = append(means, total/time.Duration(len(part)))
	}
	return median(means)
}

func median(all []time.Duration) time.Duration {
	return quantile(all, 0.5)
}

// quantile is the smallest of the values that q of them do not exceed.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// cpuTime is what all threads of this process used meanwhile.
func cpuTime(f func() error) (time.Duration, error) {
	start, err := processClock()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	end, err := processClock()
	return end - start, err
}

func processClock() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano()), err
}

// clockCost is what measuring nothing takes.
func clockCost() (time.Duration, error) {
	var all []time.Duration
	for range 101 {
		took, err := cpuTime(func() error { return nil })
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	return median(all), nil
}

// allocations counts those of one call, of all goroutines.
func allocations(f func() error) (uint64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, err
}

func over(a, b time.Duration) float64 { return float64(a) / float64(b) }

// short is a duration with three digits, in the unit that a person would use.
func short(d time.Duration) string {
	switch us := float64(d) / float64(time.Microsecond); {
	case us < 1000:
		return digits(us) + " µs"
	case us < 1e6:
		return digits(us/1e3) + " ms"
	default:
		return digits(us/1e6) + " s"
	}
}

// cheaper says how much less than the other one costs.
func cheaper(x float64) string {
	if x < 1 {
		return digits(1/x) + " × dearer"
	}
	return digits(x) + " × cheaper"
}

func digits(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
