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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func decode(t *testing.T, text string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), into), text)
}

// A real Prometheus scrapes the agent, and promtool finds nothing to say.
func TestARealPrometheusScrapesTheAgent(t *testing.T) {
	for _, tool := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (make deps)", tool)
		}
	}
	a := startAgent(t).ticked(3)

	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(a.mustGet("/metrics"))
	out, err := check.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))

	base := startPrometheus(t, strings.TrimPrefix(a.url, "http://"))
	for query, positive := range map[string]bool{
		`up{job="plimsoll"}`:                         true,
		`plimsoll_memory_available_bytes`:            true,
		`sum(rate(plimsoll_cpu_seconds_total[10s]))`: true,
		`scrape_samples_scraped{job="plimsoll"}`:     true,
		`plimsoll_threshold_met`:                     false,
	} {
		eventually(t, query, func() error {
			v, err := ask(base, query)
			if err == nil && positive && (v == "0" || strings.HasPrefix(v, "-")) {
				err = fmt.Errorf("is %s", v)
			}
			return err
		})
	}
}

// startPrometheus scrapes the target once a second, until the test ends.
func startPrometheus(t *testing.T, target string) (base string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "p.yml"), "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: plimsoll, static_configs: [{targets: ['"+target+"']}]}]\n")
	var logs output
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
