package admission

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// podServer has these pods in namespace shop, and counts what it is asked.
func podServer(t *testing.T, pods ...*corev1.Pod) (corev1client.CoreV1Interface, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		for _, p := range pods {
			if strings.HasSuffix(r.URL.Path, "/namespaces/shop/pods/"+p.Name) {
				p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
				assert.NoError(t, json.NewEncoder(w).Encode(p))
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		assert.NoError(t, json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}))
	}))
	t.Cleanup(s.Close)
	c, err := corev1client.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
	require.NoError(t, err)
	return c, &asked
}

func podWith(name string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
}

func TestTargetPreHooksOnly(t *testing.T) {
	core, _ := podServer(t,
		podWith("pre", map[string]string{"pre.hook.backup.velero.io/command": "fsfreeze"}),
		podWith("old", map[string]string{"hook.backup.velero.io/command": "fsfreeze"}),
		podWith("post", map[string]string{"post.hook.backup.velero.io/command": "log", "pre.hook.backup.velero.io/container": "main"}),
		podWith("none", nil),
	)
	r := &Reconciler{Core: core, Settings: DefaultSettings}
	r.reset()
	r.targets.left = 5
	for name, want := range map[string]bool{"pre": true, "old": true, "post": false, "none": false, "gone": false} {
		is := r.targets.of(t.Context(), &Object{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(name)}, Load: vgdp.Load{Kind: vgdp.PodVolumeBackup}, Target: types.NamespacedName{Namespace: "shop", Name: name},
		}, noon())
		assert.Equal(t, want, is.hooks, name)
		assert.True(t, is.final, name)
	}
	for spec, want := range map[string]bool{
		`{}`:                                   false,
		`{"hooks":{"resources":[]}}`:           false,
		`{"hooks":{"resources":[{"pre":[]}]}}`: false,
		`{"hooks":{"resources":[{"post":[{"exec":{"command":["log"]}}]},"odd"]}}`:                         false,
		`{"hooks":{"resources":[{"post":[{}]},{"post":[{}],"pre":[{"exec":{"command":["fsfreeze"]}}]}]}}`: true,
	} {
		p, err := trimBackup(object(t, `{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"b"},"spec":`+spec+`}`))
		require.NoError(t, err)
		assert.Equal(t, want, p.Hooks, spec)
	}
}

// Else pressure would hold a volume that is prepared, and one that runs would
// count for nobody.
func TestTargetUrgentUntilEnded(t *testing.T) {
	nowhere, err := dynamic.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	require.NoError(t, err)
	core, asked := podServer(t, podWith("cart", map[string]string{"pre.hook.backup.velero.io/command": "fsfreeze"}))
	r := &Reconciler{Core: core, Dynamic: nowhere, Settings: DefaultSettings}
	r.reset()
	v := newVelero(r, Velero{Namespace: "velero"})
	v.desired.limited = true
	r.veleros["velero"] = v
	o := Read(vgdp.PodVolumeBackup, object(t, `{"apiVersion":"velero.io/v1","kind":"PodVolumeBackup","metadata":{"name":"a","namespace":"velero","uid":"u"},"spec":{"node":"n1","pod":{"namespace":"shop","name":"cart"}}}`))
	assert.Equal(t, "shop", o.Load.PodNamespace)
	look := func(phase vgdp.Phase, now time.Time) []vgdp.Load {
		o.Load.Phase = phase
		require.NoError(t, v.loads[vgdp.PodVolumeBackup].Replace([]any{o}, ""))
		objects := map[string]*Object{}
		list := v.current(nil, objects)
		r.addTargets(t.Context(), list, objects, now)
		r.dropStale(objects)
		return list
	}
	for i, phase := range []vgdp.Phase{vgdp.New, vgdp.Accepted, vgdp.Prepared, vgdp.InProgress} {
		list := look(phase, noon().Add(time.Duration(i)*time.Hour))
		require.Len(t, list, 1)
		assert.True(t, list[0].Hooks, phase)
	}
	assert.Equal(t, int64(1), asked.Load())
	assert.Empty(t, look(vgdp.Completed, noon()))
	assert.Empty(t, r.targets.known)
	assert.True(t, look(vgdp.InProgress, noon())[0].Hooks, "also where a new leader finds it so")
}

