package web

import (
	"bytes"
	"flag"
	"maps"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var update = flag.Bool("update", false, "update the golden files")

// fullState is made up; every family has a series in it, and some things lack
// a part.
func fullState() *view.State {
	return &view.State{
		Agent: view.Agent{
			Node: "node-a", Version: "v1.2.3", Started: time.UnixMilli(1_800_000_000_250),
			TickSeconds: 1, TickDurationSeconds: 0.0025, TicksMissed: 3,
		},
		Snapshot: &snapshot.Snapshot{
			WindowSeconds: 10, Gaps: 2,
			CPU: snapshot.CPUState{CPU: snapshot.CPU{Seconds: map[string]float64{
				"user": 1200.5, "nice": 0, "system": 300.25, "idle": 9000, "iowait": 12, "irq": 1, "softirq": 2.75, "steal": 0.01,
			}}},
			Memory: snapshot.MemoryState{Memory: snapshot.Memory{
				TotalBytes: snapshot.Some[uint64](16 << 30), AvailableBytes: snapshot.Some[uint64](9 << 30),
				Refaults: snapshot.Some[uint64](123456), OOMKills: snapshot.Some[uint64](0),
			}},
			Network: snapshot.NetworkState{Network: snapshot.Network{
				TCPRetransmits: snapshot.Some[uint64](77), ListenDrops: snapshot.Some[uint64](0), SoftnetSqueezed: snapshot.Some[uint64](5),
			}},
			Pressure: fullPressure(),
			Disks:    fullDisks(),
			NICs:     fullNICs(),
			NUMANodes: []snapshot.NUMANode{
				{ID: 0, TotalBytes: snapshot.Some[uint64](8 << 30), AvailableBytes: snapshot.Some[uint64](1 << 30)},
				{ID: 1, TotalBytes: snapshot.Some[uint64](8 << 30)},
			},
			Exhaustion: []snapshot.Exhaustion{
				{Kind: snapshot.ExhaustsMemory, Seconds: 41.5, EarliestSeconds: 31, LatestSeconds: 66, ShrinksPerSecond: 2e8, OverSeconds: 13},
				{Kind: snapshot.ExhaustsInodes, Mountpoint: "/mnt/a b\n\"c\"", Seconds: 7200, EarliestSeconds: 6000, LatestSeconds: 9000, ShrinksPerSecond: 1, OverSeconds: 3000},
			},
			Filesystems: []snapshot.Filesystem{
				{
					Mountpoint: "/", AgeSeconds: snapshot.Some(0.25), SizeBytes: snapshot.Some[uint64](1 << 40), AvailableBytes: snapshot.Some[uint64](0),
					Files: snapshot.Some[uint64](1000), FilesFree: snapshot.Some[uint64](0),
				},
				{ // it hangs now
					Mountpoint: "/mnt/a b\n\"c\"", AgeSeconds: snapshot.Some(3600.5), SizeBytes: snapshot.Some[uint64](1 << 30), AvailableBytes: snapshot.Some[uint64](1 << 20),
					Absent: snapshot.Absent{"statfs": "statfs hangs", "files": "this filesystem has no inode count"},
				},
				{Mountpoint: "/never", Absent: snapshot.Absent{"statfs": "statfs hangs"}},
				{Mountpoint: "/new", Absent: snapshot.Absent{"statfs": "first statfs has not returned yet"}},
			},
			Contention: fullContention(),
			Probes: []snapshot.Probe{
				{Name: "cpu", Duration: 41 * time.Microsecond},
				{Name: "workloads", Duration: 2 * time.Millisecond, Error: "no cgroup layout"},
			},
		},
		Levels: &plugins.Levels{Disks: []plugins.DiskCapacity{
			{
				Device: "nvme0n1", Slow: "the disk is slow by itself",
				Knee: plugins.Knee{Read: plugins.Carry{IOPS: 3000, BytesPerSecond: 12e6}, Write: plugins.Carry{IOPS: 800, BytesPerSecond: 3e6, AwaitSeconds: 0.002}},
			},
		}, Verdicts: []plugins.Verdict{
			{Plugin: "memory-stall", Scope: "node", Level: plugins.Hard},
			{Plugin: "disk-latency", Scope: "sda", Level: plugins.None},
			{Plugin: "disk-latency", Scope: "nvme0n1", Level: plugins.Soft, Absent: "window not covered yet"},
			{Plugin: "network", Scope: "eth0", Level: plugins.None, Absent: "speed unknown"},
		}},
		Cluster: fullCluster(),
	}
}

func fullPressure() snapshot.PressureState {
	return snapshot.PressureState{
		Totals: snapshot.Pressure{
			CPU:    snapshot.Stall{Some: snapshot.Some[uint64](12_345_678)},
			Memory: snapshot.Stall{Some: snapshot.Some[uint64](1_000_000), Full: snapshot.Some[uint64](500_001)},
			IO:     snapshot.Stall{Some: snapshot.Some[uint64](18_446_744_073_709_551_615), Full: snapshot.Some[uint64](7)},
		},
		Ratios: snapshot.Ratios{
			CPU:    snapshot.StallRatio{Some: snapshot.Some(0.125)},
			Memory: snapshot.StallRatio{Some: snapshot.Some(0.0), Full: snapshot.Some(0.0)},
			IO:     snapshot.StallRatio{Some: snapshot.Some(1.0), Full: snapshot.Some(0.75)},
		},
	}
}

func fullDisks() []snapshot.DiskState {
	return []snapshot.DiskState{
		{
			Disk: snapshot.Disk{Name: "nvme0n1", Layer: snapshot.LayerLeaf, DiskCounters: snapshot.DiskCounters{
				Reads: 10, Writes: 20, ReadBytes: 40960, WrittenBytes: 81920, ReadMs: 1500, WriteMs: 4_294_967_297_001, BusyMs: 60,
			}},
			Rates: snapshot.Some(snapshot.DiskRates{
				ReadsPerSecond: 30, WritesPerSecond: 10, ReadAwaitSeconds: snapshot.Some(0.002), WriteAwaitSeconds: snapshot.Some(0.010),
				QueueLength: 0.16, BusyRatio: 0.5,
			}),
		},
		{
			Disk:  snapshot.Disk{Name: "sda", Layer: snapshot.LayerPath},
			Rates: snapshot.Some(snapshot.DiskRates{}), // idle: no request completed
		},
		{Disk: snapshot.Disk{Name: "sdb"}}, // of an older recording, seen for the first time
	}
}

func fullNICs() []snapshot.NICState {
	return []snapshot.NICState{
		{
			NIC: snapshot.NIC{
				Name: "eth0", Layer: snapshot.LayerLeaf, SpeedBytesPerSecond: snapshot.Some[uint64](1_250_000_000),
				NICCounters: snapshot.NICCounters{
					ReceiveBytes: 18_446_744_073_709_551_615, ReceivePackets: 2, ReceiveErrors: 3, ReceiveDrops: 4,
					TransmitBytes: 5, TransmitPackets: 6, TransmitErrors: 7, TransmitDrops: 8,
				},
			},
			Rates: snapshot.Some(snapshot.NICRates{ReceiveUtilizationRatio: snapshot.Some(0.25), TransmitUtilizationRatio: snapshot.Some(0.75)}),
		},
		{
			NIC:   snapshot.NIC{Name: `veth"0\`, Layer: snapshot.LayerStacked},
			Rates: snapshot.Some(snapshot.NICRates{ReceiveBytesPerSecond: 1}), // its speed is unknown
		},
	}
}

func parseMetrics(t testing.TB, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err, "%s", text)
	return families
}

// Devices of two layers repeat the same IO, so that every sum must be able to
// choose one.
func TestMetricsDevicesHaveLayer(t *testing.T) {
	want := map[string]string{"nvme0n1": "leaf", "sda": "path", "sdb": "unknown", "eth0": "leaf", `veth"0\`: "stacked"}
	seen := map[string]bool{}
	for name, f := range parseMetrics(t, appendMetrics(nil, fullState())) {
		if !strings.HasPrefix(name, "plimsoll_disk_") && !strings.HasPrefix(name, "plimsoll_network_") {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if device, ok := labels["device"]; ok {
				seen[device] = true
				assert.Equal(t, want[device], labels["layer"], "%s of %s", name, device)
			}
		}
	}
	assert.Len(t, seen, len(want))
}

func TestMetricsPodsMakeNoDevices(t *testing.T) {
	s := fullState()
	want := string(appendMetrics(nil, s))
	s.Snapshot.NICs = append(s.Snapshot.NICs, snapshot.NICState{NIC: snapshot.NIC{Name: "cali1a2b3c", Kind: "veth", Layer: snapshot.LayerStacked, SpeedBytesPerSecond: snapshot.Some[uint64](1_250_000_000)}})
	assert.Empty(t, cmp.Diff(want, string(appendMetrics(nil, s))))
}

func familyNames(families map[string]*dto.MetricFamily) []string {
	return slices.Sorted(maps.Keys(families))
}

func TestMetricsGolden(t *testing.T) {
	got := bytes.ReplaceAll(appendMetrics(nil, fullState()), []byte(runtime.Version()), []byte("GOVERSION"))
	const golden = "testdata/metrics.golden.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(want), string(got)))
}

func TestMetricsFamilyNames(t *testing.T) {
	want := []string{
		"plimsoll_api_server_stale_seconds", "plimsoll_build_info", "plimsoll_config_last_reload_successful", "plimsoll_contention_coverage_ratio", "plimsoll_contention_culprit_share_ratio",
		"plimsoll_contention_resources", "plimsoll_contention_state", "plimsoll_contention_sufferer_waited_ratio", "plimsoll_cpu_seconds_total",
		"plimsoll_disk_await_seconds", "plimsoll_disk_io_time_seconds_total",
		"plimsoll_disk_knee_await_seconds", "plimsoll_disk_knee_bytes_per_second", "plimsoll_disk_knee_requests_per_second", "plimsoll_disk_queue_length",
		"plimsoll_disk_read_bytes_total", "plimsoll_disk_read_time_seconds_total", "plimsoll_disk_reads_completed_total",
		"plimsoll_disk_slow", "plimsoll_disk_utilization_ratio", "plimsoll_disk_write_time_seconds_total", "plimsoll_disk_writes_completed_total",
		"plimsoll_disk_written_bytes_total", "plimsoll_eviction_dry_run", "plimsoll_eviction_state_unsaved_seconds", "plimsoll_evictions_suppressed_total", "plimsoll_evictions_total",
		"plimsoll_filesystem_avail_bytes", "plimsoll_filesystem_exhaustion_seconds", "plimsoll_filesystem_files",
		"plimsoll_filesystem_files_free", "plimsoll_filesystem_probe_age_seconds", "plimsoll_filesystem_size_bytes", "plimsoll_filesystem_up",
		"plimsoll_history_gaps_total", "plimsoll_memory_available_bytes", "plimsoll_memory_exhaustion_seconds",
		"plimsoll_memory_refaults_total", "plimsoll_memory_total_bytes", "plimsoll_network_listen_drops_total",
		"plimsoll_network_receive_bytes_total", "plimsoll_network_receive_drops_total", "plimsoll_network_receive_errors_total",
		"plimsoll_network_receive_packets_total", "plimsoll_network_speed_bytes_per_second", "plimsoll_network_tcp_retransmits_total",
		"plimsoll_network_transmit_bytes_total", "plimsoll_network_transmit_drops_total", "plimsoll_network_transmit_errors_total",
		"plimsoll_network_transmit_packets_total", "plimsoll_network_utilization_ratio", "plimsoll_node_condition", "plimsoll_node_status_writes_total",
		"plimsoll_numa_memory_available_bytes", "plimsoll_numa_memory_total_bytes", "plimsoll_oom_kills_total", "plimsoll_plugin_up", "plimsoll_pods", "plimsoll_pods_synced", "plimsoll_pressure_ratio", "plimsoll_pressure_stalled_seconds_total",
		"plimsoll_pressure_waiting_seconds_total", "plimsoll_probe_duration_seconds", "plimsoll_probe_success", "plimsoll_resized_pods", "plimsoll_resource_judged", "plimsoll_rounds_stuck_seconds",
		"plimsoll_softnet_squeezed_total", "plimsoll_start_time_seconds", "plimsoll_threshold_met", "plimsoll_throttle_dry_run", "plimsoll_throttle_failed", "plimsoll_throttled_pods",
		"plimsoll_tick_duration_seconds", "plimsoll_ticks_missed_total",
		"plimsoll_vgdp_budget", "plimsoll_vgdp_dry_run", "plimsoll_vgdp_hold_until_timestamp_seconds", "plimsoll_vgdp_movers", "plimsoll_would_throttle_pods",
	}
	assert.Equal(t, want, familyNames(parseMetrics(t, appendMetrics(nil, fullState()))))
}

func TestMetricsPromlint(t *testing.T) {
	text := appendMetrics(nil, fullState())
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestMetricsPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: the exposition is checked by the linter's library alone")
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(appendMetrics(nil, fullState()))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Empty(t, string(out))
}

func TestMetricsUnmeasuredAbsent(t *testing.T) {
	s := &view.State{
		Agent: view.Agent{Version: "v1"},
		Snapshot: &snapshot.Snapshot{
			Disks: []snapshot.DiskState{{Disk: snapshot.Disk{Name: "sda"}}},
			NICs:  []snapshot.NICState{{NIC: snapshot.NIC{Name: "eth0"}}},
		},
		Levels: &plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "memory-stall", Scope: "node", Absent: "the kernel has no PSI"}}},
	}
	assert.Equal(t, []string{
		"plimsoll_build_info", "plimsoll_config_last_reload_successful",
		"plimsoll_disk_io_time_seconds_total", "plimsoll_disk_read_bytes_total", "plimsoll_disk_read_time_seconds_total",
		"plimsoll_disk_reads_completed_total", "plimsoll_disk_write_time_seconds_total", "plimsoll_disk_writes_completed_total",
		"plimsoll_disk_written_bytes_total", "plimsoll_history_gaps_total",
		"plimsoll_network_receive_bytes_total", "plimsoll_network_receive_drops_total", "plimsoll_network_receive_errors_total",
		"plimsoll_network_receive_packets_total", "plimsoll_network_transmit_bytes_total", "plimsoll_network_transmit_drops_total",
		"plimsoll_network_transmit_errors_total", "plimsoll_network_transmit_packets_total",
		"plimsoll_plugin_up", "plimsoll_resource_judged", "plimsoll_tick_duration_seconds", "plimsoll_ticks_missed_total",
	}, familyNames(parseMetrics(t, appendMetrics(nil, s))), "counters of the devices are there, and nothing of what is absent")
}

func TestMetricsEmptyFamilyHasNoHeader(t *testing.T) {
	text := string(appendMetrics(nil, &view.State{Snapshot: &snapshot.Snapshot{}, Levels: &plugins.Levels{}}))
	assert.Contains(t, text, "# TYPE plimsoll_ticks_missed_total counter\n")
	for _, family := range []string{"plimsoll_disk_", "plimsoll_network_", "plimsoll_memory_", "plimsoll_pressure_", "plimsoll_threshold_met"} {
		assert.NotContains(t, text, family)
	}
}

func TestMetricsNaNAndInfAbsent(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		s := &view.State{Snapshot: &snapshot.Snapshot{}}
		s.Snapshot.Pressure.IO.Some = snapshot.Some(v)
		s.Snapshot.Pressure.IO.Full = snapshot.Some(0.5)
		ratios := parseMetrics(t, appendMetrics(nil, s))["plimsoll_pressure_ratio"].GetMetric()
		require.Len(t, ratios, 1, "%v", v)
		assert.Equal(t, 0.5, ratios[0].GetGauge().GetValue())
	}
}

