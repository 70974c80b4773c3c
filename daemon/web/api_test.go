package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// serverOf is a server of a state with matching decisions.
func serverOf(s *view.State) *Server {
	well := func() error { return nil }
	bare := *s
	bare.Cluster, bare.LastEviction = nil, nil // which the agent's own state has not
	return &Server{
		State: func() *view.State { return &bare }, Cluster: func() *view.Cluster { return s.Cluster },
		Decisions: func() []evict.Decision { return decisionsOf(s) }, Healthy: well, Ready: well, Log: slog.New(slog.DiscardHandler),
	}
}

func ask(t *testing.T, s *Server, path string, into any) {
	t.Helper()
	mux := http.NewServeMux()
	s.public(mux)
	s.restricted(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), into), w.Body)
}

func TestAPIDecisionsNewestFirst(t *testing.T) {
	var body struct{ Decisions []map[string]any }
	ask(t, serverOf(scenes.Evicted()), "/api/v1/decisions", &body)
	require.Len(t, body.Decisions, 3)
	assert.Equal(t, "ended", body.Decisions[0]["code"])
	d := body.Decisions[1]
	assert.Equal(t, "evicted", d["code"])
	assert.Contains(t, d, "goneAt")
	assert.Contains(t, d, "after")
	first := d["candidates"].([]any)[0].(map[string]any)
	pod := first["pod"].(map[string]any)
	assert.Equal(t, "batch", pod["namespace"])
	assert.Equal(t, "BestEffort", pod["qos"])
	for _, never := range []string{"env", "annotations", "labels", "spec", "metadata"} {
		assert.NotContains(t, pod, never)
	}
	assert.Equal(t, "blocked", first["answers"].([]any)[0].(map[string]any)["outcome"])
}

func TestAPIDecisionsEmptyList(t *testing.T) {
	var body map[string]json.RawMessage
	ask(t, serverOf(scenes.Calm()), "/api/v1/decisions", &body)
	assert.Equal(t, "[]", string(body["decisions"]))
}

// How old the sample is, is by the agent's clock: whoever asks may have another one.
func TestAPIPressureAge(t *testing.T) {
	server := serverOf(scenes.Calm())
	for after, want := range map[time.Duration]time.Duration{90 * time.Second: 90 * time.Second, -time.Hour: 0} {
		server.now = func() time.Time { return scenes.Calm().Snapshot.Time.Add(after) }
		var p view.Pressure
		ask(t, server, "/api/v1/pressure", &p)
		assert.Equal(t, want, p.State(scenes.Calm().Snapshot).SampleAge)
	}
}

func TestAPIPressureHasCluster(t *testing.T) {
	var p map[string]json.RawMessage
	ask(t, serverOf(scenes.DryRun()), "/api/v1/pressure", &p)
	var c struct {
		DryRun, PodsSynced bool
		Pods               int
	}
	require.NoError(t, json.Unmarshal(p["cluster"], &c))
	assert.True(t, c.DryRun)
	assert.True(t, c.PodsSynced)
	assert.Equal(t, 3, c.Pods)
	assert.Contains(t, string(p["lastEviction"]), "shop/cart-66b8d-mm4qz")

	p = nil
	ask(t, serverOf(scenes.Calm()), "/api/v1/pressure", &p)
	assert.NotContains(t, p, "cluster", "a standalone agent has none")
	assert.NotContains(t, p, "lastEviction")
}

func TestMetricsAndPageHaveCluster(t *testing.T) {
	s := serverOf(scenes.Evicted())
	for path, want := range map[string]string{"/metrics": "plimsoll_pods 2\n", "/": "<h2>Cluster</h2>"} {
		mux := http.NewServeMux()
		s.public(mux)
		s.restricted(mux)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		assert.Contains(t, w.Body.String(), want, path)
	}
}

// TestSocketClientSeesPageState: top and explain on the one side,
// the agent on the other.
func TestSocketClientSeesPageState(t *testing.T) {
	want := scenes.Evicted()
	path := filepath.Join(t.TempDir(), "s")
	l, err := serverOf(want).ListenLocal(t.Context(), path)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(t.Context()) }() // done just before the cleanup
	t.Cleanup(func() { require.NoError(t, <-ended) })
	client := NewClient(path)
	got, err := client.State(t.Context())
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(want.LastEviction, got.LastEviction))
	assert.Equal(t, want.ModeText(), got.ModeText())
	assert.Equal(t, want.Cluster.Conditions, got.Cluster.Conditions)
	list, err := client.Decisions(t.Context())
	require.NoError(t, err)
	kept := decisionsOf(want)
	require.Len(t, list, len(kept))
	for i := range kept {
		assert.Equal(t, kept[i].ID, list[i].ID)
		assert.Equal(t, len(kept[i].Candidates), len(list[i].Candidates))
	}
}

// A plugin that has never answered has no verdict to show the reason beside.
func TestPluginWithoutAnswerHasItsFailure(t *testing.T) {
	for want, s := range map[string]outer.Status{
		"cannot measure":    {Name: "card", Up: true, Failure: "cannot measure"},
		"it is not allowed": {Name: "card", Problem: "it is not allowed", Failure: "cannot measure"},
	} {
		list := outerPlugins([]outer.Status{s})
		require.Len(t, list, 1)
		assert.Equal(t, want, list[0].Absent)
	}
}

func TestAPIPluginsNotJudged(t *testing.T) {
	s := *scenes.Calm()
	s.Levels = &plugins.Levels{Time: s.Levels.Time, Verdicts: []plugins.Verdict{{Plugin: "memory-stall", Scope: "node", Partial: true}}}
	a := &api{state: func() *view.State { return &s }, now: func() time.Time { return s.Snapshot.Time.Add(time.Minute) }}
	answer := httptest.NewRecorder()
	a.plugins(answer, nil)
	var got Plugins
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &got))
	require.Len(t, got.Plugins, 1)
	assert.Contains(t, got.Plugins[0].Absent, "has just started")
	assert.InDelta(t, 60, got.AgeSeconds, 1e-6)
	assert.True(t, got.Stale)
	assert.Equal(t, unknownClass, verdictClass(s.Levels.Verdicts[0]))
}

// What refuses the way to an agent tells nothing about the agent.
func TestClientOverKeepsItsError(t *testing.T) {
	for _, cause := range []error{syscall.ECONNREFUSED, os.ErrNotExist, os.ErrPermission, os.NewSyscallError("connect", syscall.ECONNREFUSED)} {
		client := NewClientOver("node w", time.Minute, func(context.Context, string, string) (net.Conn, error) {
			return nil, fmt.Errorf("the agent's pod: %w", cause)
		})
		_, err := client.Plugins(t.Context())
		require.NotErrorIs(t, err, ErrNoAgent)
		require.ErrorIs(t, err, cause)
		assert.ErrorContains(t, err, "ask the agent: the agent's pod: ")
	}
	_, err := NewClient(filepath.Join(t.TempDir(), "s")).Plugins(t.Context())
	require.ErrorIs(t, err, ErrNoAgent)
}
