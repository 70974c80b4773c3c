package web

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// outers is a plugin that answers, one that does not, one that was removed, and a
// socket.
func outers() *view.OuterPlugins {
	met := plugins.Verdict{
		Plugin: "vendor", Scope: "NUMA 0", Level: plugins.Hard, MetLevel: plugins.Hard, Condition: "MemoryPressure",
		Observed: snapshot.Some(3.0), Operator: ">", Threshold: snapshot.Some(2.0), Reason: "the plugin reports hard threshold met",
	}
	return &view.OuterPlugins{
		Plugins: []outer.Status{
			{Name: "broken", Socket: "/run/b.sock", Up: true, Failure: "ThresholdMet: it is tired", Breaker: "open"},
			{Name: "vendor", Socket: "/run/v.sock", Up: true, Breaker: "closed", Since: time.Unix(1, 0), Verdicts: []plugins.Verdict{met}},
			{Socket: "/run/other.sock", Problem: "not an eviction plugin"},
		},
		Rivals: []outer.Rival{{Dir: "/run/p", PID: 812, Command: "katalyst-agent", Cgroup: "/k"}}, Beside: "report",
		Counts: map[string]outer.Counts{
			"broken": {Calls: map[outer.Call]uint64{{Method: "ThresholdMet", Result: "Unknown"}: 3}, Within: make([]uint64, len(outer.Buckets()))},
			"gone":   {Within: make([]uint64, len(outer.Buckets()))},
			"taken":  {Within: make([]uint64, len(outer.Buckets())), LeftToRival: true},
			"vendor": {
				Calls:   map[outer.Call]uint64{{Method: "ThresholdMet", Result: "OK"}: 2, {Method: "GetEvictPods", Result: "OK"}: 2},
				Seconds: 0.5, Within: []uint64{1, 2, 3, 4, 4, 4}, Refused: map[string]uint64{"pod-not-shown": 7},
			},
		},
	}
}

func TestMetricsOuterPlugins(t *testing.T) {
	text := string(appendMetrics(nil, fullState().WithOuter(outers())))
	for _, line := range []string{
		`plimsoll_plugin_rival{dir="/run/p",pid="812"} 1`,
		`plimsoll_plugin_up{plugin="memory-stall"} 1`, `plimsoll_plugin_up{plugin="vendor"} 1`,
		`plimsoll_plugin_up{plugin="broken"} 0`, `plimsoll_plugin_up{plugin="gone"} 0`,
		`plimsoll_threshold_met{plugin="vendor",scope="NUMA 0"} 2`,
		`plimsoll_plugin_calls_total{plugin="vendor",method="GetEvictPods",result="OK"} 2`,
		`plimsoll_plugin_calls_total{plugin="broken",method="ThresholdMet",result="Unknown"} 3`,
		`plimsoll_plugin_refused_total{plugin="vendor",reason="pod-not-shown"} 7`,
		`plimsoll_plugin_refused_total{plugin="vendor",reason="effect"} 0`,
		`plimsoll_plugin_call_duration_seconds_bucket{plugin="vendor",le="0.1"} 3`,
		`plimsoll_plugin_call_duration_seconds_bucket{plugin="vendor",le="+Inf"} 4`,
		`plimsoll_plugin_call_duration_seconds_sum{plugin="vendor"} 0.5`,
		`plimsoll_plugin_call_duration_seconds_count{plugin="vendor"} 4`,
	} {
		assert.Contains(t, text, line+"\n")
	}
	assert.NotContains(t, text, `plimsoll_plugin_up{plugin="taken"}`, "it is left to a rival")
	many := outers()
	vendor := many.Counts["vendor"]
	vendor.Scopes = slices.Repeat([]string{"NUMA 1"}, 100)
	many.Counts["vendor"] = vendor
	assert.Contains(t, string(appendMetrics(nil, fullState().WithOuter(many))), `plimsoll_threshold_met{plugin="vendor",scope="other"} 2`)
	parseMetrics(t, []byte(text))
	problems, err := promlint.New(bytes.NewReader([]byte(text))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestAPIOuterPlugins(t *testing.T) {
	inner := len(fullState().Levels.Verdicts)
	s := serverOf(fullState())
	s.Outer = outers
	var got Plugins
	ask(t, s, "/api/v1/plugins", &got)
	require.Len(t, got.Plugins, inner+3)
	list := got.Plugins[inner:]
	assert.Equal(t, []string{"broken", "vendor", ""}, []string{list[0].Name, list[1].Name, list[2].Name})
	assert.Equal(t, []bool{true, true, false}, []bool{list[0].Up, list[1].Up, list[2].Up})
	assert.Equal(t, "plimsoll.dev/MemoryPressure", list[1].Condition)
	assert.Equal(t, plugins.Hard, list[1].Level)
	assert.Equal(t, "not an eviction plugin", list[2].Absent)
	for _, p := range got.Plugins[:inner] {
		assert.Equal(t, "inner", p.Kind)
		assert.Nil(t, p.Outer)
	}
}

func TestHeadlineHasOuterPlugins(t *testing.T) {
	text, level := fullState().WithOuter(outers()).Headline()
	assert.Contains(t, text, "vendor NUMA 0: hard for")
	assert.Equal(t, plugins.Hard, level)
	assert.NotContains(t, fullState().WithOuter(outers()).Pressure().Levels, plugins.Resource(""))
}
