package cli

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/daemon/explain"
	"github.com/plimsoll-dev/plimsoll/daemon/remote"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// answeringAgent is the socket of an agent that keeps the decisions.
func answeringAgent(t *testing.T, list []evict.Decision) string {
	t.Helper()
	s := &web.Server{
		State: scenes.Calm, Decisions: func() []evict.Decision { return list },
		Healthy: func() error { return nil }, Ready: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := s.ListenLocal(t.Context(), path)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(t.Context()) }() // done just before the cleanup
	t.Cleanup(func() { require.NoError(t, <-ended) })
	return path
}

// told is what the program says to the arguments.
func told(args ...string) (status int, stdout, stderr string) {
	var out, err strings.Builder
	status = Main("plimsoll", args, &out, &err)
	return status, out.String(), err.String()
}

func TestExplainListsTopics(t *testing.T) {
	status, stdout, stderr := told("explain")
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "plimsoll explain eviction [NAME]")
}

func TestExplainEviction(t *testing.T) {
	list := scenes.Decisions(false)
	socket := answeringAgent(t, list)
	status, stdout, stderr := told("explain", "eviction", "--api.socket", socket, "cart-66b8d-mm4qz")
	assert.Zero(t, status, stderr)
	assert.Contains(t, stdout, "shop/cart-66b8d-mm4qz evicted")
	assert.Contains(t, stdout, "14 s after the decision")

	status, stdout, _ = told("explain", "eviction", "--api.socket", socket)
	assert.Zero(t, status)
	for _, d := range list {
		assert.Contains(t, stdout, "(decision "+d.ID+")", "the newest decisions, evictions or not")
	}
}

func TestExplainJSON(t *testing.T) {
	list := scenes.Decisions(false)
	socket := answeringAgent(t, list)
	ids := func(args ...string) (all []string) {
		status, stdout, stderr := told(append([]string{"explain", "eviction", "-o", "json", "--api.socket", socket}, args...)...)
		require.Zero(t, status, stderr)
		var body web.Decisions
		require.NoError(t, json.Unmarshal([]byte(stdout), &body))
		for _, d := range body.Decisions {
			all = append(all, d.ID)
		}
		return all
	}
	assert.Equal(t, []string{list[0].ID, list[1].ID, list[2].ID}, ids())
	assert.Equal(t, []string{list[1].ID, list[2].ID}, ids("shop/cart-66b8d-mm4qz"))
	assert.Equal(t, []string{list[0].ID}, ids(list[0].ID))
}

func TestExplainUnknownName(t *testing.T) {
	status, stdout, stderr := told("explain", "eviction", "nobody", "--api.socket", answeringAgent(t, scenes.Decisions(false)))
	assert.Equal(t, exitFailure, status)
	assert.Empty(t, stdout)
	assert.Regexp(t, `^plimsoll: explain: eviction: "nobody": .*candidates are: batch/report-28f7c-x2k9p, .*\n$`, stderr)
}

func TestExplainWithoutAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	status, _, stderr := told("explain", "eviction", "--api.socket", socket)
	assert.Equal(t, exitFailure, status)
	assert.Equal(t, "plimsoll: explain: eviction: no agent is listening on "+socket+"\n", stderr)
}

func TestExplainUsageErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	for want, args := range map[string][]string{
		"explain: unknown command \"weather\"":   {"explain", "weather"},
		"explain eviction: too many arguments":   {"explain", "eviction", "a", "b"},
		"explain: -o \"xml\": want text, json":   {"explain", "eviction", "-o", "xml"},
		"explain eviction: unknown flag: --pod":  {"explain", "eviction", "--pod", "x"},
		"explain: eviction: --kubeconfig needs":  {"explain", "eviction", "--kubeconfig", "x"},
		"explain: eviction: no cluster to ask: ": {"explain", "eviction", "--node", "x"},
	} {
		status, stdout, stderr := told(args...)
		assert.Equal(t, exitUsage, status, want)
		assert.Empty(t, stdout, want)
		assert.True(t, strings.HasPrefix(stderr, "plimsoll: "+want), "%s: %s", want, stderr)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

// kubeconfigOf reaches a server at the address.
func kubeconfigOf(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"users":[{"name":"u","user":{}}],"clusters":[{"name":"c","cluster":{"server":"` + url + `"}}]}`
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestExplainFallsBackToEvents(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pods") { // the agent cannot be asked
			w.WriteHeader(http.StatusForbidden)
			return
		}
		assert.Contains(t, r.URL.Query().Get("fieldSelector"), "involvedObject.name=node-a")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"EventList","apiVersion":"v1","items":[{"metadata":{"name":"e"},"reason":"PressureEviction",
"message":"shop/cart: working set 3.0 GiB (decision d1)","lastTimestamp":"2026-03-01T12:00:00Z","count":1}]}`)
	}))
	defer s.Close()
	config := kubeconfigOf(t, s.URL)
	status, stdout, stderr := told("explain", "eviction", "--node", "node-a", "--kubeconfig", config)
	assert.Zero(t, status, stderr)
	assert.Contains(t, stdout, "2026-03-01 12:00:00 UTC")
	assert.Contains(t, stdout, "PressureEviction\n  shop/cart: working set 3.0 GiB (decision d1)\n")

	assert.Contains(t, stderr, "bind the ClusterRole plimsoll-viewer in the namespaces plimsoll-node-lease and plimsoll-system to your account")

	status, stdout, stderr = told("explain", "eviction", "--node", "node-a", "--kubeconfig", config, "-o", "json", "d1")
	assert.Zero(t, status, stderr)
	assert.JSONEq(t, `{"events":[{"time":"2026-03-01T12:00:00Z","reason":"PressureEviction","message":"shop/cart: working set 3.0 GiB (decision d1)"}]}`, stdout)

	status, _, stderr = told("explain", "eviction", "--node", "node-a", "--kubeconfig", config, "d2")
	assert.Equal(t, exitFailure, status)
	assert.Contains(t, stderr, `plimsoll: explain: eviction: "d2": `)
}

