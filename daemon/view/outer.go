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
	// Ended are verdicts of plugins that have ended.
	Ended []plugins.Verdict
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
	return append(list, o.Ended...)
}

// BesideText is what becomes of the plugins that another host asks too, in words: a
// value of plugins.beside.
func BesideText(beside string) string {
	meaning := map[string]string{
		outer.BesideExclusive: "left to that process", outer.BesideReport: "asked too, as a dry run",
		outer.BesideMark: "asked too, to mark the node only", outer.BesideAct: "asked too, as any other",
	}[beside]
	if meaning == "" {
		return Printable(beside)
	}
	return meaning + " (plugins.beside: " + beside + ")"
}
