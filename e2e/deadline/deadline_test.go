package deadline

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readings gives one made-up load after the other, the last one for ever.
func readings(all ...load) func() load {
	return func() load {
		l := all[0]
		if len(all) > 1 {
			all = all[1:]
		}
		return l
	}
}

func at(seconds, stalled int, wanting float64) load {
	return load{time.Unix(int64(1000+seconds), 0), time.Duration(stalled) * time.Second, wanting}
}

// unknown is the load of a kernel without pressure files.
func unknown(seconds int, wanting float64) load {
	return load{time.Unix(int64(1000+seconds), 0), -1, wanting}
}

func TestClock(t *testing.T) {
	for _, c := range []struct {
		name     string
		slow     float64
		from, to load
		want     time.Duration
	}{
		{"an idle machine's time is a watch's", 1, at(0, 5, 0.5), at(10, 5, 0.5), 10 * time.Second},
		{"a processor at half the speed has done half", 2, at(0, 5, 0.5), at(10, 5, 0.5), 5 * time.Second},
		{"of four tasks for each processor one is ours", 1, at(0, 5, 4), at(10, 15, 4), 2500 * time.Millisecond},
		{"only while tasks wait", 1, at(0, 5, 4), at(10, 10, 4), 6250 * time.Millisecond},
		{"a busy machine on which no task waits is not slow", 1, at(0, 5, 1), at(10, 15, 1), 10 * time.Second},
		{"slow and starved", 2, at(0, 5, 4), at(10, 15, 4), 1250 * time.Millisecond},
		{"a deadline ends", 4, at(0, 5, 300), at(20, 25, 300), time.Second},
		{"no kernel says how long tasks waited", 1, unknown(0, 4), unknown(10, 4), 2500 * time.Millisecond},
		{"a clock that stands", 1, at(0, 5, 4), at(0, 5, 4), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := start(readings(c.from, c.to), c.slow)
			assert.Equal(t, c.want, clock.Elapsed())
			assert.Equal(t, c.to.at.Sub(c.from.at), clock.Passed())
		})
	}
	t.Run("each part of the time counts by its own load", func(t *testing.T) {
		clock := start(readings(at(0, 0, 1), at(10, 0, 1), at(20, 10, 5)), 1)
		clock.Elapsed()
		assert.Equal(t, 12*time.Second, clock.Elapsed())
		assert.Equal(t, 20*time.Second, clock.Passed())
	})
}

func TestScale(t *testing.T) {
	pressure := func(avg10 string) string {
		return "some avg10=" + avg10 + " avg60=74.40 avg300=38.42 total=171034069\n"
	}
	for _, c := range []struct {
		name, pressure string
		slow, wanting  float64
		want           time.Duration
	}{
		{"an idle machine", pressure("0.00"), 1, 0.5, 8 * time.Second},
		{"of two tasks for each processor one is ours", pressure("100.00"), 1, 2, 16 * time.Second},
		{"half of the time", pressure("50.00"), 1, 2, 11 * time.Second}, // of 10.67
		{"at most twice", pressure("100.00"), 1, 9, 16 * time.Second},
		{"a slow processor", pressure("0.00"), 1.5, 0.5, 12 * time.Second},
		{"no kernel says how long tasks waited", "", 1, 1.75, 14 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, scale(8*time.Second, c.pressure, at(10, 0, c.wanting), c.slow))
		})
	}
	assert.GreaterOrEqual(t, Scale(8*time.Second), 8*time.Second)
}

func TestKernelPressureAndLoad(t *testing.T) {
	pressure := "some avg10=89.22 avg60=74.40 avg300=38.42 total=171034069\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
	assert.Equal(t, 171034069*time.Microsecond, someTotal(pressure))
	assert.Negative(t, someTotal(""))
	assert.Negative(t, someTotal("some total=x\n"))
	assert.Negative(t, someTotal("full avg10=0.00 total=7\n"))
	assert.InDelta(t, 7, wanting("5.87 2.92 1.22 7/136 21509\n"), 0)
	assert.InDelta(t, 5.87, wanting("5.87 2.92 1.22 2/136 21509\n"), 0, "a clock that is asked rarely")
	assert.Zero(t, wanting("5.87"))
}

func TestContext(t *testing.T) {
	t.Run("is over when its time is", func(t *testing.T) {
		ctx, cancel := Context(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.NoError(t, ctx.Err())
		<-ctx.Done()
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	})
	t.Run("is canceled", func(t *testing.T) {
		ctx, cancel := Context(t.Context(), time.Hour)
		cancel()
		<-ctx.Done()
		assert.Equal(t, context.Canceled, ctx.Err())
	})
	t.Run("is over with its parent", func(t *testing.T) {
		parent, cancelParent := context.WithCancel(t.Context())
		ctx, cancel := Context(parent, time.Hour)
		defer cancel()
		cancelParent()
		<-ctx.Done()
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
	})
}

// Beside many more loops than processors a deadline comes later.
func TestBusyMachineLengthensDeadline(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 16 {
		go func() {
			for ctx.Err() == nil {
				work()
			}
		}()
	}
	for clock := Start(); clock.Passed() < time.Minute; {
		time.Sleep(20 * time.Millisecond)
		if clock.Elapsed() < clock.Passed()*3/4 {
			return
		}
	}
	t.Error("a minute beside sixteen loops counted as one")
}
