package pods

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/names"
)

// The annotations and labels that decisions depend on. All others are dropped
// unread.
const (
	configMirror = "kubernetes.io/config.mirror"     // on the mirror pod of a static pod
	configHash   = "kubernetes.io/config.hash"       // the static pod's UID as its cgroup has it
	qosLevel     = "katalyst.kubewharf.io/qos_level" // Katalyst's own class

	memoryEnhancement = "katalyst.kubewharf.io/memory_enhancement" // JSON; only its RSS threshold is kept
)

// annotationsThatDecide are kept of a pod's annotations.
func annotationsThatDecide() []string {
	return []string{configMirror, configHash, qosLevel, evictionInProgress}
}

// labelsThatDecide are kept of a pod's labels.
func labelsThatDecide() []string {
	return append(moverLabels(), names.MaintenanceLabel, names.Throttle)
}

// moverLabels are the labels that Velero's node-agent puts on data mover pods, with
// the name of the data mover load: pkg/apis/velero/v1/labels_annotations.go of
// Velero.
func moverLabels() (labels []string) {
	for _, kind := range names.MoverKinds() {
		labels = append(labels, kind.PodLabel)
	}
	return labels
}

// maxValue bounds the stored value of an annotation or label in bytes. Values that
// decide are shorter.
const maxValue = 253

// strip returns a pod with only the fields that decisions need. It is an allowlist,
// so that new fields of Kubernetes are dropped, too. Environment, commands,
// arguments, images, what probes ask, and all annotations and labels but those that decide
// are dropped. It is idempotent.
func strip(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:                       pod.Name,
			Namespace:                  pod.Namespace,
			UID:                        pod.UID,
			ResourceVersion:            pod.ResourceVersion,
			CreationTimestamp:          pod.CreationTimestamp,
			DeletionTimestamp:          pod.DeletionTimestamp.DeepCopy(),
			DeletionGracePeriodSeconds: copied(pod.DeletionGracePeriodSeconds),
			OwnerReferences:            stripOwners(pod.OwnerReferences),
			Annotations:                stripAnnotations(pod.Annotations),
			Labels:                     pick(pod.Labels, labelsThatDecide()),
			ManagedFields:              stripManagedFields(pod.ManagedFields),
		},
		Spec: stripSpec(pod),
		Status: corev1.PodStatus{
			Phase:      pod.Status.Phase,
			Reason:     truncate(pod.Status.Reason),
			Message:    kubeletEvictionMessage(pod),
			QOSClass:   pod.Status.QOSClass,
			StartTime:  pod.Status.StartTime.DeepCopy(),
			Conditions: stripConditions(pod.Status.Conditions),

			ContainerStatuses: stripStarted(&pod.Status),
		},
	}
}

// stripAnnotations keeps the annotations that decide; of Katalyst's memory
// annotation only the RSS threshold.
func stripAnnotations(all map[string]string) map[string]string {
	kept := pick(all, annotationsThatDecide())
	threshold := rssThreshold(all)
	if threshold == "" {
		return kept
	}
	if kept == nil {
		kept = map[string]string{}
	}
	kept[memoryEnhancement] = rssEnhancement(threshold)
	return kept
}

func stripSpec(pod *corev1.Pod) corev1.PodSpec {
	spec, status := &pod.Spec, &pod.Status
	return corev1.PodSpec{
		NodeName:                      spec.NodeName,
		NodeSelector:                  pick(spec.NodeSelector, []string{corev1.LabelHostname}),
		Affinity:                      stripAffinity(spec.Affinity),
		Volumes:                       stripVolumes(spec.Volumes),
		InitContainers:                stripContainers(spec.InitContainers, status.InitContainerStatuses),
		Containers:                    stripContainers(spec.Containers, status.ContainerStatuses),
		Resources:                     stripPodResources(spec.Resources, status.AllocatedResources),
		Overhead:                      spec.Overhead.DeepCopy(),
		Tolerations:                   slices.Clone(spec.Tolerations),
		Priority:                      copied(spec.Priority),
		PriorityClassName:             spec.PriorityClassName,
		HostNetwork:                   spec.HostNetwork,
		TerminationGracePeriodSeconds: copied(spec.TerminationGracePeriodSeconds),
	}
}

