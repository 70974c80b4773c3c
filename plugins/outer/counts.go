package outer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// counts of calls and refusals since the agent started. Plugins that come and
// go under ever new names lose theirs, the oldest first.
type counts struct {
	mu    sync.Mutex // guards both
	order []string
	of    map[string]*Counts
}

// Counts of one plugin.
type Counts struct {
	// Calls by method and gRPC status.
	Calls map[Call]uint64
	// Seconds that calls took, and how many were within each of Buckets.
	Seconds float64
	Within  []uint64
	// Refused counts what was refused or clipped of its answers, by a word.
	Refused map[string]uint64
}

// Call is what a call was and how it ended.
type Call struct{ Method, Result string }

// Buckets are the bounds in seconds of the histogram of calls.
func Buckets() []float64 { return []float64{0.005, 0.025, 0.1, 0.5, 1, 3} }

// keep makes room for a plugin.
func (c *counts) keep(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.get(name)
}

func (c *counts) get(name string) *Counts {
	if c.of == nil {
		c.of = map[string]*Counts{}
	}
	if o := c.of[name]; o != nil {
		return o
	}
	if len(c.order) >= maxPlugins {
		delete(c.of, c.order[0])
		c.order = c.order[1:]
	}
	o := &Counts{Calls: map[Call]uint64{}, Refused: map[string]uint64{}, Within: make([]uint64, len(Buckets()))}
	c.of[name] = o
	c.order = append(c.order, name)
	return o
}

func (c *counts) call(name, method, result string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.get(name)
	o.Calls[Call{method, result}]++
	o.Seconds += took.Seconds()
	for i, bound := range Buckets() {
		if took.Seconds() <= bound {
			o.Within[i]++
		}
	}
}

func (c *counts) refuse(name string) func(what string) {
	return func(what string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.get(name).Refused[what]++
	}
}

// all are copies.
func (c *counts) all() map[string]Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]Counts, len(c.of))
	for name, o := range c.of {
		out[name] = Counts{Calls: maps.Clone(o.Calls), Seconds: o.Seconds, Within: slices.Clone(o.Within), Refused: maps.Clone(o.Refused)}
	}
	return out
}
