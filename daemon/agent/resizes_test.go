package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	control "github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

func TestMain(m *testing.M) { os.Exit(control.Main(m)) }

const hogPod = "/kubepods/burstable/pod8"

// resizeFixture is a node on which one pod computes, with a real API server; the test
// reports what a kubelet would.
type resizeFixture struct {
	*throttleFixture
	c         *control.Cluster
	node      string
	namespace string
	alone     bool // it is the throttle loop that works, not a round
	uses      float64
}

func newResizeFixture(t *testing.T, node string) *resizeFixture {
	t.Helper()
	h := &resizeFixture{c: control.Shared(t, control.Options{Without: []string{control.ControllerManager, control.Scheduler}}), node: node}
	err := resize.Served(t.Context(), h.c.Client.CoreV1().RESTClient())
	if errors.Is(err, resize.ErrNotServed) {
		t.Skip(err)
	}
	require.NoError(t, err)
	_, err = h.c.AddNode(t.Context(), node, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, h.c.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), node, metav1.DeleteOptions{}))
	})
	h.namespace = h.c.Namespace(t)
	made, err := h.c.Client.CoreV1().Pods(h.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "hog"},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: cores("100m"), Limits: cores("4"),
		}}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	h.hogs(t, string(made.UID), 2, 100)
	h.reports("4")
	h.begin()
	return h
}

// hogs has the pod use so many cores.
func (h *resizeFixture) hogs(t *testing.T, uid string, uses float64, request uint64) {
	t.Helper()
	h.throttleFixture, h.uses = newThrottleFixture(t), uses
	h.config.Throttle.DryRun, h.config.Throttle.Resize, h.config.Throttle.Classes = false, true, []string{"Burstable"}
	h.pods = pods.List{Synced: true, Pods: []pods.Pod{{
		UID: uid, CgroupUID: uid, Namespace: h.namespace, Name: "hog", QoS: "Burstable", Phase: "Running", CPURequestMillicores: request,
	}}}
	require.NoError(t, os.MkdirAll(filepath.Join(h.dir, hogPod), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, hogPod, "cpu.max"), []byte("max 100000\n"), 0o644))
}

func cores(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
}

// begin an agent, as after a restart.
func (h *resizeFixture) begin() {
	h.t.Helper()
	h.start()
	h.throttles.resizes.api = &resize.API{Core: h.c.Client.CoreV1(), Node: h.node}
	node, err := h.c.Client.CoreV1().Nodes().Get(h.t.Context(), h.node, metav1.GetOptions{})
	require.NoError(h.t, err)
	h.throttles.resizes.adopt(node, slog.New(slog.DiscardHandler))
}

// replaceNode deletes the Node and makes another one of its name.
func (h *resizeFixture) replaceNode() {
	h.t.Helper()
	nodes := h.c.Client.CoreV1().Nodes()
	was, err := nodes.Get(h.t.Context(), h.node, metav1.GetOptions{})
	require.NoError(h.t, err)
	require.NoError(h.t, nodes.Delete(h.t.Context(), h.node, metav1.DeleteOptions{}))
	node, err := nodes.Create(h.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.node}}, metav1.CreateOptions{})
	require.NoError(h.t, err)
	node.Status = was.Status
	node, err = nodes.UpdateStatus(h.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(h.t, err)
	h.throttles.resizes.adopt(node, slog.New(slog.DiscardHandler))
}

func (h *resizeFixture) pod() *corev1.Pod {
	h.t.Helper()
	p, err := h.c.Client.CoreV1().Pods(h.namespace).Get(h.t.Context(), "hog", metav1.GetOptions{})
	require.NoError(h.t, err)
	return p
}

// limits are the CPU limit in the API, and the quota of cpu.max.
func (h *resizeFixture) limits() [2]string {
	h.t.Helper()
	return [2]string{h.pod().Spec.Containers[0].Resources.Limits.Cpu().String(), h.quota()}
}

