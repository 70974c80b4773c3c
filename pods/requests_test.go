package pods

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestMemoryRequest(t *testing.T) {
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

func TestStorageRequest(t *testing.T) {
	asks := func(n string) corev1.Container {
		return corev1.Container{Name: n, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(n)}}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{asks("1Gi"), container("100Mi"), asks("2Gi")}, InitContainers: []corev1.Container{asks("1Gi")}}}
	pod.Spec.Containers[1].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Ti")}
	of := toPod(strip(pod), nil, DefaultRules())
	assert.EqualValues(t, 3<<30, of.StorageRequestBytes, "a limit is no request")
	assert.EqualValues(t, 3<<30, of.known().StorageRequestBytes)
}

// reclaimed is what a pod of Katalyst's reclaimed_cores asks for.
func reclaimed(millicpu, memory string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		"resource.katalyst.kubewharf.io/reclaimed_millicpu": resource.MustParse(millicpu),
		"resource.katalyst.kubewharf.io/reclaimed_memory":   resource.MustParse(memory),
	}}}
}

func TestCPURequest(t *testing.T) {
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

func TestReclaimedPartOfRequest(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{reclaimed("44k", "2Gi"), container("1Gi")}}
	assert.EqualValues(t, 44_000+7000, cpuRequest(&spec))
	assert.EqualValues(t, 3<<30, memoryRequest(&spec))
}

func TestPodLimits(t *testing.T) {
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

func TestRSSOveruseAnnotationParse(t *testing.T) {
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

func TestSnapshotPodsOnceNoneEnded(t *testing.T) {
	mover := made(mover("data-upload", "DataUpload"), func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = asking("1Ki") })
	ended := made(func(p *corev1.Pod) { p.UID, p.Status.Phase = "u2", corev1.PodSucceeded })
	old := made(static("h"), func(p *corev1.Pod) { p.UID, p.Name = "u3", "etcd" })
	newer := made(static("h"), func(p *corev1.Pod) { p.UID, p.Name = "u4", "newer" })
	newer.CreationTimestamp.Time = old.CreationTimestamp.Add(1)
	var list List
	failed := made(func(p *corev1.Pod) { p.UID, p.Status.Phase = "u5", corev1.PodFailed })
	for _, p := range []*corev1.Pod{mover, ended, failed, old, newer} {
		list.Pods = append(list.Pods, toPod(p, nil, DefaultRules()))
	}
	want := []snapshot.Pod{
		{UID: "u1", Namespace: "shop", Name: "web-1", QoS: "Burstable", Priority: 1000, CPURequestMillicores: 7000, MemoryRequestBytes: 1024, Mover: true},
		{UID: "h", Namespace: "shop", Name: "etcd", QoS: "Burstable", Priority: 1000},
	}
	if diff := cmp.Diff(want, list.ForRules()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestResourceListReclaimed(t *testing.T) {
	list := func(of ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(of); i += 2 {
			l[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
		}
		return l
	}
	for what, row := range map[string]struct {
		list corev1.ResourceList
		of   quantity
		want uint64
		says bool
	}{
		"nothing":                       {list("cpu", "1"), memory, 0, false},
		"memory":                        {list("memory", "5"), memory, 5, true},
		"reclaimed memory alone":        {list(string(reclaimedMemory), "7"), memory, 7, true},
		"reclaimed memory below 0":      {list("memory", "5", string(reclaimedMemory), "-7"), memory, 5, true},
		"memory below 0":                {list("memory", "-5", string(reclaimedMemory), "7"), memory, 7, true},
		"nothing of CPUs":               {list("memory", "1"), cpu, 0, false},
		"CPUs":                          {list("cpu", "2"), cpu, 2000, true},
		"reclaimed CPUs alone":          {list(string(reclaimedMillicpu), "30"), cpu, 30, true},
		"CPUs below 0":                  {list("cpu", "-2", string(reclaimedMillicpu), "30"), cpu, 30, true},
		"reclaimed CPUs that are below": {list("cpu", "2", string(reclaimedMillicpu), "-30"), cpu, 2000, true},
	} {
		got, says := row.of(row.list)
		assert.Equal(t, row.want, got, what)
		assert.Equal(t, row.says, says, what)
	}
}

func TestPodLimitNone(t *testing.T) {
	bound := func(memory string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: asking(memory)}}
	}
	once := bound("900Mi")
	once.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	const mi = 1 << 20
	for what, row := range map[string]struct {
		spec corev1.PodSpec
		want uint64
	}{
		"the first has none":               {corev1.PodSpec{Containers: []corev1.Container{bound(""), bound("100Mi")}}, 0},
		"one of nothing":                   {corev1.PodSpec{Containers: []corev1.Container{bound("0"), bound("100Mi")}}, 0},
		"the pod's own, of nothing":        {corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: asking("0")}, Containers: []corev1.Container{bound("100Mi")}}, 100 * mi},
		"the pod's own, with its overhead": {corev1.PodSpec{Overhead: asking("20Mi"), Resources: &corev1.ResourceRequirements{Limits: asking("500Mi")}}, 520 * mi},
		"an init container that ends":      {corev1.PodSpec{Containers: []corev1.Container{bound("100Mi")}, InitContainers: []corev1.Container{once}}, 100 * mi},
	} {
		assert.Equal(t, row.want, limit(&row.spec, memory), what)
	}
}

func TestRSSThresholdLength(t *testing.T) {
	longest := "1.5000000000000000001"[:maxNumber]
	for text, want := range map[string]string{
		`{"rss_overuse_threshold":"` + longest + `"}`:  longest,
		`{"rss_overuse_threshold":"` + longest + `1"}`: "",
		`{"rss_overuse_threshold":"2"`:                 "",
		`{"rss_overuse_threshold":"2"} 7`:              "",
	} {
		assert.Equal(t, want, rssThreshold(map[string]string{memoryEnhancement: text}), text)
	}
	assert.Zero(t, rssOveruse(made(annotated(memoryEnhancement, `{"rss_overuse_threshold":"0"}`))))
}
