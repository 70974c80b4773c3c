package lease

import (
	corev1 "k8s.io/api/core/v1"
)

// LiftPatch is the JSON patch of a Node's status that takes the conditions of an
// agent away, for whoever cleans up after one, and whether there are any. It
// fails when they stand elsewhere by then. Ready is not among them: where an
// agent kept it, it is the node lifecycle controller's to judge.
func LiftPatch(node *corev1.Node) (patch []byte, some bool, err error) {
	return removalOf(node.Status.Conditions, func(c corev1.NodeCondition) bool { return Ours(c.Type) })
}
