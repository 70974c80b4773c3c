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
	// OtherHost is another plugin host, because of which this agent does not call the
	// plugins; empty: none.
	OtherHost string
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
