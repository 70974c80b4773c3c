package kube

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// soon is how long a test waits for what a control plane does by itself.
const soon = time.Minute

// sharedPlane is the control plane of all tests here that leave it whole.
func sharedPlane(t *testing.T) *cluster.Cluster {
	return cluster.Shared(t, cluster.Options{Audit: true})
}

// agentClient has the rights that our own manifests give an agent, no others.
func agentClient(t *testing.T, c *cluster.Cluster) *kubernetes.Clientset {
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.RBACEvictDirect))
	path, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{})
	require.NoError(t, err)
	return clientOf(t, path)
}

func clientOf(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// addNode makes a Node that is gone after the test.
func addNode(t *testing.T, c *cluster.Cluster, name string) *corev1.Node {
	node, err := c.AddNode(t.Context(), name, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
	})
	return node
}

// scene is a namespace with pods on a node, and an Evictor.
type scene struct {
	*cluster.Cluster
	t         *testing.T
	namespace string
	node      string
	evictor   Evictor
}

func newScene(t *testing.T, c *cluster.Cluster, node string) scene {
	addNode(t, c, node)
	s := scene{Cluster: c, t: t, namespace: c.Namespace(t), node: node}
	s.evictor = Evictor{REST: agentClient(t, c).CoreV1().RESTClient(), Timeout: soon}
	return s
}