// kubeletEvictionMessage is the kubelet's message for a pod that it evicted for node
// pressure; other messages are dropped. Only such a pod has the condition: an
// eviction for a limit of the pod's own has not, nor has a pod that was not admitted
// (evictPod and Admit in eviction_manager.go of kubernetes/pkg/kubelet/eviction).
func kubeletEvictionMessage(pod *corev1.Pod) string {
	if pod.Status.Reason != "Evicted" || !slices.ContainsFunc(pod.Status.Conditions, isKubeletEviction) {
		return ""
	}
	return truncate(pod.Status.Message)
}

func isKubeletEviction(c corev1.PodCondition) bool {
	return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
}

// stripConditions keeps the one that decides, without its message.
func stripConditions(all []corev1.PodCondition) []corev1.PodCondition {
	i := slices.IndexFunc(all, func(c corev1.PodCondition) bool { return isKubeletEviction(c) || isEvictionElsewhere(c) })
	if i < 0 {
		return nil
	}
	return []corev1.PodCondition{{Type: all[i].Type, Status: all[i].Status, Reason: truncate(all[i].Reason)}}
}

// stripStarted records, as one container status, that a container of the pod was
// ever created. The phase does not tell: it is Pending while an init container runs.
func stripStarted(status *corev1.PodStatus) []corev1.ContainerStatus {
	made := func(s corev1.ContainerStatus) bool { return s.ContainerID != "" }
	if !slices.ContainsFunc(status.ContainerStatuses, made) && !slices.ContainsFunc(status.InitContainerStatuses, made) {
		return nil
	}
	return []corev1.ContainerStatus{{ContainerID: "made"}}
}

func stripOwners(owners []metav1.OwnerReference) []metav1.OwnerReference {
	var kept []metav1.OwnerReference
	for _, o := range owners {
		kept = append(kept, *o.DeepCopy())
	}
	return kept
}

// stripAffinity keeps the required node affinity.
func stripAffinity(affinity *corev1.Affinity) *corev1.Affinity {
	required := requiredOfNode(affinity)
	if required == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: required.DeepCopy(),
	}}
}

// stripVolumes keeps the names of volumes that are claims.
func stripVolumes(volumes []corev1.Volume) []corev1.Volume {
	var kept []corev1.Volume
	for _, v := range volumes {
		of := corev1.Volume{Name: v.Name}
		switch {
		case v.PersistentVolumeClaim != nil:
			of.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.PersistentVolumeClaim.ClaimName}
		case v.Ephemeral != nil:
			of.Ephemeral = &corev1.EphemeralVolumeSource{}
		default:
			continue
		}
		kept = append(kept, of)
	}
	return kept
}

func stripContainers(containers []corev1.Container, status []corev1.ContainerStatus) []corev1.Container {
	var kept []corev1.Container
	for _, c := range containers {
		var allocated corev1.ResourceList
		if i := slices.IndexFunc(status, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
			allocated = status[i].AllocatedResources
		}
		kept = append(kept, corev1.Container{
			Name:          c.Name,
			RestartPolicy: copied(c.RestartPolicy),
			LivenessProbe: stripProbe(c.LivenessProbe),
			StartupProbe:  stripProbe(c.StartupProbe),
			Resources: corev1.ResourceRequirements{
				Requests: boundByAllocated(c.Resources.Requests, allocated),
				Limits:   c.Resources.Limits.DeepCopy(),
			},
		})
	}
	return kept
}

func stripPodResources(r *corev1.ResourceRequirements, allocated corev1.ResourceList) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Requests: boundByAllocated(r.Requests, allocated), Limits: r.Limits.DeepCopy()}
}

// boundByAllocated is the request, bounded by what the kubelet has allocated: a resize may
// request anything, and pods within their request are evicted last.
func boundByAllocated(asked, allocated corev1.ResourceList) corev1.ResourceList {
	kept := asked.DeepCopy()
	for name, most := range allocated {
		if quantity, there := kept[name]; there && quantity.Cmp(most) > 0 {
			kept[name] = most.DeepCopy()
		}
	}
	return kept
}

// pick returns the entries with these keys; nil for none.
func pick(all map[string]string, keys []string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		value, there := all[key]
		if !there {
			continue
		}
		if kept == nil {
			kept = make(map[string]string, len(keys))
		}
		kept[key] = truncate(value)
	}
	return kept
}

// truncate truncates a text from outside to maxValue bytes.
func truncate(text string) string {
	if len(text) > maxValue {
		return strings.ToValidUTF8(text[:maxValue], "")
	}
	return text
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
