package kube

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// announcerTo is an Announcer whose API server is the handler given.
func announcerTo(t *testing.T, handler http.HandlerFunc) *Announcer {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	return NewAnnouncer(client.CoreV1(), "n1", slog.New(slog.DiscardHandler))
}

func TestEventsCloseFlushesQueue(t *testing.T) {
	var mu sync.Mutex
	var said []string
	a := announcerTo(t, func(w http.ResponseWriter, r *http.Request) {
		var e corev1.Event
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&e))
		mu.Lock()
		said = append(said, fmt.Sprintf("%s %s/%s %s", r.URL.Path, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		assert.NoError(t, json.NewEncoder(w).Encode(e))
	})
	a.Pod(evict.Victim{UID: "u", Namespace: "shop", Name: "web-0"}, corev1.EventTypeNormal, "A", "one")
	a.Node("nu", "B", "two")
	a.Close()
	a.Close()
	a.Node("nu", "B", "too late")
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"/api/v1/namespaces/shop/events Pod/web-0 one", "/api/v1/namespaces/default/events Node/n1 two"}, said)
}

func TestEventsAPIServerHangs(t *testing.T) {
	a := announcerTo(t, func(w http.ResponseWriter, r *http.Request) { untilGone(r) })
	start := deadline.Start()
	for i := range 5000 { // many times what the queue holds
		a.Pod(evict.Victim{UID: fmt.Sprint(i), Namespace: "shop", Name: "web"}, corev1.EventTypeNormal, "A", strings.Repeat("x", i%7))
	}
	called := start.Elapsed()
	start = deadline.Start()
	a.Close()
	t.Logf("5000 Events took %s, Close %s", called, start.Passed())
	assert.Less(t, called, eventCallTimeout)
	assert.Less(t, start.Elapsed(), eventFlush+eventCallTimeout/2)
}
