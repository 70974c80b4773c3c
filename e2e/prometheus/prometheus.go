// Package prometheus runs a real Prometheus for a test, and asks it.
//
// # Usage
//
//	prometheus.Skip(t)
//	base := prometheus.Start(t, "global: {scrape_interval: 1s}\nscrape_configs: …")
//	err := prometheus.HasRow(base, `up`, map[string]string{"job": "plimsoll"})
package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// Skip the test with the reason where Prometheus is not installed.
func Skip(t testing.TB) {
	t.Helper()
	for _, tool := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (make deps)", tool)
		}
	}
}

// Start a Prometheus with a configuration, until the test ends.
func Start(t testing.TB, config string) (base string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	var logs live.Output
	p := exec.Command("prometheus", "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address) //nolint:noctx // its life is the test's
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

// answer to a query.
type answer struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
}

func ask(base, query string) (a answer, err error) {
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Get(base + "/api/v1/query?query=" + url.QueryEscape(query)) //nolint:noctx // it has its timeout
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("%s %s: %w", resp.Status, body, err)
	}
	if a.Status != "success" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// ErrNoResult is the answer to a query that no series matches.
var ErrNoResult = errors.New("no result yet")

// Value is the one value of a query; an error while there is none.
func Value(base, query string) (string, error) {
	a, err := ask(base, query)
	switch {
	case err != nil:
		return "", err
	case len(a.Data.Result) == 0:
		return "", fmt.Errorf("%s: %w", query, ErrNoResult)
	}
	return fmt.Sprint(a.Data.Result[0].Value[1]), nil
}

// Rows of a query, by their labels.
func Rows(base, query string) (list []map[string]string, err error) {
	a, err := ask(base, query)
	for _, row := range a.Data.Result {
		list = append(list, row.Metric)
	}
	return list, err
}

// HasRow tells what is there instead of a row with those labels.
func HasRow(base, query string, want map[string]string) error {
	list, err := Rows(base, query)
	if err != nil {
		return err
	}
	for _, row := range list {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(label string) bool { return row[label] != want[label] }) {
			return nil
		}
	}
	return fmt.Errorf("no row %v among %v", want, list)
}
