package kube

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// changeTaints does what another writer of taints does, until it succeeds.
func changeTaints(t *testing.T, c *cluster.Cluster, node string, change func([]corev1.Taint) []corev1.Taint) {
	err := retry.OnError(wait.Backoff{Steps: 1000, Duration: time.Millisecond}, apierrors.IsConflict, func() error {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = change(n.Spec.Taints)
		_, err = c.Client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		return err
	})
	assert.NoError(t, err)
}

func without(key string) func([]corev1.Taint) []corev1.Taint {
	return func(l []corev1.Taint) []corev1.Taint {
		return slices.DeleteFunc(l, func(t corev1.Taint) bool { return t.Key == key })
	}
}

func with(added corev1.Taint) func([]corev1.Taint) []corev1.Taint {
	return func(l []corev1.Taint) []corev1.Taint { return append(l, added) }
}

func newTainter(t *testing.T, c *cluster.Cluster, node string) Tainter {
	return Tainter{
		Nodes: agentClient(t, c).CoreV1(), Node: node, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Unix(1000, 0) },
	}
}

// keysOf are the keys of a Node's taints, without those of the control plane
// itself: the node is silent, and that is told by a taint too.
func keysOf(n *corev1.Node) []string {
	keys := []string{}
	for _, t := range n.Spec.Taints {
		if t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

func TestTainterOnNode(t *testing.T) {
	c := sharedPlane(t)
	addNode(t, c, "taint-plain")
	writer := newTainter(t, c, "taint-plain")
	mem, disk := taint("plimsoll.dev/MemoryContention", no), taint("plimsoll.dev/DiskContention", prefer)
	apply := func(node *corev1.Node, want ...corev1.Taint) *corev1.Node {
		after, err := writer.Apply(t.Context(), node, want)
		require.NoError(t, err)
		return after
	}
	changeTaints(t, c, "taint-plain", with(taint("dedicated", no, "db")))

	node := apply(nil, mem, disk)
	assert.Equal(t, []string{"dedicated", mem.Key, disk.Key}, keysOf(node))
	assert.Equal(t, []evict.OwnTaint{ownTaint(mem.Key, no, 1000), ownTaint(disk.Key, prefer, 1000)}, utc(evict.Owned(node)))

	again := apply(node, mem, disk)
	assert.Same(t, node, again, "nothing changed, so nothing was asked")

	changeTaints(t, c, "taint-plain", without(mem.Key))
	assert.Contains(t, keysOf(apply(nil, mem, disk)), mem.Key, "ours was removed by hand")
	// What the agent knows is old by two changes of others.
	changeTaints(t, c, "taint-plain", with(taint("late", no)))
	after := apply(node, disk)
	assert.ElementsMatch(t, []string{"dedicated", disk.Key, "late"}, keysOf(after))

	other := newTainter(t, c, "taint-plain") // the agent after a restart knows nothing but the Node
	after, err := other.Apply(t.Context(), nil, nil)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"dedicated", "late"}, keysOf(after))
	assert.NotContains(t, after.Annotations, evict.TaintsAnnotation)
}

func utc(own []evict.OwnTaint) []evict.OwnTaint {
	for i := range own {
		own[i].Since = metav1.NewTime(own[i].Since.Local())
	}
	return own
}

func TestTainterForeignTaintOfOurKey(t *testing.T) {
	c := sharedPlane(t)
	addNode(t, c, "taint-theirs")
	writer := newTainter(t, c, "taint-theirs")
	mem := taint("plimsoll.dev/MemoryContention", no)
	changeTaints(t, c, "taint-theirs", with(mem))
	for _, want := range [][]corev1.Taint{{mem}, nil} {
		after, err := writer.Apply(t.Context(), nil, want)
		require.NoError(t, err)
		assert.Equal(t, []string{mem.Key}, keysOf(after))
		assert.Empty(t, evict.Owned(after))
	}
}

