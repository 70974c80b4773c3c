package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/daemon/guard"
)

func leading() ControllerState {
	made := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	return ControllerState{
		Version: "v1", Started: made, Identity: "a_1", Leader: "a_1", IsLeader: true, AgentsEnabled: true, QueueEnabled: true, QueueDecided: true,
		Queues: []backup.Report{{
			Namespace: "velero", Limit: 2, Running: 1,
			Active: []backup.Active{{Name: "nightly", Phase: backup.InProgress, Created: made}, {Name: "left", Phase: backup.Ready, Created: made, ReadySince: made, Stuck: true}},
			Waiting: []backup.QueuedBackup{
				{Name: "<b>weekly", Place: 1, Position: 4, Phase: backup.Queued, Created: made, WaitSeconds: 90.5, Reason: backup.CodeRunning, BlockedBy: "nightly", Namespaces: []string{"shop"}, Shared: 1},
				{Name: "odd", Place: 2, Phase: backup.New, Created: made, WaitSeconds: 1, Reason: backup.CodeAhead, BlockedBy: "weekly", Invalid: "no pattern"},
			},
		}},
		Counts: backup.Counts{
			Writes: map[string]uint64{"start": 3}, Conflicts: 2,
			Waits: map[string]counters.Histogram{"velero": {Within: []uint64{1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3}, Count: 4, Sum: 100 * time.Second}},
		},
	}
}

func TestControllerQueueMetrics(t *testing.T) {
	text := string(appendController(new(leading())))
	problems, err := promlint.New(bytes.NewReader([]byte(text))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
	for _, line := range []string{
		"plimsoll_leader 1", `plimsoll_backup_queue_length{velero="velero"} 2`, `plimsoll_backup_running{velero="velero"} 1`, `plimsoll_backup_stuck{velero="velero"} 1`,
		`plimsoll_backup_oldest_wait_seconds{velero="velero"} 90.5`, `plimsoll_backup_writes_total{result="start"} 3`, `plimsoll_backup_writes_total{result="touch"} 0`,
		`plimsoll_backup_writes_total{result="conflict"} 2`, "plimsoll_config_last_reload_successful 1",
		`plimsoll_backup_queue_wait_seconds_bucket{velero="velero",le="1"} 1`, `plimsoll_backup_queue_wait_seconds_bucket{velero="velero",le="15"} 1`,
		`plimsoll_backup_queue_wait_seconds_bucket{velero="velero",le="60"} 3`, `plimsoll_backup_queue_wait_seconds_bucket{velero="velero",le="86400"} 3`,
		`plimsoll_backup_queue_wait_seconds_bucket{velero="velero",le="+Inf"} 4`, `plimsoll_backup_queue_wait_seconds_sum{velero="velero"} 100`,
		`plimsoll_backup_queue_wait_seconds_count{velero="velero"} 4`,
	} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	made := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	evening := backup.QueuedBackup{Name: "evening", Created: made, Opens: made.Add(14 * time.Hour), WaitSeconds: 46800, Reason: backup.CodeWindow}
	opened, limit := evening, backup.QueuedBackup{Name: "any time", Created: made, WaitSeconds: 46800, Reason: backup.CodeLimit}
	opened.Opens, opened.Reason = made.Add(12*time.Hour), backup.CodeLimit
	for want, waiting := range map[string][]backup.QueuedBackup{"0": {evening}, "3600": {evening, opened}, "46800": {evening, opened, limit}} {
		text := string(appendController(&ControllerState{IsLeader: true, Queues: []backup.Report{{Namespace: "velero", Waiting: waiting}}}))
		assert.Contains(t, text, "\n"+`plimsoll_backup_oldest_wait_seconds{velero="velero"} `+want+"\n")
	}
	disabled := string(appendController(&ControllerState{IsLeader: true, Unqueued: map[string]time.Duration{"velero": 13 * time.Hour}}))
	assert.Contains(t, disabled, "\n"+`plimsoll_backup_oldest_wait_seconds{velero="velero"} 46800`+"\n")
	assert.NotContains(t, disabled, "plimsoll_backup_queue_length")
	standby := string(appendController(&ControllerState{Version: "v1", Leader: "a_1"}))
	assert.Contains(t, standby, "plimsoll_leader 0")
	assert.NotContains(t, standby, "plimsoll_backup_queue_length", "only the leader has them")
}

// served is a controller's server on an address.
func served(t *testing.T, state ControllerState, address string, x Exposure, ready error) string {
	t.Helper()
	c := &Controller{
		State: func() ControllerState { return state }, Healthy: func() error { return nil }, Ready: func() error { return ready },
		Log: slog.New(slog.DiscardHandler),
	}
	ctx, end := context.WithCancel(t.Context())
	l, err := c.Listen(ctx, address, x)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx) }()
	t.Cleanup(func() { end(); assert.NoError(t, <-done) })
	return "http://" + l.Addr().String()
}

func fetched(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, b.String()
}

func TestControllerPageBackupWaits(t *testing.T) {
	url := served(t, leading(), "127.0.0.1:0", Exposure{}, nil)
	status, page := fetched(t, url+"/")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, page, "velero: 1 of 2 Backups running, 2 queued")
	assert.Contains(t, page, "&lt;b&gt;weekly", "a name is no HTML")
	assert.Contains(t, page, "shares namespace shop with nightly, which runs")
	assert.Contains(t, page, "shares everything with weekly, which waits ahead of it (no pattern)")
	assert.Contains(t, page, "stuck Backups hold no slots")
	status, body := fetched(t, url+"/api/v1/backups")
	assert.Equal(t, http.StatusOK, status)
	var b Backups
	require.NoError(t, json.Unmarshal([]byte(body), &b))
	assert.Equal(t, leading().Queues, b.Queues)
	assert.Contains(t, body, `"waitSeconds": 90.5`)
	status, _ = fetched(t, url+"/-/ready")
	assert.Equal(t, http.StatusOK, status)
}

