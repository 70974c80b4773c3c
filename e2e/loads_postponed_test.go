package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// A Velero without any limit, whose Backup "night" is postponed for an hour, and "short" for
// longer than Velero waits for its uploads.
func postponedLoads(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 2, `{"loadConcurrency":{"globalConfig":5}}`, "")
	opens := time.Now().Add(time.Hour).Truncate(time.Second)
	wanted := map[string]vgdp.Wanted{"night": {PostponedUntil: opens}, "hooked": {PostponedUntil: opens}, "short": {PostponedUntil: opens.Add(9 * time.Hour)}}
	h.backup("night", nil, nil)
	h.backup("short", nil, nil)
	h.backup("hooked", nil, map[string]any{"hooks": map[string]any{"resources": []any{map[string]any{"name": "freeze", "pre": []any{map[string]any{"exec": map[string]any{"command": []any{"fsfreeze"}}}}}}}})
	for name := range wanted {
		_, err := h.client.Resource(velero.Resource()).Namespace(h.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"InProgress"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	first := h.reconciler()
	first.Wanted = func(_, backup string) vgdp.Wanted { return wanted[backup] }
	events := &eventList{}
	first.Events = events
	stop := runReconciler(t, first)
	h.runAgents()
	h.holds() // before there is any load
	const postponed, others = 4, 4
	for i := range 3 {
		h.load(vgdp.DataUpload, fmt.Sprintf("night-%d", i), "night", nil)
	}
	h.load(vgdp.PodVolumeBackup, "night-3", "night", nil)
	h.load(vgdp.PodVolumeBackup, "frozen-0", "hooked", nil)
	h.load(vgdp.DataUpload, "short-0", "short", nil)
	h.load(vgdp.DataUpload, "other-0", "other", nil)
	h.load(vgdp.DataDownload, "back-0", "back", nil)
	h.become(others, vgdp.Completed)
	eventually(t, "it is written until when", func() error {
		want := map[string]string{}
		for i := range postponed {
			want[fmt.Sprintf("night-%d", i)] = opens.UTC().Format(time.RFC3339)
		}
		if is := h.postponedUntil(); !maps.Equal(is, want) {
			return fmt.Errorf("%v", is)
		}
		return nil
	})
	eventually(t, "those of many are hidden", func() error {
		if list := first.Reports(); len(list) != 1 || list[0].Hidden != 3 {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	assert.Len(t, events.of(admission.ReasonPostponed), postponed)
	late := events.of(admission.ReasonNotPostponed)
	if assert.Len(t, late, 1) {
		assert.Contains(t, late[0], "short-0 not postponed until "+opens.Add(9*time.Hour).UTC().Format(time.RFC3339)+", when the backup window of its Backup opens: Velero cancels it at ")
	}
	assert.Empty(t, first.Counts().Bypassed)

	p, err := h.reconciler().Preview(t.Context(), h.namespace)
	require.NoError(t, err)
	assert.Equal(t, map[vgdp.Code]int{vgdp.CodePostponed: postponed}, p.Report.Reasons, "who asks knows no Backup's objective")

	// The next leader knows none at first either.
	stop()
	next := h.reconciler()
	var known atomic.Bool
	next.Wanted = func(string, string) vgdp.Wanted { return vgdp.Wanted{Unknown: !known.Load()} }
	runReconciler(t, next)
	eventually(t, "it decides", func() error {
		if list := next.Reports(); len(list) != 1 || list[0].Problem != "" || list[0].Epoch < 2 || list[0].Reasons[vgdp.CodePostponed] != postponed {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	assert.Equal(t, map[vgdp.Phase]int{vgdp.New: postponed, vgdp.Completed: others}, h.phases())
	known.Store(true) // and that none is postponed any more
	h.allEnd(postponed+others, patience)
}

// postponedUntil is what the controller wrote, by the load's name.
func (h *veleroWorld) postponedUntil() map[string]string {
	h.t.Helper()
	all := map[string]string{}
	for _, kind := range admission.Kinds() {
		list, err := h.client.Resource(admission.Resource(kind)).Namespace(h.namespace).List(h.t.Context(), metav1.ListOptions{})
		require.NoError(h.t, err)
		for i := range list.Items {
			if text, is := list.Items[i].GetAnnotations()[gate.PostponedUntil]; is {
				all[list.Items[i].GetName()] = text
			}
		}
	}
	return all
}

// eventList has the Events of a reconciler.
type eventList struct {
	mu   sync.Mutex // guards list
	list []string
}

func (e *eventList) Event(about runtime.Object, _, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, reason+" "+about.(*corev1.ObjectReference).Name+" "+message)
}

// of a reason, each once.
func (e *eventList) of(reason string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]bool{}
	for _, text := range e.list {
		if of, rest, _ := strings.Cut(text, " "); of == reason {
			all[rest] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// reconciler in this process, with the rights of the controller.
func (h *veleroWorld) reconciler() *admission.Reconciler {
	h.t.Helper()
	kubeconfig, err := h.c.ServiceAccount(h.t.Context(), "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	require.NoError(h.t, err)
	how, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(h.t, err)
	how.QPS, how.Burst = 100, 200
	client, err := dynamic.NewForConfig(how)
	require.NoError(h.t, err)
	core, err := kubernetes.NewForConfig(how)
	require.NoError(h.t, err)
	settings := admission.DefaultSettings()
	settings.Enabled, settings.LeaseDuration, settings.QuietAbove = true, deadline.Scale(6*time.Second), 2
	return &admission.Reconciler{
		Dynamic: client, Core: core.CoreV1(), Leases: core.CoordinationV1(), Classes: core.StorageV1(), Of: []admission.Velero{{Namespace: h.namespace}},
		Abilities: func(context.Context) abilities.Velero { return abilities.Velero{} }, Settings: func() admission.Settings { return settings },
		Grace: func() time.Duration { return time.Minute }, Events: &eventList{}, Log: slog.New(slog.DiscardHandler),
	}
}

// runReconciler until the test ends, or until it is told to.
func runReconciler(t *testing.T, r *admission.Reconciler) (stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(contextWithoutCancel(t))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		end()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}