func (h *resizeFixture) quota() string {
	b, err := os.ReadFile(filepath.Join(h.dir, hogPod, "cpu.max"))
	require.NoError(h.t, err)
	return strings.Fields(string(b))[0]
}

// reports is what a kubelet reports.
func (h *resizeFixture) reports(limit string) {
	h.t.Helper()
	p := h.pod()
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", Image: "i", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Resources: &corev1.ResourceRequirements{Limits: cores(limit)},
	}}
	_, err := h.c.Client.CoreV1().Pods(h.namespace).UpdateStatus(h.t.Context(), p, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}

// cpu is a round some seconds later, in which the pod uses the CPUs.
func (h *resizeFixture) cpu(seconds int, level plugins.Level) {
	h.t.Helper()
	h.now = h.now.Add(time.Duration(seconds) * time.Second)
	uid := h.pods.Pods[0].CgroupUID
	state := &view.State{
		Snapshot: &snapshot.Snapshot{
			Time: h.now,
			Workloads: []snapshot.WorkloadState{{
				Workload: snapshot.Workload{Cgroup: hogPod, Kind: snapshot.KindPod, PodUID: uid}, Pod: &snapshot.Pod{UID: uid, Namespace: h.namespace, Name: "hog"},
				Rates: snapshot.Some(snapshot.WorkloadRates{CPUCores: snapshot.Some(h.uses)}),
			}},
			Contention: []snapshot.Contention{{
				Resource: snapshot.SharedCPU, State: snapshot.ContentionPresent,
				Culprits: []snapshot.Culprit{{Party: snapshot.Party{Cgroup: hogPod, Name: "shop/hog"}, Share: 0.9}},
			}},
		},
		Levels: &plugins.Levels{Time: h.now, Verdicts: []plugins.Verdict{{Resource: plugins.CPU, Scope: "node", Level: level, Reason: "slow"}}},
	}
	h.throttles.round(state, &h.config, h.pods)
	if !h.alone && h.throttles.resize(h.t.Context(), &sync.Mutex{}) {
		h.throttles.round(state, &h.config, h.pods)
	}
}

func (h *resizeFixture) recorded() []throttle.Limit {
	h.t.Helper()
	node, err := h.c.Client.CoreV1().Nodes().Get(h.t.Context(), h.node, metav1.GetOptions{})
	require.NoError(h.t, err)
	list, err := resize.Recorded(node)
	require.NoError(h.t, err)
	return list
}

func TestResizedAndRestored(t *testing.T) {
	h := newResizeFixture(t, "resized")
	h.alone = true
	h.cpu(0, plugins.Hard)
	assert.Equal(t, [2]string{"4", "max"}, h.limits(), "the throttle loop leaves it to the round")
	h.alone = false
	h.cpu(0, plugins.Hard)
	assert.Equal(t, [2]string{"400m", "max"}, h.limits())
	assert.Len(t, h.recorded(), 1)
	require.Len(t, h.throttles.relief, 1, "an eviction waits for it")
	assert.Equal(t, []snapshot.SharedResource{snapshot.SharedCPU}, (*h.throttles.cgroups.Load())[hogPod], "its stall is our doing")
	shown := h.throttles.shown.Load()
	assert.Equal(t, "shop/hog: CPU limited to 0.4 cores by in-place resize, 20 % of its previous use, released in steps when the pressure is over, since shop/hog has 90 % of the CPU time in use",
		strings.Replace(shown.Throttled[0].Text(), h.namespace, "shop", 1))
	assert.EqualValues(t, 1, shown.Resized())
	assert.Equal(t, []string{"Normal Throttled " + h.namespace + "/hog: CPU limited to 0.4 cores by in-place resize, 20 % of its previous use, released in steps when the pressure is over, since shop/hog has 90 % of the CPU time in use"}, h.events)
	h.reports("400m")
	h.replaceNode()
	require.Empty(t, h.recorded())
	for range 4 {
		h.cpu(5, plugins.Hard)
		assert.Equal(t, [2]string{"400m", "max"}, h.limits(), "it is in effect and stays")
	}
	assert.Len(t, h.recorded(), 1, "the Node was made anew: it is recorded again")
	for range 20 {
		h.cpu(30, plugins.None)
		h.reports(h.limits()[0])
	}
	assert.Equal(t, [2]string{"4", "max"}, h.limits())
	b, err := os.ReadFile(filepath.Join(h.dir, hogPod, "cpu.max"))
	require.NoError(t, err)
	assert.Equal(t, "max 100000\n", string(b), "never written")
	assert.Empty(t, h.recorded())
	assert.Empty(t, *h.throttles.cgroups.Load())
	assert.Empty(t, h.throttles.shown.Load().Problem)
}

