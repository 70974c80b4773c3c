package pods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

func TestWhoNamedNodeOnAPIServer(t *testing.T) {
	l, c := shared(t)
	w := l.watcher(c.Admin)
	l.create(podOf("scheduled", func(p *corev1.Pod) { p.Spec.SchedulerName = "" }, selecting("test", l.namespace)))
	l.bind(podOf("bound"))
	l.create(podOf("named", on(l.node)))
	applied := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"applied"},"spec":{"nodeName":"` + l.node + `","containers":[{"name":"a","image":"x"}]}}`
	_, err := l.client.CoreV1().Pods(l.namespace).Patch(t.Context(), "applied", types.ApplyPatchType, []byte(applied), metav1.PatchOptions{FieldManager: "m"})
	require.NoError(t, err)
	l.bind(podOf("erased"))
	l.patch("erased", `{"metadata":{"managedFields":[{}]}}`)
	l.patch("erased", `{"metadata":{"labels":{"a":"b"}}}`)
	_, err = l.client.CoreV1().Pods(l.namespace).Patch(t.Context(), "bound", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"a","image":"y"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	for name, want := range map[string]string{
		"scheduled": "", "bound": "", "applied": "set spec.nodeName", "named": "set spec.nodeName", "erased": "",
	} {
		var why []string
		l.eventually(name, func() bool {
			p, found := find(w, name)
			why = nil
			for _, protection := range p.Protections {
				if protection.Code == OnlyHere {
					why = append(why, protection.Why)
				}
			}
			return found
		})
		if want == "" {
			assert.Empty(t, why, name)
			continue
		}
		assert.Len(t, why, 1, name)
		assert.Contains(t, strings.Join(why, ""), want, name)
	}
}

func TestControllerPodProtections(t *testing.T) {
	l, c := shared(t)
	w := l.watcher(c.Admin)
	labels := map[string]string{"app": "x"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"test": l.namespace},
		Containers:   []corev1.Container{{Name: "a", Image: "x", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}}}},
	}}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	_, err := l.client.AppsV1().Deployments(l.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	p := l.seen(w, "web-")
	assert.Empty(t, p.Protections, "a Deployment's pod can be evicted")
	assert.Equal(t, "ReplicaSet", p.Owner.Kind)
	assert.EqualValues(t, 1<<20, p.MemoryRequestBytes)
	assert.Equal(t, "Burstable", p.QoS)

	labels["app"] = "y"
	_, err = l.client.AppsV1().DaemonSets(l.namespace).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "node-agent"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{DaemonSet, OnlyHere}, codes(l.seen(w, "node-agent-").Protections), "its controller asks for this node by name")
}

// The picture is made as a kubelet makes it, by the user it is.
func TestStaticPodCgroupHash(t *testing.T) {
	l, c := shared(t)
	w := l.watcher(c.Admin)
	user, err := c.User("system:node:"+l.node, "system:nodes")
	require.NoError(t, err)
	kubelet, err := kubernetes.NewForConfig(user)
	require.NoError(t, err)
	node, err := l.client.CoreV1().Nodes().Get(t.Context(), l.node, metav1.GetOptions{})
	require.NoError(t, err)
	const hash = "0123456789abcdef0123456789abcdef"
	_, err = kubelet.CoreV1().Pods(l.namespace).Create(t.Context(), podOf("etcd", on(l.node), annotated(configMirror, hash), annotated(configHash, hash), annotated("kubernetes.io/config.source", "file"),
		owned(metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: l.node, UID: node.UID, Controller: new(true)}), func(p *corev1.Pod) {
			p.Spec.PriorityClassName = "system-node-critical"
		}), metav1.CreateOptions{})
	require.NoError(t, err)
	l.seen(w, "etcd")
	p, found := w.List(DefaultRules()).ByCgroupUID(hash)
	require.True(t, found)
	assert.Equal(t, []string{Static, Critical, NoController, OnlyHere}, codes(p.Protections))
}
