package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/agents/client"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// beatsOf an agent that keeps its Node ready.
func beatsOf(t *testing.T) (own, node *heartbeat) {
	t.Helper()
	cl := &cluster{node: "n1", status: &lease.Status{}, requester: &client.EvictionRequester{}, log: slog.New(slog.DiscardHandler)}
	c := config.Default().Lease
	c.Target = config.LeaseOfNode
	require.NoError(t, cl.addHeartbeats(c, &rest.Config{Host: "https://127.0.0.1:1"}))
	return cl.heartbeat, cl.nodeLease
}

func ownBeat(t *testing.T) *heartbeat {
	t.Helper()
	own, _ := beatsOf(t)
	return own
}

func TestUnjudgedResources(t *testing.T) {
	s := &view.State{Snapshot: &snapshot.Snapshot{}, Levels: &plugins.Levels{Verdicts: []plugins.Verdict{
		{Resource: plugins.NetworkIO, Scope: "eth1", Absent: "no speed"}, {Resource: plugins.NetworkIO, Scope: "eth0", Absent: "no speed"}, {Resource: plugins.CPU}, {Absent: "of an outer plugin"},
	}}}
	assert.Equal(t, []string{"memory", "network"}, unjudgedResources(s))
}

func TestHeartbeatDoesNotWaitForLog(t *testing.T) {
	h := ownBeat(t)
	for range 1000 { // nobody reads the log
		h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Rejected, Err: errors.New("no")})
	}
	assert.EqualValues(t, 1000, h.view().Outcomes[lease.Rejected])
}

func TestReadinessOfLease(t *testing.T) {
	h := ownBeat(t)
	require.EqualError(t, h.ready(), "lease: not renewed yet")
	h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Rejected, Err: errors.New("why")})
	require.EqualError(t, h.ready(), "lease: not renewed yet: why")
	h.recordAttempt(lease.Attempt{Time: time.Now().Add(-41 * time.Second), Outcome: lease.Renewed})
	require.ErrorContains(t, h.ready(), "lease: not renewed for 41s")
	h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Renewed})
	require.NoError(t, h.ready())
	h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Lost, Err: errors.New("why")})
	require.NoError(t, h.ready(), "one that was lost is no reason")
}

func TestReadyConditionOnlyOfOwnLease(t *testing.T) {
	list := []lease.Condition{{Type: "p/Mem"}}
	var none *heartbeat
	assert.Equal(t, list, none.withReady(list))

	own, nodes := beatsOf(t)
	told := 0
	nodes.nodeChanged = func() { told++ }
	assert.Equal(t, "plimsoll-node-lease n1", own.beat.Namespace+" "+own.beat.Holder)
	assert.Equal(t, "kube-node-lease plimsoll-agent/n1", nodes.beat.Namespace+" "+nodes.beat.Holder)
	assert.True(t, nodes.beat.Exclusive)
	assert.Nil(t, nodes.beat.Annotations, "what a controller reads stands in the agent's own")
	assert.NotNil(t, own.beat.Annotations)
	own.recordAttempt(lease.Attempt{Outcome: lease.Renewed})
	assert.Equal(t, list, own.withReady(list))
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Lost})
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Held})
	assert.Equal(t, list, nodes.withReady(list))
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Renewed})
	assert.Equal(t, 1, told)
	with := nodes.withReady(list)
	require.Len(t, with, 2)
	assert.Equal(t, "Ready", with[1].Type)
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Lost})
	assert.Len(t, nodes.withReady(list), 2, "what is lost once is ours still")
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Held})
	assert.Equal(t, list, nodes.withReady(list))
}