// What the agent has answered is told, also where the Events cannot be read.
func TestExplainKeepsAnswerOfAgent(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer s.Close()
	cluster, err := remote.New(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	_, answer := explain.About(scenes.Decisions(false), "nobody")
	c := explainEvictionCommand(false)
	c.SetContext(t.Context())
	err = (&explainFlags{}).askEvents(c, cluster, "node-a", "nobody", answer)
	assert.ErrorContains(t, err, "candidates are: batch/report-28f7c-x2k9p, ")
	assert.ErrorContains(t, err, "; events of node node-a: ")
	assert.ErrorContains(t, err, ": bind the ClusterRole view in the namespace default to your account")
}

// Of two pods of one name that is explained which was evicted, and no pod of another
// namespace.
func TestExplainPodOfName(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/namespaces/shop/events":
			fmt.Fprint(w, `{"kind":"EventList","apiVersion":"v1","items":[{"metadata":{"name":"e"},"reason":"PressureEviction",
"source":{"component":"plimsoll-agent","host":"n1"},"involvedObject":{"kind":"Pod","name":"db-0","uid":"a"}}]}`)
		case "/api/v1/namespaces/shop/pods/db-0":
			fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"db-0","uid":"b"},"spec":{"nodeName":"n2"}}`)
		case "/api/v1/namespaces/default/events":
			assert.Contains(t, r.URL.Query().Get("fieldSelector"), "involvedObject.name=n1")
			fmt.Fprint(w, `{"kind":"EventList","apiVersion":"v1","items":[{"metadata":{"name":"1"},"message":"shop/db-0: ours"},
{"metadata":{"name":"2"},"message":"shop/db-01: longer"},{"metadata":{"name":"3"},"message":"staging/db-0: theirs"}]}`)
		default: // the agent cannot be asked
			assert.Equal(t, "spec.nodeName=n1", r.URL.Query().Get("fieldSelector"))
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer s.Close()
	at := []string{"explain", "eviction", "--kubeconfig", kubeconfigOf(t, s.URL)}
	for _, args := range [][]string{{"-n", "shop", "db-0"}, {"--context", "c", "shop/db-0"}, {"-n", "shop", "--node", "n1", "db-0"}} {
		status, stdout, stderr := told(append(at, args...)...)
		assert.Zero(t, status, stderr)
		assert.Contains(t, stdout, "shop/db-0: ours")
		assert.NotContains(t, stdout, "longer")
		assert.NotContains(t, stdout, "theirs")
		assert.Equal(t, len(args) < 4, strings.Contains(stderr, "explained is the earlier pod of this name (UID a, "), stderr)
	}
}

func TestExplainUnknownPodNeedsNode(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/events") {
			fmt.Fprint(w, `{"kind":"EventList","apiVersion":"v1","items":[]}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}))
	defer s.Close()
	status, _, stderr := told("explain", "eviction", "-n", "shop", "0f3c", "--kubeconfig", kubeconfigOf(t, s.URL))
	assert.Equal(t, exitFailure, status)
	assert.Contains(t, stderr, "name its node (--node NODE), without which no pod is found by its UID or the ID of a decision")
	status, _, stderr = told("explain", "eviction", "-n", "shop", "--kubeconfig", kubeconfigOf(t, s.URL))
	assert.Equal(t, exitUsage, status)
	assert.Contains(t, stderr, "missing NAME of a pod, or --node NODE")
}
