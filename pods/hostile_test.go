package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the owner of a workload can write: into its template, which the
// controller copies into each pod (labels, annotations, finalizers, the
// specification), and into the pods, where RBAC lets it change them.
func TestOwnerCannotProtectPod(t *testing.T) {
	for what, change := range map[string]func(*corev1.Pod){
		"a static pod's source, a file":  annotated("kubernetes.io/config.source", "file"),
		"a static pod's source, a URL":   annotated("kubernetes.io/config.source", "http"),
		"a static pod's source, empty":   annotated("kubernetes.io/config.source", ""),
		"a mirror pod's annotation":      annotated(configMirror, "0123"),
		"mirror, and owned by its Node":  func(p *corev1.Pod) { annotated(configMirror, "0")(p); ownedToo(p, owner("v1", "Node", nil)) },
		"mirror, a Node of another API":  func(p *corev1.Pod) { static("0")(p); p.OwnerReferences[0].APIVersion = "example.org/v1" },
		"a data mover's label, upload":   labelled("velero.io/data-upload", "du-1"),
		"a data mover's label, download": labelled("velero.io/data-download", "dd-1"),
		"a data mover's label, volume":   labelled("velero.io/pod-volume-backup", "pvb-1"),
		"a maintenance job's label, in its own namespace": func(p *corev1.Pod) {
			maintaining(p)
			p.Namespace = "shop"
		},
		"a data mover's label, empty": labelled("velero.io/pod-volume-restore", ""),
		"a mover's label, owned by a load too": func(p *corev1.Pod) {
			labelled("velero.io/data-upload", "d")(p)
			ownedToo(p, owner("velero.io/v1", "DataUpload", nil))
		},
		"a load of an API of another name": func(p *corev1.Pod) {
			mover("data-upload", "DataUpload")(p)
			p.OwnerReferences[0].APIVersion = "velero.io.example.org/v1"
		},
		"a DaemonSet as a second owner":  func(p *corev1.Pod) { ownedToo(p, owner("apps/v1", "DaemonSet", nil)) },
		"a DaemonSet of no such version": owned(owner("apps/v9", "DaemonSet", new(true))),
		"a DaemonSet of another API":     owned(owner("extensions.example.org/v1", "DaemonSet", new(true))),
		"the opt-out":                    annotated("plimsoll.dev/skip-eviction", "true"),
		"Katalyst's class":               annotated(qosLevel, "system_cores"),
		"critical by an annotation":      annotated("scheduler.alpha.kubernetes.io/critical-pod", ""),
		"critical by a class's name":     func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" },
		"safe to evict: no":              annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
		"tolerates everything":           func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} },
		"a finalizer":                    func(p *corev1.Pod) { p.Finalizers = []string{"example.org/stay"} },
		"a grace period of 30 days":      func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(30 * 24 * 3600)) },
		"a directory of the host": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"the host's network":                func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"a preference for this node":        func(p *corev1.Pod) { p.Spec.Affinity = preferring("n1") },
		"the record of its creation erased": recorded(metav1.ManagedFieldsEntry{}),
		"erased, then written to":           recorded(record(recordOfLabel, ""), record(recordOfStatus, "status")),
		"a claim that was deleted in use":   claiming("gone"),
	} {
		t.Run(what, func(t *testing.T) {
			pod, claims := made(change), claimsByName{"gone": {unbinding: true}}
			assert.Empty(t, protections(pod, claims, DefaultRules()))
			p := toPod(strip(pod), claims, DefaultRules())
			assert.Empty(t, p.Protections)
			assert.Equal(t, string(pod.UID), p.CgroupUID, "its cgroup is its own")
			known := p.known()
			assert.False(t, known.Mover || known.Maintenance, "nor is it a mover to others")
		})
	}
}

func ownedToo(p *corev1.Pod, o metav1.OwnerReference) {
	o.Name = p.Spec.NodeName
	p.OwnerReferences = append(p.OwnerReferences, o)
}

func preferring(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 100, Preference: expr(host("In", node)),
	}}}}
}

// A hash in an annotation names another pod's cgroup, and whoever has the
// annotation would be shown, judged and evicted in its place.
func TestCgroupUIDOnlyOfStaticPod(t *testing.T) {
	for what, row := range map[string]struct {
		pod *corev1.Pod
		uid string
	}{
		"static":                         {made(static("victim")), "victim"},
		"a hash":                         {made(annotated(configHash, "victim")), "u1"},
		"a hash, and mirror":             {made(annotated(configHash, "victim"), annotated(configMirror, "victim")), "u1"},
		"static, as of another node":     {made(static("victim"), func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), "u1"},
		"its Node is not its controller": {made(static("victim"), func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), "u1"},
	} {
		assert.Equal(t, row.uid, toPod(strip(row.pod), nil, DefaultRules()).CgroupUID, what)
	}
}

// Memory within a request was promised to the pod, which goes after others for
// it. A request counts as far as a kubelet or a scheduler granted it.
func TestRequestCountsAsAllocated(t *testing.T) {
	gib := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(n<<30, resource.BinarySI)}
	}
	pod := func(asks, granted corev1.ResourceList) *corev1.Pod {
		return made(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = asks
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "other", AllocatedResources: gib(0)}, {Name: "a", AllocatedResources: granted}}
		})
	}
	sidecar := made(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: gib(900)}}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "s", AllocatedResources: gib(2)}}
	})
	whole := made(func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: gib(900)}
		p.Status.AllocatedResources = gib(3)
	})
	for what, row := range map[string]struct {
		pod *corev1.Pod
		gib uint64
	}{
		"as it was scheduled":                  {pod(gib(1), nil), 1},
		"granted":                              {pod(gib(4), gib(4)), 4},
		"more than was granted":                {pod(gib(900), gib(1)), 1},
		"less than was granted":                {pod(gib(1), gib(4)), 1},
		"granted another resource alone":       {pod(gib(1), corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}), 1},
		"a sidecar's":                          {sidecar, 2},
		"the pod's as a whole":                 {whole, 3},
		"nothing asked for, something granted": {pod(nil, gib(1)), 0},
	} {
		stripped := strip(row.pod)
		assert.Equal(t, row.gib<<30, toPod(stripped, nil, DefaultRules()).MemoryRequestBytes, what)
		assert.Equal(t, stripped, strip(stripped), what)
	}
}

// Only what the kubelet says with its condition is kept of what it says.
func TestKubeletMessageOnlyOfPressure(t *testing.T) {
	const low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
	ended := func(change func(*corev1.PodCondition)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: low}
			change(&c)
			p.Status.Phase, p.Status.Reason, p.Status.Message, p.Status.Conditions = corev1.PodFailed, "Evicted", low, []corev1.PodCondition{{Type: corev1.PodReady}, c}
		}
	}
	for what, row := range map[string]struct {
		change func(*corev1.PodCondition)
		kept   string
	}{
		"by the kubelet":        {func(*corev1.PodCondition) {}, low},
		"by the API":            {func(c *corev1.PodCondition) { c.Reason = "EvictionByEvictionAPI" }, ""},
		"not any more":          {func(c *corev1.PodCondition) { c.Status = corev1.ConditionFalse }, ""},
		"of another condition":  {func(c *corev1.PodCondition) { c.Type = "example.org/Target" }, ""},
		"without any condition": {func(c *corev1.PodCondition) { *c = corev1.PodCondition{} }, ""},
	} {
		pod := strip(made(ended(row.change)))
		assert.Equal(t, row.kept, toPod(pod, nil, DefaultRules()).StatusMessage, what)
		assert.Equal(t, pod, strip(pod), what)
	}
}
