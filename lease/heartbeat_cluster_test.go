package lease

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func bootTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // Linux has it
	return time.Duration(ts.Nano())
}

// beating is a Beat on a real API server, with the agent's own rights.
type beating struct {
	*Heartbeat
	t   *testing.T
	c   *cluster.Cluster
	how *rest.Config

	mu       sync.Mutex // guards attempts
	attempts []Attempt
}

func newBeating(t *testing.T, node string) *beating {
	t.Helper()
	c := plane(t)
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	how, err := c.ServiceAccountConfig(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{})
	require.NoError(t, err)
	how.UserAgent = "beat-of-" + node
	line, err := NewConnection(how)
	require.NoError(t, err)
	b := &beating{t: t, c: c, how: how}
	b.Heartbeat = &Heartbeat{
		Node: node, Namespace: Namespace, Holder: "us", Connection: line,
		Interval: 100 * time.Millisecond, Duration: 40 * time.Second, Uptime: bootTime, OnAttempt: b.beaten,
	}
	return b
}

func (b *beating) beaten(a Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts = append(b.attempts, a)
}

// last attempts, the newest last.
func (b *beating) last() []Attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempts
}

// node makes the Node, which goes with the test.
func (b *beating) node() types.UID {
	b.t.Helper()
	n, err := b.c.AddNode(b.t.Context(), b.Node, nil)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		err := b.c.Client.CoreV1().Nodes().Delete(context.WithoutCancel(b.t.Context()), b.Node, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			assert.NoError(b.t, err)
		}
	})
	return n.UID
}

func (b *beating) start() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		assert.NoError(b.t, <-done)
	})
}

// until the Lease is as it should be.
func (b *beating) until(what string, is func(*coordinationv1.Lease) bool) *coordinationv1.Lease {
	b.t.Helper()
	var l *coordinationv1.Lease
	deadline.Eventually(b.t, func() bool {
		var err error
		l, err = b.c.Client.CoordinationV1().Leases(b.Namespace).Get(b.t.Context(), b.Node, metav1.GetOptions{})
		return err == nil && is(l)
	}, time.Minute, 10*time.Millisecond, what)
	return l
}

// came waits for an attempt with this outcome, beside those before n.
func (b *beating) came(n int, o Outcome) Attempt {
	b.t.Helper()
	var found Attempt
	deadline.Eventually(b.t, func() bool {
		for _, a := range b.last()[n:] {
			if a.Outcome == o {
				found = a
				return true
			}
		}
		return false
	}, time.Minute, 5*time.Millisecond, "%s among %v", o, b.last())
	return found
}

// audited are the requests of the beat among those after the first n of the audit
// log, by verb and resource: the control plane may have served an earlier test of
// this name.
func (b *beating) audited(n int) map[string]int {
	b.t.Helper()
	events, err := b.c.AuditEvents()
	require.NoError(b.t, err)
	asked := map[string]int{}
	for _, e := range events[n:] {
		if e.UserAgent == "beat-of-"+b.Node {
			asked[e.Verb+" "+e.Resource]++
		}
	}
	return asked
}

