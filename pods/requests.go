package pods

import (
	"encoding/json"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Katalyst's reclaimed resources, which low-QoS pods request in the place of cpu
// and memory: pkg/consts/resource.go of katalyst-api.
const (
	reclaimedMillicpu corev1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	reclaimedMemory   corev1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_memory"
)

// quantity is the quantity of a resource in a list; false if it is not in it.
type quantity func(corev1.ResourceList) (uint64, bool)

// memory in bytes, reclaimed memory too.
func memory(list corev1.ResourceList) (uint64, bool) {
	own, asks := list[corev1.ResourceMemory]
	reclaimed, reclaims := list[reclaimedMemory]
	return uint64(max(0, own.Value())) + uint64(max(0, reclaimed.Value())), asks || reclaims
}

// cpu in millicores, the unit of reclaimed CPUs, too.
func cpu(list corev1.ResourceList) (uint64, bool) {
	own, asks := list[corev1.ResourceCPU]
	reclaimed, reclaims := list[reclaimedMillicpu]
	return uint64(max(0, own.MilliValue())) + uint64(max(0, reclaimed.Value())), asks || reclaims
}

// storage is ephemeral-storage in bytes.
func storage(list corev1.ResourceList) (uint64, bool) {
	own, asks := list[corev1.ResourceEphemeralStorage]
	return uint64(max(0, own.Value())), asks
}

// memoryRequest is the memory in bytes that the scheduler reserves for a pod.
func memoryRequest(spec *corev1.PodSpec) uint64 { return request(spec, memory) }

// cpuRequest is the same for CPUs, in millicores.
func cpuRequest(spec *corev1.PodSpec) uint64 { return request(spec, cpu) }

// request is what the scheduler reserves for a pod. Containers run together; before
// them init containers run one by one, each beside the sidecars (restartable init
// containers) that started before it. Requests at pod level replace that; the
// runtime's overhead is added. The arithmetic is that of
// k8s.io/component-helpers/resource.PodRequests on the spec; during a resize the
// scheduler may reserve more.
func request(spec *corev1.PodSpec, of quantity) uint64 {
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

// limit of a pod: that at pod level, or the sum of all containers that run together
// if each has one; 0 is none. Init containers run before them and do not count.
func limit(spec *corev1.PodSpec, of quantity) uint64 {
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

// rssThreshold is the RSS threshold of Katalyst's memory annotation, as written;
// empty without a readable one. The annotation is a JSON object of strings:
// {"rss_overuse_threshold":"1.2"}.
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

// maxNumber bounds the length of that number.
const maxNumber = 20

// rssEnhancement is the annotation with that threshold alone.
func rssEnhancement(threshold string) string {
	return `{"rss_overuse_threshold":` + strconv.Quote(threshold) + `}`
}

// rssOveruse is a pod's RSS limit as a multiple of its request; 0 without a
// positive number.
func rssOveruse(pod *corev1.Pod) float64 {
	times, err := strconv.ParseFloat(rssThreshold(pod.Annotations), 64)
	if err != nil || math.IsNaN(times) || math.IsInf(times, 0) || times <= 0 {
		return 0
	}
	return times
}
