package view

import (
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// OuterPlugins is the state of the outer plugins.
type OuterPlugins struct {
	// Plugins that are registered, then the sockets without one.
	Plugins []outer.Status
	Counts  map[string]outer.Counts
	// Rivals are other processes that watch plugin directories, and Beside is what
	// becomes of the plugins there (outer.Config).
	Rivals []outer.Rival
	Beside string
}

// Has reports whether a plugin is an outer one, registered now or earlier. A nil
// Outer has none.
func (o *OuterPlugins) Has(plugin string) bool {
	if o == nil {
		return false
	}
	_, is := o.Counts[plugin]
	return is
}

func (o *OuterPlugins) verdicts() []plugins.Verdict {
	var list []plugins.Verdict
	for _, p := range o.Plugins {
		list = append(list, p.Verdicts...)
	}
	return list
}