// A controller may have made the conditions Unknown meanwhile, or may be about to.
func TestHeartbeatGapRereadsNode(t *testing.T) {
	for interval, following := range map[time.Duration]int{time.Second: 15, 10 * time.Second: 2, 30 * time.Second: 1} {
		t.Run(interval.String(), func(t *testing.T) {
			up, told := time.Second, 0 // the machine has just started
			c := config.Default().Lease
			c.Interval = interval
			h, err := newHeartbeat(c, "n1", &rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			h.nodeChanged, h.beat.Uptime = func() { told++ }, func() time.Duration { return up }
			beat := func(after time.Duration, o lease.Outcome) (calls int) {
				up, told = up+after, 0
				h.recordAttempt(lease.Attempt{Outcome: o})
				return told
			}
			rereads := func(why string) {
				t.Helper()
				for range following {
					assert.Equal(t, 1, beat(interval, lease.Renewed), why)
				}
				assert.Zero(t, beat(interval, lease.Renewed), why)
			}
			assert.Equal(t, 1, beat(0, lease.Renewed))
			rereads("the agent before this one may have been silent")
			assert.Zero(t, beat(interval*3/2, lease.Renewed))
			assert.Equal(t, 1, beat(interval*3/2+1, lease.Renewed))
			rereads("it was missed")
			assert.Zero(t, beat(interval, lease.Rejected))
			assert.Equal(t, 1, beat(interval, lease.Renewed), "an attempt alone is no heartbeat")
			rereads("it was missed, too")
			assert.Equal(t, 1, beat(interval, lease.Created), "the Lease was collected with its Node")
			rereads("the Node may be a new one")
		})
	}
}

// conditioned is a Node with one condition.
type conditioned struct {
	corev1client.NodeInterface
	mu   sync.Mutex // guards node
	node corev1.Node
}

func (c *conditioned) Nodes() corev1client.NodeInterface { return c }

func (c *conditioned) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node.DeepCopy(), nil
}

func (c *conditioned) Patch(_ context.Context, _ string, _ types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	var patch corev1.Node
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	c.set(patch.Status.Conditions[0].Status)
	return c.Get(context.Background(), "", metav1.GetOptions{})
}

// set the condition as of now; none where the status is empty.
func (c *conditioned) set(status corev1.ConditionStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node.Status.Conditions = nil
	if status != "" {
		c.node.Status.Conditions = []corev1.NodeCondition{{Type: names.Prefix + "Mem", Status: status, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	}
}

func (c *conditioned) status() (status corev1.ConditionStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.node.Status.Conditions {
		status = one.Status
	}
	return status
}

func TestConditionsWrittenAgain(t *testing.T) {
	for name, happens := range map[string]func(node *conditioned, beat func(after time.Duration, o lease.Outcome)){
		"the controller writes Unknown after the gap": func(node *conditioned, beat func(time.Duration, lease.Outcome)) {
			beat(40*time.Second, lease.Renewed)
			node.set(corev1.ConditionUnknown)
			beat(10*time.Second, lease.Renewed)
		},
		"the controller writes Unknown while the agent starts": func(node *conditioned, beat func(time.Duration, lease.Outcome)) {
			node.set(corev1.ConditionUnknown)
			beat(5*time.Second, lease.Renewed)
		},
		"the Node is made anew": func(node *conditioned, beat func(time.Duration, lease.Outcome)) {
			for range 3 {
				beat(10*time.Second, lease.Renewed)
			}
			node.set("")
			beat(10*time.Second, lease.Created)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, node := time.Now(), &conditioned{}
				status := &lease.Status{Node: "n1", Nodes: node, Log: slog.New(slog.DiscardHandler), Conditions: func() []lease.Condition {
					return []lease.Condition{{Type: names.Prefix + "Mem", Status: corev1.ConditionFalse}}
				}}
				h := ownBeat(t)
				h.nodeChanged, h.beat.Uptime = status.Reread, func() time.Duration { return time.Hour + time.Since(start) }
				ctx, end := context.WithCancel(t.Context())
				defer end()
				go func() { assert.NoError(t, status.Run(ctx)) }()
				beat := func(after time.Duration, o lease.Outcome) {
					time.Sleep(after)
					h.recordAttempt(lease.Attempt{Outcome: o})
					synctest.Wait()
				}
				beat(time.Second, lease.Renewed)
				require.Equal(t, corev1.ConditionFalse, node.status())
				happens(node, beat)
				assert.Equal(t, corev1.ConditionFalse, node.status())
			})
		})
	}
}

