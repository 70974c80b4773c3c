package web

import (
	"github.com/plimsoll-dev/plimsoll/fleet"
)

// appendFleet appends what the leader sees of the agents; where another replica
// leads, only the counters of what this one did.
func appendFleet(b []byte, s *ControllerState) []byte {
	if s.Fleet != nil {
		b = appendSeen(b, s.Fleet)
	}
	b = appendCounted(b, sorted(s.FleetCounts.Acts), "act", family[counted]{
		"plimsoll_fleet_acts_total", counter, "What was done about silent agents: mark their conditions Unknown, lift their taints; failed: the API server did not do it.", appendCounter,
	})
	b = appendCounted(b, sorted(s.FleetCounts.Evictions), "result", family[counted]{
		"plimsoll_fleet_evictions_total", counter, "Evictions that were granted to agents, by what the API server made of them.", appendCounter,
	})
	return appendCounted(b, sorted(s.FleetCounts.Refusals), "reason", family[counted]{
		"plimsoll_fleet_refusals_total", counter, "Evictions that agents asked for and the controller refused, by why.", appendCounter,
	})
}

func appendSeen(b []byte, r *fleet.Report) []byte {
	agents, pressed, plugins := map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
	for state, n := range r.Agents {
		agents[string(state)] = uint64(n)
	}
	for resource, n := range r.Budget.PressedNodes {
		pressed[resource] = uint64(n)
	}
	for plugin, n := range r.Budget.PluginNodes {
		if n >= fleet.CommonLeast { // one token makes no series
			plugins[plugin] = uint64(n)
		}
	}
	b = appendCounted(b, sorted(agents), "state", family[counted]{
		"plimsoll_fleet_agents", gauge, "Agents by what is heard of them: alive, late for half the grace period, silent for all of it.", appendCounter,
	})
	b = appendCounted(b, sorted(pressed), "resource", family[counted]{
		"plimsoll_fleet_pressed_nodes", gauge, "Nodes whose agent reports pressure, by resource.", appendCounter,
	})
	b = appendCounted(b, sorted(plugins), "plugin", family[counted]{
		"plimsoll_fleet_plugin_pressed_nodes", gauge, "Nodes where an outer plugin is at a level, by plugin; where three nodes or more say so.", appendCounter,
	})
	return appendFamilies(b, []fleet.Report{*r}, noLabels, []family[fleet.Report]{
		{
			"plimsoll_fleet_blind", gauge, "1 while so many agents seem silent that nothing is done about it, else 0.",
			func(b []byte, r *fleet.Report) []byte { return appendBool(b, r.Blind) },
		},
		{
			"plimsoll_fleet_common_cause", gauge, "1 while one pressure is on so many nodes that evictions for it are held back, else 0.",
			func(b []byte, r *fleet.Report) []byte { return appendBool(b, len(r.Budget.Common) > 0) },
		},
		{
			"plimsoll_fleet_eviction_limit", gauge, "How many pods of the cluster may go in a period.",
			func(b []byte, r *fleet.Report) []byte { return appendCount(b, uint64(r.Budget.Limit)) },
		},
		{
			"plimsoll_fleet_evictions_spent", gauge, "How many went in the last period.",
			func(b []byte, r *fleet.Report) []byte { return appendCount(b, uint64(r.Budget.Spent)) },
		},
	})
}
