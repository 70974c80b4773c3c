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
	"github.com/plimsoll-dev/plimsoll/probes"
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
		Snapshot: &probes.Snapshot{
			WindowSeconds: 10, Gaps: 2,
			CPU: probes.CPUState{CPU: probes.CPU{Seconds: map[string]float64{
				"user": 1200.5, "nice": 0, "system": 300.25, "idle": 9000, "iowait": 12, "irq": 1, "softirq": 2.75, "steal": 0.01,
			}}},
			Memory: probes.MemoryState{Memory: probes.Memory{
				TotalBytes: probes.Some[uint64](16 << 30), AvailableBytes: probes.Some[uint64](9 << 30),
				Refaults: probes.Some[uint64](123456), OOMKills: probes.Some[uint64](0),
			}},
			Network: probes.NetworkState{Network: probes.Network{
				TCPRetransmits: probes.Some[uint64](77), ListenDrops: probes.Some[uint64](0), SoftnetSqueezed: probes.Some[uint64](5),
			}},
			Pressure: fullPressure(),
			Disks:    fullDisks(),
			NICs:     fullNICs(),
			Filesystems: []probes.Filesystem{
				{
					Mountpoint: "/", AgeSeconds: probes.Some(0.25), SizeBytes: probes.Some[uint64](1 << 40), AvailableBytes: probes.Some[uint64](0),
					Files: probes.Some[uint64](1000), FilesFree: probes.Some[uint64](0),
				},
				{ // it hangs now
					Mountpoint: "/mnt/a b\n\"c\"", AgeSeconds: probes.Some(3600.5), SizeBytes: probes.Some[uint64](1 << 30), AvailableBytes: probes.Some[uint64](1 << 20),
					Absent: probes.Absent{"statfs": "statfs hangs", "files": "this filesystem has no inode count"},
				},
				{Mountpoint: "/never", Absent: probes.Absent{"statfs": "statfs hangs"}},
				{Mountpoint: "/new", Absent: probes.Absent{"statfs": "first statfs has not returned yet"}},
			},
			Contention: fullContention(),
			Probes: []probes.Probe{
				{Name: "cpu", Duration: 41 * time.Microsecond},
				{Name: "workloads", Duration: 2 * time.Millisecond, Error: "no cgroup layout"},
			},
		},
		Levels: &plugins.Levels{Verdicts: []plugins.Verdict{
			{Plugin: "memory-stall", Scope: "node", Level: plugins.Hard},
			{Plugin: "disk-latency", Scope: "sda", Level: plugins.None},
			{Plugin: "disk-latency", Scope: "nvme0n1", Level: plugins.Soft, Absent: "window not covered yet"},
			{Plugin: "network", Scope: "eth0", Level: plugins.None, Absent: "speed unknown"},
		}},
		Cluster: fullCluster(),
	}
}

func fullPressure() probes.PressureState {
	return probes.PressureState{
		Totals: probes.Pressure{
			CPU:    probes.Stall{Some: probes.Some[uint64](12_345_678)},
			Memory: probes.Stall{Some: probes.Some[uint64](1_000_000), Full: probes.Some[uint64](500_001)},
			IO:     probes.Stall{Some: probes.Some[uint64](18_446_744_073_709_551_615), Full: probes.Some[uint64](7)},
		},
		Ratios: probes.Ratios{
			CPU:    probes.StallRatio{Some: probes.Some(0.125)},
			Memory: probes.StallRatio{Some: probes.Some(0.0), Full: probes.Some(0.0)},
			IO:     probes.StallRatio{Some: probes.Some(1.0), Full: probes.Some(0.75)},
		},
	}
}

func fullDisks() []probes.DiskState {
	return []probes.DiskState{
		{
			Disk: probes.Disk{Name: "nvme0n1", Layer: probes.LayerLeaf, DiskCounters: probes.DiskCounters{
				Reads: 10, Writes: 20, ReadBytes: 40960, WrittenBytes: 81920, ReadMs: 1500, WriteMs: 4_294_967_297_001, BusyMs: 60,
			}},
			Rates: probes.Some(probes.DiskRates{
				ReadsPerSecond: 30, WritesPerSecond: 10, ReadAwaitSeconds: probes.Some(0.002), WriteAwaitSeconds: probes.Some(0.010),
				QueueLength: 0.16, BusyRatio: 0.5,
			}),
		},
		{
			Disk:  probes.Disk{Name: "sda", Layer: probes.LayerPath},
			Rates: probes.Some(probes.DiskRates{}), // idle: no request completed
		},
		{Disk: probes.Disk{Name: "sdb"}}, // of an older recording, seen for the first time
	}
}

