package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// SetUnknown sets the conditions of a silent agent to Unknown. Their lastHeartbeatTime is
// kept. The Node must be current: if it has changed, nothing is written and the error is a
// conflict (optimistic concurrency).
func SetUnknown(ctx context.Context, nodes corev1client.NodesGetter, node *corev1.Node, message string) error {
	conditions := asUnknown(node.Status.Conditions, message, time.Now())
	if len(conditions) == 0 {
		return nil
	}
	if _, err := patchStatus(ctx, nodes, node.Name, change{set: conditions, version: node.ResourceVersion}); err != nil {
		return fmt.Errorf("set conditions of node %s to Unknown: %w", node.Name, err)
	}
	return nil
}

// asUnknown returns the agent's conditions with status Unknown; none if all are
// Unknown already. Ready, where the agent keeps it, is the node lifecycle controller's to judge.
func asUnknown(conditions []corev1.NodeCondition, message string, now time.Time) []corev1.NodeCondition {
	var list []corev1.NodeCondition
	changed := false
	for _, c := range conditions {
		if !IsOurs(c.Type) {
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
