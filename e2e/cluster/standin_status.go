package cluster

import (
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status is what there is to say of a pod.
func (r *run) status(pod *corev1.Pod) corev1.PodStatus {
	switch {
	case r.err != nil:
		return failed(pod, r.err)
	case r.process != nil && !r.process.alive():
		return ended(pod, r)
	default:
		return running(pod, r)
	}
}

// running is the status of a pod whose containers all run.
func running(pod *corev1.Pod, r *run) corev1.PodStatus {
	status := statusOf(pod, corev1.PodRunning, corev1.ConditionTrue)
	status.StartTime = &r.began
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].State.Running = &corev1.ContainerStateRunning{StartedAt: r.began}
	}
	if r.process != nil {
		status.ContainerStatuses[0].ContainerID = "standin://" + strconv.Itoa(r.process.cmd.Process.Pid)
	}
	return status
}

// ended is the status of a pod whose command has ended by itself.
func ended(pod *corev1.Pod, r *run) corev1.PodStatus {
	how := r.process.cmd.ProcessState.Sys().(syscall.WaitStatus)
	phase, reason, code := corev1.PodSucceeded, "Completed", how.ExitStatus()
	if how.Signaled() {
		code = 128 + int(how.Signal()) // as a shell and a container runtime say it
	}
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	status := statusOf(pod, phase, corev1.ConditionFalse)
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: reason, StartedAt: r.began, FinishedAt: metav1.Now(),
		}
	}
	return status
}

// failed is the status of a pod that could not be started.
func failed(pod *corev1.Pod, why error) corev1.PodStatus {
	status := statusOf(pod, corev1.PodFailed, corev1.ConditionFalse)
	status.Reason, status.Message = "StandIn", why.Error()
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].State.Waiting = &corev1.ContainerStateWaiting{Reason: "StandIn", Message: why.Error()}
	}
	return status
}

func statusOf(pod *corev1.Pod, phase corev1.PodPhase, ready corev1.ConditionStatus) corev1.PodStatus {
	status := corev1.PodStatus{Phase: phase}
	now := metav1.Now()
	for _, c := range []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: ready},
		{Type: corev1.PodReady, Status: ready},
	} {
		c.LastTransitionTime = now
		status.Conditions = append(status.Conditions, c)
	}
	up := ready == corev1.ConditionTrue
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: up, Started: &up,
		})
	}
	return status
}
