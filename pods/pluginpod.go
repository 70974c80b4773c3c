package pods

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastApplied contains the whole pod, environment included.
const lastApplied = corev1.LastAppliedConfigAnnotation

// configSource is the source of a static pod; plugins recognize static pods by it.
const configSource = "kubernetes.io/config.source"

// forPlugins is a pod as outer plugins see it. Like strip it is an allowlist:
// identity, owner, requests, volumes, priority and status. Free text of an owner or
// a process is dropped: environment, commands, arguments, probes, termination
// messages, attributes of volumes, and most annotations. full keeps everything but
// managed fields and the last-applied annotation.
func forPlugins(pod *corev1.Pod, full bool) *corev1.Pod {
	if full {
		p := *pod
		p.ManagedFields = nil
		p.Annotations = maps.Clone(p.Annotations)
		delete(p.Annotations, lastApplied)
		return &p
	}
	annotations := stripAnnotations(pod.Annotations)
	if source := pick(pod.Annotations, []string{configSource}); source != nil {
		maps.Copy(source, annotations)
		annotations = source
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:                       pod.Name,
			GenerateName:               pod.GenerateName,
			Namespace:                  pod.Namespace,
			UID:                        pod.UID,
			ResourceVersion:            pod.ResourceVersion,
			CreationTimestamp:          pod.CreationTimestamp,
			DeletionTimestamp:          pod.DeletionTimestamp,
			DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
			OwnerReferences:            pod.OwnerReferences,
			Labels:                     maps.Clone(pod.Labels),
			Annotations:                annotations,
		},
		Spec:   shownSpec(&pod.Spec),
		Status: shownStatus(&pod.Status),
	}
}

func shownSpec(spec *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName:                      spec.NodeName,
		NodeSelector:                  spec.NodeSelector,
		Affinity:                      spec.Affinity,
		Tolerations:                   spec.Tolerations,
		TopologySpreadConstraints:     spec.TopologySpreadConstraints,
		SchedulerName:                 spec.SchedulerName,
		Priority:                      spec.Priority,
		PriorityClassName:             spec.PriorityClassName,
		PreemptionPolicy:              spec.PreemptionPolicy,
		RuntimeClassName:              spec.RuntimeClassName,
		Overhead:                      spec.Overhead,
		Resources:                     spec.Resources,
		RestartPolicy:                 spec.RestartPolicy,
		TerminationGracePeriodSeconds: spec.TerminationGracePeriodSeconds,
		ActiveDeadlineSeconds:         spec.ActiveDeadlineSeconds,
		HostNetwork:                   spec.HostNetwork,
		HostPID:                       spec.HostPID,
		HostIPC:                       spec.HostIPC,
		HostUsers:                     spec.HostUsers,
		InitContainers:                shownContainers(spec.InitContainers),
		Containers:                    shownContainers(spec.Containers),
		Volumes:                       shownVolumes(spec.Volumes),
	}
}

func shownContainers(containers []corev1.Container) []corev1.Container {
	var list []corev1.Container
	for i := range containers {
		list = append(list, withoutEnvironment(&containers[i]))
	}
	return list
}

// shownVolumes are those that use space or a disk of the node, or a claim. Others
// are left out, because a volume without a source would read as an emptyDir.
func shownVolumes(volumes []corev1.Volume) []corev1.Volume {
	var list []corev1.Volume
	for _, v := range volumes {
		of := corev1.Volume{Name: v.Name}
		switch {
		case v.EmptyDir != nil:
			of.EmptyDir = v.EmptyDir
		case v.HostPath != nil:
			of.HostPath = v.HostPath
		case v.PersistentVolumeClaim != nil:
			of.PersistentVolumeClaim = v.PersistentVolumeClaim
		case v.Ephemeral != nil:
			of.Ephemeral = &corev1.EphemeralVolumeSource{}
		case v.CSI != nil:
			of.CSI = &corev1.CSIVolumeSource{Driver: v.CSI.Driver, ReadOnly: v.CSI.ReadOnly}
		default:
			continue
		}
		list = append(list, of)
	}
	return list
}

func shownStatus(status *corev1.PodStatus) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:                 status.Phase,
		Reason:                status.Reason,
		QOSClass:              status.QOSClass,
		NominatedNodeName:     status.NominatedNodeName,
		HostIP:                status.HostIP,
		HostIPs:               status.HostIPs,
		PodIP:                 status.PodIP,
		PodIPs:                status.PodIPs,
		StartTime:             status.StartTime,
		Conditions:            shownConditions(status.Conditions),
		Resources:             status.Resources,
		AllocatedResources:    status.AllocatedResources,
		InitContainerStatuses: shownStatuses(status.InitContainerStatuses),
		ContainerStatuses:     shownStatuses(status.ContainerStatuses),
	}
}

// shownConditions are without their messages.
func shownConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var list []corev1.PodCondition
	for _, c := range conditions {
		c.Message = ""
		list = append(list, c)
	}
	return list
}

func shownStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		list = append(list, corev1.ContainerStatus{
			Name: s.Name, ContainerID: s.ContainerID, Image: s.Image, ImageID: s.ImageID,
			Ready: s.Ready, Started: s.Started, RestartCount: s.RestartCount,
			State: shownState(s.State), LastTerminationState: shownState(s.LastTerminationState),
			Resources: s.Resources, AllocatedResources: s.AllocatedResources,
		})
	}
	return list
}

// shownState is without the termination message, which the process writes.
func shownState(state corev1.ContainerState) corev1.ContainerState {
	out := corev1.ContainerState{Running: state.Running}
	if w := state.Waiting; w != nil {
		out.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason}
	}
	if t := state.Terminated; t != nil {
		kept := *t
		kept.Message = ""
		out.Terminated = &kept
	}
	return out
}
