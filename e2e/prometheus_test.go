package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

func decode(t *testing.T, text string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), into), text)
}

// A real Prometheus scrapes the agent, and promtool finds nothing to say.
func TestPrometheusScrapesAgent(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (make deps)", tool)
		}
	}
	_, dirs := limitedCgroup(t, 48<<20)
	startLoad(t, "thrash", append([]string{filepath.Join(t.TempDir(), "file"), strconv.Itoa(8 << 20)}, dirs...)...)
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
			v, err := ask(base, query)
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
	return startPrometheusWith(t, "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: plimsoll, static_configs: [{targets: ['"+target+"']}]}]\n")
}

// startPrometheusWith a configuration, until the test ends.
func startPrometheusWith(t *testing.T, text string) (base string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "p.yml"), text)
	var logs live.Output
	p := exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	p.Stdout, p.Stderr = &logs, &logs
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait() // it was killed
		if t.Failed() {
			t.Log(logs.String())
		}
	})
	return "http://" + address
}

// ask for one value.
func ask(base, query string) (string, error) {
	_, body, err := get(http.DefaultClient, base+"/api/v1/query?query="+url.QueryEscape(query))
	if err != nil {
		return "", err
	}
	var r struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return "", fmt.Errorf("%s: %w", body, err)
	}
	if len(r.Data.Result) == 0 {
		return "", errors.New("no result yet: " + body)
	}
	return fmt.Sprint(r.Data.Result[0].Value[1]), nil
}
