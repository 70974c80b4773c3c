package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	agentsclient "github.com/plimsoll-dev/plimsoll/agents/client"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/state"
)

// carrying is an agent in a round that has chosen, with an API server that has
// some pods and grants every eviction.
type carrying struct {
	*Agent
	path  string     // of its configuration
	mu    sync.Mutex // guards asked
	asked []string   // names of pods, and what the state held when they were asked for
}

func newCarrying(t *testing.T, names ...string) *carrying {
	t.Helper()
	c := &carrying{}
	store := state.File[evict.State]{Path: filepath.Join(t.TempDir(), "evict.json"), Version: evict.StateVersion}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) { watchOf(w, r, names) })
	mux.HandleFunc("POST /api/v1/namespaces/shop/pods/{name}/eviction", func(w http.ResponseWriter, r *http.Request) {
		kept, err := store.Load()
		c.mu.Lock()
		defer c.mu.Unlock()
		text := r.PathValue("name") + " kept"
		if err != nil || len(kept.Victims) == 0 || kept.Victims[len(kept.Victims)-1].UID != r.PathValue("name") {
			text = fmt.Sprintf("%s not kept: %v %v", r.PathValue("name"), err, kept.Victims)
		}
		c.asked = append(c.asked, text)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	})
	mux.HandleFunc("/api/v1/nodes/n", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := corev1client.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	watcher := &pods.Watcher{Node: "n", Pods: client, Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
		server.CloseClientConnections()
	})
	deadline.Within(t, 10*time.Second, "the pods are listed", func() error {
		if l := watcher.List(pods.DefaultRules()); !l.Synced || !l.StaleSince.IsZero() {
			return assert.AnError
		}
		return nil
	})
	log := slog.New(slog.DiscardHandler)
	c.Agent = &Agent{Log: log, levelRose: make(chan struct{}, 1), cluster: &cluster{
		node: "n", pods: watcher, nodes: client, store: store, saveTimeout: time.Minute, evictor: &kube.Evictor{REST: client.RESTClient()}, log: log, marked: make(chan struct{}),
		tainter: &kube.Tainter{Nodes: client, Node: "n", Log: log}, cnr: &cnr{}, events: kube.NewAnnouncer(client, "n", log),
		requester: &agentsclient.EvictionRequester{Wake: func() {}},
	}}
	t.Cleanup(c.cluster.events.Close)
	c.Config, c.path = configured(t, "")
	return c
}

// watchOf brings all pods at first, as an API server does, and nothing more.
func watchOf(w http.ResponseWriter, r *http.Request, names []string) {
	w.Header().Set("Content-Type", "application/json")
	send := func(kind string, pod *corev1.Pod) {
		pod.TypeMeta, pod.ResourceVersion = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, "7"
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": pod})
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, name := range names {
			send("ADDED", servedPod(name))
		}
		send("BOOKMARK", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// servedPod is a pod of a ReplicaSet; name/bare has no controller.
func servedPod(name string) *corev1.Pod {
	name, bare := strings.CutSuffix(name, "/bare")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "r", Controller: new(!bare)},
		}},
		Spec:   corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort},
	}
}

// fullBuckets are those of an agent that has evicted nothing for an hour, however long ago
// this machine has started.
func fullBuckets() evict.RateLimits {
	empty := uptime() - time.Hour
	return evict.RateLimits{Boot: "boot", Since: empty, Node: empty, Fallback: empty}
}

// chosen is a round in which memory is short and "culprit" goes.
func (c *carrying) chosen(t *testing.T, listed pods.List) (evict.Input, evict.Decision, evict.State) {
	t.Helper()
	now := time.Now().UTC()
	levels := &plugins.Levels{Time: now, Verdicts: []plugins.Verdict{{
		Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Level: plugins.Hard, MetLevel: plugins.Hard,
		Candidates: []plugins.Candidate{
			{Cgroup: "/culprit", PodUID: "culprit", Relief: 9, Unit: "bytes"}, {Cgroup: "/other", PodUID: "other", Relief: 8, Unit: "bytes"},
		},
	}}}
	c.state.Store(&view.State{Levels: levels})
	in := evict.Input{
		Time: now, Uptime: uptime(), Boot: "boot", Levels: levels, Config: evict.DefaultConfig(),
		Cluster: &evict.Cluster{Pods: listed}, State: evict.State{RateLimits: fullBuckets()},
	}
	in.Config.DryRun, in.Config.ReportOnly = false, 0
	c.observed = c.Config.Current()
	d, m := evict.Decide(in)
	i, some := d.Next()
	require.True(t, some, d.Reason)
	require.Equal(t, "culprit", d.Candidates[i].Pod.UID)
	return in, d, m
}