func fullNICs() []probes.NICState {
	return []probes.NICState{
		{
			NIC: probes.NIC{
				Name: "eth0", Layer: probes.LayerLeaf, SpeedBytesPerSecond: probes.Some[uint64](1_250_000_000),
				NICCounters: probes.NICCounters{
					ReceiveBytes: 18_446_744_073_709_551_615, ReceivePackets: 2, ReceiveErrors: 3, ReceiveDrops: 4,
					TransmitBytes: 5, TransmitPackets: 6, TransmitErrors: 7, TransmitDrops: 8,
				},
			},
			Rates: probes.Some(probes.NICRates{ReceiveUtilizationRatio: probes.Some(0.25), TransmitUtilizationRatio: probes.Some(0.75)}),
		},
		{
			NIC:   probes.NIC{Name: `veth"0\`, Layer: probes.LayerStacked},
			Rates: probes.Some(probes.NICRates{ReceiveBytesPerSecond: 1}), // its speed is unknown
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
func TestEverySeriesOfADeviceBearsItsLayer(t *testing.T) {
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

func familyNames(families map[string]*dto.MetricFamily) []string {
	return slices.Sorted(maps.Keys(families))
}

func TestTheExpositionOfAKnownStateIsTheGoldenText(t *testing.T) {
	got := bytes.ReplaceAll(appendMetrics(nil, fullState()), []byte(runtime.Version()), []byte("GOVERSION"))
	const golden = "testdata/metrics.golden.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(want), string(got)))
}

func TestTheNamesOfAllFamiliesAreTheOnesThatRulesAndDashboardsUse(t *testing.T) {
	want := []string{
		"plimsoll_api_server_stale_seconds", "plimsoll_build_info", "plimsoll_config_last_reload_successful", "plimsoll_contention_coverage_ratio", "plimsoll_contention_culprit_share_ratio",
		"plimsoll_contention_resources", "plimsoll_contention_state", "plimsoll_contention_sufferer_waited_ratio", "plimsoll_cpu_seconds_total",
		"plimsoll_disk_await_seconds", "plimsoll_disk_io_time_seconds_total", "plimsoll_disk_queue_length",
		"plimsoll_disk_read_bytes_total", "plimsoll_disk_read_time_seconds_total", "plimsoll_disk_reads_completed_total",
		"plimsoll_disk_utilization_ratio", "plimsoll_disk_write_time_seconds_total", "plimsoll_disk_writes_completed_total",
		"plimsoll_disk_written_bytes_total", "plimsoll_eviction_dry_run", "plimsoll_evictions_suppressed_total", "plimsoll_evictions_total",
		"plimsoll_filesystem_avail_bytes", "plimsoll_filesystem_files",
		"plimsoll_filesystem_files_free", "plimsoll_filesystem_probe_age_seconds", "plimsoll_filesystem_size_bytes", "plimsoll_filesystem_up",
		"plimsoll_history_gaps_total", "plimsoll_memory_available_bytes",
		"plimsoll_memory_refaults_total", "plimsoll_memory_total_bytes", "plimsoll_network_listen_drops_total",
		"plimsoll_network_receive_bytes_total", "plimsoll_network_receive_drops_total", "plimsoll_network_receive_errors_total",
		"plimsoll_network_receive_packets_total", "plimsoll_network_speed_bytes_per_second", "plimsoll_network_tcp_retransmits_total",
		"plimsoll_network_transmit_bytes_total", "plimsoll_network_transmit_drops_total", "plimsoll_network_transmit_errors_total",
		"plimsoll_network_transmit_packets_total", "plimsoll_network_utilization_ratio", "plimsoll_node_condition", "plimsoll_node_status_writes_total",
		"plimsoll_oom_kills_total", "plimsoll_plugin_up", "plimsoll_pods", "plimsoll_pods_synced", "plimsoll_pressure_ratio", "plimsoll_pressure_stalled_seconds_total",
		"plimsoll_pressure_waiting_seconds_total", "plimsoll_probe_duration_seconds", "plimsoll_probe_success",
		"plimsoll_softnet_squeezed_total", "plimsoll_start_time_seconds", "plimsoll_threshold_met",
		"plimsoll_tick_duration_seconds", "plimsoll_ticks_missed_total",
		"plimsoll_vgdp_budget", "plimsoll_vgdp_dry_run", "plimsoll_vgdp_hold_until_timestamp_seconds", "plimsoll_vgdp_limits_failed", "plimsoll_vgdp_movers", "plimsoll_vgdp_throttled",
	}
	assert.Equal(t, want, familyNames(parseMetrics(t, appendMetrics(nil, fullState()))))
}

func TestNoLinterOfPrometheusFindsAnythingInTheExposition(t *testing.T) {
	text := appendMetrics(nil, fullState())
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestPromtoolFindsNothingInTheExposition(t *testing.T) {
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

func TestWhatWasNotMeasuredHasNoSeries(t *testing.T) {
	s := &view.State{
		Agent: view.Agent{Version: "v1"},
		Snapshot: &probes.Snapshot{
			Disks: []probes.DiskState{{Disk: probes.Disk{Name: "sda"}}},
			NICs:  []probes.NICState{{NIC: probes.NIC{Name: "eth0"}}},
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
		"plimsoll_plugin_up", "plimsoll_tick_duration_seconds", "plimsoll_ticks_missed_total",
	}, familyNames(parseMetrics(t, appendMetrics(nil, s))), "counters of the devices are there, and nothing of what is absent")
}

func TestAFamilyWithoutSeriesHasNoHeaderEither(t *testing.T) {
	text := string(appendMetrics(nil, &view.State{Snapshot: &probes.Snapshot{}, Levels: &plugins.Levels{}}))
	assert.Contains(t, text, "# TYPE plimsoll_ticks_missed_total counter\n")
	for _, family := range []string{"plimsoll_disk_", "plimsoll_network_", "plimsoll_memory_", "plimsoll_pressure_", "plimsoll_threshold_met"} {
		assert.NotContains(t, text, family)
	}
}

func TestAValueThatIsNoNumberIsNoSeries(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		s := &view.State{Snapshot: &probes.Snapshot{}}
		s.Snapshot.Pressure.IO.Some = probes.Some(v)
		s.Snapshot.Pressure.IO.Full = probes.Some(0.5)
		ratios := parseMetrics(t, appendMetrics(nil, s))["plimsoll_pressure_ratio"].GetMetric()
		require.Len(t, ratios, 1, "%v", v)
		assert.Equal(t, 0.5, ratios[0].GetGauge().GetValue())
	}
}

func TestABadConfigurationFileShowsWhileTheLastGoodOneIsInForce(t *testing.T) {
	for reason, want := range map[string]float64{"": 1, "line 3: unknown key": 0} {
		families := parseMetrics(t, appendMetrics(nil, &view.State{Agent: view.Agent{ConfigError: reason}}))
		assert.Equal(t, want, families["plimsoll_config_last_reload_successful"].GetMetric()[0].GetGauge().GetValue(), reason)
	}
}

func TestAwaitWeighsReadsAndWritesByTheirNumber(t *testing.T) {
	rates := func(reads, writes float64, read, write probes.Opt[float64]) probes.Opt[probes.DiskRates] {
		return probes.Some(probes.DiskRates{ReadsPerSecond: reads, WritesPerSecond: writes, ReadAwaitSeconds: read, WriteAwaitSeconds: write})
	}
	none := probes.Opt[float64]{}
	for name, c := range map[string]struct{ rates, want any }{
		"three reads of 2 ms to a write of 10 ms": {rates(30, 10, probes.Some(0.002), probes.Some(0.010)), probes.Some(0.004)},
		"reads alone":         {rates(5, 0, probes.Some(0.25), none), probes.Some(0.25)},
		"writes alone":        {rates(0, 5, none, probes.Some(0.5)), probes.Some(0.5)},
		"nothing completed":   {rates(0, 0, none, none), none},
		"no rates":            {probes.Opt[probes.DiskRates]{}, none},
		"at once is no await": {rates(1, 1, probes.Some(0.0), probes.Some(0.0)), probes.Some(0.0)},
	} {
		assert.Equal(t, c.want, await(c.rates.(probes.Opt[probes.DiskRates])), name)
	}
}

func TestALinkIsAsBusyAsTheBusierOfItsDirections(t *testing.T) {
	rates := func(in, out probes.Opt[float64]) probes.Opt[probes.NICRates] {
		return probes.Some(probes.NICRates{ReceiveUtilizationRatio: in, TransmitUtilizationRatio: out})
	}
	none := probes.Opt[float64]{}
	assert.Equal(t, probes.Some(0.9), utilization(rates(probes.Some(0.9), probes.Some(0.1))))
	assert.Equal(t, probes.Some(0.8), utilization(rates(probes.Some(0.2), probes.Some(0.8))))
	assert.Equal(t, none, utilization(rates(none, none)), "unknown speed")
	assert.Equal(t, none, utilization(probes.Opt[probes.NICRates]{}), "no rates")
}
