package web

import (
	"maps"
	"runtime"
	"slices"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// appendAgent appends the agent's own series, which exist before the first tick
// as well. To add a metric, a gauge, counter or histogram, add a family here, or in
// the file beside this one that has its subject; docs/metrics.md is made from it.
func appendAgent(b []byte, agent *view.Agent) []byte {
	one := []view.Agent{*agent}
	b = appendFamilies(b, one, func(b []byte, a *view.Agent) []byte {
		return appendLabels(b, "version", a.Version, "goversion", runtime.Version())
	}, []family[view.Agent]{
		{
			"plimsoll_build_info", gauge, "Always 1; the labels name the version.",
			func(b []byte, _ *view.Agent) []byte { return append(b, '1') },
		},
	})
	return appendFamilies(b, one, noLabels, []family[view.Agent]{
		{"plimsoll_start_time_seconds", gauge, "When the process started, in seconds since 1970.", appendStart},
		{
			"plimsoll_config_last_reload_successful", gauge, "1 when the configuration file read last is in force, 0 when it was invalid and the last valid one stays in force.",
			func(b []byte, a *view.Agent) []byte { return appendBool(b, a.ConfigError == "") },
		},
	})
}

func appendStart(b []byte, a *view.Agent) []byte {
	if a.Started.IsZero() {
		return b
	}
	return appendFloat(b, float64(a.Started.UnixMilli())/1000)
}

// appendTick appends the series of the sampling loop.
func appendTick(b []byte, state *view.State) []byte {
	return appendFamilies(b, []view.State{*state}, noLabels, []family[view.State]{
		{
			"plimsoll_tick_duration_seconds", gauge, "How long the last tick took.",
			func(b []byte, s *view.State) []byte { return appendFloat(b, s.Agent.TickDurationSeconds) },
		},
		{
			"plimsoll_ticks_missed_total", counter, "Ticks skipped because the one before took too long.",
			func(b []byte, s *view.State) []byte { return appendCount(b, s.Agent.TicksMissed) },
		},
		{
			"plimsoll_history_gaps_total", counter, "How often the window of rates was dropped, after a suspend, starvation or a counter that went back.",
			func(b []byte, s *view.State) []byte { return appendCount(b, s.Snapshot.Gaps) },
		},
	})
}

// appendTriggers appends the series of PSI triggers.
func appendTriggers(b []byte, t *view.Triggers) []byte {
	if t == nil {
		return b
	}
	b = appendFamilies(b, []view.Triggers{*t}, noLabels, []family[view.Triggers]{
		{
			"plimsoll_pressure_triggers_armed", gauge, "Armed PSI triggers of the kernel.",
			func(b []byte, t *view.Triggers) []byte { return appendCount(b, uint64(t.Armed)) },
		},
		{
			"plimsoll_triggered_samples_total", counter, "Samples taken before their tick because a PSI trigger fired.",
			func(b []byte, t *view.Triggers) []byte { return appendCount(b, t.WokenTotal) },
		},
	})
	label := func(b []byte, resource *string) []byte { return appendLabel(b, "resource", *resource) }
	return appendFamilies(b, slices.Sorted(maps.Keys(t.FiredTotal)), label, []family[string]{
		{
			"plimsoll_pressure_triggers_fired_total", counter, "How often PSI triggers fired.",
			func(b []byte, resource *string) []byte { return appendCount(b, t.FiredTotal[*resource]) },
		},
	})
}

// appendProbes appends the result of each probe in the last sample.
func appendProbes(b []byte, list []snapshot.Probe) []byte {
	label := func(b []byte, p *snapshot.Probe) []byte { return appendLabel(b, "probe", p.Name) }
	return appendFamilies(b, list, label, []family[snapshot.Probe]{
		{
			"plimsoll_probe_success", gauge, "1 when the probe read all it reads at the last tick, else 0.",
			func(b []byte, p *snapshot.Probe) []byte { return appendBool(b, p.Error == "") },
		},
		{
			"plimsoll_probe_duration_seconds", gauge, "How long the probe took at the last tick.",
			func(b []byte, p *snapshot.Probe) []byte { return appendFloat(b, p.Duration.Seconds()) },
		},
	})
}

// appendVerdicts appends inner and outer plugins and their levels.
func appendVerdicts(b []byte, s *view.State) []byte {
	verdicts, o := s.Levels.Verdicts, s.Outer
	up := pluginsUp(pluginNames(verdicts), o)
	b = appendFamilies(b, verdicts, func(b []byte, v *plugins.Verdict) []byte {
		return appendLabels(b, "plugin", v.Plugin, "scope", scopeLabel(o, v))
	}, []family[plugins.Verdict]{
		{"plimsoll_threshold_met", gauge, "Level of the plugin's verdict: 0 none, 1 soft, 2 hard; absent while a measurement is missing.", appendLevel},
	})
	b = appendFamilies(b, judgedResources(s), func(b []byte, j *judgedResource) []byte {
		return appendLabel(b, "resource", j.resource)
	}, []family[judgedResource]{
		{
			"plimsoll_resource_judged", gauge, "1 when all of the node's resource was judged at the last tick, 0 when something was not: a level of none is then no all-clear.",
			func(b []byte, j *judgedResource) []byte { return appendBool(b, j.judged) },
		},
	})
	return appendFamilies(b, up, func(b []byte, u *pluginUp) []byte {
		return appendLabel(b, "plugin", u.plugin)
	}, []family[pluginUp]{
		{
			"plimsoll_plugin_up", gauge, "1 when the plugin's last call was answered, else 0; always 1 for inner plugins, and absent for one that is left to a rival.",
			func(b []byte, u *pluginUp) []byte { return appendBool(b, u.up) },
		},
	})
}

// judgedResource is whether all of a resource was judged.
type judgedResource struct {
	resource string
	judged   bool
}

// judgedResources are those that have a verdict, or lack one. Outer plugins that name
// no resource are not among them.
func judgedResources(s *view.State) []judgedResource {
	all := map[string]bool{}
	for _, v := range s.Levels.Verdicts {
		if v.Resource != "" && !v.PerWorkload {
			all[string(v.Resource)] = true
		}
	}
	for _, u := range s.Unjudged() {
		if u.Resource != "" {
			all[string(u.Resource)] = false
		}
	}
	list := make([]judgedResource, 0, len(all))
	for _, r := range slices.Sorted(maps.Keys(all)) {
		list = append(list, judgedResource{r, all[r]})
	}
	return list
}

// appendLevel appends no 0 for a plugin that lacks a measurement: the absence
// of pressure is unknown. A level above none stays latched until the plugin can
// judge again.
func appendLevel(b []byte, v *plugins.Verdict) []byte {
	if v.Level == plugins.None && v.Absent != "" {
		return b
	}
	return appendFloat(b, float64(v.Level))
}

// pluginNames has each plugin once, however many scopes it judges.
func pluginNames(verdicts []plugins.Verdict) []string {
	var names []string
	for i := range verdicts {
		if !slices.Contains(names, verdicts[i].Plugin) {
			names = append(names, verdicts[i].Plugin)
		}
	}
	return names
}
