package web

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// fullCluster has every kind of condition, and some of each counter.
func fullCluster() *view.Cluster {
	return &view.Cluster{
		Pods: 42, PodsSynced: true,
		Conditions: []evict.Condition{
			{Type: "plimsoll.dev/DiskContention", Status: corev1.ConditionUnknown},
			{Type: "plimsoll.dev/MemoryContention", Status: corev1.ConditionTrue},
			{Type: "plimsoll.dev/NetworkContention", Status: corev1.ConditionFalse},
		},
		DataMovers: &view.DataMovers{
			Running: 3, Level: plugins.Soft, Budget: new(2), StartHoldUntil: time.UnixMilli(1_800_000_070_500), Reason: "disk soft on sda",
			Problem: "read-only file system",
		},
		Throttles: &view.Throttles{
			DryRun:    true,
			Throttled: []view.Throttled{{Name: "velero/du-1", Disk: "sda"}, {Name: "batch/import", Disk: "sda", DryRun: true}, {Name: "velero/du-1"}},
			Exempt:    []view.NotThrottled{{Name: "shop/web", Disk: "sda", Reason: "it is Guaranteed"}}, Problem: "limit /du-1 read 8:0: input/output error",
		},
		StatusWrites: map[string]uint64{"changed": 4, "report": 7},
		Evictions: map[evict.Result]uint64{
			{Plugin: "memory-stall", Code: evict.CodeEvicted}: 2, {Plugin: "memory-stall", Code: evict.CodePDB}: 3,
			{Plugin: "gone-plugin", Code: evict.CodeRefused}: 1,
		},
		Suppressed: map[evict.Code]uint64{evict.CodeTooSmall: 5, pods.DaemonSet: 6},
	}
}