func TestTainterConcurrentWriter(t *testing.T) {
	c := sharedPlane(t)
	addNode(t, c, "taint-race")
	writer := newTainter(t, c, "taint-race")
	const rounds = 50
	mine, theirs := taint("plimsoll.dev/MemoryContention", no), taint("theirs", prefer)
	has := func(key string) bool {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "taint-race", metav1.GetOptions{})
		return assert.NoError(t, err) && slices.Contains(keysOf(n), key)
	}
	var other sync.WaitGroup
	other.Go(func() {
		for range rounds {
			changeTaints(t, c, "taint-race", with(theirs))
			assert.True(t, has("theirs"), "their taint went")
			changeTaints(t, c, "taint-race", without("theirs"))
			assert.False(t, has("theirs"), "their taint came back")
		}
	})
	conflicts := 0
	apply := func(want ...corev1.Taint) {
		for try := 0; ; try++ {
			_, err := writer.Apply(t.Context(), nil, want)
			if err == nil {
				return
			}
			conflicts++
			require.True(t, IsConflict(err), "%v", err)
			require.Less(t, try, 100)
		}
	}
	for range rounds {
		apply(mine)
		assert.True(t, has(mine.Key), "our taint went")
		apply()
		assert.False(t, has(mine.Key), "our taint came back")
	}
	other.Wait()
	t.Logf("%d of %d calls gave up after %d attempts", conflicts, 2*rounds, taintAttempts)
}

func TestTainterInvalidTaint(t *testing.T) {
	c := sharedPlane(t)
	addNode(t, c, "taint-invalid")
	writer := newTainter(t, c, "taint-invalid")
	_, err := writer.Apply(t.Context(), nil, []corev1.Taint{taint("not a key!", no)})
	require.ErrorContains(t, err, "taint node taint-invalid: ")
	assert.False(t, IsConflict(err), "%v", err)
	writer.Node = "taint-nobody"
	_, err = writer.Apply(t.Context(), nil, nil)
	require.ErrorContains(t, err, "not found")
}

func TestTainterKeepsTimeAdded(t *testing.T) {
	c := sharedPlane(t)
	addNode(t, c, "taint-time")
	writer := newTainter(t, c, "taint-time")
	added := metav1.NewTime(time.Unix(1_700_000_000, 0))
	timed := corev1.Taint{Key: "timed", Value: "v", Effect: out, TimeAdded: &added}
	changeTaints(t, c, "taint-time", with(timed))
	after, err := writer.Apply(t.Context(), nil, []corev1.Taint{taint("plimsoll.dev/a", prefer)})
	require.NoError(t, err)
	i := slices.IndexFunc(after.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "timed" })
	require.GreaterOrEqual(t, i, 0)
	assert.Empty(t, cmp.Diff(timed, after.Spec.Taints[i]))
}

func TestActorsUseOnlyGrantedRights(t *testing.T) {
	s := newScene(t, sharedPlane(t), "actors-audit")
	pod := s.pod("web-0", corev1.PodRunning)
	require.Equal(t, evict.Evicted, s.evictor.Evict(t.Context(), victim(pod), false).Outcome)
	writer := newTainter(t, s.Cluster, s.node)
	_, err := writer.Apply(t.Context(), nil, []corev1.Taint{taint("plimsoll.dev/a", prefer)})
	require.NoError(t, err)
	a := NewAnnouncer(agentClient(t, s.Cluster).CoreV1(), s.node, slog.New(slog.DiscardHandler))
	defer a.Close()
	a.Node("uid", "A", "b")
	a.Node("uid", "A", "b")
	want := []string{"create events/", "create pods/eviction", "get nodes/", "patch events/", "patch nodes/"}
	var asked []string
	deadline.Eventually(t, func() bool {
		events, err := s.AuditEvents()
		require.NoError(t, err)
		asked = nil
		for _, e := range events {
			mine := e.Name == s.node || e.Namespace == s.namespace || e.Resource == "events"
			if verb := e.Verb + " " + e.Resource + "/" + e.Subresource; mine && !slices.Contains(asked, verb) {
				asked = append(asked, verb)
			}
		}
		slices.Sort(asked)
		return slices.Equal(want, asked)
	}, soon, 50*time.Millisecond)
}