func restored(name, node string, initial ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{InitContainerStatuses: initial}}
}

func initContainer(name string, running bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name}
	if running {
		s.State.Running = &corev1.ContainerStateRunning{}
	}
	return s
}

func TestTargetRestoreWaitsForPod(t *testing.T) {
	core, _ := podServer(t,
		restored("waits", "n1", initContainer("first", true), initContainer("restore-wait", true)),
		restored("not-yet", "n1", initContainer("restore-wait", false), initContainer("first", true)),
		restored("nowhere", "", initContainer("restore-wait", true)),
	)
	r := &Reconciler{Core: core, Settings: DefaultSettings}
	r.reset()
	r.targets.left = 4
	for name, want := range map[string]target{
		"waits":   {node: "n1", final: true},
		"not-yet": {node: "n1", notReady: "pod shop/not-yet is not waiting for its volumes yet"},
		"nowhere": {notReady: "pod shop/nowhere is not waiting for its volumes yet"},
		"gone":    {notReady: "pod shop/gone does not exist"},
	} {
		if want.asked = noon(); !want.final {
			want.wait = restoreInterval
		}
		is := r.targets.of(t.Context(), restoreOf(name), noon())
		assert.Equal(t, want, is, name)
	}
}

// Else a restore that nobody goes on with would take slots and places on nodes for ever.
func TestTargetAskedAgainAfterUnusedTicket(t *testing.T) {
	pod := restored("a", "n1", initContainer("restore-wait", true))
	core, asked := podServer(t, pod)
	r := &Reconciler{Core: core, Settings: DefaultSettings}
	r.reset()
	o := restoreOf("a")
	look := func(second int) target {
		r.targets.left = 1
		return r.targets.of(t.Context(), o, noon().Add(time.Duration(second)*time.Second))
	}
	assert.True(t, look(0).final)
	pod.Name = "deleted"
	assert.True(t, look(99).final)
	assert.Equal(t, int64(1), asked.Load(), "it has a ticket, or waits for its first")
	o.Load.Note.UnusedAt = noon().Add(100 * time.Second)
	assert.Equal(t, "pod shop/a does not exist", look(100).notReady)
	pod.Name = "a"
	assert.True(t, look(101).final)
	look(200)
	assert.Equal(t, int64(3), asked.Load(), "once for each unused ticket")
	nowhere, err := corev1client.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	require.NoError(t, err)
	o.Load.Note.UnusedAt, r.targets.pods = noon().Add(300*time.Second), nowhere
	assert.Equal(t, "n1", look(300).node, "what is known stays known")
	pod.Name, r.targets.pods = "deleted", core
	assert.NotEmpty(t, look(301).notReady, "where it failed, again")
}

func restoreOf(name string) *Object {
	return &Object{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name)}, Load: vgdp.Load{Kind: vgdp.PodVolumeRestore}, Target: types.NamespacedName{Namespace: "shop", Name: name}}
}

func TestTargetLookUpsBounded(t *testing.T) {
	core, asked := podServer(t)
	r := &Reconciler{Core: core, Settings: DefaultSettings}
	r.reset()
	look := func(after time.Duration, left int, names ...string) (list []target) {
		r.targets.left = left
		for _, name := range names {
			list = append(list, r.targets.of(t.Context(), restoreOf(name), noon().Add(after)))
		}
		return list
	}
	list := look(0, 1, "a", "b")
	assert.Equal(t, int64(1), asked.Load(), "one question was left")
	assert.Equal(t, "pod shop/a does not exist", list[0].notReady)
	assert.Equal(t, "its target is not looked up yet", list[1].notReady)
	look(restoreInterval-1, 1, "a")
	assert.Equal(t, int64(1), asked.Load(), "not again so soon")
	look(restoreInterval, 1, "a")
	assert.Equal(t, int64(2), asked.Load())
	assert.Equal(t, "pod shop/a does not exist", look(2*restoreInterval, 0, "a")[0].notReady, "what is known stays known")
	assert.Equal(t, int64(2), asked.Load())
}