// What is not listed yet keeps its CPU limits, and gets none.
func TestResizeUnlisted(t *testing.T) {
	of := throttle.Target{Cgroup: hogPod}
	for _, resized := range []bool{false, true} {
		r := resizes{}
		split := func() int {
			list, undecided := r.split(map[throttle.Target]throttle.Throttle{of: {Base: throttle.Rates{CPU: 2}, Began: booted, Resized: resized}},
				map[string]throttle.Workload{hogPod: {Unlisted: true, Resizable: true}})
			return len(list) + len(undecided)
		}
		assert.Zero(t, split())
		r.journal.Limits = []throttle.Limit{{Knob: throttle.Knob{Cgroup: hogPod, Name: throttle.Resize}}}
		assert.Equal(t, 1, split())
	}
}

// A kubelet that does not resize: it is taken back, and cpu.max limits the pod.
func TestResizeThatTakesNoEffect(t *testing.T) {
	h := newResizeFixture(t, "no-effect")
	h.cpu(0, plugins.Hard)
	for range 2 {
		h.cpu(5, plugins.Hard)
		assert.Equal(t, [2]string{"400m", "max"}, h.limits())
	}
	h.cpu(5, plugins.Hard)
	assert.Equal(t, "4", h.limits()[0], "taken back")
	h.cpu(5, plugins.Hard)
	assert.Equal(t, [2]string{"4", "40000"}, h.limits())
	assert.Empty(t, h.recorded())
	assert.Contains(t, h.throttles.shown.Load().Throttled[0].Text(), "; not resized in place: the kubelet has not resized it")
	assert.Zero(t, h.throttles.shown.Load().Resized())
}

func TestResizeUndone(t *testing.T) {
	for name, undo := range map[string]func(t *testing.T, h *resizeFixture){
		"at the end":                    func(_ *testing.T, h *resizeFixture) { h.throttles.lift(h.t.Context()) },
		"switched off":                  func(_ *testing.T, h *resizeFixture) { h.config.Throttle.Resize = false; h.cpu(5, plugins.Hard) },
		"a dry run":                     func(_ *testing.T, h *resizeFixture) { h.config.Throttle.DryRun = true; h.cpu(5, plugins.Hard) },
		"by the next agent, which ends": func(_ *testing.T, h *resizeFixture) { h.begin(); h.throttles.lift(h.t.Context()) },
		"by the next agent, whose state was lost": func(t *testing.T, h *resizeFixture) { h.state = t.TempDir(); h.begin(); h.cpu(5, plugins.None) },
		"by the next agent, after it expired":     func(_ *testing.T, h *resizeFixture) { h.begin(); h.cpu(301, plugins.None) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newResizeFixture(t, "undone-"+strings.NewReplacer(" ", "-", ",", "").Replace(name))
			h.cpu(0, plugins.Hard)
			require.Equal(t, "400m", h.limits()[0])
			h.reports("400m")
			undo(t, h)
			assert.Equal(t, "4", h.limits()[0])
			assert.Empty(t, h.recorded())
		})
	}
}

