package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Every pod of the node presses, none of them may go.
func TestEvictProtectedPods(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	mib := 100
	w.priorityClass("plimsoll-e2e-critical", 1_000_000_000) // the highest that is not the system's own
	w.daemonSet("daemonset", mib)
	w.bare("bare", mib)
	w.static("static", mib)
	w.mover("mover", mib)
	w.inNamespace(metav1.NamespaceSystem).deploy("system", mib, nil)
	t.Cleanup(func() { w.inNamespace(metav1.NamespaceSystem).undeploy("system") })
	w.localVolume("volume", mib)
	w.deploy("critical", mib, func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = "plimsoll-e2e-critical" })
	w.deploy("placed", mib, func(p *corev1.PodTemplateSpec) { p.Spec.NodeName = w.node })
	w.deploy("pinned", mib, func(p *corev1.PodTemplateSpec) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: w.node}
	})
	w.deploy("opted-out", mib, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{"plimsoll.dev/skip-eviction": "true"}
	})
	w.deploy("small", 1, nil)
	w.more = fmt.Sprintf(", protect: {priority: 1000000000}, optOutHard: [%s]", w.namespace)
	w.configure()
	want := map[string]evict.Code{
		"daemonset": pods.DaemonSet, "bare": pods.NoController, "static": pods.Static, "volume": pods.OnlyHere,
		"critical": pods.Critical, "placed": pods.OnlyHere, "pinned": pods.OnlyHere, "mover": pods.Mover,
		"opted-out": evict.CodeOptedOut, "small": evict.CodeTooSmall,
	}
	for app := range want {
		w.running(app)
	}
	system := w.inNamespace(metav1.NamespaceSystem).running("system")
	want["system"] = pods.Namespace
	w.start()
	w.seen(system, uint64(mib)*9/10)
	for app := range want {
		if app != "small" && app != "system" {
			w.seen(w.running(app), uint64(mib)*9/10)
		}
	}
	w.press(true)
	d := w.decided("nobody goes", func(d evict.Decision) bool { return d.Code == evict.CodeNone })
	w.noEvictionFor(patience / 10)
	w.calm()
	assert.Empty(t, w.evicted())
	for app, code := range want {
		c := candidate(t, d, app)
		assert.Equal(t, code, c.Code, "%s: %s", app, c.Reason)
		assert.NotEmpty(t, c.Reason)
		t.Logf("%-10s %-14s %s", app, c.Code, c.Reason)
	}
}

// candidate of a decision, by the app that its name begins with.
func candidate(t *testing.T, d evict.Decision, app string) evict.Considered {
	t.Helper()
	for _, c := range d.Candidates {
		if c.Pod != nil && strings.HasPrefix(c.Pod.Name, app) {
			return c
		}
	}
	t.Fatalf("%s is not among the candidates of %+v", app, d)
	return evict.Considered{}
}

func (w *world) priorityClass(name string, value int32) {
	w.t.Helper()
	_, err := w.c.Client.SchedulingV1().PriorityClasses().Create(w.t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		assert.NoError(w.t, w.c.Client.SchedulingV1().PriorityClasses().Delete(contextWithoutCancel(w.t), name, metav1.DeleteOptions{}))
	})
}

func (w *world) template(app string, mib int) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeSelector: w.here(), Containers: []corev1.Container{holder(mib)}},
	}
}

func (w *world) daemonSet(app string, mib int) {
	w.t.Helper()
	_, err := w.c.Client.AppsV1().DaemonSets(w.namespace).Create(w.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: w.template(app, mib),
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// bare is a pod without a controller.
func (w *world) bare(app string, mib int) { w.pod(app, mib, func(*corev1.Pod) {}) }

// static is a pod such as a kubelet shows of a static one; the StandIn runs it as
// any other.
func (w *world) static(app string, mib int) {
	node := w.getNode()
	w.pod(app, mib, func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "0123456789abcdef0123456789abcdef"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true)}}
		p.Spec.NodeName = w.node
	})
}

// mover is a pod such as Velero makes to move data, but that its load is not
// there.
func (w *world) mover(app string, mib int) {
	w.pod(app, mib, func(p *corev1.Pod) { p.Labels["velero.io/data-upload"] = "nightly-1" })
}

// pod is one that no controller makes.
func (w *world) pod(app string, mib int, change func(*corev1.Pod)) {
	w.t.Helper()
	t := w.template(app, mib)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Labels: t.Labels}, Spec: t.Spec}
	change(p)
	_, err := w.c.Client.CoreV1().Pods(w.namespace).Create(w.t.Context(), p, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// inNamespace is the same world, seen from another namespace.
func (w *world) inNamespace(name string) *world {
	return &world{t: w.t, c: w.c, namespace: name, node: w.node, agent: w.agent}
}

func (w *world) undeploy(name string) {
	w.t.Helper()
	assert.NoError(w.t, w.c.Client.AppsV1().Deployments(w.namespace).Delete(contextWithoutCancel(w.t), name, metav1.DeleteOptions{}))
}

// localVolume is a Deployment whose pod mounts a local volume of the node.
func (w *world) localVolume(app string, mib int) {
	w.t.Helper()
	core, ctx, none := w.c.Client.CoreV1(), w.t.Context(), ""
	room := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	name := app + "-" + w.namespace
	_, err := core.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: room, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/none"}},
			ClaimRef:                      &corev1.ObjectReference{Namespace: w.namespace, Name: app},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{w.node}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		assert.NoError(w.t, core.PersistentVolumes().Delete(contextWithoutCancel(w.t), name, metav1.DeleteOptions{}))
	})
	_, err = core.PersistentVolumeClaims(w.namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &none, VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: room},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.deploy(app, mib, func(p *corev1.PodTemplateSpec) {
		p.Spec.Volumes = []corev1.Volume{{
			Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: app}},
		}}
	})
}
