package web

import (
	"github.com/plimsoll-dev/plimsoll/agents"
)

// appendAgents appends the leader's series of the agents; a standby replica has
// only its own counters.
func appendAgents(b []byte, s *ControllerState) []byte {
	if s.Agents != nil {
		b = appendAgentReport(b, s.Agents)
	}
	b = appendCounted(b, sorted(s.AgentCounts.Acts), "act", family[reasonCount]{
		"plimsoll_agents_actions_total", counter, "Actions for silent agents: conditions marked Unknown, taints removed; failed: the API server did not accept the write.", appendCounter,
	})
	b = appendCounted(b, sorted(s.AgentCounts.Evictions), "result", family[reasonCount]{
		"plimsoll_cluster_evictions_total", counter, "Approved eviction requests of agents, by result.", appendCounter,
	})
	return appendCounted(b, sorted(s.AgentCounts.Refusals), "reason", family[reasonCount]{
		"plimsoll_cluster_eviction_refusals_total", counter, "Refused eviction requests of agents, by reason.", appendCounter,
	})
}

func appendAgentReport(b []byte, r *agents.Report) []byte {
	all, pressed, plugins := map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
	for state, n := range r.Agents {
		all[string(state)] = uint64(n)
	}
	for resource, n := range r.EvictionLimit.PressedNodes {
		pressed[resource] = uint64(n)
	}
	for plugin, n := range r.EvictionLimit.PluginNodes {
		if n >= agents.CommonLeast { // a single agent cannot create series
			plugins[plugin] = uint64(n)
		}
	}
	b = appendCounted(b, sorted(all), "state", family[reasonCount]{
		"plimsoll_agents", gauge, "Agents by heartbeat: alive, late (missing for half the monitor grace period), silent (missing for all of it).", appendCounter,
	})
	b = appendCounted(b, sorted(pressed), "resource", family[reasonCount]{
		"plimsoll_nodes_under_pressure", gauge, "Nodes whose agent reports pressure, by resource.", appendCounter,
	})
	b = appendCounted(b, sorted(plugins), "plugin", family[reasonCount]{
		"plimsoll_plugin_nodes_under_pressure", gauge, "Nodes where an outer plugin is at a level, by plugin; absent for fewer than three nodes.", appendCounter,
	})
	return appendFamilies(b, []agents.Report{*r}, noLabels, []family[agents.Report]{
		{
			"plimsoll_agents_full_disruption", gauge, "1 during full disruption: so many agents are late or silent that the controller acts on none, else 0.",
			func(b []byte, r *agents.Report) []byte { return appendBool(b, r.FullDisruption) },
		},
		{
			"plimsoll_eviction_common_cause", gauge, "1 while one pressure is on so many nodes that evictions for it are braked (common cause), else 0.",
			func(b []byte, r *agents.Report) []byte { return appendBool(b, len(r.EvictionLimit.Common) > 0) },
		},
		{
			"plimsoll_cluster_eviction_limit", gauge, "Cluster eviction limit: how many pods of the cluster may be evicted in a period.",
			func(b []byte, r *agents.Report) []byte { return appendCount(b, uint64(r.EvictionLimit.Limit)) },
		},
		{
			"plimsoll_cluster_evictions_in_period", gauge, "Pods of the cluster evicted in the last period.",
			func(b []byte, r *agents.Report) []byte { return appendCount(b, uint64(r.EvictionLimit.Spent)) },
		},
	})
}
