package pods

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/names"
)

// ProtectionsWithoutVolumes returns the reasons why a pod is protected, as far as the pod itself
// shows them, without its volumes.
func ProtectionsWithoutVolumes(pod *corev1.Pod, rules Rules) []Protection {
	return slices.DeleteFunc(protections(pod, nil, rules), func(p Protection) bool { return p.Code == Unresolved })
}

// protections returns all reasons why a pod is never evicted, even if forced. It
// must use only fields that strip keeps.
func protections(pod *corev1.Pod, claims claimsByName, rules Rules) []Protection {
	var why reasons
	if isStatic(pod) {
		why.add(Static, "it is the mirror pod of a static pod (annotation %s, controlled by Node %s)", configMirror, pod.Spec.NodeName)
	}
	if label, load := dataMoverLoad(pod); label != "" {
		why.add(Mover, "it is a data mover pod of Velero (label %s is %q), which would not notice its eviction", label, load)
	}
	if int(priority(pod)) >= rules.Priority {
		why.add(Critical, "its priority %d (class %q) is at or above %d", priority(pod), pod.Spec.PriorityClassName, rules.Priority)
	}
	owner := controller(pod)
	// An owner of another API version is made up: the garbage collector cannot find
	// it and leaves the pod alone, but nothing would recreate it.
	if owner.Kind == "DaemonSet" && owner.APIVersion == "apps/v1" {
		why.add(DaemonSet, "DaemonSet %s would recreate it on this node", owner.Name)
	}
	if owner.Kind == "" {
		why.add(NoController, "none of its %d ownerReferences is a controller that would recreate it", len(pod.OwnerReferences))
	}
	why.onlyHere(pod, claims)
	if slices.Contains(rules.Namespaces, pod.Namespace) {
		why.add(Namespace, "namespace %s is protected", pod.Namespace)
	}
	return why.all
}

// reasons collects protections.
type reasons struct{ all []Protection }

func (r *reasons) add(code, why string, facts ...any) {
	r.all = append(r.all, Protection{Code: code, Why: fmt.Sprintf(why, facts...)})
}

// onlyHere adds what binds a pod to this node: its spec, or its volumes.
func (r *reasons) onlyHere(pod *corev1.Pod, claims claimsByName) {
	if pod.Spec.NodeName != "" && creatorSetNodeName(pod.ManagedFields) {
		r.add(OnlyHere, "its creator set spec.nodeName to %s, so no scheduler would place it elsewhere", pod.Spec.NodeName)
	}
	if host, there := pod.Spec.NodeSelector[corev1.LabelHostname]; there {
		r.add(OnlyHere, "its nodeSelector requires %s=%s", corev1.LabelHostname, host)
	}
	if required := requiredOfNode(pod.Spec.Affinity); required != nil {
		if node, one := onlyNode(required); one {
			r.add(OnlyHere, "its required nodeAffinity allows only node %q", node)
		}
	}
	for _, name := range claimNames(pod) {
		claim := claims[name]
		if claim.onlyHere != "" {
			r.add(OnlyHere, "%s", claim.onlyHere)
		}
		if !claim.known && !claim.unbinding {
			r.add(Unresolved, "unknown where the volume of claim %s can be used: %s", name, claim.reason())
		}
	}
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// controller is the owner that would recreate the pod; zero without one. A Node is
// none: the kubelet makes it the controller of mirror pods.
func controller(pod *corev1.Pod) metav1.OwnerReference {
	for _, o := range pod.OwnerReferences {
		if o.Controller != nil && *o.Controller && !isNode(o) {
			return o
		}
	}
	return metav1.OwnerReference{}
}

// isStatic reports whether the pod is the mirror pod of a static pod. Annotations
// alone prove nothing: controllers copy those of a template into each pod. A
// template cannot set the controller, which is the Node for a mirror pod; the API
// server's NodeRestriction lets kubelets create no other pods.
func isStatic(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[configMirror]
	return mirror && slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Controller != nil && *o.Controller && isNode(o) && o.Name == pod.Spec.NodeName
	})
}

// dataMoverLoad is the label that makes a pod a data mover of Velero, and the name of its
// data mover load; empty for other pods. Velero's node-agent creates movers itself,
// with the load as controller, so a pod of another controller is none, whatever
// labels its template has.
func dataMoverLoad(pod *corev1.Pod) (label, load string) {
	if owner := controller(pod); owner.Kind != "" && group(owner) != "velero.io" {
		return "", ""
	}
	for _, label := range moverLabels() {
		if load, there := pod.Labels[label]; there {
			return label, load
		}
	}
	return "", ""
}

// maintains reports whether the pod belongs to a job by which Velero maintains a backup
// repository. Any user can create a Job with that label, and what counts as a mover is not
// throttled where movers are not, so it counts only where the administrator protects all
// pods, which is where Velero is.
func maintains(pod *corev1.Pod, rules Rules) bool {
	owner := controller(pod)
	return pod.Labels[names.MaintenanceLabel] != "" && owner.Kind == "Job" && group(owner) == "batch" && slices.Contains(rules.Namespaces, pod.Namespace)
}

func isNode(o metav1.OwnerReference) bool { return o.Kind == "Node" && group(o) == "" }
