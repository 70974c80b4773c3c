package web

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// podText is the text of the series of workloads alone.
func podText(p *PodSeries, s *view.State) string {
	text, _ := p.append(nil, s, nil)
	return string(text)
}

// podValues are the values of one family by the labels as they are written.
func podValues(t testing.TB, text, family string) map[string]float64 {
	t.Helper()
	return valuesIn(t, parseMetrics(t, []byte(text))[family])
}

func valuesIn(t testing.TB, family *dto.MetricFamily) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, m := range family.GetMetric() {
		labels := series("", m.GetLabel())
		require.NotContains(t, values, labels, "twice the same series")
		values[labels] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

// namesIn are the cgroups that have series, without their directory.
func namesIn(t testing.TB, text string) []string {
	t.Helper()
	var names []string
	for labels := range podValues(t, text, "plimsoll_pod_memory_bytes") {
		names = append(names, labels[strings.LastIndexByte(labels, '/')+1:])
	}
	slices.Sort(names)
	return names
}

func TestPodSeriesOffByDefault(t *testing.T) {
	assert.Nil(t, NewPodSeries(0, 10_000))
	s := manyPods(3)
	off := metricsBody(t, getMetrics(t, &metricsHandler{state: func() *view.State { return s }, pods: NewPodSeries(0, 10_000)}))
	assert.Equal(t, string(appendMetrics(nil, s)), string(off))
	assert.NotContains(t, string(off), "plimsoll_pod_")
}

func TestPodSeriesBeforeFirstTick(t *testing.T) {
	assert.Empty(t, podText(NewPodSeries(5, 1000), &view.State{}))
}

func TestPodSeriesGolden(t *testing.T) {
	got := podText(NewPodSeries(10, 1000), differentPods())
	const golden = "testdata/metrics_pods.golden.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(want), got))
}

func TestPodSeriesLint(t *testing.T) {
	text := []byte(podText(NewPodSeries(10, 1000), differentPods()))
	assert.Len(t, parseMetrics(t, text), 9+4+4+1, "every family has a series")
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)

	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: the exposition is checked by the linter's library alone")
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Empty(t, string(out))
}

func TestPodSeriesNames(t *testing.T) {
	text := podText(NewPodSeries(10, 1000), differentPods())
	assert.Equal(t, map[string]float64{
		" uid=static-hash": 0, " workload_namespace=team-01 workload_pod=checkout-01-6d5f7b9e37-10001": 98765.432123, " cgroup=/system.slice/cron.service": 1.5,
	}, podValues(t, text, "plimsoll_pod_cpu_seconds_total"))
}

func TestPodSeriesDiskNames(t *testing.T) {
	values := podValues(t, podText(NewPodSeries(10, 1000), differentPods()), "plimsoll_pod_disk_read_bytes_total")
	pod := " workload_namespace=team-01 workload_pod=checkout-01-6d5f7b9e37-10001"
	assert.Equal(t, map[string]float64{
		" device=nvme0n1 uid=static-hash": 0, " device=nvme0n1" + pod: 1 << 32, " device=8:16" + pod: 5,
	}, values)
}

func TestPodSeriesUnmeasuredAbsent(t *testing.T) {
	bare := snapshot.WorkloadState{Workload: snapshot.Workload{Cgroup: "/bare", Absent: snapshot.Absent{"memoryBytes": "no such file"}}}
	text := podText(NewPodSeries(10, 1000), sampled(1, bare, using("zero.service", 0)))
	families := parseMetrics(t, []byte(text))
	assert.Equal(t, []string{"plimsoll_pod_memory_bytes", "plimsoll_pod_series_dropped_total"}, familyNames(families), "a family without series has no header")
	assert.Equal(t, map[string]float64{" cgroup=/system.slice/zero.service": 0}, podValues(t, text, "plimsoll_pod_memory_bytes"), "zero was measured")

	all := podText(NewPodSeries(10, 1000), differentPods())
	cron := 0
	for line := range strings.Lines(all) {
		if strings.Contains(line, "cron.service") {
			cron++
		}
	}
	assert.Equal(t, 2, cron, "CPU and memory, nothing of its pressure, disks and network")
}

