package pods

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-dev/plimsoll/probes"
)

func TestAPodsMemoryRequestIsWhatTheSchedulerSetsAside(t *testing.T) {
	const mi = 1 << 20
	for what, row := range map[string]struct {
		spec corev1.PodSpec
		want uint64
	}{
		"nobody asks":                     {corev1.PodSpec{Containers: []corev1.Container{container("")}}, 0},
		"containers together":             {corev1.PodSpec{Containers: []corev1.Container{container("100Mi"), container(""), container("50Mi")}}, 150 * mi},
		"a small init container":          {corev1.PodSpec{Containers: []corev1.Container{container("100Mi")}, InitContainers: []corev1.Container{container("60Mi"), container("70Mi")}}, 100 * mi},
		"a large init container":          {corev1.PodSpec{Containers: []corev1.Container{container("100Mi")}, InitContainers: []corev1.Container{container("300Mi"), container("200Mi")}}, 300 * mi},
		"a sidecar beside containers":     {corev1.PodSpec{Containers: []corev1.Container{container("100Mi")}, InitContainers: []corev1.Container{sidecar("30Mi")}}, 130 * mi},
		"a sidecar beside init":           {corev1.PodSpec{Containers: []corev1.Container{container("100Mi")}, InitContainers: []corev1.Container{sidecar("30Mi"), container("200Mi")}}, 230 * mi},
		"an init container before it":     {corev1.PodSpec{Containers: []corev1.Container{container("100Mi")}, InitContainers: []corev1.Container{container("200Mi"), sidecar("30Mi")}}, 200 * mi},
		"sidecars add up":                 {corev1.PodSpec{InitContainers: []corev1.Container{sidecar("30Mi"), sidecar("40Mi"), container("5Mi")}}, 75 * mi},
		"the pod as a whole":              {corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: asking("500Mi")}, Containers: []corev1.Container{container("100Mi")}}, 500 * mi},
		"the pod as a whole, CPU only":    {corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}, Containers: []corev1.Container{container("100Mi")}}, 100 * mi},
		"the runtime's overhead on top":   {corev1.PodSpec{Overhead: asking("120Mi"), Containers: []corev1.Container{container("100Mi")}}, 220 * mi},
		"a request below nothing is none": {corev1.PodSpec{Containers: []corev1.Container{container("-1Mi"), container("1Mi")}}, mi},
	} {
		t.Run(what, func(t *testing.T) {
			assert.Equal(t, row.want, memoryRequest(&row.spec))
		})
	}
}

// lent is what a pod of Katalyst's reclaimed_cores asks for.
func lent(millicpu, memory string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		"resource.katalyst.kubewharf.io/reclaimed_millicpu": resource.MustParse(millicpu),
		"resource.katalyst.kubewharf.io/reclaimed_memory":   resource.MustParse(memory),
	}}}
}

func TestCPUsAreCountedAsMemoryIsInThousandthsOfACore(t *testing.T) {
	cpus := func(n string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}}}
	}
	aside := cpus("30m")
	aside.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	spec := corev1.PodSpec{
		Containers: []corev1.Container{cpus("1"), cpus("250m")}, InitContainers: []corev1.Container{aside},
		Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")},
	}
	assert.EqualValues(t, 1290, cpuRequest(&spec))
	assert.Zero(t, memoryRequest(&spec))
}

func TestWhatAPodBorrowsIsPartOfWhatItAsksFor(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{lent("44k", "2Gi"), container("1Gi")}}
	assert.EqualValues(t, 44_000+7000, cpuRequest(&spec))
	assert.EqualValues(t, 3<<30, memoryRequest(&spec))
}

func TestAPodHasALimitOnlyIfEachContainerThatStaysHasOne(t *testing.T) {
	const mi = 1 << 20
	bound := func(memory string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: asking(memory)}}
	}
	beside := bound("30Mi")
	beside.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	for what, row := range map[string]struct {
		spec corev1.PodSpec
		want uint64
	}{
		"each has one":                 {corev1.PodSpec{Containers: []corev1.Container{bound("100Mi"), bound("50Mi")}}, 150 * mi},
		"one has none":                 {corev1.PodSpec{Containers: []corev1.Container{bound("100Mi"), bound("")}}, 0},
		"a sidecar stays":              {corev1.PodSpec{Containers: []corev1.Container{bound("100Mi")}, InitContainers: []corev1.Container{beside}}, 130 * mi},
		"an init container goes":       {corev1.PodSpec{Containers: []corev1.Container{bound("100Mi")}, InitContainers: []corev1.Container{bound(""), bound("900Mi")}}, 100 * mi},
		"the pod as a whole":           {corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: asking("500Mi")}, Containers: []corev1.Container{bound("")}}, 500 * mi},
		"the runtime's overhead added": {corev1.PodSpec{Overhead: asking("20Mi"), Containers: []corev1.Container{bound("100Mi")}}, 120 * mi},
	} {
		t.Run(what, func(t *testing.T) {
			assert.Equal(t, row.want, limit(&row.spec, memory))
		})
	}
}

func TestAPodSaysItselfHowFarItsRSSMayGo(t *testing.T) {
	for text, want := range map[string]float64{
		`{"rss_overuse_threshold":"1.5"}`:                       1.5,
		`{"numa_binding":"true","rss_overuse_threshold":"0.8"}`: 0.8,
		`{"numa_binding":"true"}`:                               0,
		`{"rss_overuse_threshold":1.5}`:                         0, // Katalyst writes texts
		`{"rss_overuse_threshold":"much"}`:                      0,
		`{"rss_overuse_threshold":"-1"}`:                        0,
		`{"rss_overuse_threshold":"NaN"}`:                       0,
		`{"rss_overuse_threshold":"+Inf"}`:                      0,
		`{"rss_overuse_threshold":"1.50000000000000000000000"}`: 0,
		`1.5`: 0,
		``:    0,
	} {
		pod := strip(made(annotated(memoryEnhancement, text), annotated("app/secret", "s")))
		assert.Equal(t, want, rssOveruse(pod), text)
		assert.Equal(t, pod, strip(pod), "a stripped pod stays as it is: %s", text)
		assert.NotContains(t, pod.Annotations[memoryEnhancement], "numa_binding", "nothing else of it is kept")
	}
}

func TestRulesSeeEachPodOnceAndNoneThatHasEnded(t *testing.T) {
	mover := made(mover("data-upload", "DataUpload"), func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = asking("1Ki") })
	ended := made(func(p *corev1.Pod) { p.UID, p.Status.Phase = "u2", corev1.PodSucceeded })
	old := made(static("h"), func(p *corev1.Pod) { p.UID = "u3" })
	newer := made(static("h"), func(p *corev1.Pod) { p.UID, p.Name = "u4", "newer" })
	newer.CreationTimestamp.Time = old.CreationTimestamp.Add(1)
	var list List
	for _, p := range []*corev1.Pod{mover, ended, old, newer} {
		list.Pods = append(list.Pods, describe(p, nil, DefaultRules()))
	}
	want := []probes.Pod{
		{UID: "u1", Namespace: "shop", Name: "web-1", QoS: "Burstable", Priority: 1000, CPURequestMillicores: 7000, MemoryRequestBytes: 1024, Mover: true},
		{UID: "h", Namespace: "shop", Name: "newer", QoS: "Burstable", Priority: 1000},
	}
	if diff := cmp.Diff(want, list.Known()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