// The next agent goes on with what the one before has begun.
func TestResizeSurvivesRestart(t *testing.T) {
	h := newResizeFixture(t, "restart")
	h.cpu(0, plugins.Hard)
	h.reports("400m")
	h.begin()
	h.cpu(5, plugins.Hard)
	assert.Equal(t, [2]string{"400m", "max"}, h.limits())
	assert.EqualValues(t, 1, h.throttles.shown.Load().Resized())
}

func TestResizeExemptPodGetsCPUMax(t *testing.T) {
	h := newResizeFixture(t, "exempt")
	h.throttles.resizes.adopted = false
	h.cpu(0, plugins.Hard)
	assert.Equal(t, [2]string{"4", "40000"}, h.limits(), "in the same round")
	assert.Contains(t, h.throttles.shown.Load().Throttled[0].Text(), "not resized in place: the Node is not read yet")
	assert.Empty(t, h.recorded())
}

// A dry run says what would be resized, and changes nothing.
func TestResizeDryRun(t *testing.T) {
	h := newResizeFixture(t, "dry-run")
	h.config.Throttle.DryRun = true
	h.cpu(0, plugins.Hard)
	assert.Equal(t, [2]string{"4", "max"}, h.limits())
	assert.Empty(t, h.recorded())
	assert.Contains(t, h.throttles.shown.Load().Throttled[0].Text(), "0.4 cores by in-place resize, 20 % of its previous use")
	assert.Zero(t, h.throttles.shown.Load().Resized())
}

// An API server that does not answer holds up no throttle: it is waited for without the lock.
// What has changed meanwhile stays.
func TestResizeWaitsWithoutLock(t *testing.T) {
	h, asked, of := newThrottleFixture(t), 0, &view.State{}
	a := &Agent{throttles: h.throttles, throttlingEnded: true}
	a.Config, _ = configured(t, "")
	a.state.Store(of)
	ended, begun := throttle.Target{Cgroup: hogPod}, throttle.Target{Cgroup: "/kubepods/burstable/pod9"}
	now := throttle.Throttle{Base: throttle.Rates{CPU: 2}, Began: h.now}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.True(t, a.throttling.TryLock(), r.URL.Path)
		assert.False(t, a.resizing.TryLock(), "the end of the agent waits")
		if asked++; asked == 1 { // the throttle loop
			delete(h.throttles.list, ended)
			h.throttles.list[begun] = now
		}
		a.throttling.Unlock()
		http.NotFound(w, r)
	}))
	defer server.Close()
	client, err := corev1client.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	h.throttles.resizes.api, h.throttles.resizes.adopted = &resize.API{Core: client, Node: "n"}, true
	h.throttles.resizes.journal.Limits = []throttle.Limit{{
		Knob:     throttle.Knob{Cgroup: "/gone", Name: throttle.Resize, Container: throttle.Container{Namespace: "shop", Pod: "gone", UID: "1", Name: "c"}},
		Original: 4000, Value: 400, Written: true,
	}}
	h.throttles.list[ended] = now
	resizable := throttle.Workload{Resizable: true}
	h.throttles.last = resizeInput{h.now, booted, map[string]throttle.Workload{hogPod: resizable, begun.Cgroup: resizable}, func(string) (throttle.Container, bool) { return throttle.Container{}, true }}
	a.resize(t.Context())
	assert.NotZero(t, asked)
	assert.Empty(t, h.throttles.resizes.journal.Limits, "its pod is gone")
	assert.Equal(t, map[throttle.Target]throttle.Throttle{begun: now}, h.throttles.list, "it is decided next time")
	a.throttlingEnded, a.throttled = false, of
	h.throttles.shown.Store(&view.Throttles{})
	a.resize(t.Context())
	assert.Nil(t, h.throttles.shown.Load(), "what it changed counts at once, by the same sample: standalone nothing is shown")
}
