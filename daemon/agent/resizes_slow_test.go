package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

// fakeAPI is an API server with the pods of one namespace and the Node n, as values, which is
// asked without a socket. Its kubelet reports what is set, unless it lags.
type fakeAPI struct {
	mu    sync.Mutex
	pods  map[string]*corev1.Pod
	notes map[string]*string // annotations of the Node
	lags  bool
	// before each answer: a status ends the request with it.
	before func(r *http.Request) (status int)
}

func (f *fakeAPI) add(name string, containers int, request, limit string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}
	for i := range containers {
		c := corev1.Container{Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: cores(request), Limits: cores(limit)}}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Resources: c.Resources.DeepCopy()})
	}
	f.pods[name] = p
	return p
}

// RoundTrip implements http.RoundTripper.
func (f *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	status := f.before(r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := any(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(status)})
	if status == 0 {
		status, answer = http.StatusOK, f.answer(r)
	}
	b, err := json.Marshal(answer)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
}

func (f *fakeAPI) answer(r *http.Request) any {
	var patch struct {
		Metadata struct{ Annotations map[string]*string }
		Spec     struct{ Containers []corev1.Container }
	}
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&patch)
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	switch {
	case path[0] == "nodes":
		f.notes = patch.Metadata.Annotations
		return corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	case path[len(path)-1] == "resourcequotas":
		return corev1.ResourceQuotaList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuotaList"}}
	case path[0] != "namespaces":
		return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, APIResources: []metav1.APIResource{{Name: "pods/resize"}}}
	}
	p := f.pods[path[3]]
	for _, to := range patch.Spec.Containers {
		for i := range p.Spec.Containers {
			if c := &p.Spec.Containers[i]; c.Name == to.Name {
				maps.Copy(c.Resources.Limits, to.Resources.Limits)
				if !f.lags {
					p.Status.ContainerStatuses[i].Resources = c.Resources.DeepCopy()
				}
			}
		}
	}
	return p
}

// limits of the containers of a pod.
func (f *fakeAPI) limits(name string) (list []string) {
	for _, c := range f.pods[name].Spec.Containers {
		list = append(list, c.Resources.Limits.Cpu().String())
	}
	return list
}

// hangs until the client gives up.
func hangs(r *http.Request) int {
	<-r.Context().Done()
	return http.StatusGatewayTimeout
}

// slow takes so long, unless the client gives up.
func slow(d time.Duration) func(*http.Request) int {
	return func(r *http.Request) int {
		select {
		case <-r.Context().Done():
		case <-time.After(d):
		}
		return 0
	}
}

func isRecord(r *http.Request) bool { return strings.Contains(r.URL.Path, "/nodes/") }

func isResize(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/resize") }

// newFakeResizes is a node on which the pod hog of some containers computes, with an API server
// that is none.
func newFakeResizes(t *testing.T, containers int, request, limit string, uses float64) (*resizeFixture, *fakeAPI) {
	t.Helper()
	f := &fakeAPI{pods: map[string]*corev1.Pod{}, before: func(*http.Request) int { return 0 }}
	hog, requested := f.add("hog", containers, request, limit), uint64(0)
	for _, c := range hog.Spec.Containers {
		requested += uint64(c.Resources.Requests.Cpu().MilliValue())
	}
	client, err := corev1client.NewForConfig(&rest.Config{Host: "http://api", Transport: f, QPS: -1})
	require.NoError(t, err)
	h := &resizeFixture{namespace: "shop"}
	h.hogs(t, "hog", uses, requested)
	h.throttles.resizes = resizes{api: &resize.API{Core: client, Node: "n"}, adopted: true}
	return h, f
}

// resized records a pod as resized from 4 to 0.4 CPUs.
func (h *resizeFixture) resized(f *fakeAPI, name string) {
	f.add(name, 1, "100m", "400m")
	h.throttles.resizes.journal.Limits = append(h.throttles.resizes.journal.Limits, throttle.Limit{
		Knob:     throttle.Knob{Cgroup: "/" + name, Name: throttle.Resize, Container: throttle.Container{Namespace: "shop", Pod: name, UID: name, Name: "c0"}},
		Original: 4000, Value: 400, Written: true,
	})
}

// A resize fails without being refused, or its record does: after 15 s cpu.max limits the pod.
func TestResizeThatFails(t *testing.T) {
	for what, before := range map[string]func(first *bool) func(r *http.Request) int{
		"the resize": func(*bool) func(r *http.Request) int {
			return func(r *http.Request) int {
				if isResize(r) {
					return http.StatusInternalServerError
				}
				return 0
			}
		},
		"the record takes too long": func(*bool) func(r *http.Request) int {
			return func(r *http.Request) int {
				if isRecord(r) {
					return hangs(r)
				}
				return 0
			}
		},
		"all does from the record on": func(recorded *bool) func(r *http.Request) int {
			return func(r *http.Request) int {
				if *recorded = *recorded || isRecord(r); *recorded {
					return hangs(r)
				}
				return 0
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, f := newFakeResizes(t, 1, "100m", "4", 2)
				f.before = before(new(bool))
				h.cpu(0, plugins.Hard)
				require.Equal(t, "max", h.quota(), "it is being resized")
				for range 4 {
					h.cpu(5, plugins.Hard)
				}
				assert.Equal(t, "40000", h.quota())
				assert.Equal(t, []string{"4"}, f.limits("hog"))
				require.Len(t, h.throttles.shown.Load().Throttled, 1)
				assert.Contains(t, h.throttles.shown.Load().Throttled[0].Text(), "not resized in place: ")
			})
		})
	}
}