func TestMetricsConfigReloadFailed(t *testing.T) {
	for reason, want := range map[string]float64{"": 1, "line 3: unknown key": 0} {
		families := parseMetrics(t, appendMetrics(nil, &view.State{Agent: view.Agent{ConfigError: reason}}))
		assert.Equal(t, want, families["plimsoll_config_last_reload_successful"].GetMetric()[0].GetGauge().GetValue(), reason)
	}
}

func TestAwaitWeighsReadsAndWrites(t *testing.T) {
	rates := func(reads, writes float64, read, write snapshot.Opt[float64]) snapshot.Opt[snapshot.DiskRates] {
		return snapshot.Some(snapshot.DiskRates{ReadsPerSecond: reads, WritesPerSecond: writes, ReadAwaitSeconds: read, WriteAwaitSeconds: write})
	}
	none := snapshot.Opt[float64]{}
	for name, c := range map[string]struct{ rates, want any }{
		"three reads of 2 ms to a write of 10 ms": {rates(30, 10, snapshot.Some(0.002), snapshot.Some(0.010)), snapshot.Some(0.004)},
		"reads alone":         {rates(5, 0, snapshot.Some(0.25), none), snapshot.Some(0.25)},
		"writes alone":        {rates(0, 5, none, snapshot.Some(0.5)), snapshot.Some(0.5)},
		"nothing completed":   {rates(0, 0, none, none), none},
		"no rates":            {snapshot.Opt[snapshot.DiskRates]{}, none},
		"at once is no await": {rates(1, 1, snapshot.Some(0.0), snapshot.Some(0.0)), snapshot.Some(0.0)},
	} {
		assert.Equal(t, c.want, await(c.rates.(snapshot.Opt[snapshot.DiskRates])), name)
	}
}

func TestLinkUtilizationOfBusierDirection(t *testing.T) {
	rates := func(in, out snapshot.Opt[float64]) snapshot.Opt[snapshot.NICRates] {
		return snapshot.Some(snapshot.NICRates{ReceiveUtilizationRatio: in, TransmitUtilizationRatio: out})
	}
	none := snapshot.Opt[float64]{}
	assert.Equal(t, snapshot.Some(0.9), utilization(rates(snapshot.Some(0.9), snapshot.Some(0.1))))
	assert.Equal(t, snapshot.Some(0.8), utilization(rates(snapshot.Some(0.2), snapshot.Some(0.8))))
	assert.Equal(t, none, utilization(rates(none, none)), "unknown speed")
	assert.Equal(t, none, utilization(snapshot.Opt[snapshot.NICRates]{}), "no rates")
}
