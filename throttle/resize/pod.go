package resize

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/throttle"
)

const (
	// leastMillicores is the kubelet's minimum of a quota (MinMilliCPULimit in
	// kubernetes/pkg/kubelet/cm), and the step in which systemd rounds one.
	leastMillicores = 10
	// maxContainers bounds the record of one pod.
	maxContainers = 8
	// vpaContainers is the annotation by which the VerticalPodAutoscaler's admission
	// controller marks its pods. It derives new limits from those that it finds: ours would
	// become the pod's own.
	vpaContainers = "vpaObservedContainers"
)

// member is a container that runs together with the others, and what its kubelet reports.
type member struct {
	*corev1.Container
	sidecar bool
	status  *corev1.ContainerStatus // nil: none yet
}

// members are the containers of a pod that run together: not its init containers, but
// sidecars.
func members(p *corev1.Pod) (list []member) {
	add := func(c *corev1.Container, sidecar bool, all []corev1.ContainerStatus) {
		m := member{Container: c, sidecar: sidecar}
		if i := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
			m.status = &all[i]
		}
		list = append(list, m)
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c, true, p.Status.InitContainerStatuses)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], false, p.Status.ContainerStatuses)
	}
	return list
}

// exempt is why the CPU limits of a pod are not resized; empty: they may be. What is
// changed must be one that a kubelet changes without a restart, and that can be restored as
// it was.
func exempt(p *corev1.Pod) string {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	_, vpa := p.Annotations[vpaContainers]
	all := members(p)
	switch {
	case p.Status.QOSClass != corev1.PodQOSBurstable:
		return fmt.Sprintf("it is %s, not Burstable", p.Status.QOSClass)
	case mirror:
		return "it is a static pod"
	case p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil:
		return "it does not run, or is being ended"
	case p.Spec.Resources != nil && len(p.Spec.Resources.Requests)+len(p.Spec.Resources.Limits) > 0:
		return "its resources are set at pod level"
	case vpa:
		return "a VerticalPodAutoscaler resizes it"
	case slices.ContainsFunc(p.Status.Conditions, resizes):
		return "another resize of it is not finished"
	case len(all) > maxContainers:
		return fmt.Sprintf("it has more than %d containers", maxContainers)
	}
	for _, m := range all {
		if why := m.exempt(); why != "" {
			return "container " + m.Name + " " + why
		}
	}
	return ""
}

func resizes(c corev1.PodCondition) bool {
	return (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) && c.Status == corev1.ConditionTrue
}

func (m member) exempt() string {
	restarts := func(p corev1.ContainerResizePolicy) bool {
		return p.ResourceName == corev1.ResourceCPU && p.RestartPolicy != corev1.NotRequired
	}
	limits := m.Resources.Limits.Cpu()
	switch {
	case limits.IsZero():
		return "has no CPU limit, and one that is added cannot be removed again"
	case slices.ContainsFunc(m.ResizePolicy, restarts):
		return "restarts when its CPU is resized"
	case m.status == nil || m.status.Resources == nil:
		return "is not reported with its resources: its kubelet does not resize"
	}
	return ""
}

// find a container of a pod.
func find(p *corev1.Pod, name string) (member, bool) {
	all := members(p)
	i := slices.IndexFunc(all, func(m member) bool { return m.Name == name })
	if i < 0 {
		return member{}, false
	}
	return all[i], true
}

// atLeast is a CPU limit in millicores, above the request: with one equal to it the pod
// might become Guaranteed, which the API server refuses.
func (m member) atLeast(millicores float64) uint64 {
	whole := uint64(max(leastMillicores, millicores, float64(m.Resources.Requests.Cpu().MilliValue()+1)))
	return (whole + leastMillicores - 1) / leastMillicores * leastMillicores
}

// resizing is why a limit of ours is not in effect; zero: it is.
func (m member) resizing(p *corev1.Pod, l *throttle.Limit) throttle.Resizing {
	if m.status != nil && m.status.Resources != nil {
		now := m.status.Resources.Limits.Cpu().MilliValue()
		if off := now - int64(l.Value); off > -leastMillicores && off < leastMillicores {
			return throttle.Resizing{}
		}
	}
	for _, c := range p.Status.Conditions {
		if resizes(c) && c.Reason != "" && (c.ObservedGeneration == 0 || c.ObservedGeneration >= p.Generation) {
			return throttle.Resizing{Why: fmt.Sprintf("the kubelet has not resized it: %s: %s", c.Reason, bounded(c.Message)), Refused: c.Reason == corev1.PodReasonInfeasible}
		}
	}
	return throttle.Resizing{Why: "the kubelet has not resized it"}
}

// maxText bounds a text from outside.
const maxText = 200

func bounded(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "…"
	}
	return text
}
