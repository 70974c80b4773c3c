package lease

import (
	corev1 "k8s.io/api/core/v1"
)

// RemovalPatch is the JSON patch of a Node's status that removes the conditions of an
// agent, for the controller and the uninstaller; some is false if there are none. It
// fails if their positions have changed. Ready is not removed: where an agent wrote
// it, Kubernetes' node lifecycle controller takes it over.
func RemovalPatch(node *corev1.Node) (patch []byte, some bool, err error) {
	return removalOf(node.Status.Conditions, func(c corev1.NodeCondition) bool { return IsOurs(c.Type) })
}