func TestHeartbeatIsOnePatch(t *testing.T) {
	b := newBeating(t, "beat-steady")
	earlier, err := b.c.AuditEvents()
	require.NoError(t, err)
	uid := b.node()
	stop := b.start()
	defer stop()
	deadline.Eventually(t, func() bool { return len(b.last()) > 20 }, time.Minute, 10*time.Millisecond)
	stop()
	var asked map[string]int
	deadline.Eventually(t, func() bool {
		asked = b.audited(len(earlier))
		return asked["patch leases"] >= len(b.last())-1
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, map[string]int{"get leases": 1, "get nodes": 1, "create leases": 1, "patch leases": asked["patch leases"]}, asked)
	assert.LessOrEqual(t, asked["patch leases"], len(b.last())+1, "one patch a beat; the last may be cut off")
	assert.EqualValues(t, 1, b.Connection.Dials.Load())
	l := b.until("it is there", func(*coordinationv1.Lease) bool { return true })
	assert.Equal(t, uid, l.OwnerReferences[0].UID)
	assert.Empty(t, l.ManagedFields, "half of what is stored")
	assert.Equal(t, Created, b.last()[0].Outcome)
}

func TestHeartbeatWithoutNode(t *testing.T) {
	b := newBeating(t, "beat-no-node")
	stop := b.start()
	defer stop()
	b.came(0, NoNode)
	_, err := b.c.Client.CoordinationV1().Leases(Namespace).Get(t.Context(), b.Node, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	uid := b.node()
	l := b.until("made with its node", func(*coordinationv1.Lease) bool { return true })
	assert.Equal(t, uid, l.OwnerReferences[0].UID)
}

func TestHeartbeatOwnerOfNewNode(t *testing.T) {
	b := newBeating(t, "beat-owner")
	uid := b.node()
	stop := b.start()
	defer stop()
	b.came(0, Renewed)
	patch := `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"5c8a2e8e-0000-4000-8000-000000000000"}]}}`
	_, err := b.c.Client.CoordinationV1().Leases(Namespace).Patch(t.Context(), b.Node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	b.Reread()
	b.until("owned by the node again", func(l *coordinationv1.Lease) bool { return l.OwnerReferences[0].UID == uid })
}

// Policies let an agent name its own Node as the owner, and look at no UID: one
// that is made up costs nobody but that node, of which nothing is heard then.
func TestHeartbeatMadeUpOwnerCollected(t *testing.T) {
	b := newBeating(t, "made-up")
	b.node()
	leases := b.c.Client.CoordinationV1().Leases(Namespace)
	made, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: b.Node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: b.Node, UID: "00000000-0000-4000-8000-000000000001"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	deadline.Within(t, time.Minute, "it is gone, though the Node is there", func() error {
		is, err := leases.Get(t.Context(), b.Node, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("it is there: %s, made as %s", is.UID, made.UID)
	})
	_, err = b.c.Client.CoreV1().Nodes().Get(t.Context(), b.Node, metav1.GetOptions{})
	require.NoError(t, err)
}

func TestHeartbeatClockBehind(t *testing.T) {
	b := newBeating(t, "beat-behind")
	b.node()
	stop := b.start()
	b.came(0, Renewed)
	stop()
	before := b.until("", func(*coordinationv1.Lease) bool { return true })
	again := newBeating(t, b.Node)
	again.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	defer again.start()()
	again.until("renewed", func(l *coordinationv1.Lease) bool { return l.Spec.RenewTime.After(before.Spec.RenewTime.Time) })
	for range 3 {
		b.until("renewed", func(l *coordinationv1.Lease) bool {
			on := l.Spec.RenewTime.After(before.Spec.RenewTime.Time)
			if on {
				before = l
			}
			return on
		})
	}
	assert.EqualValues(t, 0, *before.Spec.LeaseTransitions, "it is the same holder")
}

func TestHeartbeatWithdrawn(t *testing.T) {
	b := newBeating(t, "beat-withdrawn")
	b.node()
	agent, err := kubernetes.NewForConfig(b.how)
	require.NoError(t, err)
	require.NoError(t, Withdraw(t.Context(), agent.CoordinationV1(), b.Node), "there is none")
	stop := b.start()
	b.came(0, Renewed)
	stop()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"a",%q:"{}",%q:"{}",%q:"[]",%q:"[]"}}}`, AgentAnnotation, NodeAnnotation, ContentionAnnotation, EvictionsAnnotation, AnswersAnnotation)
	_, err = b.c.Client.CoordinationV1().Leases(Namespace).Patch(t.Context(), b.Node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, Withdraw(t.Context(), agent.CoordinationV1(), b.Node))
	b.until("withdrawn", func(l *coordinationv1.Lease) bool {
		return l.Spec.RenewTime == nil && maps.Equal(l.Annotations, map[string]string{AnswersAnnotation: "[]"})
	})
	defer b.start()()
	b.until("renewed again", func(l *coordinationv1.Lease) bool { return l.Spec.RenewTime != nil })
}

func TestHeartbeatUrgentAnnotation(t *testing.T) {
	b := newBeating(t, "beat-carry")
	b.node()
	b.Interval = time.Minute
	var mu sync.Mutex // guards carried
	carried := map[string]string{NodeAnnotation: "{}", EvictionsAnnotation: ""}
	b.Annotations = func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return map[string]string{NodeAnnotation: carried[NodeAnnotation], EvictionsAnnotation: carried[EvictionsAnnotation]}
	}
	set := func(key, value string) {
		mu.Lock()
		defer mu.Unlock()
		carried[key] = value
	}
	stop := b.start()
	defer stop()
	b.Reread() // which does not hasten the first beat
	b.came(0, Created)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"[]"}}}`, AnswersAnnotation)
	_, err := b.c.Client.CoordinationV1().Leases(Namespace).Patch(t.Context(), b.Node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	n := len(b.last())
	set(EvictionsAnnotation, `[{"uid":"u1"}]`)
	start := deadline.Start()
	b.Wake()
	a := b.came(n, Renewed)
	t.Logf("carried after %s", start.Passed().Round(time.Millisecond))
	assert.Less(t, start.Elapsed(), 4*time.Second, "twice what is promised")
	assert.Equal(t, map[string]string{NodeAnnotation: "{}", EvictionsAnnotation: `[{"uid":"u1"}]`, AnswersAnnotation: "[]"}, a.Annotations)
	n = len(b.last())
	set(EvictionsAnnotation, "")
	b.Wake()
	a = b.came(n, Renewed)
	assert.Equal(t, map[string]string{NodeAnnotation: "{}", AnswersAnnotation: "[]"}, a.Annotations)
}

func TestHeartbeatNamespaceMissing(t *testing.T) {
	b := newBeating(t, "beat-nowhere")
	b.node()
	how := b.c.Admin // the agent itself may not even look
	line, err := NewConnection(how)
	require.NoError(t, err)
	b.Connection, b.Namespace = line, "not-there"
	defer b.start()()
	a := b.came(0, Rejected)
	assert.ErrorContains(t, a.Err, `namespaces "not-there" not found`)
}

// A kubeconfig without an authority trusts what the system does.
func TestHeartbeatUntrustedAPIServer(t *testing.T) {
	b := newBeating(t, "beat-untrusted")
	line, err := NewConnection(&rest.Config{Host: b.c.Admin.Host})
	require.NoError(t, err)
	b.Connection = line
	defer b.start()()
	assert.ErrorContains(t, b.came(0, Unreachable).Err, "x509")
}

func TestConnectionNeedsHTTPS(t *testing.T) {
	c := *plane(t).Admin
	c.Host = "http://127.0.0.1:1"
	_, err := NewConnection(&c)
	require.ErrorContains(t, err, "want an https URL")
}
