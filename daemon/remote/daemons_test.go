package remote

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// A clock that is off makes no leader absent.
func TestController(t *testing.T) {
	const look = "; without a controller no requested eviction is approved"
	for name, c := range map[string]struct {
		spec, leader, problem string
		age                   time.Duration
		asked                 bool
	}{
		"it leads":                     {spec: `"holderIdentity":"c-1_a","leaseDurationSeconds":15`, age: 14 * time.Second, leader: "c-1_a", asked: true},
		"its clock is a little ahead":  {spec: `"holderIdentity":"c-1_a","leaseDurationSeconds":15`, age: -14 * time.Second, leader: "c-1_a", asked: true},
		"dead, or its clock is behind": {spec: `"holderIdentity":"c-1_a","leaseDurationSeconds":15`, age: 20 * time.Second, leader: "c-1_a", problem: "the controller c-1_a has not renewed its Lease for 20 s, or its clock is behind" + look, asked: true},
		"its clock is far ahead":       {spec: `"holderIdentity":"c-1_a","leaseDurationSeconds":15`, age: -time.Hour - 30*time.Second, leader: "c-1_a", problem: "the clock of the controller c-1_a is, or was, 1 h ahead: whether it leads is not known" + look, asked: true},
		"dead, and its pod is gone":    {spec: `"holderIdentity":"c-2_a","leaseDurationSeconds":15`, age: time.Hour, leader: "c-2_a", problem: "the controller c-2_a has not renewed its Lease for 1 h"},
		"it has given its Lease back":  {spec: `"leaseDurationSeconds":1`, problem: "no controller leads" + look},
		"none":                         {problem: "no Lease of a controller in plimsoll-system (election.namespace, election.enabled?)" + look},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Date", now.Format(http.TimeFormat))
				switch {
				case strings.HasSuffix(r.URL.Path, "/pods"):
					fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"c-1"},"status":{"phase":"Running"}}]}`)
				case c.spec == "":
					w.WriteHeader(http.StatusNotFound)
				default:
					fmt.Fprintf(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{},"spec":{%s,"renewTime":%q}}`, c.spec, now.Add(-c.age).Format("2006-01-02T15:04:05.000000Z"))
				}
			}))
			defer s.Close()
			cluster, err := New(&rest.Config{Host: s.URL})
			require.NoError(t, err)
			is := cluster.controller(t.Context())
			assert.Equal(t, c.leader, is.Leader)
			assert.Contains(t, is.Problem, c.problem)
			assert.Equal(t, c.problem == "", is.Problem == "", is.Problem)
			pod, err := cluster.leaderPod(t.Context())
			if !c.asked {
				assert.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "c-1", pod.Name)
		})
	}
}

// The name of a pod of a StatefulSet is that of the next one, which runs elsewhere.
func TestNodeOf(t *testing.T) {
	event := func(minute int, reason, uid, host string) string {
		return fmt.Sprintf(`{"metadata":{"name":"e%d"},"reason":%q,"lastTimestamp":"2026-03-01T12:%02d:00Z","source":{"component":"plimsoll-agent","host":%q},"involvedObject":{"kind":"Pod","name":"db-0","uid":%q}}`, minute, reason, minute, host, uid)
	}
	const forbidden, both = "", "explained is the earlier pod of this name (UID a, Event PressureEviction on node n1); the present one (UID b) is on node n2: --node n2 explains that one"
	evicted, throttled := event(1, "PressureEviction", "a", "n1"), event(2, "Throttled", "a", "n3")
	none := "[]"
	const right = ": bind the ClusterRole view in the namespace shop to your account"
	for name, c := range map[string]struct {
		pod, events, node, note, err string
	}{
		"the evicted one, of which the next runs elsewhere": {"n2", evicted, "n1", both, ""},
		"of which the next is on no node yet":               {"-", evicted, "n1", "(UID b) is on no node yet", ""},
		"of which the next is on the same node":             {"n1", evicted, "n1", "", ""},
		"that no pod has followed":                          {"", evicted, "n1", "", ""},
		"the newest of two":                                 {"n2", evicted + "," + event(3, "PressureEvictionInProgress", "c", "n4"), "n4", "(UID c, ", ""},
		"of which other Events are newer":                   {"", evicted + "," + throttled, "n1", "", ""},
		"the present one, which is to be evicted":           {"n2", event(1, "PressureEviction", "b", "n2"), "n2", "", ""},
		"whose predecessor was in a dry run":                {"n2", event(1, "PressureEvictionDryRun", "a", "n1"), "n2", "", ""},
		"without Events":                                    {"n2", none, "n2", "", ""},
		"with Events that cannot be read":                   {"n2", forbidden, "n2", "whether an agent has evicted an earlier pod shop/db-0 is not known: Events of pod shop/db-0: ", ""},
		"on no node, without Events":                        {"-", none, "", "", "pod shop/db-0 is not scheduled to a node yet"},
		"none, with Events that cannot be read":             {"", forbidden, "", "", right},
		"one that cannot be read":                           {"403", none, "", "", right},
		"none, without Events":                              {"", none, "", "", "does not exist, and no agent has an Event about it"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch events := strings.HasSuffix(r.URL.Path, "/events"); {
				case events && c.events == forbidden:
					w.WriteHeader(http.StatusForbidden)
				case events:
					assert.Equal(t, "involvedObject.kind=Pod,involvedObject.name=db-0,source=plimsoll-agent", r.URL.Query().Get("fieldSelector"))
					fmt.Fprintf(w, `{"kind":"EventList","apiVersion":"v1","items":[%s]}`, strings.Trim(c.events, "[]"))
				case c.pod == "403":
					w.WriteHeader(http.StatusForbidden)
				case c.pod == "":
					w.WriteHeader(http.StatusNotFound)
				default:
					fmt.Fprintf(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"db-0","uid":"b"},"spec":{"nodeName":%q}}`, strings.Trim(c.pod, "-"))
				}
			}))
			defer s.Close()
			client, err := corev1client.NewForConfig(&rest.Config{Host: s.URL})
			require.NoError(t, err)
			node, note, err := (&Cluster{Core: client}).NodeOf(t.Context(), "shop", "db-0")
			assert.Equal(t, c.node, node)
			assert.Contains(t, note, c.note)
			assert.Equal(t, c.note == "", note == "", note)
			if c.err != "" {
				assert.ErrorContains(t, err, c.err)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}
