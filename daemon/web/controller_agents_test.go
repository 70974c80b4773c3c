package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// watching is a leader that sees a fleet of which 120 agents are silent.
func watching() ControllerState {
	r := agents.Report{
		Time: time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC), Agents: map[agents.State]int{agents.Alive: 4875, agents.Late: 5, agents.Silent: 120}, Late: 5, Total: 4880,
		Pressed:       []agents.Pressed{{Node: "hot", Zone: "a", Pressure: map[string]string{"disk": "hard"}, Plugins: map[string]string{"files<": "soft"}, Tainted: true}},
		EvictionLimit: agents.EvictionLimit{Pods: 9000, Limit: 90, Spent: 3, PeriodSeconds: 300, PressedNodes: map[string]int{"disk": 1}, PluginNodes: map[string]int{"files<": 3, "alone": 2}},
		Reported:      []agents.ReportedNode{{Node: "warm", Levels: map[string]string{"cpu": "soft"}}}, NotJudged: map[string]int{"network": 7},
		Answers: []agents.Answered{{Node: "hot", Pod: "shop/web", RequestReason: "<b>stall", Result: lease.Refused, Code: agents.CodeOwner, Reason: "a pod of shop/web went", DryRun: true}},
	}
	for i := range 120 {
		r.Missing = append(r.Missing, agents.MissingAgent{Node: fmt.Sprintf("n%03d", i), State: agents.Silent, SilenceSeconds: 61, Tainted: true, Reason: "its taints stay while the kubelet's Ready is False"})
	}
	return ControllerState{Version: "v1", Started: r.Time, Identity: "a_1", Leader: "a_1", IsLeader: true, AgentsEnabled: true, Agents: &r, AgentCounts: agents.Counts{}.Clone()}
}

func TestControllerPageThousandsOfAgents(t *testing.T) {
	url := served(t, watching(), "127.0.0.1:0", Exposure{}, nil)
	status, page := fetched(t, url+"/")
	assert.Equal(t, http.StatusOK, status)
	for _, text := range []string{
		"4875 alive 5 late 120 silent", "n049", "and 70 more", "Ready is False", "disk: <b>1</b> nodes", "plugin files&lt;: <b>3</b> nodes", "disk hard files&lt; soft", "hot", "3 of 90 in the last 5m0s",
		"&lt;b&gt;stall", "refused (dry run)", "a pod of shop/web went",
		`<th scope="row">warm</th><td data-label="level">cpu soft </td>`, "network: not judged, or not in full, on <b>7</b> nodes",
	} {
		assert.Contains(t, page, text)
	}
	assert.NotContains(t, page, "n050", "the page stays small enough for a browser")
	assert.Less(t, len(page), 60_000)
	status, body := fetched(t, url+"/api/v1/agents")
	assert.Equal(t, http.StatusOK, status)
	var r agents.Report
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	assert.Equal(t, *watching().Agents, r)
}

func TestControllerAllClear(t *testing.T) {
	s := watching()
	s.Agents.Pressed, s.Agents.Missing, s.Agents.Reported = nil, nil, nil
	_, page := fetched(t, served(t, s, "127.0.0.1:0", Exposure{}, nil)+"/")
	assert.NotContains(t, page, "No pressure on any node", "the network of seven was not judged")
	s.Agents.NotJudged = nil
	_, page = fetched(t, served(t, s, "127.0.0.1:0", Exposure{}, nil)+"/")
	assert.Contains(t, page, "No pressure on any node")
}

func TestControllerPageFullDisruption(t *testing.T) {
	s := watching()
	s.Agents.FullDisruption, s.Agents.Late, s.Agents.Total, s.Agents.EvictionLimit.Common = true, 60, 100, []string{"disk"}
	_, page := fetched(t, served(t, s, "127.0.0.1:0", Exposure{}, nil)+"/")
	assert.Contains(t, page, "60 of 100 agents are late or silent")
	assert.Contains(t, page, "Common cause: too many nodes have disk pressure. Evictions for it are braked")
	assert.NotContains(t, page, "by these plugins")
	assert.NotContains(t, page, "in a zone")
	s.Agents.Unreadable = []agents.UnreadableNode{{Node: "odd", Reason: "annotation <b>"}}
	s.Agents.EvictionLimit.CommonPlugins, s.Agents.EvictionLimit.Full = []string{"files"}, []string{`6 of 50 nodes of zone "a" are tainted, 5 may be`}
	_, page = fetched(t, served(t, s, "127.0.0.1:0", Exposure{}, nil)+"/")
	assert.Contains(t, page, "Single pods are still evicted for hard memory pressure")
	assert.Contains(t, page, "whose eviction requests are refused: files")
	assert.Contains(t, page, "Eviction requests of node odd are refused: its Lease cannot be parsed: annotation &lt;b&gt;.")
	assert.Contains(t, page, "Evictions in a zone are braked: 6 of 50 nodes of zone &#34;a&#34; are tainted, 5 may be.")
}

func TestControllerWithoutAgents(t *testing.T) {
	for _, row := range []struct {
		state     ControllerState
		why, page string
	}{
		{ControllerState{Leader: "b_2", AgentsEnabled: true}, "the leader is b_2", "on standby; the leader is b_2"},
		{ControllerState{IsLeader: true, AgentsEnabled: true}, "not listed yet", "The agents are not listed yet: nothing is known of them."},
		{ControllerState{IsLeader: true}, "agents.enabled is false", "The agents are not watched (agents.enabled: false)"},
	} {
		status, why, _ := askController(t, row.state, "/api/v1/agents")
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.Contains(t, why, row.why)
		_, page, _ := askController(t, row.state, "/")
		assert.Contains(t, page, row.page)
		assert.Equal(t, !row.state.AgentsEnabled, strings.Contains(page, "not watched"), row.why)
	}
}

func TestControllerAgentMetrics(t *testing.T) {
	text := string(appendController(new(watching())))
	problems, err := promlint.New(bytes.NewReader([]byte(text))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
	for _, line := range []string{
		`plimsoll_agents{state="silent"} 120`, `plimsoll_nodes_under_pressure{resource="disk"} 1`, `plimsoll_plugin_nodes_under_pressure{plugin="files<"} 3`, "plimsoll_agents_full_disruption 0", "plimsoll_eviction_common_cause 0",
		"plimsoll_cluster_eviction_limit 90", "plimsoll_cluster_evictions_in_period 3", `plimsoll_agents_actions_total{act="mark"} 0`,
		`plimsoll_cluster_evictions_total{result="evicted"} 0`, `plimsoll_cluster_eviction_refusals_total{reason="common"} 0`,
	} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	assert.NotContains(t, text, "alone", "two nodes create no label: the names come from the nodes")
	standby := string(appendController(&ControllerState{Version: "v1", Leader: "a_1"}))
	assert.NotContains(t, standby, "plimsoll_agents", "only the leader has them")
}
