package resize

import (
	"context"
	"errors"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// node is one of a real API server, without a kubelet: the tests report what one would.
type node struct {
	*testing.T
	c         *cluster.Cluster
	name      string
	namespace string
	api       API // with the rights of the agent of this node
}

func newNode(t *testing.T, name string) *node {
	t.Helper()
	c := cluster.Shared(t, cluster.Options{Without: []string{cluster.ControllerManager, cluster.Scheduler}})
	err := Served(t.Context(), c.Client.CoreV1().RESTClient())
	if errors.Is(err, ErrNotServed) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.RBACResize, deploy.Identity))
	n := &node{T: t, c: c, name: name, namespace: c.Namespace(t)}
	_, err = c.AddNode(t.Context(), name, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
	})
	n.api = API{Core: n.as("plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: name}).CoreV1(), Node: name}
	return n
}

func (n *node) as(account string, to cluster.BoundTo) kubernetes.Interface {
	n.Helper()
	file, err := n.c.ServiceAccount(n.Context(), "plimsoll-system", account, to)
	require.NoError(n, err)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(n, err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	require.NoError(n, err)
	return client
}

// add a pod that runs, by what its kubelet reports.
func (n *node) add(name string, change func(p *corev1.Pod)) throttle.Container {
	n.Helper()
	p := burstable()
	p.Name, p.Namespace, p.UID, p.Spec.NodeName = name, n.namespace, "", n.name
	p.Spec.InitContainers[0].Image = "i"
	change(p)
	made, err := n.c.Client.CoreV1().Pods(n.namespace).Create(n.Context(), p, metav1.CreateOptions{})
	require.NoError(n, err)
	n.reports(name, made.Spec.Containers[0].Resources.Limits)
	return throttle.Container{Namespace: n.namespace, Pod: name, UID: string(made.UID)}
}

func (n *node) get(name string) *corev1.Pod {
	n.Helper()
	p, err := n.c.Client.CoreV1().Pods(n.namespace).Get(n.Context(), name, metav1.GetOptions{})
	require.NoError(n, err)
	return p
}

// reports is what a kubelet does when it has resized the first container.
func (n *node) reports(name string, limits corev1.ResourceList) {
	n.Helper()
	p := n.get(name)
	report := func(name string, limits corev1.ResourceList) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{
			Name: name, Image: "i", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			Resources: &corev1.ResourceRequirements{Limits: limits},
		}}
	}
	p.Status.Phase, p.Status.ContainerStatuses = corev1.PodRunning, report("app", limits)
	if len(p.Spec.InitContainers) > 1 {
		p.Status.InitContainerStatuses = report("proxy", p.Spec.InitContainers[1].Resources.Limits)
	}
	_, err := n.c.Client.CoreV1().Pods(n.namespace).UpdateStatus(n.Context(), p, metav1.UpdateOptions{})
	require.NoError(n, err)
}

// round makes an agent with this journal want so many cores of a pod; 0: none.
func (n *node) round(j *throttle.Journal, of throttle.Container, cores float64) (*Pass, error) {
	n.Helper()
	p := n.api.Pass(n.Context())
	j.Files, j.Save = p, p.Record
	want := map[throttle.Knob]float64{}
	if cores > 0 {
		knobs, err := p.Knobs("/"+of.UID, of)
		require.NoError(n, err)
		for _, k := range knobs {
			want[k] = cores
		}
	}
	return p, j.Set(want)
}

func (n *node) recorded() []throttle.Limit {
	n.Helper()
	of, err := n.c.Client.CoreV1().Nodes().Get(n.Context(), n.name, metav1.GetOptions{})
	require.NoError(n, err)
	list, err := Recorded(of)
	require.NoError(n, err)
	return list
}

func (n *node) resize(name, body string, dryRun ...string) error {
	_, err := n.c.Client.CoreV1().Pods(n.namespace).Patch(n.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{DryRun: dryRun}, "resize")
	return err
}

// replaced is a body with this quantity.
func replaced(body, quantity string) string { return strings.Replace(body, "%", quantity, 1) }

const limitOf = `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"%"}}}]}}`

// within waits for what the API server takes up to some seconds to see.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline.Eventually(t, is, 30*time.Second, 50*time.Millisecond, what)
}

