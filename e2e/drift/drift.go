// Package drift judges whether the figures of a process stay as they are: it fits
// a line through samples and holds what it grows by against a bound.
//
// # Usage
//
//	f := drift.Figure{Name: "agent fds", Room: 3}
//	f.Add(time.Since(begun), 17)
//	…
//	l := f.Line(length/2, length)
//	if l.Grows(f) { … }
//
// # Concurrency
//
// A Figure belongs to one goroutine.
package drift

import (
	"math"
	"slices"
	"time"
)

// Figure is one number of a process, sampled.
type Figure struct {
	// Name and Unit for people; Unit may be empty.
	Name, Unit string
	// Room is by how much it may grow over an hour or more, in its own unit.
	Room float64

	at     []time.Duration
	values []float64
}

// Add what it was at a time since the start. What was not measured is not added.
func (f *Figure) Add(at time.Duration, value float64) {
	f.at, f.values = append(f.at, at), append(f.values, value)
}

// Line is what the samples between two times say.
type Line struct {
	Samples         int
	Least, Mean     float64
	Most, Last      float64
	PerHour, Growth float64       // Growth: over Window
	Window          time.Duration // from the first to the last of the samples
}

// Line through the samples from one time to another by Theil and Sen: the median
// of the slopes between each two of them. Up to 29 % of the samples may be anything.
// It is the zero Line where there are fewer than two.
func (f *Figure) Line(from, to time.Duration) (l Line) {
	var hours, values []float64
	for i, at := range f.at {
		if at >= from && at <= to {
			hours, values = append(hours, at.Hours()), append(values, f.values[i])
		}
	}
	if len(values) < 2 {
		return Line{}
	}
	l = Line{Samples: len(values), Least: slices.Min(values), Most: slices.Max(values), Last: values[len(values)-1], PerHour: slope(hours, values)}
	for _, v := range values {
		l.Mean += v / float64(len(values))
	}
	wide := hours[len(hours)-1] - hours[0]
	l.Window, l.Growth = time.Duration(wide*float64(time.Hour)), l.PerHour*wide
	return l
}

// slope is the median of those between each two points whose x differ.
func slope(x, y []float64) float64 {
	slopes := make([]float64, 0, len(x)*(len(x)-1)/2)
	for i := range x {
		for j := range i {
			if x[i] != x[j] {
				slopes = append(slopes, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	slices.Sort(slopes)
	return (slopes[(len(slopes)-1)/2] + slopes[len(slopes)/2]) / 2
}

// Room is by how much the figure may grow over what was judged: below an hour the
// more the less was seen, as what a line owes to chance falls with the square root of
// the number of samples.
func (l Line) Room(f *Figure) float64 {
	return f.Room * math.Sqrt(max(1, time.Hour.Hours()/l.Window.Hours()))
}

// Grows says whether it grew by more than it may.
func (l Line) Grows(f *Figure) bool { return l.Growth > l.Room(f) }

// Seen is the smallest growth per hour that would have been seen; infinite where
// nothing was judged.
func (l Line) Seen(f *Figure) float64 {
	if l.Window <= 0 {
		return math.Inf(1)
	}
	return l.Room(f) / l.Window.Hours()
}
