package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// apiServerOf has a version and Katalyst's kinds, and forbids some rights; asked
// is what it was asked about.
func apiServerOf(t *testing.T, version string, forbidden ...string) (how *rest.Config, asked func() []string) {
	t.Helper()
	var mu sync.Mutex // guards list
	var list []string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, version) })
	mux.HandleFunc("GET /apis/node.katalyst.kubewharf.io", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	for _, group := range []string{"admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io", "apiextensions.k8s.io"} {
		mux.HandleFunc("GET /apis/"+group+"/v1/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{}")
		})
	}
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SelfSubjectAccessReview
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&review))
		a := review.Spec.ResourceAttributes
		what := strings.TrimSuffix(a.Verb+" "+a.Resource+"/"+a.Subresource, "/")
		review.Status.Allowed = !slices.Contains(forbidden, what)
		mu.Lock()
		list = append(list, what)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(review))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

const good = `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`

func inCluster(t *testing.T, how *rest.Config) []Row {
	t.Helper()
	return Examination{Cluster: how, EvictsDirectly: true}.cluster(t.Context(), false)
}

func TestDoctorAPIServerVersion(t *testing.T) {
	how, _ := apiServerOf(t, good)
	rows := inCluster(t, how)
	r := row(t, rows, "API server")
	assert.Equal(t, Pass, r.Result)
	assert.Contains(t, r.Finding, how.Host+": Kubernetes v1.37.1, answered in ")
	assert.False(t, Failed(rows))
}

func TestDoctorAPIServerUnreachable(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	rows := inCluster(t, &rest.Config{Host: s.URL})
	r := row(t, rows, "API server")
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, r.Finding, "connection refused")
	assert.False(t, slices.ContainsFunc(rows, func(r Row) bool { return r.Check == "rights" }), "nobody can say what is allowed")
}

func TestDoctorAPIServerTooOld(t *testing.T) {
	for version, want := range map[string]string{
		`{"major":"1","minor":"29+","gitVersion":"v1.29.9"}`: "older than 1.30",
		`<html>welcome</html>`:                               "not a Kubernetes API server",
		`{}`:                                                 "not a Kubernetes API server",
	} {
		how, _ := apiServerOf(t, version)
		r := row(t, inCluster(t, how), "API server")
		assert.Equal(t, Fail, r.Result, version)
		assert.Contains(t, r.Finding, want)
		assert.NotContains(t, r.Finding, "\n")
	}
}

func TestDoctorAPIServerNeverTried(t *testing.T) {
	for version, want := range map[string]Result{
		`{"major":"1","minor":"30+","gitVersion":"v1.30.0-eks"}`: Warn,
		`{"major":"1","minor":"30","gitVersion":"v1.30.14"}`:     Warn,
		`{"major":"1","minor":"31","gitVersion":"v1.31.14"}`:     Pass,
	} {
		how, _ := apiServerOf(t, version)
		rows := inCluster(t, how)
		r := row(t, rows, "API server")
		assert.Equal(t, want, r.Result, version)
		assert.Equal(t, want == Warn, strings.Contains(r.Finding, "never tried on a Kubernetes older than 1.31 (docs/compatibility.md)"), r.Finding)
		assert.Equal(t, want == Warn, strings.Contains(r.Finding, "An agent outside a pod needs 1.31"), r.Finding)
		assert.False(t, Failed(rows), "it is a warning")
	}
	t.Run("the oldest is that of the matrix", func(t *testing.T) {
		text, err := os.ReadFile("../../e2e/matrix/records.json")
		require.NoError(t, err)
		var records []struct{ Version string }
		require.NoError(t, json.Unmarshal(text, &records))
		oldest := math.MaxInt
		for _, r := range records {
			if _, minor, ok := kernelVersion(strings.TrimPrefix(r.Version, "v")); ok && minor >= oldestKubernetes { // Velero's are lower
				oldest = min(oldest, minor)
			}
		}
		assert.Equal(t, oldestTried, oldest)
	})
}

func TestDoctorAsksForEachRight(t *testing.T) {
	how, asked := apiServerOf(t, good)
	r := row(t, inCluster(t, how), "rights")
	assert.Equal(t, Pass, r.Result, r.Finding)
	for _, want := range []string{"list pods", "watch pods", "create pods/eviction", "get nodes", "patch nodes", "patch nodes/status", "create events"} {
		assert.Contains(t, asked(), want)
	}
	needed, err := Examination{EvictsDirectly: true}.neededRights()
	require.NoError(t, err)
	assert.Len(t, asked(), len(needed))
	assert.Contains(t, r.Finding, fmt.Sprintf("all %d", len(needed)))
}

func TestDoctorMissingRights(t *testing.T) {
	how, _ := apiServerOf(t, good, "create pods/eviction", "patch nodes/status")
	r := row(t, inCluster(t, how), "rights")
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, r.Finding, "missing: patch nodes/status, create pods/eviction (apply deploy/rbac.yaml, deploy/rbac-evict-direct.yaml)")
	r = row(t, Examination{Cluster: how}.cluster(t.Context(), false), "rights")
	assert.Contains(t, r.Finding, "missing: patch nodes/status (apply deploy/rbac.yaml)", "the controller evicts")
	how, _ = apiServerOf(t, good, "get customnoderesources")
	assert.Equal(t, Pass, row(t, inCluster(t, how), "rights").Result, "nobody asks what is lent")
	r = row(t, Examination{Cluster: how, Katalyst: true}.cluster(t.Context(), false), "rights")
	assert.Contains(t, r.Finding, "missing: get customnoderesources.node.katalyst.kubewharf.io (apply deploy/rbac.yaml, deploy/rbac-katalyst.yaml)")
}