// pod makes a pod with label app=web; phase Running and Ready, or Pending.
func (s scene) pod(name string, phase corev1.PodPhase) *corev1.Pod {
	pods := s.Client.CoreV1().Pods(s.namespace)
	pod, err := pods.Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: s.node, Containers: []corev1.Container{{Name: "a", Image: "x"}}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	if phase == corev1.PodPending {
		return pod
	}
	pod.Status.Phase = phase
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod, err = pods.UpdateStatus(s.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	return pod
}

// again ends a pod at once and makes another of its name.
func (s scene) again(name string, phase corev1.PodPhase) *corev1.Pod {
	now := int64(0)
	require.NoError(s.t, s.Client.CoreV1().Pods(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	return s.pod(name, phase)
}

// budget makes one for the pods of label app=web.
func (s scene) budget(name string, minAvailable int) {
	available := intstr.FromInt(minAvailable)
	_, err := s.Client.PolicyV1().PodDisruptionBudgets(s.namespace).Create(s.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &available, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// allows waits until a budget says that so many may go.
func (s scene) allows(name string, disruptions int32) {
	deadline.Eventually(s.t, func() bool {
		b, err := s.Client.PolicyV1().PodDisruptionBudgets(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
		return err == nil && b.Status.ObservedGeneration == b.Generation && b.Status.DisruptionsAllowed == disruptions
	}, soon, 20*time.Millisecond)
}

// ends tells whether the pod was told to end, or is gone.
func (s scene) ends(pod *corev1.Pod) bool {
	now, err := s.Client.CoreV1().Pods(pod.Namespace).Get(s.t.Context(), pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true
	}
	require.NoError(s.t, err)
	return now.UID != pod.UID || now.DeletionTimestamp != nil
}

func victim(pod *corev1.Pod) evict.Victim {
	return evict.Victim{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, GraceSeconds: 7}
}

func TestEvictorEvictsAndDryRun(t *testing.T) {
	s := newScene(t, sharedPlane(t), "evict-plain")
	pod := s.pod("web-0", corev1.PodRunning)
	dry := s.evictor.Evict(t.Context(), victim(pod), true)
	assert.Equal(t, evict.Answer{Time: dry.Time, Outcome: evict.Evicted, Code: 201, DryRun: true}, dry)
	assert.False(t, s.ends(pod))

	got := s.evictor.Evict(t.Context(), victim(pod), false)
	assert.Equal(t, evict.Answer{Time: got.Time, Outcome: evict.Evicted, Code: 201}, got)
	now, err := s.Client.CoreV1().Pods(s.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 7, *now.DeletionGracePeriodSeconds)
	assert.Contains(t, now.Status.Conditions[len(now.Status.Conditions)-1].Reason, "EvictionByEvictionAPI")
}

func TestEvictorUIDPrecondition(t *testing.T) {
	s := newScene(t, sharedPlane(t), "evict-again")
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending} {
		t.Run(string(phase), func(t *testing.T) {
			old := s.pod("web-"+string(phase[0]|0x20), corev1.PodRunning)
			pod := s.again(old.Name, phase)
			for _, dry := range []bool{true, false} {
				if dry && phase == corev1.PodPending {
					continue // it takes its time once more and shows no more
				}
				e := s.evictor
				e.Timeout = 8 * time.Second // less than the API server tries for
				start := time.Now()
				var got evict.Answer
				deadline.Eventually(t, func() bool { // a second look that comes too late knows nothing
					got = e.Evict(t.Context(), victim(old), dry)
					return got.Outcome != evict.UnknownOutcome
				}, soon, 0)
				t.Logf("%s after %s: %s", got.Outcome, time.Since(start).Round(time.Millisecond), got.Text)
				assert.Equal(t, evict.NotFound, got.Outcome)
				assert.False(t, s.ends(pod))
			}
		})
	}
}

func TestEvictorPodNotFound(t *testing.T) {
	s := newScene(t, sharedPlane(t), "evict-gone")
	got := s.evictor.Evict(t.Context(), evict.Victim{UID: "u", Namespace: s.namespace, Name: "nobody"}, false)
	assert.Equal(t, evict.Answer{Time: got.Time, Outcome: evict.NotFound, Code: 404, Text: `pods "nobody" not found`}, got)
	got = s.evictor.Evict(t.Context(), evict.Victim{UID: "u", Namespace: "no-such-namespace", Name: "nobody"}, false)
	assert.Equal(t, evict.NotFound, got.Outcome, got.Text)
}

func TestEvictorBlockedByPDB(t *testing.T) {
	s := newScene(t, sharedPlane(t), "evict-budget")
	pod := s.pod("web-0", corev1.PodRunning)
	s.budget("web", 1)
	s.allows("web", 0)
	got := s.evictor.Evict(t.Context(), victim(pod), false)
	assert.Equal(t, evict.Blocked, got.Outcome, got.Text)
	assert.Equal(t, 429, got.Code)
	assert.Contains(t, got.Text, "The disruption budget web needs 1 healthy pods and has 1 currently")
	assert.False(t, s.ends(pod))

	s.pod("web-1", corev1.PodRunning)
	s.allows("web", 1)
	assert.Equal(t, evict.Evicted, s.evictor.Evict(t.Context(), victim(pod), true).Outcome)
	assert.False(t, s.ends(pod))
	assert.Equal(t, evict.Evicted, s.evictor.Evict(t.Context(), victim(pod), false).Outcome)
	assert.True(t, s.ends(pod))
}

func TestEvictorBlockedByTwoPDBs(t *testing.T) {
	s := newScene(t, sharedPlane(t), "evict-budgets")
	pod := s.pod("web-0", corev1.PodRunning)
	s.budget("one", 0)
	s.budget("two", 0)
	s.allows("two", 1)
	got := s.evictor.Evict(t.Context(), victim(pod), false)
	assert.Equal(t, evict.Blocked, got.Outcome, got.Text)
	assert.Equal(t, 500, got.Code)
	assert.False(t, s.ends(pod))
}

func TestEvictorNamespaceTerminating(t *testing.T) {
	s := newScene(t, sharedPlane(t), "evict-ending")
	ns, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "ending-"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.namespace = ns.Name
	deadline.Eventually(t, func() bool {
		_, err := s.Client.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, soon, 20*time.Millisecond)
	pod := s.pod("web-0", corev1.PodRunning) // nobody ends it for good, so the namespace stays
	require.NoError(t, s.Client.CoreV1().Namespaces().Delete(t.Context(), ns.Name, metav1.DeleteOptions{}))
	var got evict.Answer
	deadline.Eventually(t, func() bool {
		got = s.evictor.Evict(t.Context(), victim(pod), true)
		return got.Code == 403
	}, soon, 50*time.Millisecond)
	assert.Equal(t, evict.Blocked, got.Outcome, got.Text)
	now := int64(0)
	require.NoError(t, s.Client.CoreV1().Pods(ns.Name).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

func TestEvictorForbidden(t *testing.T) {
	s := newScene(t, sharedPlane(t), "evict-forbidden")
	pod := s.pod("web-0", corev1.PodRunning)
	path, err := s.ServiceAccount(t.Context(), s.namespace, "default", cluster.BoundTo{})
	require.NoError(t, err)
	e := Evictor{REST: clientOf(t, path).CoreV1().RESTClient()}
	got := e.Evict(t.Context(), victim(pod), false)
	assert.Equal(t, evict.Refused, got.Outcome, got.Text)
	assert.Equal(t, 403, got.Code)
	assert.False(t, s.ends(pod))
}

// An API server without controllers, which serves EvictionRequests.
func TestEvictOnBareAPIServer(t *testing.T) {
	c := cluster.New(t, cluster.Options{
		Without: []string{cluster.ControllerManager, cluster.Scheduler},
		Args:    map[string][]string{cluster.APIServer: {"--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"}},
	})
	t.Run("eviction requests", func(t *testing.T) { evictionRequestServed(t, c) })
	t.Run("it goes away", func(t *testing.T) { apiServerAway(t, c) })
}

func apiServerAway(t *testing.T, c *cluster.Cluster) {
	s := newScene(t, c, "evict-away")
	s.evictor.Timeout = 0 // the usual one
	pod := s.pod("web-0", corev1.PodRunning)

	s.budget("web", 0) // and nobody there to process it
	got := s.evictor.Evict(t.Context(), victim(pod), false)
	assert.Equal(t, evict.Blocked, got.Outcome, got.Text)
	assert.Equal(t, 10*time.Second, got.RetryAfter)

	require.NoError(t, c.APIServers[0].Pause())
	start := deadline.Start()
	got = s.evictor.Evict(t.Context(), victim(pod), false)
	t.Logf("paused: %s after %s: %s", got.Outcome, start.Passed(), got.Text)
	assert.Equal(t, evict.UnknownOutcome, got.Outcome)
	assert.Less(t, start.Elapsed(), 2*evict.CallTimeout)

	require.NoError(t, c.APIServers[0].Kill())
	s.evictor.Timeout = soon
	start = deadline.Start()
	got = s.evictor.Evict(t.Context(), victim(pod), false)
	t.Logf("killed: %s after %s: %s", got.Outcome, start.Passed(), got.Text)
	assert.Equal(t, evict.UnknownOutcome, got.Outcome)
	assert.Less(t, start.Elapsed(), soon/2)

	require.NoError(t, c.APIServers[0].Start())
	ready, cancel := deadline.Context(t.Context(), soon)
	defer cancel()
	require.NoError(t, c.APIServers[0].WaitReady(ready))
	assert.False(t, s.ends(pod), "an eviction that was not answered came through later")
}
