package resize

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/throttle"
)

func quantities(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

// burstable is a pod that may be resized: container app may use 2 CPUs, and sidecar
// proxy half of one.
func burstable() *corev1.Pod {
	container := func(name, request, limit string) corev1.Container {
		return corev1.Container{Name: name, Image: "i", Resources: corev1.ResourceRequirements{Requests: quantities(request, "64Mi"), Limits: quantities(limit, "1Gi")}}
	}
	proxy := container("proxy", "100m", "500m")
	proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	status := func(name, limit string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, Resources: &corev1.ResourceRequirements{Limits: quantities(limit, "1Gi")}}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{container("app", "250m", "2")}, InitContainers: []corev1.Container{{Name: "setup"}, proxy}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
			ContainerStatuses: status("app", "2"), InitContainerStatuses: status("proxy", "500m"),
		},
	}
}

func TestExempt(t *testing.T) {
	cpuPolicy := func(p corev1.ResourceResizeRestartPolicy) []corev1.ContainerResizePolicy {
		return []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}, {ResourceName: corev1.ResourceCPU, RestartPolicy: p}}
	}
	condition := func(kind corev1.PodConditionType) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: kind, Status: corev1.ConditionTrue}}
	}
	for name, c := range map[string]struct {
		change func(p *corev1.Pod)
		want   string
	}{
		"Burstable with limits":      {func(*corev1.Pod) {}, ""},
		"without a restart":          {func(p *corev1.Pod) { p.Spec.Containers[0].ResizePolicy = cpuPolicy(corev1.NotRequired) }, ""},
		"an earlier resize is over":  {func(p *corev1.Pod) { p.Status.Conditions = condition(corev1.PodReady) }, ""},
		"an empty limit of the pod":  {func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} }, ""},
		"Guaranteed":                 {func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }, "it is Guaranteed, not Burstable"},
		"BestEffort":                 {func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort }, "it is BestEffort, not Burstable"},
		"static":                     {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, "it is a static pod"},
		"pending":                    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, "it does not run, or is being ended"},
		"terminating":                {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, "it does not run, or is being ended"},
		"limits of the pod":          {func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Limits: quantities("1", "")} }, "its resources are set at pod level"},
		"VerticalPodAutoscaler":      {func(p *corev1.Pod) { p.Annotations = map[string]string{vpaContainers: "app"} }, "a VerticalPodAutoscaler resizes it"},
		"a resize waits":             {func(p *corev1.Pod) { p.Status.Conditions = condition(corev1.PodResizePending) }, "another resize of it is not finished"},
		"a resize is in progress":    {func(p *corev1.Pod) { p.Status.Conditions = condition(corev1.PodResizeInProgress) }, "another resize of it is not finished"},
		"no limit":                   {func(p *corev1.Pod) { delete(p.Spec.Containers[0].Resources.Limits, corev1.ResourceCPU) }, "container app has no CPU limit, and one that is added cannot be removed again"},
		"a sidecar has no limit":     {func(p *corev1.Pod) { p.Spec.InitContainers[1].Resources.Limits = nil }, "container proxy has no CPU limit, and one that is added cannot be removed again"},
		"a restart":                  {func(p *corev1.Pod) { p.Spec.Containers[0].ResizePolicy = cpuPolicy(corev1.RestartContainer) }, "container app restarts when its CPU is resized"},
		"an older kubelet":           {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources = nil }, "container app is not reported with its resources: its kubelet does not resize"},
		"a container without status": {func(p *corev1.Pod) { p.Status.InitContainerStatuses = nil }, "container proxy is not reported with its resources: its kubelet does not resize"},
		"many containers": {func(p *corev1.Pod) {
			for range maxContainers {
				p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
			}
		}, "it has more than 8 containers"},
	} {
		t.Run(name, func(t *testing.T) {
			p := burstable()
			c.change(p)
			assert.Equal(t, c.want, exempt(p))
		})
	}
}

func TestAtLeast(t *testing.T) {
	p := burstable()
	m, there := find(p, "app") // requests 250m
	require.True(t, there)
	for millicores, want := range map[float64]uint64{0: 260, 250: 260, 261: 270, 270: 270, 399.6: 400, 1999: 2000} {
		assert.Equal(t, want, m.atLeast(millicores), millicores)
	}
	m.Resources.Requests = nil
	assert.EqualValues(t, 10, m.atLeast(0))
	_, there = find(p, "setup")
	assert.False(t, there, "an init container does not run beside the others")
}

func FuzzAtLeast(f *testing.F) {
	f.Add(int64(250), 300.0)
	f.Add(int64(0), 0.0)
	f.Fuzz(func(t *testing.T, request int64, millicores float64) {
		if request < 0 || request > 1e9 || !(millicores >= 0 && millicores < 1e9) {
			t.Skip("neither is a CPU")
		}
		m := member{Container: &corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(request, resource.DecimalSI)}}}}
		got := m.atLeast(millicores)
		assert.Greater(t, got, uint64(request), "it would become Guaranteed")
		assert.GreaterOrEqual(t, float64(got), float64(uint64(millicores)), "less than a fifth of what it used")
		assert.GreaterOrEqual(t, got, uint64(leastMillicores))
		assert.Zero(t, got%leastMillicores)
		assert.LessOrEqual(t, float64(got), max(millicores, float64(request+1), leastMillicores)+leastMillicores)
	})
}

