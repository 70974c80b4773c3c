package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// evictionInProgress is what a component writes on a pod that it evicts in its own way,
// such as KubeVirt on the pod of a virtual machine that it migrates
// (pkg/virt-controller/watch/descheduler of KubeVirt). The descheduler reads it, too.
// Its owner may write it, too, so it counts for a time only (evict.State.Elsewhere).
const evictionInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"

// evictedElsewhere is the mark of another component that evicts a pod; empty: none.
func evictedElsewhere(pod *corev1.Pod) string {
	if _, there := pod.Annotations[evictionInProgress]; there {
		return "annotation " + evictionInProgress
	}
	if i := slices.IndexFunc(pod.Status.Conditions, isEvictionElsewhere); i >= 0 {
		return "condition " + string(corev1.DisruptionTarget) + ", " + pod.Status.Conditions[i].Reason
	}
	return ""
}

// isEvictionElsewhere reports whether a condition announces that the pod is about to be
// deleted. The API server, the scheduler and kube-controller-manager set it just before
// they delete a pod; one that was not deleted loses it after two minutes
// (stalePodDisruptionTimeout in pkg/controller/disruption of Kubernetes). The kubelet
// sets it on a pod that it has ended itself.
func isEvictionElsewhere(c corev1.PodCondition) bool {
	return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet
}
