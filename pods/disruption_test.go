package pods

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// pdb selects pods of an app, and allows some of 4 to be evicted.
func pdb(app string, allowed int32) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app, Generation: 2},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DisruptionsAllowed: allowed, CurrentHealthy: 3, DesiredHealthy: 3 - allowed, ExpectedPods: 4},
	}
}

func TestDisruption(t *testing.T) {
	web := Disruption{HasPDB: true, Allowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4}
	changed := func(p policyv1.PodDisruptionBudget, change func(*policyv1.PodDisruptionBudget)) policyv1.PodDisruptionBudget {
		change(&p)
		return p
	}
	all := changed(pdb("all", 0), func(p *policyv1.PodDisruptionBudget) { p.Spec.Selector = &metav1.LabelSelector{} })
	none := changed(pdb("none", 0), func(p *policyv1.PodDisruptionBudget) { p.Spec.Selector = nil })
	older := changed(pdb("web", 1), func(p *policyv1.PodDisruptionBudget) { p.Status.ObservedGeneration = 1 })
	for what, row := range map[string]struct {
		list  []policyv1.PodDisruptionBudget
		want  Disruption
		known bool
	}{
		"one":                              {[]policyv1.PodDisruptionBudget{pdb("web", 1), pdb("db", 3)}, web, true},
		"none":                             {[]policyv1.PodDisruptionBudget{pdb("db", 3), none}, Disruption{}, true},
		"one that selects all":             {[]policyv1.PodDisruptionBudget{all}, Disruption{HasPDB: true, CurrentHealthy: 3, DesiredHealthy: 3, ExpectedPods: 4}, true},
		"two: each eviction is refused":    {[]policyv1.PodDisruptionBudget{pdb("web", 3), pdb("web", 1)}, Disruption{HasPDB: true, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4}, true},
		"figures of an older one":          {[]policyv1.PodDisruptionBudget{older}, Disruption{}, false},
		"another one's figures are older":  {[]policyv1.PodDisruptionBudget{pdb("web", 1), changed(older, func(p *policyv1.PodDisruptionBudget) { p.Spec.Selector = pdb("x", 0).Spec.Selector })}, web, true},
		"two, one with figures of before":  {[]policyv1.PodDisruptionBudget{pdb("web", 1), older}, Disruption{}, false},
		"three, the one in the middle low": {[]policyv1.PodDisruptionBudget{pdb("web", 3), pdb("web", 1), pdb("web", 2)}, Disruption{HasPDB: true, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4}, true},
	} {
		t.Run(what, func(t *testing.T) {
			list, err := selectingPDBs(row.list)
			require.NoError(t, err)
			got, known := disruptionOf(map[string]string{"app": "web"}, list)
			assert.Equal(t, row.want, got)
			assert.Equal(t, row.known, known)
		})
	}
	_, err := selectingPDBs([]policyv1.PodDisruptionBudget{changed(pdb("web", 1), func(p *policyv1.PodDisruptionBudget) {
		p.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}}
	})})
	assert.ErrorContains(t, err, "PodDisruptionBudget web")
}

// pdbServer is an API server that answers each list with a status and a text.
type pdbServer struct {
	mu     sync.Mutex // guards all below
	asked  []string
	status int
	text   string
	hangs  bool
	slow   map[string]time.Duration // by namespace
	broken map[string]bool          // namespaces that cannot be read
}

func (s *pdbServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.String())
	hangs, status, text := s.hangs, s.status, s.text
	namespace := strings.Split(r.URL.Path, "/")[5]
	slow := s.slow[namespace]
	if s.broken[namespace] {
		status = http.StatusInternalServerError
	}
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-r.Context().Done():
	}
	if hangs {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

func textOf(t *testing.T, list ...policyv1.PodDisruptionBudget) string {
	t.Helper()
	b, err := json.Marshal(policyv1.PodDisruptionBudgetList{Items: list})
	require.NoError(t, err)
	return string(b)
}

// newDisruptionReader reads from a server, about pods with these UIDs, each in a
// namespace of its own name.
func newDisruptionReader(t *testing.T, s *pdbServer, uids ...string) (*DisruptionReader, *bytes.Buffer) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := corev1client.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	w := &Watcher{PluginPods: PluginPods{Enabled: true}}
	w.pods = w.newStore()
	for _, uid := range uids {
		require.NoError(t, w.pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns-" + uid, UID: types.UID(uid), Labels: map[string]string{"app": "web"},
		}}))
	}
	log := &bytes.Buffer{}
	return &DisruptionReader{REST: client.RESTClient(), Pods: w, Log: slog.New(slog.NewTextHandler(log, nil))}, log
}

