package pods

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func TestMain(m *testing.M) {
	// One of client-go's handlers waits as long as it takes until the process's
	// last error is a millisecond old: for ever, where that was in a test with a
	// time of its own.
	utilruntime.ErrorHandlers = nil
	os.Exit(cluster.Main(m))
}

// patience is how long a test waits for what takes milliseconds on an idle
// machine.
const patience = 30 * time.Second

// lab is a namespace and a node on the real control plane, and a client.
type lab struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
	node      string
}

// shared is a lab on the control plane of all tests. Its nodes have no kubelet
// that would beat, and nobody minds. Of its two API servers all use the first, but
// for what [broken] makes.
func shared(t *testing.T) (lab, *cluster.Cluster) {
	t.Helper()
	c := cluster.Shared(t, cluster.Options{APIServers: 2, Graces: cluster.Graces{NodeMonitor: time.Hour, NodeStartup: time.Hour}})
	namespace := c.Namespace(t)
	l := lab{T: t, client: c.Client, namespace: namespace, node: namespace}
	l.addNode(c, l.node)
	return l, c
}

// addNode adds a node whose label test is the namespace, and whose hostname is
// not its name.
func (l lab) addNode(c *cluster.Cluster, name string) {
	l.Helper()
	_, err := c.AddNode(l.Context(), name, map[string]string{"test": l.namespace, corev1.LabelHostname: "host-of-" + name})
	require.NoError(l, err)
	l.Cleanup(func() {
		ctx, stop := deadline.Context(context.Background(), patience)
		defer stop()
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		assert.NoError(l, l.client.CoreV1().Pods(l.namespace).DeleteCollection(ctx, now, metav1.ListOptions{}))
		assert.NoError(l, l.client.CoreV1().Nodes().Delete(ctx, name, now))
	})
}

// watcher runs a Watcher of the lab's node as a user.
func (l lab) watcher(user *rest.Config) *Watcher {
	l.Helper()
	client, err := kubernetes.NewForConfig(user)
	require.NoError(l, err)
	w := &Watcher{Node: l.node, Pods: client.CoreV1(), Claims: client.CoreV1(), Volumes: client.CoreV1(), OptOuts: DefaultOptOuts(), Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(l.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	l.Cleanup(func() {
		stop()
		assert.NoError(l, <-ended)
	})
	return w
}

// eventually waits until a condition holds and returns how long that took.
func (l lab) eventually(what string, holds func() bool) time.Duration {
	l.Helper()
	from := deadline.Start()
	deadline.Eventually(l, holds, patience, 2*time.Millisecond, what)
	return from.Passed()
}

// podOf is a pod to be made. Nothing chooses its node, unless one is named.
func podOf(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulerName:                 "nobody",
			Containers:                    []corev1.Container{{Name: "a", Image: "x"}},
			TerminationGracePeriodSeconds: new(int64(77)),
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func on(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = node }
}

func (l lab) create(pod *corev1.Pod) *corev1.Pod {
	l.Helper()
	made, err := l.client.CoreV1().Pods(l.namespace).Create(l.Context(), pod, metav1.CreateOptions{})
	require.NoError(l, err)
	return made
}

// bind chooses the lab's node for a pod, as a scheduler does.
func (l lab) bind(pod *corev1.Pod) *corev1.Pod {
	l.Helper()
	pod = l.create(pod)
	require.NoError(l, l.client.CoreV1().Pods(l.namespace).Bind(l.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: l.node},
	}, metav1.CreateOptions{}))
	return pod
}

func (l lab) patch(name, text string) {
	l.Helper()
	_, err := l.client.CoreV1().Pods(l.namespace).Patch(l.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
	require.NoError(l, err)
}

func (l lab) remove(name string, grace int64) {
	l.Helper()
	require.NoError(l, l.client.CoreV1().Pods(l.namespace).Delete(l.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
}

// find looks for a pod by the beginning of its name.
func find(w *Watcher, name string) (Pod, bool) {
	for _, p := range w.List(DefaultRules()).Pods {
		if strings.HasPrefix(p.Name, name) {
			return p, true
		}
	}
	return Pod{}, false
}

// seen waits for a pod and returns it.
func (l lab) seen(w *Watcher, name string) Pod {
	l.Helper()
	l.eventually(name+" is seen", func() bool { _, found := find(w, name); return found })
	p, _ := find(w, name)
	return p
}

func TestWatcherSeesChangesWithinSecond(t *testing.T) {
	l, c := shared(t)
	l.addNode(c, l.node+"-b")
	l.create(podOf("before", on(l.node)))
	w := l.watcher(c.Admin)
	l.eventually("synced", w.Synced)
	l.create(podOf("elsewhere", on(l.node+"-b")))
	l.create(podOf("nowhere"))
	pod := l.create(podOf("here", on(l.node)))
	took, clock := map[string]time.Duration{}, deadline.Start()
	took["created"] = l.eventually("created", func() bool { p, _ := find(w, "here"); return p.UID == string(pod.UID) })
	l.patch("here", `{"metadata":{"annotations":{"plimsoll.dev/skip-eviction":"true"}}}`)
	took["changed"] = l.eventually("changed", func() bool { p, _ := find(w, "here"); return p.OptedOut != "" })
	l.remove("here", 77)
	deleted := time.Now()
	took["deleted"] = l.eventually("deleted", func() bool { p, _ := find(w, "here"); return !p.TerminatesBy.IsZero() })
	p, _ := find(w, "here")
	assert.WithinDuration(t, deleted.Add(77*time.Second), p.TerminatesBy, 10*time.Second, "the end of its grace period")
	l.remove("here", 0)
	took["gone"] = l.eventually("gone", func() bool { _, found := find(w, "here"); return !found })
	again := l.create(podOf("here", on(l.node)))
	took["made again"] = l.eventually("made again", func() bool { p, _ := find(w, "here"); return p.UID == string(again.UID) })
	assert.NotEqual(t, pod.UID, again.UID)
	for what, after := range took {
		assert.Less(t, after, clock.Stretch(time.Second), what)
	}
	t.Log(took)

	var names []string
	list := w.List(DefaultRules())
	for _, p := range list.Pods {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"before", "here"}, names, "pods of others, and of nobody, are not seen")
	assert.Zero(t, list.StaleSince)
	found, there := list.ByCgroupUID(string(again.UID))
	assert.True(t, there)
	assert.Equal(t, "BestEffort", found.QoS)
	assert.EqualValues(t, 77, found.GraceSeconds)
	assert.Equal(t, "Pending", found.Phase)
}

func TestWatcherForbidden(t *testing.T) {
	l, c := shared(t)
	nobody, err := c.User("nobody-of-"+l.namespace, "nobodies")
	require.NoError(t, err)
	w := l.watcher(nobody)
	l.eventually("the refusal", func() bool { return !w.List(DefaultRules()).StaleSince.IsZero() })
	list := w.List(DefaultRules())
	assert.False(t, list.Synced)
	assert.Contains(t, list.StaleBecause, "forbidden")
	assert.True(t, apierrors.IsForbidden(func() error {
		_, err := w.Pods.Pods("").List(t.Context(), metav1.ListOptions{})
		return err
	}()))
}

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
