package drift

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// sampled every 5 s for an hour.
func sampled(f *Figure, value func(at time.Duration) float64) *Figure {
	for at := time.Duration(0); at <= time.Hour; at += 5 * time.Second {
		f.Add(at, value(at))
	}
	return f
}

func TestDriftSlope(t *testing.T) {
	t.Parallel()
	f := sampled(&Figure{Room: 8}, func(at time.Duration) float64 { return 100 + 24*at.Hours() })
	l := f.Line(30*time.Minute, time.Hour)
	assert.InDelta(t, 24, l.PerHour, 1e-9)
	assert.InDelta(t, 12, l.Growth, 1e-9)
	assert.InDelta(t, 118, l.Mean, 1e-9)
	assert.InDelta(t, 112, l.Least, 1e-9)
	assert.InDelta(t, 124, l.Most, 1e-9)
	assert.Equal(t, 30*time.Minute, l.Window)
	assert.Equal(t, 361, l.Samples)
	assert.True(t, l.Grows(f))
	assert.InDelta(t, 8*math.Sqrt2*2, l.Seen(f), 1e-9)
}

func TestDriftSmallestLeakSeen(t *testing.T) {
	t.Parallel()
	for leak, seen := range map[float64]bool{4.1: true, 3.9: false} {
		random := rand.New(rand.NewPCG(1, 2))
		f := sampled(&Figure{Room: math.Sqrt2}, func(at time.Duration) float64 { return 50 + leak*at.Hours() + random.Float64()/10 })
		l := f.Line(30*time.Minute, time.Hour)
		assert.Equal(t, seen, l.Grows(f), "%+v", l)
		assert.InDelta(t, 4, l.Seen(f), 1e-9)
	}
}

func TestDriftToleranceByWindow(t *testing.T) {
	t.Parallel()
	f := &Figure{Room: 6}
	for window, room := range map[time.Duration]float64{time.Minute: 6 * math.Sqrt(60), 15 * time.Minute: 12, time.Hour: 6, 3 * time.Hour: 6} {
		assert.InDelta(t, room, Line{Window: window}.Room(f), 1e-9, window)
	}
}

func TestDriftIgnoresPeaks(t *testing.T) {
	t.Parallel()
	f := sampled(&Figure{Room: 5}, func(at time.Duration) float64 {
		if at > 50*time.Minute {
			return 1000
		}
		return 10
	})
	assert.Zero(t, f.Line(0, time.Hour).PerHour)
}

func TestDriftShrinkingOrTooFew(t *testing.T) {
	t.Parallel()
	f := sampled(&Figure{}, func(at time.Duration) float64 { return -at.Hours() })
	assert.False(t, f.Line(0, time.Hour).Grows(f))
	l := f.Line(time.Hour, 2*time.Hour)
	assert.Equal(t, Line{}, l)
	assert.True(t, math.IsInf(l.Seen(f), 1))
	same := &Figure{}
	same.Add(0, 1)
	same.Add(0, 2)
	assert.Zero(t, same.Line(0, 0).PerHour)
}