// withoutLeaseOf an API server.
func withoutLeaseOf(t *testing.T, server string) *cluster {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "`+server+`"}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`), 0o600))
	file, _ := configured(t, "lease: {enabled: false}\nkubernetes: {kubeconfig: "+kubeconfig+"}\nstate: {dir: "+t.TempDir()+"}\n")
	cl, err := newCluster(file.Current(), "n", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return cl
}

// Whether the Node's Lease is the agent's may never be known, as without the right to read that Lease.
func TestConditionsWaitForNoLease(t *testing.T) {
	_, nodes := beatsOf(t)
	node := &conditioned{}
	cl := withoutLeaseOf(t, "http://127.0.0.1:1")
	cl.nodeLease, cl.status.Nodes = nodes, node
	cl.setConditions(evict.Marks{Conditions: []evict.Condition{{Type: names.Prefix + "Mem", Status: corev1.ConditionTrue}}})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var g errgroup.Group
	cl.run(ctx, &g)
	deadline.Eventually(t, func() bool { return node.status() == corev1.ConditionTrue }, 10*time.Second, 10*time.Millisecond)
	end()
	require.NoError(t, g.Wait())
}

// An earlier agent renewed a Lease, and this one renews none: the controller must not wait for it.
func TestLeaseWithdrawnWhereDisabled(t *testing.T) {
	for name, answers := range map[string][]int{
		"there is a Lease":               {http.StatusOK},
		"there is none":                  {http.StatusNotFound},
		"the API server fails the first": {http.StatusInternalServerError, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan string, 10)
			next := 0
			mux := http.NewServeMux()
			mux.HandleFunc("/apis/coordination.k8s.io/v1/namespaces/plimsoll-node-lease/leases/n", func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(answers[next])
				next++
				_, err = io.WriteString(w, "{}")
				assert.NoError(t, err)
				asked <- r.Method + " " + string(body)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			cl := withoutLeaseOf(t, server.URL)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			var g errgroup.Group
			cl.run(ctx, &g)
			for range answers {
				assert.Regexp(t, `^PATCH .*"spec":{"renewTime":null}}$`, <-asked)
			}
			end()
			require.NoError(t, g.Wait())
		})
	}
}

func TestLeaseWithdrawnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &failingLease{failures: 3}
		var said strings.Builder
		withdrawLease(t.Context(), leases, "n", slog.New(slog.NewTextHandler(&said, nil)))
		assert.Equal(t, 4, leases.patches)
		assert.Equal(t, 1, strings.Count(said.String(), "\n"), "%s", said.String())
		leases = &failingLease{failures: 1, err: apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "n")}
		withdrawLease(t.Context(), leases, "n", slog.New(slog.DiscardHandler))
		assert.Equal(t, 1, leases.patches)
		ctx, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		leases = &failingLease{failures: 1000}
		withdrawLease(ctx, leases, "n", slog.New(slog.DiscardHandler))
		assert.InDelta(t, 14, leases.patches, 8, "an API server that never accepts it is asked every 5 to 10 min")
	})
}

// failingLease refuses so many patches.
type failingLease struct {
	coordinationv1client.LeasesGetter
	coordinationv1client.LeaseInterface
	failures, patches int
	err               error // nil: any
}

func (f *failingLease) Leases(string) coordinationv1client.LeaseInterface { return f }

func (f *failingLease) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*coordinationv1.Lease, error) {
	if f.patches++; f.patches <= f.failures {
		return nil, cmp.Or(f.err, errors.New("forbidden"))
	}
	return &coordinationv1.Lease{}, nil
}
