package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	meminfo  = "MemTotal:        2000 kB\nMemFree:          10 kB\nMemAvailable:     50 kB\n"
	pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=9000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"
	vmstat   = "nr_free_pages 7\npgscan_kswapd 40\npgscan_direct 2\npgscan_direct_throttle 1000\n"
	hard     = `{"verdicts":[{"plugin":"other","level":"soft"},{"plugin":"memory-stall","level":"hard","reason":"little left"}]}`
)

// procOf is a made-up proc with these three files; an empty one is left out.
func procOf(t *testing.T, meminfo, pressure, vmstat string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "pressure"), 0o755))
	for name, content := range map[string]string{"meminfo": meminfo, "pressure/memory": pressure, "vmstat": vmstat} {
		if content != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	return dir
}

// answering is the address of an agent that answers so.
func answering(t *testing.T, status int, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestWitnessLine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &untilFull{lines: 2, full: cancel}
	require.NoError(t, watch(ctx, out, procOf(t, meminfo, pressure, vmstat), answering(t, http.StatusOK, hard)))

	var got line
	first, err := out.ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(first, &got))
	assert.WithinDuration(t, time.Now(), got.Time, time.Minute)
	got.Time = time.Time{}
	assert.Equal(t, line{AvailableRatio: 0.025, FullSeconds: 1.5, Scans: 42, Level: "hard", Reason: "little left"}, got)
	assert.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")), "one more look after a period, then it was ended")
}

// untilFull calls full with the last of the lines it has room for.
type untilFull struct {
	bytes.Buffer
	lines int
	full  func()
}

func (u *untilFull) Write(b []byte) (int, error) {
	n, err := u.Buffer.Write(b)
	if bytes.Count(u.Bytes(), []byte("\n")) == u.lines {
		u.full()
	}
	return n, err
}

func TestWitnessNeedsAllKernelValues(t *testing.T) {
	for name, proc := range map[string]string{
		"no meminfo":      procOf(t, "", pressure, vmstat),
		"no MemAvailable": procOf(t, "MemTotal: 2000 kB\n", pressure, vmstat),
		"no PSI":          procOf(t, meminfo, "", vmstat),
		"no full":         procOf(t, meminfo, "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n", vmstat),
		"no vmstat":       procOf(t, meminfo, pressure, ""),
		"no scans":        procOf(t, meminfo, pressure, "pgscan_kswapd 40\n"),
		"no number":       procOf(t, meminfo, pressure, "pgscan_kswapd x\npgscan_direct 1\n"),
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, watch(t.Context(), io.Discard, proc, answering(t, http.StatusOK, hard)))
		})
	}
}

func TestWitnessAgentSilentNoted(t *testing.T) {
	for name, c := range map[string]struct{ url, why string }{
		"unwell":     {answering(t, http.StatusServiceUnavailable, hard), "503"},
		"no JSON":    {answering(t, http.StatusOK, "<html>"), "invalid character"},
		"no verdict": {answering(t, http.StatusOK, `{"verdicts":[]}`), "no verdict of memory-stall"},
		"no address": {"http://127.0.0.1:0/", "connect"},
	} {
		t.Run(name, func(t *testing.T) {
			var l line
			l.ask(t.Context(), c.url)
			assert.Empty(t, l.Level)
			assert.Contains(t, l.Error, c.why)
		})
	}
}