func TestRoundSavesChoiceBeforeEviction(t *testing.T) {
	c := newCarrying(t, "culprit")
	in, d, m := c.chosen(t, c.cluster.pods.List(pods.DefaultRules()))
	m = c.evict(t.Context(), in, &d, m)
	assert.Equal(t, []string{"culprit kept"}, c.asked)
	require.Len(t, m.Victims, 1)
	assert.Equal(t, evict.Evicted, m.Victims[0].Outcome)
}

func TestRoundPodGoneSinceChosen(t *testing.T) {
	c := newCarrying(t, "other")
	listed := newCarrying(t, "culprit").cluster.pods.List(pods.DefaultRules())
	in, d, m := c.chosen(t, listed)
	m = c.evict(t.Context(), in, &d, m)
	assert.Empty(t, c.asked)
	assert.Equal(t, evict.CodeStale, d.Code)
	assert.Empty(t, m.Victims)
	kept, err := c.cluster.store.Load()
	require.NoError(t, err)
	assert.Empty(t, kept.Victims, "the next agent must not ask for it either")
	assert.Len(t, c.levelRose, 1, "the next round comes at once")
}

// A reload may switch evictions off, or protect a namespace: it holds for a round that runs.
func TestRoundReloadSinceChosen(t *testing.T) {
	c := newCarrying(t, "culprit", "other")
	in, d, m := c.chosen(t, c.cluster.pods.List(pods.DefaultRules()))
	writeConfig(t, c.path, "eviction: {enabled: false}\n")
	require.NoError(t, c.Config.Reload())
	m = c.evict(t.Context(), in, &d, m)
	assert.Empty(t, c.asked)
	assert.Equal(t, evict.CodeStale, d.Code)
	assert.Empty(t, m.Victims)
	assert.Len(t, c.levelRose, 1)
}

// A plugin may be excluded, or left to another host, while the pod before is requested.
func TestRoundPluginExcludedSinceChosen(t *testing.T) {
	c := newCarrying(t, "culprit", "other")
	in, d, m := c.chosen(t, c.cluster.pods.List(pods.DefaultRules()))
	c.outer = &outerHost{host: &outer.Host{Settings: outer.DefaultConfig}}
	c.state.Load().Levels.Verdicts[0].Plugin = "p" // which has not registered
	m = c.evict(t.Context(), in, &d, m)
	assert.Empty(t, c.asked)
	assert.Equal(t, evict.CodeStale, d.Code)
	assert.Empty(t, m.Victims)
}

// What protects a pod may be written by its owner at any moment: the round goes on.
func TestRoundPodProtectedSinceChosen(t *testing.T) {
	c := newCarrying(t, "culprit/bare", "other")
	listed := newCarrying(t, "culprit", "other").cluster.pods.List(pods.DefaultRules())
	in, d, m := c.chosen(t, listed)
	m = c.evict(t.Context(), in, &d, m)
	assert.Equal(t, []string{"other kept"}, c.asked)
	assert.Equal(t, evict.CodeEvicted, d.Code)
	assert.EqualValues(t, pods.NoController, d.Candidates[0].Code)
	require.Len(t, m.Victims, 1)
	assert.Equal(t, "other", m.Victims[0].UID)
}

// A reload switches on the controller and the Lease, which begins with a restart: the
// decision says so at once, and the fallback is as without an answer.
func TestRoundControllerWithoutLease(t *testing.T) {
	file, path := configured(t, "lease: {enabled: false}\n")
	writeConfig(t, path, "lease: {enabled: true}\neviction: {via: controller}\n")
	require.NoError(t, file.Reload())
	c := newCarrying(t, "culprit")
	in, d, m := c.chosen(t, c.cluster.pods.List(pods.DefaultRules()))
	in.Config.Via = file.Current().Eviction.Via
	m = c.evict(t.Context(), in, &d, m)
	assert.Equal(t, "eviction of shop/culprit: outcome unknown: lease.enabled takes effect after a restart: requests cannot be sent", d.Reason)
	assert.Empty(t, c.asked)
	m.Victims[0].Time, m.RateLimits.Fallback = in.Time.Add(-in.Config.ViaFallbackAfter), in.Uptime-time.Hour
	in.Config.ViaFallback, in.State = true, m
	d, m = evict.Decide(in)
	c.evict(t.Context(), in, &d, m)
	assert.Equal(t, []string{"culprit kept"}, c.asked, d.Reason)
}