func TestControllerPageOfStandby(t *testing.T) {
	url := served(t, ControllerState{Identity: "b_2", Leader: "a_1", ConfigError: "no such key"}, "127.0.0.1:0", Exposure{}, errors.New("backups: not listed yet"))
	_, page := fetched(t, url+"/")
	assert.Contains(t, page, "on standby; the leader is a_1")
	assert.Contains(t, page, "The backup queue is disabled")
	assert.Contains(t, page, "no such key")
	status, why := fetched(t, url+"/-/ready")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "backups: not listed yet\n", why)
	_, body := fetched(t, url+"/api/v1/backups")
	assert.Contains(t, body, `"queues": []`)
}

// What is not known is no all-clear, and what Velero starts is not of this queue.
func TestControllerPageWithoutQueues(t *testing.T) {
	const none, unlisted, velero = "No Backup is queued or running.", "The Backups are not listed yet", "The installed Velero cannot queue Backups and starts them itself"
	for want, s := range map[string]ControllerState{
		none:     {IsLeader: true, QueueEnabled: true, QueueDecided: true},
		unlisted: {IsLeader: true, QueueEnabled: true},
		velero:   {IsLeader: true, QueueEnabled: true, QueueDecided: true, CannotQueue: true},
	} {
		_, page, _ := askController(t, s, "/")
		for _, text := range []string{none, unlisted, velero} {
			assert.Equal(t, text == want, strings.Contains(page, text), "%s: %s", want, text)
		}
		metric := "\nplimsoll_backup_queue_enabled 1\n"
		if want == velero {
			metric = "\nplimsoll_backup_queue_enabled 0\n"
		}
		assert.Contains(t, string(appendController(&s)), metric, want)
		_, body, _ := askController(t, s, "/api/v1/backups")
		assert.Equal(t, want != velero, strings.Contains(body, `"enabled": true`), want)
	}
}

func TestLoopbackHostHeader(t *testing.T) {
	for open, want := range map[bool]int{false: http.StatusForbidden, true: http.StatusOK} {
		url := served(t, leading(), "127.0.0.1:0", Exposure{Open: open}, nil)
		for path, status := range map[string]int{"/": want, "/api/v1/backups": want, "/metrics": http.StatusOK, "/-/healthy": http.StatusOK} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, http.NoBody)
			require.NoError(t, err)
			r.Host = "evil.example"
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, status, resp.StatusCode, path)
		}
	}
}

func TestPublicAddressMetricsAndHealthOnly(t *testing.T) {
	for open, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
		url := served(t, leading(), "0.0.0.0:0", Exposure{Open: open}, nil)
		for _, path := range []string{"/", "/api/v1/backups"} {
			status, _ := fetched(t, url+path)
			assert.Equal(t, want, status, path)
		}
		for _, path := range []string{"/metrics", "/-/ready", "/-/healthy"} {
			status, _ := fetched(t, url+path)
			assert.Equal(t, http.StatusOK, status, path)
		}
		resp, err := http.Post(url+"/-/reload", "", nil)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	}
}

func TestPublicAddressWithAuthenticator(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	require.NoError(t, os.WriteFile(file, []byte("basic_auth_users: {prometheus: $2a$04$n1xIPBHV0xr6FNVmQEmSnOVp50labHmNkpNby1KCSSWPsKq1iif4y}\n"), 0o600))
	g := &guard.Authenticator{File: file, Open: ProbePaths(), Log: slog.New(slog.DiscardHandler)}
	url := served(t, leading(), "0.0.0.0:0", Exposure{Auth: g, Pprof: true}, nil)
	known := strings.Replace(url, "http://", "http://prometheus:load%20line@", 1)
	for path, stranger := range map[string]int{
		"/": http.StatusUnauthorized, "/api/v1/backups": http.StatusUnauthorized, "/debug/pprof/cmdline": http.StatusUnauthorized, "/metrics": http.StatusUnauthorized,
		"/-/healthy": http.StatusOK, "/-/ready": http.StatusOK,
	} {
		status, _ := fetched(t, url+path)
		assert.Equal(t, stranger, status, path)
		status, _ = fetched(t, known+path)
		assert.Equal(t, http.StatusOK, status, path)
	}
	open := served(t, leading(), "0.0.0.0:0", Exposure{Pprof: true}, nil)
	status, _ := fetched(t, open+"/debug/pprof/cmdline")
	assert.Equal(t, http.StatusNotFound, status, "profiles are no metrics")
}

func TestControllerProblems(t *testing.T) {
	s := ControllerState{Version: "v1", Problems: []APIProblem{{Kind: APIForbidden, Since: time.Now().Add(-time.Minute), Cause: "User <b>x</b> cannot get leases"}}}
	text := string(appendController(&s))
	for _, k := range APIProblemKinds() {
		want := "0"
		if k == APIForbidden {
			want = "1"
		}
		assert.Contains(t, text, "\nplimsoll_api_server_problem{problem=\""+string(k)+"\"} "+want+"\n")
		assert.NotEmpty(t, k.Remedy())
	}
	w := httptest.NewRecorder()
	(&Controller{State: func() ControllerState { return s }}).page(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	assert.Contains(t, w.Body.String(), "For 1m0s: the API server refuses a request: User &lt;b&gt;x&lt;/b&gt; cannot get leases; grant what deploy/rbac-controller.yaml grants")
}
