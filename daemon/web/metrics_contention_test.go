package web

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// fullContention is for the golden text of all families.
func fullContention() []snapshot.Contention {
	return []snapshot.Contention{
		{
			Resource: snapshot.SharedDisk, Device: "nvme0n1", State: snapshot.ContentionPresent, Coverage: snapshot.Some(0.94),
			Culprits:  []snapshot.Culprit{{Party: snapshot.Party{Cgroup: "/system.slice/backup.service"}, Share: 0.71}},
			Sufferers: []snapshot.Sufferer{{Party: snapshot.Party{Cgroup: "/kubepods/pod-a", PodUID: "41aa9e07"}, Waited: 0.38}},
		},
		{Resource: snapshot.SharedMemory, State: snapshot.ContentionBusy},
	}
}

func contentionSeriesText(s *view.State) string { return string(appendContention(nil, s)) }

// contendedOn is a state with one contention for each device, of one culprit
// and one sufferer.
func contendedOn(state snapshot.ContentionState, devices int) *view.State {
	s := &view.State{Snapshot: &snapshot.Snapshot{}}
	for i := range devices {
		party := snapshot.Party{Cgroup: fmt.Sprintf("/system.slice/s%d.service", i), Name: "s"}
		s.Snapshot.Contention = append(s.Snapshot.Contention, snapshot.Contention{
			Resource: snapshot.SharedDisk, Device: fmt.Sprintf("sd%03d", i), State: state, Coverage: snapshot.Some(0.5),
			Culprits: []snapshot.Culprit{{Party: party, Share: 0.75}}, Sufferers: []snapshot.Sufferer{{Party: party, Waited: 0.25}},
		})
	}
	return s
}

func TestMetricsContention(t *testing.T) {
	text := contentionSeriesText(scenes.Contended())
	assert.Equal(t, map[string]float64{
		" device=nvme0n1 resource=disk": 1, " device=sda resource=disk": 1, " device=sdb resource=disk": 0, " resource=memory": 1,
	}, podValues(t, text, "plimsoll_contention_state"))
	coverage := podValues(t, text, "plimsoll_contention_coverage_ratio")
	assert.InDelta(t, 0.943, coverage[" device=nvme0n1 resource=disk"], 0.001)
	assert.Equal(t, map[string]float64{"": 4}, podValues(t, text, "plimsoll_contention_resources"))
	shares := podValues(t, text, "plimsoll_contention_culprit_share_ratio")
	assert.InDelta(t, 0.66, shares[" device=nvme0n1 resource=disk workload_namespace=batch-analytics workload_pod=du-of-the-whole-data-lake-28f7c-x2k9p"], 0.001)
	waited := podValues(t, text, "plimsoll_contention_sufferer_waited_ratio")
	assert.InDelta(t, 0.34, waited[" device=nvme0n1 resource=disk workload_namespace=payments-production-eu-west-1 workload_pod=payments-db-postgresql-primary-with-a-name-as-long-as-helm-makes-them-0"], 0.001)
	assert.Len(t, shares, 10+2+10, "those that are named, and none without contention")
	assert.Len(t, waited, 10+2+10)
}

func TestMetricsContentionIdleAbsent(t *testing.T) {
	assert.Empty(t, contentionSeriesText(&view.State{Snapshot: &snapshot.Snapshot{}}))
}

func TestMetricsContentionBusyNoWorkloads(t *testing.T) {
	text := contentionSeriesText(contendedOn(snapshot.ContentionBusy, 3))
	assert.Len(t, podValues(t, text, "plimsoll_contention_state"), 3)
	assert.NotContains(t, text, "s0.service")
	assert.NotContains(t, text, "culprit")
}

func TestMetricsContentionUnknownAbsent(t *testing.T) {
	s := contendedOn(snapshot.ContentionUnknown, 1)
	s.Snapshot.Contention[0].Coverage = snapshot.Opt[float64]{}
	text := contentionSeriesText(s)
	assert.Equal(t, []string{"plimsoll_contention_resources"}, familyNames(parseMetrics(t, []byte(text))))
}

func TestMetricsContentionDevicesBounded(t *testing.T) {
	s := contendedOn(snapshot.ContentionBusy, 300)
	contended := contendedOn(snapshot.ContentionPresent, 300).Snapshot.Contention
	s.Snapshot.Contention[299] = contended[299]
	text := contentionSeriesText(s)
	states := podValues(t, text, "plimsoll_contention_state")
	assert.Len(t, states, contentionSeries)
	assert.Equal(t, 1.0, states[" device=sd299 resource=disk"], "devices with contention have series first")
	assert.Equal(t, map[string]float64{"": 300}, podValues(t, text, "plimsoll_contention_resources"), "how many there would be")
	s.Snapshot.Contention = contended
	assert.Len(t, podValues(t, contentionSeriesText(s), "plimsoll_contention_culprit_share_ratio"), contentionSeries)
}

func TestMetricsContentionLint(t *testing.T) {
	s := scenes.Contended()
	hostile := scenes.Hostile().Snapshot.Disks[0].Name
	s.Snapshot.Contention[0].Device = hostile
	s.Snapshot.Contention[0].Culprits[0].Party = snapshot.Party{Cgroup: "/" + hostile, Name: hostile}
	text := []byte(contentionSeriesText(s))
	assert.Len(t, parseMetrics(t, text), 5, "every family has a series")
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

// A pod may leave a cgroup behind elsewhere, and Prometheus refuses a scrape in
// which a series is there twice.
func TestMetricsContentionTwoCgroupsOfPod(t *testing.T) {
	s := contendedOn(snapshot.ContentionPresent, 1)
	c := &s.Snapshot.Contention[0]
	for _, dir := range []string{"/old", "/new"} {
		p := snapshot.Party{Cgroup: dir, PodUID: "u1", Name: "pod u1"}
		c.Culprits = append(c.Culprits, snapshot.Culprit{Party: p, Share: 0.1})
		c.Sufferers = append(c.Sufferers, snapshot.Sufferer{Party: p, Waited: 0.1})
	}
	s.Cluster = &view.Cluster{PodOf: podsBy(map[string]pods.Pod{"u1": {Namespace: "web", Name: "db-0"}})}
	for _, family := range []string{"plimsoll_contention_culprit_share_ratio", "plimsoll_contention_sufferer_waited_ratio"} {
		values := podValues(t, contentionSeriesText(s), family)
		assert.Len(t, values, 3)
		assert.Contains(t, values, " cgroup=/old device=sd000 resource=disk workload_namespace=web workload_pod=db-0")
		assert.Contains(t, values, " cgroup=/new device=sd000 resource=disk workload_namespace=web workload_pod=db-0")
	}
}

func TestMetricsContentionLabels(t *testing.T) {
	s := scenes.Contended()
	names := func(text, family string) map[string]bool {
		all := map[string]bool{}
		for labels := range podValues(t, text, family) {
			all[strings.NewReplacer(" resource=disk", "", " resource=memory", "", " device=nvme0n1", "", " device=sda", "").Replace(labels)] = true
		}
		return all
	}
	known := names(podText(NewPodSeries(100, 100_000), s), "plimsoll_pod_memory_bytes")
	for name := range names(contentionSeriesText(s), "plimsoll_contention_culprit_share_ratio") {
		assert.Contains(t, known, name)
	}
}
