package web

import (
	"maps"
	"slices"
	"strconv"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// pluginUp is whether a plugin is up.
type pluginUp struct {
	plugin string
	up     bool
}

// pluginsUp has the inner plugins, the registered outer ones, and those that were
// registered earlier and are not left to a rival.
func pluginsUp(judging []string, o *view.OuterPlugins) []pluginUp {
	list := make([]pluginUp, 0, len(judging))
	for _, name := range judging {
		if !o.Has(name) {
			list = append(list, pluginUp{name, true})
		}
	}
	if o == nil {
		return list
	}
	up := map[string]bool{}
	for name, c := range o.Counts {
		if !c.LeftToRival { // it may be up there: plimsoll_plugin_rival
			up[name] = false
		}
	}
	for _, p := range o.Plugins {
		if p.Up {
			up[p.Name] = p.Failure == ""
		}
	}
	for _, name := range slices.Sorted(maps.Keys(up)) {
		list = append(list, pluginUp{name, up[name]})
	}
	return list
}

// scopeLabel is the scope of a verdict as a label: an outer plugin may report ever new ones.
func scopeLabel(o *view.OuterPlugins, v *plugins.Verdict) string {
	if o == nil {
		return v.Scope
	}
	c := o.Counts[v.Plugin]
	return c.ScopeLabel(v.Scope)
}

// pluginCount is a count of one plugin.
type pluginCount struct {
	plugin, what, how string
	n                 uint64
}

// appendOuter appends the calls of outer plugins and the refused parts of their
// answers.
func appendOuter(b []byte, o *view.OuterPlugins) []byte {
	if o == nil {
		return b
	}
	calls, refused := []pluginCount{}, []pluginCount{}
	names := slices.Sorted(maps.Keys(o.Counts))
	for _, name := range names {
		for call, n := range o.Counts[name].Calls {
			calls = append(calls, pluginCount{name, call.Method, call.Result, n})
		}
		for _, what := range outer.Refusals() {
			refused = append(refused, pluginCount{name, what, "", o.Counts[name].Refused[what]})
		}
	}
	slices.SortFunc(calls, func(a, b pluginCount) int {
		return slices.Compare([]string{a.plugin, a.what, a.how}, []string{b.plugin, b.what, b.how})
	})
	value := func(b []byte, p *pluginCount) []byte { return appendCount(b, p.n) }
	b = appendFamilies(b, calls, func(b []byte, p *pluginCount) []byte {
		b = appendPair(append(b, '{'), "plugin", p.plugin)
		b = appendPair(append(b, ','), "method", p.what)
		return append(appendPair(append(b, ','), "result", p.how), '}')
	}, []family[pluginCount]{{"plimsoll_plugin_calls_total", counter, "Calls of outer plugins, by method and gRPC status.", value}})
	b = appendFamilies(b, refused, func(b []byte, p *pluginCount) []byte {
		return appendLabels(b, "plugin", p.plugin, "reason", p.what)
	}, []family[pluginCount]{{"plimsoll_plugin_refused_total", counter, "Parts of outer plugins' answers that were refused or clipped, by reason.", value}})
	b = appendDurations(b, names, o.Counts)
	return appendFamilies(b, o.Rivals, func(b []byte, r *outer.Rival) []byte {
		return appendLabels(b, "dir", r.Dir, "pid", strconv.Itoa(r.PID))
	}, []family[outer.Rival]{{
		"plimsoll_plugin_rival", gauge, "Always 1: another process watches this plugin directory, or did within the last 6 minutes; plugins.beside says what becomes of its plugins.",
		func(b []byte, _ *outer.Rival) []byte { return appendFloat(b, 1) },
	}})
}

// appendDurations appends the duration of calls as a histogram.
func appendDurations(b []byte, names []string, counts map[string]outer.Counts) []byte {
	const name = "plimsoll_plugin_call_duration_seconds"
	if len(names) == 0 {
		return b
	}
	b = appendHeader(b, name, "histogram", "How long calls of outer plugins took.")
	for _, plugin := range names {
		c := counts[plugin]
		var total uint64
		for _, n := range c.Calls {
			total += n
		}
		b = appendHistogram(b, name, outer.Buckets(), histogram{[]string{"plugin", plugin}, c.Within, total, c.Seconds})
	}
	return b
}
