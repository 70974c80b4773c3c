package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// slowAgents are stand-ins for the node-agents of nodes that have nothing else, each
// with the client of Velero's own: 5 requests a second, 10 at once. They share their
// watches. limit is the prepareQueueLength that they have read; 0: none.
func (h *veleroWorld) slowAgents(nodes, limit int) (stop func()) {
	h.t.Helper()
	ctx, end := context.WithCancel(contextWithoutCancel(h.t))
	watches, err := dynamic.NewForConfig(h.c.Admin)
	require.NoError(h.t, err)
	informers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(watches, 0, h.namespace, nil)
	var running sync.WaitGroup
	// One account for all, as Velero's: the API server is fair between accounts.
	account, err := h.c.ServiceAccount(ctx, h.namespace, "velero", cluster.BoundTo{})
	require.NoError(h.t, err)
	_, err = h.c.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: h.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: h.namespace, Name: "velero"}},
	}, metav1.CreateOptions{})
	require.NoError(h.t, err)
	for i := range nodes {
		as, err := clientcmd.BuildConfigFromFlags("", account)
		require.NoError(h.t, err)
		as.QPS, as.Burst = 5, 10
		client, err := dynamic.NewForConfig(as)
		require.NoError(h.t, err)
		a := velero.StandInAgent{
			Client: client, Core: h.c.Client, Namespace: h.namespace, Node: fmt.Sprintf("many-%d", i),
			Concurrency: 1, PrepareLimit: limit, Prepares: time.Hour, Moves: time.Hour, Informers: informers,
		}
		running.Go(func() {
			if err := a.Run(ctx); err != nil {
				h.t.Error(err)
			}
		})
	}
	stop = func() { end(); running.Wait(); informers.Shutdown() }
	h.t.Cleanup(stop)
	return stop
}

// refusedIn counts the refused writes of so many windows, one after the other, and tells
// the processor time of the API server, which does not depend on how busy the machine is.
func (h *veleroWorld) refusedIn(windows int, each time.Duration) (refused []int, cpu time.Duration) {
	h.t.Helper()
	_, was := h.wrote()
	before := h.serverTime()
	ticker := time.NewTicker(each)
	defer ticker.Stop()
	for range windows {
		<-ticker.C
		_, now := h.wrote()
		refused, was = append(refused, now-was), now
	}
	return refused, h.serverTime() - before
}

// untilHidden counts the refused writes of windows, one after the other, until so many loads
// are hidden at the end of one.
func (h *veleroWorld) untilHidden(n int, each time.Duration) (refused []int) {
	h.t.Helper()
	for range 20 {
		counted, _ := h.refusedIn(1, each)
		if refused = append(refused, counted...); h.hiddenLoads() >= n {
			return refused
		}
	}
	require.FailNow(h.t, "loads that wait stay visible", "%d of %d are hidden; refused in each %s: %v", h.hiddenLoads(), n, each, refused)
	return nil
}

// serverTime is the processor time that the API server has used.
func (h *veleroWorld) serverTime() time.Duration {
	h.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.c.APIServers[0].PID()))
	require.NoError(h.t, err)
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	require.Greater(h.t, len(fields), 12)
	var ticks time.Duration
	for _, field := range fields[11:13] { // utime, stime: proc(5); 100 a second
		n, err := strconv.Atoi(field)
		require.NoError(h.t, err)
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// How many writes of node-agents an API server refuses while many loads are held: the
// figures of docs/vgdp-gate.md. The node-agents are stand-ins with the queues and the
// client of Velero's own, against which they are held first.
func TestRefusedWrites(t *testing.T) {
	if os.Getenv("PLIMSOLL_LONG") == "" {
		t.Skip("takes ten minutes: make e2e")
	}
	const nodes, loads, slots, window = 100, 500, 4, 30 * time.Second
	held := fmt.Sprintf(`{"loadConcurrency":{"globalConfig":1,"prepareQueueLength":%d}}`, slots)
	// With prepare it waits until the loads are hidden.
	measure := func(t *testing.T, o cluster.Options, settings string, nodes, loads, limit, windows int, prepare func(*veleroWorld)) []int {
		c := cluster.New(t, o)
		h := newVeleroWorld(t, c, 3, held, ", leaseDuration: 30s, diagnoseAfter: 0s, "+settings)
		if prepare != nil {
			prepare(h)
		}
		a := h.controller().start()
		for i := range loads {
			h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), "b", nil)
		}
		h.holds()
		stop := h.slowAgents(nodes, limit)
		if prepare != nil {
			t.Logf("refused in each %s until all but the %d in slots are hidden: %v", window, slots, h.untilHidden(loads-slots, window))
		}
		refused, cpu := h.refusedIn(windows, window)
		sum := 0
		for _, n := range refused {
			sum += n
		}
		t.Logf("%d nodes, %d loads, %s: refused in each %s: %v, %.1f per second; the API server used %s in all, %s for each refused write; %d hidden", nodes, loads, settings, window, refused,
			float64(sum)/(window*time.Duration(windows)).Seconds(), cpu, (cpu / time.Duration(max(1, sum))).Round(10*time.Microsecond), h.hiddenLoads())
		stop()
		a.end(syscall.SIGTERM)
		return refused
	}
	var visible, hidden int
	t.Run("a stand-in does as Velero's own", func(t *testing.T) {
		standIn := measure(t, withoutMutating(t), "hideAbove: 1000000", 3, 40, 0, 2, nil)
		own := refusedByVelero(t, 3, 40, 2, window)
		t.Logf("3 of Velero's own: %v", own)
		assert.InEpsilon(t, own[0], standIn[0], 0.5, "in the first window")
	})
	t.Run("visible", func(t *testing.T) {
		visible = measure(t, withoutMutating(t), "hideAbove: 1000000", nodes, loads, 0, 3, nil)[1]
	})
	t.Run("visible, and node-agents have the limit themselves", func(t *testing.T) {
		measure(t, withoutMutating(t), "hideAbove: 1000000", nodes, loads, 4, 3, nil)
	})
	t.Run("hidden, released by the policy", func(t *testing.T) {
		hidden = measure(t, withoutKubelets(), "hideAbove: 20", nodes, loads, 0, 2, func(*veleroWorld) {})[1]
		assert.Less(t, 10*hidden, visible)
	})
	t.Run("hidden, released by the CronJob", func(t *testing.T) {
		hidden = measure(t, withoutMutating(t), "hideAbove: 20", nodes, loads, 0, 2, (*veleroWorld).cronJob)[1]
		assert.Less(t, 10*hidden, visible)
	})
}

// refusedByVelero is the same of Velero's own node-agents.
func refusedByVelero(t *testing.T, nodes, loads, windows int, window time.Duration) []int {
	t.Helper()
	h := newRealVeleroWorld(t, nodes, `{"loadConcurrency":{"globalConfig":1}}`, ", leaseDuration: 30s, hideAbove: 1000000, diagnoseAfter: 0s")
	h.storage.Keep(true)                                                         // what is accepted stays so
	h.configMap(`{"loadConcurrency":{"globalConfig":1,"prepareQueueLength":4}}`) // they have read it without
	a := h.controller().start()
	h.holds()
	for i := range loads {
		h.moves(vgdp.DataUpload, fmt.Sprintf("du-%d", i))
	}
	refused, _ := h.refusedIn(windows, window)
	a.end(syscall.SIGTERM)
	return refused
}
