package pods

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Protected are the reasons why a pod must never be evicted, as far as the pod
// itself shows them: where its volumes are is not looked at.
func Protected(pod *corev1.Pod, rules Rules) []Protection {
	return slices.DeleteFunc(protections(pod, nil, rules), func(p Protection) bool { return p.Code == Unresolved })
}

// protections are all reasons why a pod must never be evicted, even forced.
// It is a function of what is kept of a pod: strip takes nothing away that
// decides here.
func protections(pod *corev1.Pod, claims claimsOf, rules Rules) []Protection {
	var why reasons
	if isStatic(pod) {
		why.add(Static, "it is the mirror pod of a static pod (annotation %s, controlled by Node %s)", configMirror, pod.Spec.NodeName)
	}
	if label, load := moves(pod); label != "" {
		why.add(Mover, "it is a data mover pod of Velero (label %s is %q), which would not notice its eviction", label, load)
	}
	if int(priority(pod)) >= rules.Priority {
		why.add(Critical, "its priority %d (class %q) is at or above %d", priority(pod), pod.Spec.PriorityClassName, rules.Priority)
	}
	owner := controller(pod)
	// One of a version that there is not is made up, and the garbage collector, which
	// cannot look for it, leaves its pod alone.
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

// onlyHere adds what binds a pod to this node: its own wish, or its volumes.
func (r *reasons) onlyHere(pod *corev1.Pod, claims claimsOf) {
	if pod.Spec.NodeName != "" && namesNode(pod.ManagedFields) {
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
		if !claim.known && !claim.none {
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

// controller is who would make the pod again; zero for nobody. A Node is none:
// the kubelet makes itself the controller of the pictures of its static pods.
func controller(pod *corev1.Pod) metav1.OwnerReference {
	for _, o := range pod.OwnerReferences {
		if o.Controller != nil && *o.Controller && !isNode(o) {
			return o
		}
	}
	return metav1.OwnerReference{}
}

// isStatic: the pod is what a kubelet shows of a static pod. The annotations
// alone prove nothing, for controllers copy those of a template into each pod.
// What a template cannot say is the controller, which of such a pod is its Node:
// the API server's NodeRestriction lets kubelets make no other pods.
func isStatic(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[configMirror]
	return mirror && slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Controller != nil && *o.Controller && isNode(o) && o.Name == pod.Spec.NodeName
	})
}

// moves is the label by which a pod moves data for Velero, and its load; empty
// for a pod that does not. Velero's node-agent makes movers itself and has the
// load control them, so that one which another controller makes is none,
// whatever its labels: those are copied from a template too.
func moves(pod *corev1.Pod) (label, load string) {
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

func isNode(o metav1.OwnerReference) bool { return o.Kind == "Node" && group(o) == "" }
