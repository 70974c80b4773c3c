// Package counters counts what this process does, for its metrics.
//
// # Usage
//
//	type Counts struct{ Writes counters.By[string] }
//
//	func (c Counts) Clone() Counts { return Counts{Writes: c.Writes.Clone()} }
//
//	var actions counters.Group[Counts]
//	actions.Change(func(c *Counts) { c.Writes.Add("start") })
//	actions.Counts().Writes["start"]
//
// # Concurrency
//
// A Group may be used from any goroutine. What it returns is a copy.
package counters

import (
	"maps"
	"sync"
	"time"
)

// Group is counters that change and are read together. The zero value has counted
// nothing.
type Group[C interface{ Clone() C }] struct {
	mu     sync.Mutex // guards counts
	counts C
}

// Counts so far.
func (g *Group[C]) Counts() C {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts.Clone()
}

// Change the counters.
func (g *Group[C]) Change(do func(*C)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do(&g.counts)
}

// By is a counter for each value of a label. The zero value has counted nothing.
type By[K comparable] map[K]uint64

// Add counts one.
func (b *By[K]) Add(key K) {
	if *b == nil {
		*b = By[K]{}
	}
	(*b)[key]++
}

// Clone copies the counters.
func (b By[K]) Clone() By[K] { return maps.Clone(b) }

// Histogram counts durations by upper bounds, as Prometheus does. A value never
// changes.
type Histogram struct {
	// Within counts the durations up to each of the bounds.
	Within []uint64
	Count  uint64
	Sum    time.Duration
}

// Add is the histogram with one more duration. bounds are in seconds, and always the
// same.
func (h Histogram) Add(d time.Duration, bounds []float64) Histogram {
	within := make([]uint64, len(bounds))
	copy(within, h.Within)
	for i, bound := range bounds {
		if d.Seconds() <= bound {
			within[i]++
		}
	}
	return Histogram{Within: within, Count: h.Count + 1, Sum: h.Sum + d}
}

// Histograms is a histogram for each value of a label, with the same bounds.
type Histograms[K comparable] map[K]Histogram

// Add counts a duration.
func (h *Histograms[K]) Add(key K, d time.Duration, bounds []float64) {
	if *h == nil {
		*h = Histograms[K]{}
	}
	(*h)[key] = (*h)[key].Add(d, bounds)
}

// Clone copies the histograms.
func (h Histograms[K]) Clone() Histograms[K] { return maps.Clone(h) }
