package replay

import "github.com/plimsoll-dev/plimsoll/snapshot"

// Point of a line over time.
type Point[T any] struct {
	OffsetSeconds float64 `json:"offsetSeconds"`
	// AfterGap: nothing is known of the time since the previous point.
	AfterGap bool `json:"afterGap,omitempty"`
	Value    T    `json:"value"`
}

// trace keeps a line over any length of time in at most maxPoints points: as it
// grows, neighbours are merged.
type trace[T any] struct {
	points []Point[T]
	width  float64 // seconds covered by one point
}

// firstWidth is finer than any tick.
const firstWidth = 0.05

// add appends a value, or merges it into the point of its interval.
func (t *trace[T]) add(at float64, gap bool, v T, join func(a, b T) T) {
	if t.width == 0 {
		t.width = firstWidth
	}
	t.append(Point[T]{at, gap, v}, join)
	for len(t.points) > maxPoints {
		t.width *= 2
		all := t.points
		t.points = all[:0]
		for _, p := range all {
			t.append(p, join)
		}
	}
}

func (t *trace[T]) append(p Point[T], join func(a, b T) T) {
	if n := len(t.points); n > 0 {
		last := &t.points[n-1]
		if int64(last.OffsetSeconds/t.width) == int64(p.OffsetSeconds/t.width) {
			last.Value = join(last.Value, p.Value)
			last.AfterGap = last.AfterGap || p.AfterGap
			return
		}
	}
	t.points = append(t.points, p)
}

// worstStall is the higher of two stalls, value by value.
func worstStall(a, b snapshot.Ratios) snapshot.Ratios {
	one := func(a, b snapshot.StallRatio) snapshot.StallRatio {
		return snapshot.StallRatio{Some: larger(a.Some, b.Some), Full: larger(a.Full, b.Full)}
	}
	return snapshot.Ratios{CPU: one(a.CPU, b.CPU), Memory: one(a.Memory, b.Memory), IO: one(a.IO, b.IO)}
}

func larger(a, b snapshot.Opt[float64]) snapshot.Opt[float64] {
	x, ok1 := a.Get()
	y, ok2 := b.Get()
	if !ok1 || ok2 && y > x {
		return b
	}
	return a
}

func some(v float64) snapshot.Opt[float64] { return snapshot.Some(v) }
