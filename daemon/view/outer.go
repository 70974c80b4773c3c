package view

import (
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// Outer is what the agent says of plugins that are processes of their own.
type Outer struct {
	// Plugins that are registered, then the sockets where none is.
	Plugins []outer.Status
	Counts  map[string]outer.Counts
	// Rival is who else asks the plugins, so that this agent does not.
	Rival string
}

// Is says whether a plugin is an outer one, there or gone. A nil Outer has none.
func (o *Outer) Is(plugin string) bool {
	if o == nil {
		return false
	}
	_, is := o.Counts[plugin]
	return is
}

func (o *Outer) verdicts() []plugins.Verdict {
	var list []plugins.Verdict
	for _, p := range o.Plugins {
		list = append(list, p.Verdicts...)
	}
	return list
}
