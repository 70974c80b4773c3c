package evict

import (
	"cmp"
	"slices"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Counters counts the outcomes of candidates since the agent started; its methods may
// be called from any goroutine.
type Counters struct{ group counters.Group[counts] }

type counts struct {
	evictions counters.By[Result]
	skipped   counters.By[Code]
}

// Clone copies the counts.
func (c counts) Clone() counts { return counts{c.evictions.Clone(), c.skipped.Clone()} }

// maxCountedPlugins bounds the outer plugins that are counted by name: they may register under
// ever new ones.
const maxCountedPlugins = 64

// label is the name that a plugin is counted by: its own or, beyond the bound, "other".
func (c *counts) label(plugin string) string {
	inner, outer := plugins.Names(), map[string]bool{}
	for r := range c.evictions {
		if !slices.Contains(inner, r.Plugin) {
			outer[r.Plugin] = true
		}
	}
	if slices.Contains(inner, plugin) || outer[plugin] || len(outer) < maxCountedPlugins {
		return plugin
	}
	return "other"
}

// Result is the outcome of an eviction request.
type Result struct {
	// Plugin that it was requested for.
	Plugin string
	Code   Code
}

// Count adds a decision that is stored.
func (t *Counters) Count(d *Decision) {
	t.group.Change(func(n *counts) {
		for _, c := range d.Candidates {
			if len(c.Answers) > 0 {
				n.evictions.Add(Result{n.label(cmp.Or(c.For.Plugin, c.Plugins[0])), c.Code})
			} else {
				n.skipped.Add(c.Code)
			}
		}
	})
}

// Counts returns copies of the counters: requested evictions, and candidates that
// were skipped without a request, by reason.
func (t *Counters) Counts() (evictions map[Result]uint64, skipped map[Code]uint64) {
	c := t.group.Counts()
	return c.evictions, c.skipped
}