func TestDoctorRightsNotAnswered(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			fmt.Fprint(w, good)
			return
		}
		http.Error(w, "who are you", http.StatusUnauthorized)
	}))
	defer s.Close()
	r := row(t, inCluster(t, &rest.Config{Host: s.URL}), "rights")
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, r.Finding, "check the right to list pods")
}

func TestDoctorDryRunWarns(t *testing.T) {
	marks, evictions := Act{What: "marks"}, Act{What: "evictions"}
	dry := Act{What: "throttles", DryRun: "throttle.dryRun"}
	off := Act{What: "data mover budget", DryRun: "vgdp.dryRun", Off: "vgdp.enabled"}
	for want, acts := range map[Row][]Act{
		{Pass, "dry run", "in force: marks, evictions"}:                                                                           {marks, evictions},
		{Pass, "dry run", "in force: marks; switched off: data mover budget (vgdp.enabled)"}:                                      {marks, off},
		{Warn, "dry run", "decided and not carried out: throttles (throttle.dryRun); in force: marks, evictions"}:                 {marks, evictions, dry},
		{Warn, "dry run", "decided and not carried out: throttles (throttle.dryRun), marks (eviction.dryRun); in force: nothing"}: {dry, {What: "marks", DryRun: "eviction.dryRun"}},
	} {
		assert.Equal(t, want, Examination{Acts: acts}.dryRun())
	}
	alone := Examination{}.cluster(t.Context(), false)
	assert.Equal(t, []Row{{Pass, "API server", "no kubeconfig: the agent can only run with --standalone"}}, alone)
}

func TestDoctorKubeconfigUnusable(t *testing.T) {
	rows := Examination{ClusterErr: errors.New("kubeconfig: stat /x: no such file or directory")}.cluster(t.Context(), false)
	assert.Equal(t, []Row{{Fail, "API server", "kubeconfig: stat /x: no such file or directory"}}, rows)
}

func TestDoctorStateDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o755))
	for path, want := range map[string]Row{
		dir:                          {Pass, "state directory", dir + " is writable"},
		filepath.Join(dir, "a", "b"): {Pass, "state directory", filepath.Join(dir, "a", "b") + " can be created"},
	} {
		assert.Equal(t, want, Examination{StateDir: path}.state())
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		r := Examination{StateDir: path}.state()
		assert.Equal(t, Fail, r.Result, path)
		assert.Contains(t, r.Finding, "without it a pod is evicted only after a minute, or at once where memory is below its floor", path)
	}
}

func TestDoctorDataMovers(t *testing.T) {
	one := "vgdp.concurrency is 1: the data mover budget cannot shrink, starts can only be held. Let Velero run 4 (loadConcurrency.globalConfig), set vgdp.concurrency: 4, and let Plimsoll limit"
	for name, c := range map[string]struct {
		velero      int // the status of the answer about its kinds
		concurrency int
		want        Row
	}{
		"without Velero":              {http.StatusNotFound, 1, Row{Pass, "data movers", "none: Velero is not installed in this cluster"}},
		"a concurrency of one":        {http.StatusOK, 1, Row{Warn, "data movers", one}},
		"a higher one":                {http.StatusOK, 4, Row{Pass, "data movers", "at most 4 data mover loads at a time, fewer under pressure"}},
		"off":                         {http.StatusOK, 0, Row{Pass, "data movers", "not limited (vgdp.enabled: false)"}},
		"no answer, so it may be one": {http.StatusForbidden, 1, Row{Warn, "data movers", one}},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, good) })
			mux.HandleFunc("GET /apis/velero.io", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.velero) })
			s := httptest.NewServer(mux)
			t.Cleanup(s.Close)
			rows := Examination{Cluster: &rest.Config{Host: s.URL}, MoverConcurrency: c.concurrency}.cluster(t.Context(), false)
			assert.Equal(t, c.want, row(t, rows, "data movers"))
		})
	}
}

func TestDoctorEvictionRequests(t *testing.T) {
	for resources, want := range map[string]Result{`[{"name":"evictionrequests"}]`: Pass, `[]`: Fail, "": Fail} {
		how, _ := apiServerOf(t, good)
		mux := http.NewServeMux()
		mux.HandleFunc("GET /apis/lifecycle.k8s.io/v1alpha1", func(w http.ResponseWriter, r *http.Request) {
			if resources == "" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"lifecycle.k8s.io/v1alpha1","resources":%s}`, resources)
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		r := evictionRequests(t.Context(), clientOf(t, &rest.Config{Host: s.URL}))
		assert.Equal(t, want, r.Result, r.Finding)
		if want == Fail {
			assert.Contains(t, r.Finding, "does not serve EvictionRequests (lifecycle.k8s.io/v1alpha1): start it with --feature-gates=EvictionRequestAPI=true")
		}
		rows := Examination{Cluster: how}.cluster(t.Context(), false)
		assert.False(t, slices.ContainsFunc(rows, func(r Row) bool { return r.Check == "eviction requests" }), "only with eviction.via: request")
	}
}
