package outer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// counts of calls and refusals since the agent started. A plugin that has gone
// keeps its own for a while, so that others see that it has gone; then they are
// forgotten with it. Plugins that come and go under ever new names take the place
// of such as have gone, never of one that is there.
type counts struct {
	mu   sync.Mutex // guards both
	of   map[string]*Counts
	gone map[string]time.Time // since when, by name
}

// forgetAfter is how long a plugin that has gone is remembered: longer than an
// upgrade of it, and than an alert waits.
const forgetAfter = time.Hour

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

// keep makes room for a plugin that has come.
func (c *counts) keep(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.get(name)
	delete(c.gone, name)
}

// leave: the plugin has gone.
func (c *counts) leave(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = map[string]time.Time{}
	}
	c.gone[name] = now
}

// forget those that went before a time.
func (c *counts) forget(before time.Time) {
	for name, since := range c.gone {
		if since.Before(before) {
			delete(c.of, name)
			delete(c.gone, name)
		}
	}
}

// longestGone is empty where none has gone.
func (c *counts) longestGone() (name string) {
	for other, since := range c.gone {
		if name == "" || since.Before(c.gone[name]) {
			name = other
		}
	}
	return name
}

func (c *counts) get(name string) *Counts {
	if c.of == nil {
		c.of = map[string]*Counts{}
	}
	if o := c.of[name]; o != nil {
		return o
	}
	if len(c.of) >= maxPlugins { // of which no more are there at a time
		name := c.longestGone()
		delete(c.of, name)
		delete(c.gone, name)
	}
	o := &Counts{Calls: map[Call]uint64{}, Refused: map[string]uint64{}, Within: make([]uint64, len(Buckets()))}
	c.of[name] = o
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
func (c *counts) all(now time.Time) map[string]Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(now.Add(-forgetAfter))
	out := make(map[string]Counts, len(c.of))
	for name, o := range c.of {
		out[name] = Counts{Calls: maps.Clone(o.Calls), Seconds: o.Seconds, Within: slices.Clone(o.Within), Refused: maps.Clone(o.Refused)}
	}
	return out
}
