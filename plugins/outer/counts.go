package outer

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/katalyst"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// counts has the calls and refusals since the agent started. Those of an
// unregistered plugin stay for a while, so that its end is visible. Plugins
// under ever new names replace unregistered ones only.
type counts struct {
	mu    sync.Mutex // guards both
	of    map[string]*Counts
	ended map[string]ended // by name
}

// ended is a plugin that was unregistered, and when.
type ended struct {
	at     time.Time
	plugin *plugin
}

// forgetAfter is how long the counts of an unregistered plugin are kept: longer
// than its upgrade takes, and than an alert waits.
const forgetAfter = time.Hour

// Counts of one plugin.
type Counts struct {
	// Calls by method and gRPC status.
	Calls map[Call]uint64
	// Seconds is the total duration of the calls, and Within the number of
	// calls within each of Buckets.
	Seconds float64
	Within  []uint64
	// Refused counts refused or clipped parts of its answers, by a word of
	// Refusals.
	Refused map[string]uint64
	// Scopes are the first maxScopes that its thresholds had.
	Scopes []string
	// LeftToRival: it is not registered, and its directory is left to a rival.
	LeftToRival bool
}

// maxScopes bounds the scopes of a plugin that are labels of metrics: each is a text of
// the plugin's own.
const maxScopes = 32

// ScopeLabel is a scope as metrics have it: those that came once there were too many
// share one label.
func (c *Counts) ScopeLabel(scope string) string {
	if scope == plugins.ScopeNamed || len(c.Scopes) < maxScopes || slices.Contains(c.Scopes, scope) {
		return scope
	}
	return "other"
}

// refusedUnmarked counts conditions that the coordinator does not write.
const refusedUnmarked = "too-many-conditions"

// Refusals returns all words that Counts.Refused may have.
func Refusals() []string { return append(katalyst.Refusals(), refusedUnmarked) }

// Call is a method and its gRPC status.
type Call struct{ Method, Result string }

// Buckets returns the bounds in seconds of the histogram of calls.
func Buckets() []float64 { return []float64{0.005, 0.025, 0.1, 0.5, 1, 3} }

// keep starts the counts of a registered plugin, or continues them.
func (c *counts) keep(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.get(name)
	delete(c.ended, name)
}

// unregistered notes that the plugin was unregistered.
func (c *counts) unregistered(p *plugin, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = map[string]ended{}
	}
	c.ended[p.name] = ended{now, p}
}

// forget removes the plugins unregistered before a time.
func (c *counts) forget(before time.Time) {
	for name, e := range c.ended {
		if e.at.Before(before) {
			delete(c.of, name)
			delete(c.ended, name)
		}
	}
}

// lastOf is the plugin that was unregistered last under a name; nil: none.
func (c *counts) lastOf(name string) *plugin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[name].plugin
}

// lately are the plugins that were unregistered no longer than forgetAfter ago, by name.
func (c *counts) lately(now time.Time) []*plugin {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(now.Add(-forgetAfter))
	list := make([]*plugin, 0, len(c.ended))
	for _, name := range slices.Sorted(maps.Keys(c.ended)) {
		list = append(list, c.ended[name].plugin)
	}
	return list
}

// oldestUnregistered is the plugin that was unregistered first; empty if there is
// none.
func (c *counts) oldestUnregistered() (name string) {
	for other, e := range c.ended {
		if name == "" || e.at.Before(c.ended[name].at) {
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
	if len(c.of) >= maxPlugins { // so many can be registered at a time
		name := c.oldestUnregistered()
		delete(c.of, name)
		delete(c.ended, name)
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

// scope notes a scope of the plugin.
func (c *counts) scope(name, scope string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.get(name); len(o.Scopes) < maxScopes && !slices.Contains(o.Scopes, scope) {
		o.Scopes = append(o.Scopes, scope)
	}
}

func (c *counts) refuse(name string) func(what string) {
	return func(what string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.get(name).Refused[what]++
	}
}

// all returns copies. left reports whether the plugin that listened at a socket is left
// to a rival.
func (c *counts) all(now time.Time, left func(socket string, by listener) bool) map[string]Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(now.Add(-forgetAfter))
	out := make(map[string]Counts, len(c.of))
	for name, o := range c.of {
		e, gone := c.ended[name]
		out[name] = Counts{
			Calls: maps.Clone(o.Calls), Seconds: o.Seconds, Within: slices.Clone(o.Within), Refused: maps.Clone(o.Refused),
			Scopes: slices.Clone(o.Scopes), LeftToRival: gone && left(e.plugin.socket.path, e.plugin.listener),
		}
	}
	return out
}