// Where the API server's clock was set back, a target is looked up again at once.
func TestTargetAfterClockSetBack(t *testing.T) {
	core, asked := podServer(t)
	r := &Reconciler{Core: core, Settings: DefaultSettings}
	r.reset()
	for i, in := range []time.Duration{time.Hour, 0, time.Millisecond} {
		r.targets.left = 1
		r.targets.of(t.Context(), restoreOf("a"), noon().Add(in))
		assert.EqualValues(t, min(i+1, 2), asked.Load(), in)
	}
}

// An API server that does not answer would keep a look from its end.
func TestTargetFailureEndsLookUps(t *testing.T) {
	nowhere, err := corev1client.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	require.NoError(t, err)
	r := &Reconciler{Core: nowhere, Settings: DefaultSettings}
	r.reset()
	r.targets.left = targetsPerRound
	first := r.targets.of(t.Context(), restoreOf("a"), noon())
	assert.Empty(t, first.notReady, "velero finds out")
	assert.Zero(t, r.targets.left)
	assert.Equal(t, target{notReady: notLookedUp, asked: noon()}, r.targets.known["a"], "the others have their turn first")
	claim := restoreOf("b")
	claim.Load.Kind = vgdp.DataDownload
	r.targets.left = targetsPerRound
	r.targets.of(t.Context(), claim, noon())
	assert.Zero(t, r.targets.left)
}

// A pod that does not come is asked for less and less often; one that has come, as before.
func TestTargetNotReadyBacksOff(t *testing.T) {
	pod := restored("a", "n1")
	core, asked := podServer(t, pod)
	r := &Reconciler{Core: core, Settings: DefaultSettings}
	r.reset()
	var at []int // seconds
	for second := range 45 {
		before := asked.Load()
		r.targets.left = 1
		r.targets.of(t.Context(), restoreOf("a"), noon().Add(time.Duration(second)*time.Second))
		if asked.Load() > before {
			at = append(at, second)
		}
	}
	assert.Equal(t, []int{0, 1, 3, 7, 15, 25, 35}, at)
	pod.Status = restored("a", "n1", initContainer("restore-wait", true)).Status
	r.targets.left = 1
	assert.Empty(t, r.targets.of(t.Context(), restoreOf("a"), noon().Add(45*time.Second)).notReady)
}

// Of many targets that are not ready none keeps the others, nor a new restore, from being
// looked up.
func TestTargetEachHasItsTurn(t *testing.T) {
	core, _ := podServer(t, restored("new", "n1", initContainer("restore-wait", true)))
	nowhere, err := dynamic.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	require.NoError(t, err)
	r := &Reconciler{Core: core, Dynamic: nowhere, Settings: DefaultSettings}
	r.reset()
	v := newVelero(r, Velero{Namespace: "velero"})
	v.desired.limited = true
	r.veleros["velero"] = v
	var list []vgdp.Load
	objects := map[string]*Object{}
	add := func(kind vgdp.Kind, name string, created time.Time) {
		o := restoreOf(name)
		o.Load = vgdp.Load{UID: name, Name: name, Namespace: "velero", Kind: kind, Created: created}
		list, objects[name] = append(list, o.Load), o
	}
	for i := range 4 * targetsPerRound {
		add(vgdp.PodVolumeRestore, fmt.Sprintf("r%03d", i), noon())
		add(vgdp.PodVolumeBackup, fmt.Sprintf("b%03d", i), noon())
	}
	look := func(round int) map[string]string {
		now := noon().Add(time.Duration(round) * time.Second)
		all := slices.Clone(list)
		r.addTargets(t.Context(), all, objects, now)
		notReady := map[string]string{}
		for i := range all {
			notReady[all[i].Name] = all[i].NotReady
		}
		return notReady
	}
	for round := range 10 {
		look(round)
	}
	add(vgdp.PodVolumeRestore, "new", noon().Add(time.Hour))
	assert.Empty(t, look(10)["new"], "in the round that finds it")
	for round := range 20 {
		look(11 + round)
	}
	assert.Len(t, r.targets.known, len(list), "all of each kind")
	for name, is := range r.targets.known {
		if !is.final {
			assert.Greater(t, is.wait, restoreInterval, "%s was asked for again", name)
		}
	}
}