// valuesOf are the values of one family by one label.
func valuesOf(t *testing.T, s *view.State, family, label string) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, m := range parseMetrics(t, appendMetrics(nil, s))[family].GetMetric() {
		name := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				name = l.GetValue()
			}
		}
		values[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

func inCluster(c *view.Cluster) *view.State {
	s := fullState()
	s.Cluster = c
	return s
}

func TestMetricsStandaloneWithoutCluster(t *testing.T) {
	for name := range parseMetrics(t, appendMetrics(nil, inCluster(nil))) {
		assert.NotRegexp(t, "evict|pods|node_|api_server", name)
	}
}

func TestMetricsEvictionsStartAtZero(t *testing.T) {
	s := inCluster(&view.Cluster{})
	families := parseMetrics(t, appendMetrics(nil, s))
	for family, want := range map[string]int{
		"plimsoll_evictions_total": 3 * len(requestedCodes()), "plimsoll_evictions_suppressed_total": len(skippedCodes()), "plimsoll_node_status_writes_total": 3,
	} {
		list := families[family].GetMetric()
		assert.Len(t, list, want, family)
		for _, m := range list {
			assert.Zero(t, m.GetCounter().GetValue(), family)
		}
	}
}

func TestMetricsEvictionsByPluginAndResult(t *testing.T) {
	values := map[string]float64{}
	for _, m := range parseMetrics(t, appendMetrics(nil, fullState()))["plimsoll_evictions_total"].GetMetric() {
		values[labelsOf(m)] = m.GetCounter().GetValue()
	}
	assert.Equal(t, 2.0, values["plugin=memory-stall result=evicted "])
	assert.Equal(t, 3.0, values["plugin=memory-stall result=pdb "])
	assert.Equal(t, 0.0, values["plugin=disk-latency result=evicted "])
	assert.Equal(t, 1.0, values["plugin=gone-plugin result=refused "], "a plugin that was switched off keeps its counts")
	assert.Len(t, values, 3*len(requestedCodes())+1)
}

func labelsOf(m *dto.Metric) string {
	text := ""
	for _, l := range m.GetLabel() {
		text += l.GetName() + "=" + l.GetValue() + " "
	}
	return text
}

// TestMetricsDecisionCodesFromStart holds the lists of codes
// against what rounds really decide.
func TestMetricsDecisionCodesFromStart(t *testing.T) {
	var tally evict.Counters
	for _, dryRun := range []bool{false, true} {
		for _, d := range scenes.Decisions(dryRun) {
			tally.Count(&d)
		}
	}
	evictions, counts := tally.Counts()
	require.NotEmpty(t, evictions)
	for r := range evictions {
		assert.Contains(t, requestedCodes(), r.Code)
	}
	require.NotEmpty(t, counts)
	for code := range counts {
		assert.Contains(t, skippedCodes(), code)
	}
}

func TestMetricsSuppressedByReason(t *testing.T) {
	values := valuesOf(t, fullState(), "plimsoll_evictions_suppressed_total", "reason")
	assert.Equal(t, 5.0, values["too-small"])
	assert.Equal(t, 6.0, values["daemonset"])
	assert.Len(t, values, len(skippedCodes()))
}

func TestMetricsUnknownConditionAbsent(t *testing.T) {
	assert.Equal(t, map[string]float64{"plimsoll.dev/MemoryContention": 1, "plimsoll.dev/NetworkContention": 0},
		valuesOf(t, fullState(), "plimsoll_node_condition", "condition"))
}

func TestMetricsStatusWritesByReason(t *testing.T) {
	assert.Equal(t, map[string]float64{"changed": 4, "report": 7, "failed": 0}, valuesOf(t, fullState(), "plimsoll_node_status_writes_total", "reason"))
}

func TestMetricsPodsNotListedAbsent(t *testing.T) {
	gauges := func(c view.Cluster) (all []string) {
		for name, f := range parseMetrics(t, appendMetrics(nil, inCluster(&c))) {
			if name == "plimsoll_pods" || name == "plimsoll_pods_synced" && f.GetMetric()[0].GetGauge().GetValue() == 1 {
				all = append(all, name)
			}
		}
		return all
	}
	assert.Empty(t, gauges(view.Cluster{}))
	assert.ElementsMatch(t, []string{"plimsoll_pods", "plimsoll_pods_synced"}, gauges(view.Cluster{PodsSynced: true}), "a node may really have none")
}

func TestMetricsAPIServerStaleSeconds(t *testing.T) {
	now := scenes.Start()
	silent := func(since time.Time, snapshot *snapshot.Snapshot) map[string]float64 {
		s := &view.State{Snapshot: snapshot, Cluster: &view.Cluster{PodsSynced: true, StaleSince: since}}
		return valuesOf(t, s, "plimsoll_api_server_stale_seconds", "")
	}
	at := &snapshot.Snapshot{Time: now}
	assert.Equal(t, map[string]float64{"": 0}, silent(time.Time{}, at))
	assert.Equal(t, map[string]float64{"": 95}, silent(now.Add(-95*time.Second), at))
	assert.Equal(t, map[string]float64{"": 0}, silent(now.Add(time.Second), at), "it fell silent after the tick")
	assert.Empty(t, silent(now, nil), "absent before a tick")
	assert.Empty(t, valuesOf(t, &view.State{Snapshot: at, Cluster: &view.Cluster{}}, "plimsoll_api_server_stale_seconds", ""), "absent before the first answer")
}

func TestMetricsRoundsStuckSeconds(t *testing.T) {
	for _, seconds := range []float64{0, 95} {
		assert.Equal(t, map[string]float64{"": seconds}, valuesOf(t, inCluster(&view.Cluster{RoundsStuckSeconds: seconds}), "plimsoll_rounds_stuck_seconds", ""))
	}
}

func TestMetricsStateUnsavedSeconds(t *testing.T) {
	for _, seconds := range []float64{0, 95} {
		assert.Equal(t, map[string]float64{"": seconds}, valuesOf(t, inCluster(&view.Cluster{UnsavedSeconds: seconds}), "plimsoll_eviction_state_unsaved_seconds", ""))
	}
}

func TestMetricsDryRun(t *testing.T) {
	for dryRun, want := range map[bool]float64{false: 0, true: 1} {
		assert.Equal(t, map[string]float64{"": want}, valuesOf(t, inCluster(&view.Cluster{DryRun: dryRun}), "plimsoll_eviction_dry_run", ""))
	}
}

func TestMetricsDataMovers(t *testing.T) {
	s := fullState()
	assert.Equal(t, map[string]float64{"sda": 1, "": 1}, valuesOf(t, s, "plimsoll_throttled_pods", "device"))
	assert.Equal(t, map[string]float64{"sda": 1}, valuesOf(t, s, "plimsoll_would_throttle_pods", "device"))
	calm := *s.Cluster
	calm.DataMovers = &view.DataMovers{}
	s.Cluster = &calm
	text := string(appendMetrics(nil, s))
	assert.Contains(t, text, "plimsoll_vgdp_movers 0\n")
	assert.NotContains(t, text, "plimsoll_vgdp_budget ", "no limit is not 0")
	calm.DataMovers = nil
	assert.NotContains(t, string(appendMetrics(nil, s)), "plimsoll_vgdp")
}