// While the API server is away a limit that is in force stays. When it is back the kubelet has no
// more time than it had left.
func TestResizeInForceWhileAway(t *testing.T) {
	for _, lags := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, f := newFakeResizes(t, 1, "100m", "4", 2)
			f.lags = lags
			h.cpu(0, plugins.Hard)
			f.before = hangs
			for range 10 {
				h.cpu(5, plugins.Hard)
				require.Equal(t, []string{"400m", "max"}, []string{f.limits("hog")[0], h.quota()})
			}
			f.before = func(*http.Request) int { return 0 }
			h.cpu(5, plugins.Hard)
			h.cpu(5, plugins.Hard)
			want := []string{"400m", "max"}
			if lags {
				want = []string{"4", "40000"}
			}
			assert.Equal(t, want, []string{f.limits("hog")[0], h.quota()})
		})
	}
}

// The containers' own limits are as tight as what is meant for the pod, which uses them all:
// cpu.max limits it, in the same round. One that is being released is not limited anew.
func TestResizeOfTightContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := newFakeResizes(t, 3, "500m", "1", 3)
		h.cpu(0, plugins.Hard)
		assert.Equal(t, "150000", h.quota())
		assert.Equal(t, []string{"1", "1", "1"}, f.limits("hog"))
		require.Len(t, h.throttles.shown.Load().Throttled, 1)
		assert.Contains(t, h.throttles.shown.Load().Throttled[0].Text(), "not resized in place: its containers' own limits are as tight")
	})
	synctest.Test(t, func(t *testing.T) {
		h, f := newFakeResizes(t, 3, "100m", "1", 3)
		h.cpu(0, plugins.Hard)
		assert.Equal(t, []string{"600m", "600m", "600m"}, f.limits("hog"))
		for range 5 {
			h.cpu(30, plugins.None)
			require.Equal(t, "max", h.quota())
		}
		assert.Equal(t, []string{"1", "1", "1"}, f.limits("hog"))
		h.cpu(10, plugins.Soft)
		assert.Equal(t, "120000", h.quota(), "it tightens again")
	})
}

// An API server is slow, or its answers about some pods hang: in each round, which does not take
// longer, others are restored.
func TestResizedAreRestoredByAndBy(t *testing.T) {
	for what, row := range map[string]struct {
		before func(*http.Request) int
		want   string // of the first four; the others are restored
	}{
		"slow":             {slow(400 * time.Millisecond), "4"},
		"very slow":        {slow(callTimeout - 200*time.Millisecond), "4"},
		"four writes hang": {hang(isResize), "400m"},
		"four reads hang":  {hang(func(r *http.Request) bool { return !isResize(r) }), "400m"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoredByAndBy(t, row.before, row.want) })
		})
	}
}

// hang are the requests about the pods 0 to 3 that hang.
func hang(which func(*http.Request) bool) func(*http.Request) int {
	return func(r *http.Request) int {
		if which(r) && strings.ContainsAny(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "0123") {
			return hangs(r)
		}
		return 0
	}
}

func restoredByAndBy(t *testing.T, before func(*http.Request) int, ofFirst string) {
	t.Helper()
	h, f := newFakeResizes(t, 1, "100m", "4", 2)
	f.before = before
	for i := range maxResized {
		h.resized(f, fmt.Sprint("pod", i))
	}
	for range 12 {
		start := time.Now()
		h.throttles.resize(t.Context(), &sync.Mutex{})
		assert.LessOrEqual(t, time.Since(start), resizeTimeout)
	}
	for i := range maxResized {
		want := "4"
		if i < 4 {
			want = ofFirst
		}
		assert.Equal(t, []string{want}, f.limits(fmt.Sprint("pod", i)))
	}
}

// While it is not known what an earlier agent throttled, the CPU limits that it lowered stay.
func TestResizedUnread(t *testing.T) {
	h, f := newFakeResizes(t, 1, "100m", "4", 2)
	h.resized(f, "pod1")
	late := make(chan state.Answer[savedThrottles])
	h.throttles.late = late
	h.cpu(0, plugins.Hard)
	h.throttles.lift(t.Context())
	assert.Equal(t, []string{"400m"}, f.limits("pod1"))
	close(late)
	h.cpu(5, plugins.None)
	assert.Equal(t, []string{"4"}, f.limits("pod1"))
}

// The agent ends while it waits for an API server that does not answer: in time, and it says
// which limits are left.
func TestEndWhileResizeHangs(t *testing.T) {
	config, _ := configured(t, "")
	synctest.Test(t, func(t *testing.T) {
		h, f := newFakeResizes(t, 1, "100m", "4", 2)
		f.before = hangs
		h.resized(f, "pod1")
		var log bytes.Buffer
		a := &Agent{Config: config, throttles: h.throttles, throttlingEnded: true, Log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, end := context.WithCancel(t.Context())
		g, ctx := errgroup.WithContext(ctx)
		resized := make(chan struct{})
		go func() {
			defer close(resized)
			a.resize(ctx)
		}()
		time.Sleep(callTimeout / 2)
		start := time.Now()
		end()
		<-resized
		assert.Zero(t, time.Since(start), "the pass ends with the agent")
		g.Go(func() error { return a.throttleLoop(ctx) })
		require.NoError(t, process.WaitAll(ctx, g))
		assert.Less(t, time.Since(start), process.StopTimeout)
		assert.Contains(t, log.String(), "gave up removing limits of throttled pods")
	})
}