// A pod is resized with the rights of the manifests, and the next agent, which knows only
// what the Node records, restores it.
func TestResizeAndRestoreOnServer(t *testing.T) {
	n := newNode(t, "restore")
	of := n.add("web", func(*corev1.Pod) {})
	within(t, "the rights are in force", func() bool { return n.api.Pass(t.Context()).Exempt(of) == "" })
	before := n.get("web").Spec
	j := &throttle.Journal{}
	within(t, "the rights are in force", func() bool { _, err := n.round(j, of, 0.3); return err == nil })
	spec := n.get("web").Spec
	assert.Equal(t, []string{"300m", "300m"}, []string{spec.Containers[0].Resources.Limits.Cpu().String(), spec.InitContainers[1].Resources.Limits.Cpu().String()})
	p, err := n.round(j, of, 0.3)
	require.NoError(t, err)
	target := throttle.Target{Cgroup: "/" + of.UID}
	assert.Equal(t, "the kubelet has not resized it", p.Resizing(j.Limits)[target].Why)
	n.reports("web", quantities("300m", "1Gi"))
	p, err = n.round(j, of, 0.3)
	require.NoError(t, err)
	assert.Empty(t, p.Resizing(j.Limits))

	next := &throttle.Journal{Limits: n.recorded()}
	require.Len(t, next.Limits, 2)
	_, err = n.round(next, of, 0)
	require.NoError(t, err)
	assert.Equal(t, before, n.get("web").Spec, "exactly as before")
	assert.Empty(t, n.recorded())
}

// Why some pods are exempt: what the API server itself says to their resize.
func TestExemptOnServer(t *testing.T) {
	n := newNode(t, "exempt")
	for name, c := range map[string]struct {
		change       func(p *corev1.Pod)
		resize, says string
	}{
		"best-effort": {func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Spec.Containers[0].Resources = nil, corev1.ResourceRequirements{}
		}, limitOf, "Pod QOS Class may not change as a result of resizing"},
		"guaranteed-by-limit": {func(p *corev1.Pod) {
			p.Spec.InitContainers = nil
			p.Spec.Containers[0].Resources.Requests = quantities("300m", "1Gi")
		}, limitOf, "Pod QOS Class may not change as a result of resizing"},
		"below-request": {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = quantities("400m", "64Mi") }, limitOf, "must be less than or equal to cpu limit"},
		"older-kubelet": {func(p *corev1.Pod) {}, limitOf, "Pod running on node without support for resize"},
	} {
		t.Run(name, func(t *testing.T) {
			n.add(name, c.change)
			if name == "older-kubelet" {
				p := n.get(name)
				p.Status.ContainerStatuses[0].Resources = nil
				_, err := n.c.Client.CoreV1().Pods(n.namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			require.ErrorContains(t, n.resize(name, replaced(c.resize, "300m")), c.says)
		})
	}
	t.Run("a limit that is added cannot be removed", func(t *testing.T) {
		n.add("no-limit", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = quantities("", "1Gi") })
		require.NoError(t, n.resize("no-limit", replaced(limitOf, "300m")))
		require.ErrorContains(t, n.resize("no-limit", `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":null}}}]}}`), "resource limits cannot be removed")
	})
}

// What a quota gets back another pod may take, and then it cannot be restored.
func TestQuotaOnServer(t *testing.T) {
	n := newNode(t, "quota")
	of := n.add("web", func(p *corev1.Pod) { p.Spec.InitContainers = nil })
	quotas := n.c.Client.CoreV1().ResourceQuotas(n.namespace)
	cpus := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceLimitsCPU: quantities(n, "")[corev1.ResourceCPU]}
	}
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: cpus("2")}}, metav1.CreateOptions{})
	require.NoError(t, err)
	within(t, "the rights are in force", func() bool { return n.api.Pass(t.Context()).Exempt(of) == "ResourceQuota q counts CPU limits" })
	// counted is what the quota controller does, which does not run here.
	counted := func(used string) {
		quota.Status = corev1.ResourceQuotaStatus{Hard: cpus("2"), Used: cpus(used)}
		quota, err = quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	counted("2")
	within(t, "the quota is in force", func() bool {
		return apierrors.IsForbidden(n.resize("web", replaced(limitOf, "2100m"), metav1.DryRunAll))
	})
	require.NoError(t, n.resize("web", replaced(limitOf, "1")))
	n.reports("web", quantities("1", "1Gi")) // until then it counts as before
	counted("1")
	taken := func() error {
		p := burstable()
		p.Name, p.Namespace, p.UID, p.Spec.NodeName = "taker", n.namespace, "", n.name
		p.Spec.InitContainers, p.Spec.Containers[0].Resources.Limits = nil, quantities("900m", "1Gi")
		_, err := n.c.Client.CoreV1().Pods(n.namespace).Create(t.Context(), p, metav1.CreateOptions{})
		return err
	}
	within(t, "another pod takes it", func() bool { return taken() == nil })
	require.ErrorContains(t, n.resize("web", replaced(limitOf, "2")), "exceeded quota: q")
}

