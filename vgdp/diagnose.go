package vgdp

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Facts are the objects that Velero creates under a load's name before it is Prepared.
// nil: it does not exist, or was not read; Errors says which.
type Facts struct {
	Kind     Kind
	Pod      *corev1.Pod
	PVC      *corev1.PersistentVolumeClaim
	PV       *corev1.PersistentVolume
	Cache    *corev1.PersistentVolumeClaim // of a restore, where one is configured
	CachePV  *corev1.PersistentVolume
	Snapshot *Snapshot
	Content  *SnapshotContent
	// Events of the namespace; those of other objects are ignored.
	Events []corev1.Event
	// AgentMissing: no node-agent of the Velero is ready on the pod's node.
	AgentMissing bool
	// Errors of reading, in order.
	Errors []ReadError
}

// ReadError is an object that could not be read.
type ReadError struct {
	What, Name string // pod, pvc, pv, vs, vsc, cache pvc
	Err        error
}

// Snapshot is a VolumeSnapshot of the external-snapshotter.
type Snapshot struct {
	UID                             types.UID
	Namespace, Name, Content, Error string
	Ready                           bool
}

// SnapshotContent is a VolumeSnapshotContent.
type SnapshotContent struct {
	Name, Handle, Error string
	Ready               bool
}

// Diagnose describes the facts in the lines that Velero's node-agent logs when it gives
// up.
func Diagnose(f *Facts) []string {
	name, prefix := f.Kind.Facts().Exposer, f.Kind.Facts().Prefix
	list := diagnosis{"begin diagnose " + name}
	for _, e := range f.Errors {
		what := e.What
		if what != "cache pvc" && what != "cache pv" {
			what = prefix + " " + what
		}
		list.add("error getting %s %s, err: %v", what, e.Name, e.Err)
	}
	list.pod(f)
	list.volume(f.PVC, f.PV, f.Events)
	list.volume(f.Cache, f.CachePV, f.Events)
	if s := f.Snapshot; s != nil {
		list.add("VS %s/%s, bind to %s, readyToUse %v, errMessage %s", s.Namespace, s.Name, s.Content, s.Ready, s.Error)
		list.events("VS", s.UID, f.Events)
	}
	if c := f.Content; c != nil {
		list.add("VSC %s, readyToUse %v, errMessage %s, handle %s", c.Name, c.Ready, c.Error, c.Handle)
	}
	list.add("end diagnose %s", name)
	return list
}

type diagnosis []string

func (d *diagnosis) add(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

func (d *diagnosis) pod(f *Facts) {
	p := f.Pod
	if p == nil {
		return
	}
	d.add("Pod %s/%s, phase %s, node name %s, message %s", p.Namespace, p.Name, p.Status.Phase, p.Spec.NodeName, p.Status.Message)
	for _, c := range p.Status.Conditions {
		d.add("Pod condition %s, status %s, reason %s, message %s", c.Type, c.Status, c.Reason, c.Message)
	}
	d.events("Pod", p.UID, f.Events)
	if f.AgentMissing && p.Spec.NodeName != "" {
		d.add("node-agent is not running in node %s, err: daemonset pod not found in running state in node %[1]s", p.Spec.NodeName)
	}
}

func (d *diagnosis) volume(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, events []corev1.Event) {
	if claim != nil {
		d.add("PVC %s/%s, phase %s, binding to %s", claim.Namespace, claim.Name, claim.Status.Phase, claim.Spec.VolumeName)
		d.events("PVC", claim.UID, events)
	}
	if v != nil {
		d.add("PV %s, phase %s, reason %s, message %s", v.Name, v.Status.Phase, v.Status.Reason, v.Status.Message)
	}
}

func (d *diagnosis) events(of string, uid types.UID, list []corev1.Event) {
	for _, e := range list {
		if e.InvolvedObject.UID == uid && e.Type == corev1.EventTypeWarning {
			d.add("%s event reason %s, message %s", of, e.Reason, e.Message)
		}
	}
}

// CannotRun says why the pod of a data mover will not run as things are; empty: it may.
// Velero cancels the load of a pod that cannot recover at its next look, and deletes the
// pod; it waits half an hour for one whose volume is where the pod may not run.
func CannotRun(p *corev1.Pod) string {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodUnknown {
		return fmt.Sprintf("its pod's phase is %s, for which Velero cancels it: %s", p.Status.Phase, p.Status.Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && (w.Reason == "ImagePullBackOff" || w.Reason == "ErrImageNeverPull") {
			return fmt.Sprintf("its container %s has no image, for which Velero cancels it: %s: %s", c.Name, w.Reason, w.Message)
		}
	}
	if c := unschedulable(p); c != nil && slices.ContainsFunc(volumeConflicts(), func(text string) bool { return strings.Contains(c.Message, text) }) {
		return "its volume is on nodes where its pod may not run: " + c.Message
	}
	return ""
}

// volumeConflicts are the scheduler's words for a volume that is bound to other nodes:
// since Kubernetes 1.33, and before.
func volumeConflicts() []string {
	return []string{"node(s) didn't match PersistentVolume's node affinity", "node(s) had volume node affinity conflict"}
}

// unschedulable is the scheduler's condition of a pod that it finds no node for; nil:
// none.
func unschedulable(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c
		}
	}
	return nil
}