func TestResizing(t *testing.T) {
	const waits = "the kubelet has not resized it"
	condition := func(kind corev1.PodConditionType, reason string, generation int64) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: "node is full", ObservedGeneration: generation}}
	}
	for name, c := range map[string]struct {
		reported   string
		conditions []corev1.PodCondition
		want       throttle.Resizing
	}{
		"in effect":                       {"300m", nil, throttle.Resizing{}},
		"in effect, rounded by systemd":   {"309m", nil, throttle.Resizing{}},
		"not yet":                         {"2", nil, throttle.Resizing{Why: waits}},
		"only nearly":                     {"310m", nil, throttle.Resizing{Why: waits}},
		"not reported":                    {"", nil, throttle.Resizing{Why: waits}},
		"deferred":                        {"2", condition(corev1.PodResizePending, corev1.PodReasonDeferred, 3), throttle.Resizing{Why: waits + ": Deferred: node is full"}},
		"infeasible":                      {"2", condition(corev1.PodResizePending, corev1.PodReasonInfeasible, 3), throttle.Resizing{Why: waits + ": Infeasible: node is full", Refused: true}},
		"infeasible, without generation":  {"2", condition(corev1.PodResizePending, corev1.PodReasonInfeasible, 0), throttle.Resizing{Why: waits + ": Infeasible: node is full", Refused: true}},
		"infeasible, of an earlier write": {"2", condition(corev1.PodResizePending, corev1.PodReasonInfeasible, 2), throttle.Resizing{Why: waits}},
		"failed so far":                   {"2", condition(corev1.PodResizeInProgress, corev1.PodReasonError, 3), throttle.Resizing{Why: waits + ": Error: node is full"}},
		"in progress":                     {"2", condition(corev1.PodResizeInProgress, "", 3), throttle.Resizing{Why: waits}},
		"in effect, and another fails":    {"300m", condition(corev1.PodResizePending, corev1.PodReasonInfeasible, 3), throttle.Resizing{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := burstable()
			p.Generation, p.Status.Conditions = 3, c.conditions
			p.Status.ContainerStatuses[0].Resources.Limits = quantities(c.reported, "")
			m, there := find(p, "app")
			require.True(t, there)
			assert.Equal(t, c.want, m.resizing(p, &throttle.Limit{Value: 300}))
		})
	}
}

func TestRecorded(t *testing.T) {
	limit := throttle.Limit{
		Knob:     throttle.Knob{Cgroup: "/pod1", Name: throttle.Resize, Container: throttle.Container{Namespace: "shop", Pod: "web", UID: "1", Name: "app"}},
		Original: 2000, Replaced: 2000, Value: 300, Written: true,
	}
	of := func(change func(l *throttle.Limit)) throttle.Limit {
		l := limit
		change(&l)
		return l
	}
	all := []throttle.Limit{
		limit, limit,
		of(func(l *throttle.Limit) { l.Name, l.Container.Name = throttle.CPU, "b" }),
		of(func(l *throttle.Limit) { l.Container.Name = "" }),
		of(func(l *throttle.Limit) { l.Container.Name, l.Original = "c", 0 }),
		of(func(l *throttle.Limit) { l.Container.Name, l.Value = "d", 0 }),
		of(func(l *throttle.Limit) { l.Container.UID, l.Foreign = "2", true }),
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{Annotation: jsonOf(t, all)}}}
	got, err := Recorded(node)
	require.NoError(t, err)
	assert.Equal(t, []throttle.Limit{limit, all[6]}, got, "what no agent writes is left out")
	node.Annotations[Annotation] = "{"
	_, err = Recorded(node)
	require.ErrorContains(t, err, "annotation plimsoll.dev/resized of Node n1: ")
	got, err = Recorded(&corev1.Node{})
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestRecordPatch(t *testing.T) {
	body, err := recordPatch(nil)
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"annotations":{"plimsoll.dev/resized":null}}}`, string(body))
}

func FuzzRecorded(f *testing.F) {
	f.Add(`[{"cgroup":"/p","name":"resize","container":{"namespace":"a","pod":"b","uid":"c","name":"d"},"before":2,"ours":1}]`)
	f.Add(`[{}]`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Recorded(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{Annotation: text}}})
		assert.LessOrEqual(t, len(list), maxRecorded)
		for _, l := range list {
			require.NoError(t, err)
			assert.True(t, l.Name == throttle.Resize && l.Original > 0 && l.Value > 0 && l.Container.UID != "")
		}
	})
}
