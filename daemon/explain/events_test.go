package explain

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
)

func at(second int) time.Time { return scenes.Start().Add(time.Duration(second) * time.Second) }

func event(second int, reason, message string) corev1.Event {
	return corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: message}, LastTimestamp: metav1.NewTime(at(second)),
		Reason: reason, Message: message, Count: 1,
	}
}

// apiServer is a client of one that keeps the events, and what it was asked.
func apiServer(t *testing.T, status int, events ...corev1.Event) (client *corev1client.CoreV1Client, asked *url.URL) {
	t.Helper()
	asked = &url.URL{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = *r.URL
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		var body any = corev1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: events}
		if status != http.StatusOK {
			body = metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Message: "events is forbidden", Reason: metav1.StatusReasonForbidden, Code: int32(status),
			}
		}
		assert.NoError(t, json.NewEncoder(w).Encode(body))
	}))
	t.Cleanup(s.Close)
	client, err := corev1client.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	return client, asked
}

func TestEventsOnlyAgentsOfNode(t *testing.T) {
	client, asked := apiServer(t, http.StatusOK, event(1, "PressureEviction", "shop/cart: working set"))
	_, err := Events(t.Context(), client, "node-a", "")
	require.NoError(t, err)
	assert.Equal(t, "/api/v1/namespaces/default/events", asked.Path)
	assert.Equal(t, "involvedObject.kind=Node,involvedObject.name=node-a,source=plimsoll-agent", asked.Query().Get("fieldSelector"))
}

func TestEventsNewestFirst(t *testing.T) {
	often := event(5, "PressureDecision", "soft level: no pod is evicted")
	often.Count = 3
	undated := event(0, "PressureEvictionDryRun", "dry run: shop/cart: working set")
	undated.LastTimestamp, undated.CreationTimestamp = metav1.Time{}, metav1.NewTime(at(3))
	client, _ := apiServer(t, http.StatusOK, event(1, "PressureEviction", "shop/cart: working set"), often, undated)
	list, err := Events(t.Context(), client, "node-a", "")
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, WriteEvents(&b, list, at(65)))
	assert.Equal(t, "2026-03-01 12:00:05 UTC, 1 min ago: PressureDecision, 3 times\n  soft level: no pod is evicted\n"+
		"2026-03-01 12:00:03 UTC, 1 min 2 s ago: PressureEvictionDryRun\n  dry run: shop/cart: working set\n"+
		"2026-03-01 12:00:01 UTC, 1 min 4 s ago: PressureEviction\n  shop/cart: working set\n", b.String())
}

func TestEventsFilteredByName(t *testing.T) {
	client, _ := apiServer(t, http.StatusOK, event(1, "PressureEviction", "shop/cart: x (decision d1)"), event(2, "PressureDecision", "the pressure has ended (decision d2)"))
	for _, name := range []string{"shop/cart", "d1"} {
		list, err := Events(t.Context(), client, "node-a", name)
		require.NoError(t, err)
		require.Len(t, list, 1, name)
		assert.Equal(t, "PressureEviction", list[0].Reason)
	}
	for _, name := range []string{"shop/nobody", "shop", "op/cart", "car", "decision d", "\xff"} {
		_, err := Events(t.Context(), client, "node-a", name)
		require.ErrorIs(t, err, ErrNotInDecisions, name)
		require.ErrorContains(t, err, "none of 2 Events about node node-a mentions it")
	}
}

func TestEventsNameIsWhole(t *testing.T) {
	for text, want := range map[string]bool{
		"shop/web-1: working set": true, "dry run: web-1.": true, "(web-1)": true, "web-1": true, "evicted web-1, web-10": true,
		"shop/web-10: working set": false, "web-1.a is large": false, "my-web-1": false, "x.web-1 and web-1-0": false, "web-1/x": false,
	} {
		assert.Equal(t, want, mention("web-1").MatchString(text), text)
	}
}

func TestEventsNone(t *testing.T) {
	client, _ := apiServer(t, http.StatusOK)
	_, err := Events(t.Context(), client, "node-b", "")
	require.ErrorIs(t, err, ErrNoEvents)
	assert.ErrorContains(t, err, "node node-b")
}

func TestEventsForbidden(t *testing.T) {
	client, _ := apiServer(t, http.StatusForbidden)
	_, err := Events(t.Context(), client, "node-a", "")
	require.ErrorContains(t, err, "events of node node-a: events is forbidden")
	assert.NotErrorIs(t, err, ErrNotInDecisions)
}