// A refusal of the API server is seen, leaves nothing behind, and is not repeated.
func TestRefusedOnServer(t *testing.T) {
	n := newNode(t, "refused")
	of := n.add("web", func(*corev1.Pod) {})
	_, err := n.c.Client.CoreV1().LimitRanges(n.namespace).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "least"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Min: quantities("400m", "")}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	j, target := &throttle.Journal{}, throttle.Target{Cgroup: "/" + of.UID}
	within(t, "rights and LimitRange are in force", func() bool {
		return apierrors.IsForbidden(n.resize("web", replaced(limitOf, "1"), metav1.DryRunAll)) && n.api.Pass(t.Context()).Exempt(of) == ""
	})
	p, err := n.round(j, of, 0.3)
	require.ErrorContains(t, err, "minimum cpu usage per Container is 400m")
	assert.True(t, p.Refused()[target].Refused)
	assert.NotEmpty(t, n.recorded())
	_, err = n.round(j, of, 0)
	require.NoError(t, err)
	assert.Empty(t, n.recorded())
}

// What another writer changed meanwhile stays, and so does a pod of the same name.
func TestForeignOnServer(t *testing.T) {
	n := newNode(t, "foreign")
	of := n.add("web", func(p *corev1.Pod) { p.Spec.InitContainers = nil })
	j := &throttle.Journal{}
	within(t, "the rights are in force", func() bool { _, err := n.round(j, of, 0.3); return err == nil })
	require.NoError(t, n.resize("web", replaced(limitOf, "700m")))
	for _, cores := range []float64{0.3, 0} {
		_, err := n.round(j, of, cores)
		require.NoError(t, err)
		assert.Equal(t, "700m", n.get("web").Spec.Containers[0].Resources.Limits.Cpu().String())
	}
	assert.Empty(t, n.recorded())

	_, err := n.round(j, of, 0.3)
	require.NoError(t, err)
	require.NoError(t, n.c.Client.CoreV1().Pods(n.namespace).Delete(t.Context(), "web", *metav1.NewDeleteOptions(0)))
	n.add("web", func(p *corev1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers[0].Resources.Limits = nil, quantities("300m", "1Gi")
	})
	_, err = n.round(j, of, 0)
	require.NoError(t, err)
	assert.Equal(t, "300m", n.get("web").Spec.Containers[0].Resources.Limits.Cpu().String(), "another pod of that name")
	assert.Empty(t, n.recorded())
}

// A write between the read and the resize is not overwritten.
func TestConflictOnServer(t *testing.T) {
	n := newNode(t, "conflict")
	of := n.add("web", func(p *corev1.Pod) { p.Spec.InitContainers = nil })
	p := n.api.Pass(t.Context())
	within(t, "the rights are in force", func() bool { return n.api.Pass(t.Context()).Exempt(of) == "" })
	knobs, err := p.Knobs("/p", of)
	require.NoError(t, err)
	require.NoError(t, n.resize("web", replaced(limitOf, "700m")))
	require.True(t, apierrors.IsConflict(p.Set(knobs[0], 300)))
	assert.Equal(t, "700m", n.get("web").Spec.Containers[0].Resources.Limits.Cpu().String())
	now, err := p.Get(knobs[0])
	require.NoError(t, err)
	assert.EqualValues(t, 700, now, "it is read again")
}
