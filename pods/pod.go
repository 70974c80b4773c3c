package pods

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/plimsoll-dev/plimsoll/names"
)

// toPod extracts the facts of a pod that decisions need.
func toPod(pod *corev1.Pod, claims claimsByName, rules Rules) Pod {
	owner := controller(pod)
	of := Pod{
		UID:                string(pod.UID),
		Namespace:          pod.Namespace,
		Name:               pod.Name,
		CgroupUID:          cgroupUID(pod),
		Owner:              Owner{Kind: owner.Kind, Name: owner.Name, UID: string(owner.UID)},
		QoS:                string(pod.Status.QOSClass),
		LowQoS:             pod.Status.QOSClass == corev1.PodQOSBestEffort || pod.Annotations[qosLevel] == "reclaimed_cores",
		Priority:           priority(pod),
		MemoryRequestBytes: memoryRequest(&pod.Spec), CPURequestMillicores: cpuRequest(&pod.Spec),
		StorageRequestBytes: request(&pod.Spec, storage),
		MemoryLimitBytes:    limit(&pod.Spec, memory), CPULimitMillicores: limit(&pod.Spec, cpu),
		RSSOveruse:   rssOveruse(pod),
		Created:      pod.CreationTimestamp.Time,
		GraceSeconds: grace(&pod.Spec),
		Phase:        string(pod.Status.Phase),
		StatusReason: pod.Status.Reason, StatusMessage: pod.Status.Message,
		EvictedElsewhere: evictedElsewhere(pod),
		Protections:      protections(pod, claims, rules),
		Tolerations:      pod.Spec.Tolerations,
		Throttle:         pod.Labels[names.Throttle],
		Liveness:         liveness(&pod.Spec),
		Maintenance:      maintains(pod, rules),
	}
	if pod.DeletionTimestamp != nil {
		of.TerminatesBy = pod.DeletionTimestamp.Time
	}
	if pod.DeletionGracePeriodSeconds != nil {
		of.DeletionGraceSeconds = *pod.DeletionGracePeriodSeconds
	}
	return of
}

// Tolerates reports whether the pod tolerates a taint.
func (p *Pod) Tolerates(taint corev1.Taint) bool {
	return slices.ContainsFunc(p.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, false) })
}

// Static reports whether the pod is the mirror pod of a static pod.
func (p *Pod) Static() bool {
	return slices.ContainsFunc(p.Protections, func(why Protection) bool { return why.Code == Static })
}

// grace is the termination grace period of a pod, in seconds.
func grace(spec *corev1.PodSpec) int64 {
	if spec.TerminationGracePeriodSeconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds
	}
	return *spec.TerminationGracePeriodSeconds
}

// cgroupUID is the UID in the name of a pod's cgroup. The hash is used for static
// pods only: on others the annotation proves nothing.
func cgroupUID(pod *corev1.Pod) string {
	if hash := pod.Annotations[configHash]; hash != "" && isStatic(pod) {
		return hash
	}
	return string(pod.UID)
}

// group is the API group of an owner; empty for Kubernetes' core.
func group(o metav1.OwnerReference) string {
	group, _, found := strings.Cut(o.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}
