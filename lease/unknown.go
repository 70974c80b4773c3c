package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
)

// IsOurs reports whether a condition is an agent's.
func IsOurs(t corev1.NodeConditionType) bool { return strings.HasPrefix(string(t), names.Prefix) }

// ReasonSilent is the reason of a condition whose agent is silent: its heartbeat has
// stopped.
const ReasonSilent = "AgentSilent"

// LastHeartbeat is when an agent last wrote its conditions to the Node, by the node's
// clock; zero without one.
func LastHeartbeat(conditions []corev1.NodeCondition) time.Time {
	var last time.Time
	for _, c := range conditions {
		if IsOurs(c.Type) && c.LastHeartbeatTime.After(last) {
			last = c.LastHeartbeatTime.Time
		}
	}
	return last
}

// SetUnknown sets the conditions of a silent agent to Unknown. It writes with the
// agent's field manager, so that the agent still owns them: its next write replaces
// them all. Their lastHeartbeatTime is kept. The Node must be current, with its
// managed fields: if it has changed, nothing is written and the error is a conflict
// (optimistic concurrency).
func SetUnknown(ctx context.Context, nodes corev1client.NodesGetter, node *corev1.Node, message string) error {
	conditions := asUnknown(nodeConditionsOf(node), message, time.Now())
	if len(conditions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusCallTimeout)
	defer cancel()
	_, err := nodes.Nodes().ApplyStatus(ctx, applycorev1.Node(node.Name).WithResourceVersion(node.ResourceVersion).WithStatus(statusOf(conditions)),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("set conditions of node %s to Unknown: %w", node.Name, err)
	}
	return nil
}

// asUnknown returns the agent's conditions with status Unknown; none if all are
// Unknown already.
func asUnknown(k *nodeConditions, message string, now time.Time) []corev1.NodeCondition {
	var list []corev1.NodeCondition
	changed := false
	for _, c := range k.conditions {
		if !k.ours(c.Type) {
			continue
		}
		if !IsOurs(c.Type) { // Ready, where the agent keeps it: the node lifecycle controller's to judge
			list = append(list, c)
			continue
		}
		if c.Status != corev1.ConditionUnknown {
			c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		}
		changed = changed || c.Status != corev1.ConditionUnknown || c.Reason != ReasonSilent
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, ReasonSilent, message
		list = append(list, c)
	}
	if !changed {
		return nil
	}
	return list
}