func TestDisruptionReader(t *testing.T) {
	now := time.Now()
	web := Disruption{HasPDB: true, Allowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4}
	t.Run("reads a namespace once a minute", func(t *testing.T) {
		s := &pdbServer{status: 200, text: textOf(t, pdb("web", 1))}
		r, log := newDisruptionReader(t, s, "a", "b")
		want := map[string]Disruption{"a": web}
		assert.Equal(t, want, r.Of(t.Context(), now, []string{"a", "stranger"}))
		assert.Equal(t, want, r.Of(t.Context(), now.Add(59*time.Second), []string{"a"}))
		require.Equal(t, []string{"/apis/policy/v1/namespaces/ns-a/poddisruptionbudgets?resourceVersion=0"}, s.asked, "of no other namespace, and from the cache")
		s.text = textOf(t)
		assert.Equal(t, map[string]Disruption{"a": {}}, r.Of(t.Context(), now.Add(time.Minute), []string{"a"}))
		assert.Len(t, s.asked, 2)
		assert.Empty(t, log.String())
	})
	t.Run("limits its requests", func(t *testing.T) {
		var uids []string
		for i := range 2 * maxDisruptionNamespaces {
			uids = append(uids, fmt.Sprintf("%02d", i))
		}
		s := &pdbServer{status: 200, text: textOf(t, pdb("web", 1))}
		r, _ := newDisruptionReader(t, s, uids...)
		for range 3 {
			assert.Len(t, r.Of(t.Context(), now, uids), maxDisruptionNamespaces, "the others are unknown")
		}
		assert.Len(t, s.asked, maxDisruptionNamespaces)
		assert.Len(t, r.read, maxDisruptionNamespaces)
	})
	for what, row := range map[string]struct {
		status     int
		text, logs string
	}{
		"without the right":    {403, `{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden"}`, "apply deploy/rbac-katalyst.yaml"},
		"with another answer":  {200, `{`, "until a request succeeds"},
		"with a huge answer":   {200, `{"items":[{"metadata":{"name":"` + strings.Repeat("x", maxDisruptionBytes) + `"}}]}`, "more than 1048576 bytes"},
		"with a bad selector":  {200, `{"items":[{"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"?"}]}}}]}`, "not a valid"},
		"with a broken server": {500, `no`, "until a request succeeds"},
	} {
		t.Run(what+" nothing is known", func(t *testing.T) {
			s := &pdbServer{status: row.status, text: row.text}
			r, log := newDisruptionReader(t, s, "a", "b")
			for range 3 {
				assert.Empty(t, r.Of(t.Context(), now, []string{"a", "b"}))
			}
			assert.Len(t, s.asked, 2, "each namespace once")
			assert.Contains(t, log.String(), row.logs)
			assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
			s.status, s.text = 200, textOf(t, pdb("web", 1))
			assert.Len(t, r.Of(t.Context(), now.Add(disruptionMaxAge), []string{"a", "b"}), 2)
		})
	}
	t.Run("waits for no server that hangs", func(t *testing.T) {
		s := &pdbServer{status: 200, text: textOf(t, pdb("web", 1))}
		s.hangs = true
		r, _ := newDisruptionReader(t, s, "a", "b")
		assert.Empty(t, r.Of(t.Context(), now, []string{"a", "b"}))
		s.mu.Lock()
		s.hangs = false
		s.mu.Unlock()
		assert.Len(t, r.Of(t.Context(), now, []string{"a", "b"}), 1, "the second was not asked, as the time was over")
	})
	t.Run("asks the next one later when one is slow", func(t *testing.T) {
		s := &pdbServer{status: 200, text: textOf(t, pdb("web", 1)), slow: map[string]time.Duration{"ns-a": disruptionBegin + 100*time.Millisecond}}
		r, _ := newDisruptionReader(t, s, "a", "b")
		assert.NotContains(t, r.Of(t.Context(), now, []string{"a", "b"}), "b")
		require.Len(t, s.asked, 1, "too little of the time was left")
		assert.Contains(t, r.Of(t.Context(), now, []string{"a", "b"}), "b", "nothing was kept against it")
	})
	t.Run("keeps nothing when the caller leaves", func(t *testing.T) {
		s := &pdbServer{status: 200, text: textOf(t, pdb("web", 1)), hangs: true}
		r, log := newDisruptionReader(t, s, "a")
		ctx, leave := context.WithCancel(t.Context())
		go leave()
		assert.Empty(t, r.Of(ctx, now, []string{"a"}))
		assert.Empty(t, r.read)
		assert.Empty(t, log.String())
	})
	t.Run("warns once beside namespaces that are read", func(t *testing.T) {
		s := &pdbServer{status: 200, text: textOf(t, pdb("web", 1)), broken: map[string]bool{"ns-a": true}}
		r, log := newDisruptionReader(t, s, "a", "b")
		for minute := range 20 {
			assert.Len(t, r.Of(t.Context(), now.Add(time.Duration(minute)*disruptionMaxAge), []string{"a", "b"}), 1)
		}
		assert.Len(t, s.asked, 40)
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
		s.broken = nil
		r.Of(t.Context(), now.Add(20*disruptionMaxAge), []string{"a", "b"})
		s.broken = map[string]bool{"ns-a": true}
		r.Of(t.Context(), now.Add(21*disruptionMaxAge), []string{"a", "b"})
		assert.Equal(t, 2, strings.Count(log.String(), "level=WARN"), "it was read in between")
	})
	t.Run("knows nothing of labels that it lacks", func(t *testing.T) {
		s := &pdbServer{status: 200, text: textOf(t, pdb("web", 1))}
		r, _ := newDisruptionReader(t, s)
		many := map[string]string{"app": "web"}
		for i := range 400 {
			many[fmt.Sprintf("%s/%d", strings.Repeat("x", 250), i)] = strings.Repeat("y", 63)
		}
		require.NoError(t, r.Pods.pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "a", Labels: many}}))
		assert.Empty(t, r.Of(t.Context(), now, []string{"a"}))
		assert.Empty(t, s.asked)
	})
}
