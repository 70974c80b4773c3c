package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/prometheus"
)

func decode(t *testing.T, text string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), into), text)
}

// A real Prometheus scrapes the agent, and promtool finds nothing to say.
func TestPrometheusScrapesAgent(t *testing.T) {
	t.Parallel()
	prometheus.Skip(t)
	_, dirs := limitedCgroup(t, 48<<20)
	startThrash(t, 8<<20, dirs)
	a := startAgent(t, "--config", configFile(t, "web: {podSeries: {top: 10000, maxSeries: 100000}}\n")).ticked(3)

	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(a.mustGet("/metrics"))
	out, err := check.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))

	base := startPrometheus(t, strings.TrimPrefix(a.url, "http://"))
	for query, positive := range map[string]bool{
		`up{job="plimsoll"}`:                             true,
		`plimsoll_memory_available_bytes`:                true,
		`sum(rate(plimsoll_cpu_seconds_total[10s]))`:     true,
		`scrape_samples_scraped{job="plimsoll"}`:         true,
		`plimsoll_threshold_met`:                         false,
		`sum(plimsoll_pod_memory_bytes)`:                 true,
		`max(rate(plimsoll_pod_cpu_seconds_total[10s]))`: true,
		`count(plimsoll_pod_memory_bytes{cgroup!=""})`:   true,
		`plimsoll_pod_series_dropped_total`:              false,
	} {
		within(t, 2*patience, query, func() error { // a threshold is judged over up to half a minute
			v, err := prometheus.Value(base, query)
			if err == nil && positive && (v == "0" || strings.HasPrefix(v, "-")) {
				err = fmt.Errorf("is %s", v)
			}
			return err
		})
	}
	_, own, err := get(http.DefaultClient, base+"/metrics")
	require.NoError(t, err)
	for _, refused := range []string{"duplicate_timestamp", "out_of_bounds", "out_of_order"} {
		require.Contains(t, own, "\nprometheus_target_scrapes_sample_"+refused+"_total 0\n", "no series is there twice")
	}
}

// startPrometheus scrapes the target once a second, until the test ends.
func startPrometheus(t *testing.T, target string) (base string) {
	t.Helper()
	return prometheus.Start(t, "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: plimsoll, static_configs: [{targets: ['"+target+"']}]}]\n")
}
