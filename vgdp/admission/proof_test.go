package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// veleroServer lists what its namespaces have, such as "velero/backups", and
// counts the lists of each; a kind that is not installed is not found.
func veleroServer(t *testing.T, has ...string) (*Reconciler, func(namespace string) int64) {
	t.Helper()
	asked := map[string]*atomic.Int64{"velero": {}, "restores": {}, "tenant": {}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/") // /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE
		namespace, resource := parts[5], parts[6]
		asked[namespace].Add(1)
		assert.Equal(t, "1", r.URL.Query().Get("limit"))
		w.Header().Set("Content-Type", "application/json")
		items := ""
		if slices.Contains(has, namespace+"/"+resource) {
			items = `{"metadata":{"name":"one"}}`
		}
		if resource == "podvolumebackups" {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		fmt.Fprintf(w, `{"kind":"List","apiVersion":"velero.io/v1","metadata":{},"items":[%s]}`, items)
	}))
	t.Cleanup(s.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	r := &Reconciler{Dynamic: client, Settings: DefaultSettings, Log: slog.New(slog.DiscardHandler)}
	r.reset()
	var agents []any
	for namespace := range asked {
		for _, node := range []string{"n1", "n2"} {
			agents = append(agents, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node, Namespace: namespace, Labels: map[string]string{"role": "node-agent"}},
				Spec:       corev1.PodSpec{NodeName: node}, Status: agentRunning(),
			})
		}
	}
	require.NoError(t, r.cluster.agents.Replace(agents, ""))
	return r, func(namespace string) int64 { return asked[namespace].Load() }
}

func (r *Reconciler) found() []string { return slices.Sorted(maps.Keys(r.veleros)) }

func TestDiscoverTenantPodProvesNothing(t *testing.T) {
	r, asked := veleroServer(t, "velero/backups", "restores/datadownloads")
	for range 3 {
		r.discover(t.Context(), Settings{Enabled: true})
		assert.Equal(t, []string{"restores", "velero"}, r.found())
	}
	assert.LessOrEqual(t, asked("velero"), int64(1+len(Kinds())), "all kinds at once, and no more")
	assert.EqualValues(t, 1+len(Kinds()), asked("tenant"), "it is asked once in a while")
	r.proofs.asked["tenant"] = time.Now().Add(-proofInterval)
	r.discover(t.Context(), Settings{Enabled: true})
	assert.EqualValues(t, 2*(1+len(Kinds())), asked("tenant"))
}

func TestIsVelero(t *testing.T) {
	r, _ := veleroServer(t, "velero/backups", "restores/datadownloads")
	for namespace, want := range map[string]bool{"velero": true, "restores": true, "tenant": false} {
		is, err := r.IsVelero(t.Context(), namespace)
		require.NoError(t, err)
		assert.Equal(t, want, is, namespace)
	}
}

// slowLists take a time each; the kinds that fail do then, and those that have an object list it.
type slowLists struct {
	dynamic.NamespaceableResourceInterface

	takes            time.Duration
	fails, has, kind string
}

func (s slowLists) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	s.kind = of.Resource
	return s
}

func (s slowLists) Namespace(string) dynamic.ResourceInterface { return s }

func (s slowLists) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.takes):
	}
	list := &unstructured.UnstructuredList{}
	switch s.kind {
	case s.fails:
		return nil, apierrors.NewInternalError(errors.New("etcd"))
	case s.has:
		list.Items = make([]unstructured.Unstructured, 1)
	}
	return list, nil
}

// The lists share one call's time: all kinds are listed at once.
func TestIsVeleroSlowLists(t *testing.T) {
	for what, row := range map[string]struct {
		lists    slowLists
		is, fail bool
		after    time.Duration
	}{
		"none has any":                        {slowLists{takes: time.Second}, false, false, time.Second},
		"one has some":                        {slowLists{takes: time.Second, has: "datadownloads"}, true, false, time.Second},
		"one fails":                           {slowLists{takes: time.Second, fails: "backups"}, false, true, time.Second},
		"one fails, and another one has some": {slowLists{takes: time.Second, fails: "backups", has: "datauploads"}, true, false, time.Second},
		"they hang":                           {slowLists{takes: time.Hour}, false, true, reconcile.CallTimeout},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				is, err := (&Reconciler{Dynamic: row.lists}).IsVelero(t.Context(), "velero")
				assert.Equal(t, row.is, is)
				assert.Equal(t, row.fail, err != nil, err)
				assert.Equal(t, row.after, time.Since(began))
			})
		})
	}
}

func TestDiscoverConfiguredVelero(t *testing.T) {
	r, asked := veleroServer(t)
	r.Of = []Velero{{Namespace: "velero"}, {Namespace: "restores"}}
	r.discover(t.Context(), Settings{Enabled: true})
	assert.Equal(t, []string{"restores", "velero"}, r.found())
	assert.Zero(t, asked("velero"))
}

func TestDiscoverProofsBounded(t *testing.T) {
	r, asked := veleroServer(t, "velero/backups")
	r.proofs.left = 0
	assert.False(t, r.proofs.proved(t.Context(), "velero"))
	assert.Zero(t, asked("velero"))
	r.proofs.left = 1
	assert.True(t, r.proofs.proved(t.Context(), "velero"))
	assert.Zero(t, r.proofs.left)
}
