package web

import (
	"github.com/plimsoll-dev/plimsoll/agents"
)

// appendFleet appends the leader's series of the agents; a standby replica has
// only its own counters.
func appendFleet(b []byte, s *ControllerState) []byte {
	if s.Fleet != nil {
		b = appendSeen(b, s.Fleet)
	}
	b = appendCounted(b, sorted(s.FleetCounts.Acts), "act", family[counted]{
		"plimsoll_fleet_acts_total", counter, "Actions for silent agents: conditions marked Unknown, taints removed; failed: the API server did not accept the write.", appendCounter,
	})
	b = appendCounted(b, sorted(s.FleetCounts.Evictions), "result", family[counted]{
		"plimsoll_fleet_evictions_total", counter, "Approved eviction requests of agents, by result.", appendCounter,
	})
	return appendCounted(b, sorted(s.FleetCounts.Refusals), "reason", family[counted]{
		"plimsoll_fleet_refusals_total", counter, "Refused eviction requests of agents, by reason.", appendCounter,
	})
}

func appendSeen(b []byte, r *agents.Report) []byte {
	all, pressed, plugins := map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
	for state, n := range r.Agents {
		all[string(state)] = uint64(n)
	}
	for resource, n := range r.Budget.PressedNodes {
		pressed[resource] = uint64(n)
	}
	for plugin, n := range r.Budget.PluginNodes {
		if n >= agents.CommonLeast { // a single agent cannot create series
			plugins[plugin] = uint64(n)
		}
	}
	b = appendCounted(b, sorted(all), "state", family[counted]{
		"plimsoll_fleet_agents", gauge, "Agents by heartbeat: alive, late (missing for half the monitor grace period), silent (missing for all of it).", appendCounter,
	})
	b = appendCounted(b, sorted(pressed), "resource", family[counted]{
		"plimsoll_fleet_pressed_nodes", gauge, "Nodes whose agent reports pressure, by resource.", appendCounter,
	})
	b = appendCounted(b, sorted(plugins), "plugin", family[counted]{
		"plimsoll_fleet_plugin_pressed_nodes", gauge, "Nodes where an outer plugin is at a level, by plugin; absent for fewer than three nodes.", appendCounter,
	})
	return appendFamilies(b, []agents.Report{*r}, noLabels, []family[agents.Report]{
		{
			"plimsoll_fleet_blind", gauge, "1 during full disruption: so many agents are late or silent that the controller acts on none, else 0.",
			func(b []byte, r *agents.Report) []byte { return appendBool(b, r.Blind) },
		},
		{
			"plimsoll_fleet_common_cause", gauge, "1 while one pressure is on so many nodes that evictions for it are braked (common cause), else 0.",
			func(b []byte, r *agents.Report) []byte { return appendBool(b, len(r.Budget.Common) > 0) },
		},
		{
			"plimsoll_fleet_eviction_limit", gauge, "Cluster eviction limit: how many pods of the cluster may be evicted in a period.",
			func(b []byte, r *agents.Report) []byte { return appendCount(b, uint64(r.Budget.Limit)) },
		},
		{
			"plimsoll_fleet_evictions_spent", gauge, "Pods of the cluster evicted in the last period.",
			func(b []byte, r *agents.Report) []byte { return appendCount(b, uint64(r.Budget.Spent)) },
		},
	})
}
