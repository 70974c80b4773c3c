package pods

import (
	"encoding/json"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// What Katalyst lends to pods of low QoS, which ask for it in the place of cpu
// and memory: pkg/consts/resource.go of katalyst-api.
const (
	reclaimedMillicpu corev1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	reclaimedMemory   corev1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_memory"
)

// amount is what a list says of a resource; false where it says nothing.
type amount func(corev1.ResourceList) (uint64, bool)

// memory in bytes, reclaimed memory too.
func memory(list corev1.ResourceList) (uint64, bool) {
	own, asks := list[corev1.ResourceMemory]
	lent, borrows := list[reclaimedMemory]
	return uint64(max(0, own.Value())) + uint64(max(0, lent.Value())), asks || borrows
}

// cpu in thousandths of a core. Reclaimed ones are counted in such.
func cpu(list corev1.ResourceList) (uint64, bool) {
	own, asks := list[corev1.ResourceCPU]
	lent, borrows := list[reclaimedMillicpu]
	return uint64(max(0, own.MilliValue())) + uint64(max(0, lent.Value())), asks || borrows
}

// memoryRequest is the memory in bytes that the scheduler sets aside for a pod.
func memoryRequest(spec *corev1.PodSpec) uint64 { return request(spec, memory) }

// cpuRequest is the same of CPUs, in thousandths of a core.
func cpuRequest(spec *corev1.PodSpec) uint64 { return request(spec, cpu) }

// request is what the scheduler sets aside for a pod. Containers run together;
// before them init containers run one by one, each beside the restartable ones
// (sidecars) that started before it. What the pod asks for as a whole replaces
// that; the overhead of its runtime is on top. The arithmetic is that of
// k8s.io/component-helpers/resource.PodRequests, by what the pod wants: while a
// resize is under way the scheduler may count more.
func request(spec *corev1.PodSpec, of amount) uint64 {
	var together, sidecars, most uint64
	for _, c := range spec.Containers {
		asks, _ := of(c.Resources.Requests)
		together += asks
	}
	for _, c := range spec.InitContainers {
		asks, _ := of(c.Resources.Requests)
		if isSidecar(&c) {
			sidecars += asks
			asks = 0
		}
		most = max(most, sidecars+asks)
	}
	all := max(together+sidecars, most)
	if spec.Resources != nil {
		if whole, there := of(spec.Resources.Requests); there {
			all = whole
		}
	}
	overhead, _ := of(spec.Overhead)
	return all + overhead
}

// limit of a pod: of all containers that run together, if each has one, or of
// the pod as a whole; 0 is none. Init containers come before and do not count.
func limit(spec *corev1.PodSpec, of amount) uint64 {
	overhead, _ := of(spec.Overhead)
	if spec.Resources != nil {
		if whole, _ := of(spec.Resources.Limits); whole > 0 {
			return whole + overhead
		}
	}
	all, limited := overhead, true
	add := func(c *corev1.Container) {
		n, there := of(c.Resources.Limits)
		all, limited = all+n, limited && there && n > 0
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; isSidecar(c) {
			add(c)
		}
	}
	if !limited {
		return 0
	}
	return all
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// rssThreshold is what Katalyst's annotation of memory says of RSS, as it is
// written there; empty where it says nothing that can be read. The annotation is
// JSON of texts: {"rss_overuse_threshold":"1.2"}.
func rssThreshold(annotations map[string]string) string {
	var says struct {
		RSSOveruse string `json:"rss_overuse_threshold"`
	}
	text := annotations[memoryEnhancement]
	if text == "" || json.Unmarshal([]byte(text), &says) != nil || len(says.RSSOveruse) > maxNumber {
		return ""
	}
	return says.RSSOveruse
}

// maxNumber is how long a number is at most that somebody wrote.
const maxNumber = 20

// rssEnhancement is the annotation that says that and nothing else.
func rssEnhancement(threshold string) string {
	return `{"rss_overuse_threshold":` + strconv.Quote(threshold) + `}`
}

// rssOveruse is how many times its request a pod's RSS may be; 0 where it does
// not say, or says no number above it.
func rssOveruse(pod *corev1.Pod) float64 {
	times, err := strconv.ParseFloat(rssThreshold(pod.Annotations), 64)
	if err != nil || math.IsNaN(times) || math.IsInf(times, 0) || times <= 0 {
		return 0
	}
	return times
}
