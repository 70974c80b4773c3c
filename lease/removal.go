package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// withdrawal is the merge patch of Withdraw. The controller's answers stay: they tell which pods
// were evicted.
const withdrawal = `{"metadata":{"annotations":{"` + AgentAnnotation + `":null,"` + NodeAnnotation + `":null,"` + ContentionAnnotation + `":null,"` + EvictionsAnnotation + `":null}},"spec":{"renewTime":null}}`

// Withdraw removes renewTime, and what the agent reported with it, from the Lease of a node
// whose agent renews none: no client waits for the next renewal then, or takes the last report
// for the present. Where there is no Lease, there is nothing to do.
func Withdraw(ctx context.Context, leases coordinationv1client.LeasesGetter, node string) error {
	ctx, cancel := context.WithTimeout(ctx, statusCallTimeout)
	defer cancel()
	_, err := leases.Leases(Namespace).Patch(ctx, node, types.MergePatchType, []byte(withdrawal), metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("withdraw lease %s/%s: %w", Namespace, node, err)
	}
	return nil
}

// RemovalPatch is the JSON patch of a Node's status that removes the conditions of an
// agent, for the controller and the uninstaller; some is false if there are none. It
// fails if their positions have changed. Ready is not removed: where an agent wrote
// it, Kubernetes' node lifecycle controller takes it over.
func RemovalPatch(node *corev1.Node) (patch []byte, some bool, err error) {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	var list []op
	for i, c := range slices.Backward(node.Status.Conditions) { // removing one moves those after it
		if IsOurs(c.Type) {
			at := fmt.Sprintf("/status/conditions/%d", i)
			list = append(list, op{Op: "test", Path: at + "/type", Value: c.Type}, op{Op: "remove", Path: at})
		}
	}
	patch, err = json.Marshal(list)
	return patch, len(list) > 0, err
}