func TestPodSeriesPodBecomesKnown(t *testing.T) {
	s := manyPods(1)
	known := s.Cluster.PodOf
	p := NewPodSeries(10, 1000)
	labels := func(find func(string) (pods.Pod, bool)) []string {
		s.Cluster.PodOf = find
		var all []string
		for l := range podValues(t, podText(p, s), "plimsoll_pod_disk_reads_completed_total") {
			all = append(all, l)
		}
		return all
	}
	assert.Equal(t, []string{" device=nvme0n1 uid=00000000-1c2f-4d6e-8000-000000000000"}, labels(nil), "none is listed")
	assert.Equal(t, []string{" device=nvme0n1 workload_namespace=team-00 workload_pod=checkout-00-6d5f7b0000-00000"}, labels(known))
	assert.Equal(t, []string{" device=nvme0n1 uid=00000000-1c2f-4d6e-8000-000000000000"}, labels(podsBy(nil)), "it is not listed any more")
	s.Cluster = nil
	assert.Len(t, podValues(t, podText(p, s), "plimsoll_pod_memory_bytes"), 1, "standalone")
}

func TestPodSeriesDeviceRenamed(t *testing.T) {
	s := manyPods(1)
	p := NewPodSeries(10, 1000)
	devices := func() string {
		text := podText(p, s)
		assert.Equal(t, 4, strings.Count(text, `,device="`))
		at := strings.Index(text, `device="`)
		return text[at : at+strings.IndexByte(text[at:], '}')]
	}
	assert.Equal(t, `device="nvme0n1"`, devices())
	s.Snapshot.Disks[0].Name = "sdb"
	assert.Equal(t, `device="sdb"`, devices())
	s.Snapshot.Disks = nil
	assert.Equal(t, `device="259:0"`, devices())
	s.Snapshot.Workloads[0].IO[0].Number = "8:0"
	assert.Equal(t, `device="8:0"`, devices())
}

// A kubelet that changed its cgroup driver leaves such a cgroup behind, and
// Prometheus refuses a scrape in which a series is there twice.
func TestPodSeriesTwoCgroupsOfPod(t *testing.T) {
	s := manyPods(1)
	left := s.Snapshot.Workloads[0]
	left.Cgroup = "/kubepods/burstable/pod" + left.PodUID
	s.Snapshot.Workloads = append(s.Snapshot.Workloads, left)
	p := NewPodSeries(10, 1000)
	for range 3 {
		values := podValues(t, podText(p, s), "plimsoll_pod_memory_bytes")
		assert.Contains(t, values, " workload_namespace=team-00 workload_pod=checkout-00-6d5f7b0000-00000")
		assert.Contains(t, values, " cgroup="+left.Cgroup+" workload_namespace=team-00 workload_pod=checkout-00-6d5f7b0000-00000")
		assert.Len(t, values, 2)
	}
}

// A static pod whose manifest changed is recreated under the same name, and its
// old cgroup remains for a while.
func TestPodSeriesNameTakenOver(t *testing.T) {
	old, anew := manyPods(1).Snapshot.Workloads[0], manyPods(1).Snapshot.Workloads[0]
	old.Cgroup, old.PodUID = "/z", "old"
	anew.Cgroup, anew.PodUID = "/a", "new"
	dns := pods.Pod{Namespace: "kube-system", Name: "dns-node-a"}
	p := NewPodSeries(10, 1000)
	s := sampled(1, anew, old)
	s.Cluster = &view.Cluster{PodOf: podsBy(map[string]pods.Pod{"old": dns})}
	assert.Contains(t, podText(p, s), `plimsoll_pod_oom_kills_total{uid="new"} 0`)
	s.Cluster = &view.Cluster{PodOf: podsBy(map[string]pods.Pod{"new": dns})}
	assert.Equal(t, map[string]float64{" workload_namespace=kube-system workload_pod=dns-node-a": 0, " uid=old": 0}, podValues(t, podText(p, s), "plimsoll_pod_oom_kills_total"))
}
