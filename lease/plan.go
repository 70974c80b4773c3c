package lease

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeConditions is the Node's conditions when it was last read or written.
type nodeConditions struct {
	// conditions of the Node, ours and others'.
	conditions []corev1.NodeCondition
	// owned are the types of those that we applied.
	owned []string
}

// ours reports whether a condition is ours: by its prefix, whatever the managed
// fields, which any client that may write the Node can clear; and those that we
// applied, such as Ready.
func (k *nodeConditions) ours(t corev1.NodeConditionType) bool {
	return IsOurs(t) || slices.Contains(k.owned, string(t))
}

func nodeConditionsOf(node *corev1.Node) *nodeConditions {
	return &nodeConditions{conditions: node.Status.Conditions, owned: ownedTypes(node.ManagedFields)}
}

// plan returns the conditions to apply, and why; why is empty if there is nothing to
// write. A condition's lastTransitionTime changes only with its status, its
// lastHeartbeatTime with every write.
func plan(k *nodeConditions, want []Condition, now time.Time, reportEvery time.Duration) ([]corev1.NodeCondition, Write) {
	stamp := metav1.NewTime(now.UTC().Truncate(time.Second))
	conditions := []corev1.NodeCondition{}
	changed, due := false, false
	given := map[string]bool{}
	for _, w := range want {
		if given[w.Type] {
			continue // the API server refuses a list that names a type twice
		}
		given[w.Type] = true
		c := corev1.NodeCondition{
			Type: corev1.NodeConditionType(w.Type), Status: w.Status, Reason: w.Reason, Message: w.Message,
			LastHeartbeatTime: stamp, LastTransitionTime: stamp,
		}
		was := k.find(w.Type)
		if was != nil && was.Status == w.Status && !was.LastTransitionTime.IsZero() {
			c.LastTransitionTime = was.LastTransitionTime
		}
		changed = changed || was == nil || was.Status != w.Status || was.Reason != w.Reason
		due = due || was == nil || overdue(was.LastHeartbeatTime.Time, now, reportEvery)
		conditions = append(conditions, c)
	}
	for _, c := range k.conditions {
		changed = changed || k.ours(c.Type) && !given[string(c.Type)]
	}
	switch {
	case changed:
		return conditions, Changed
	case due:
		return conditions, Report
	}
	return nil, ""
}

// overdue reports whether a heartbeat is old. One ahead of our clock counts as old,
// or no status would be written after the clock was set back.
func overdue(last, now time.Time, reportEvery time.Duration) bool {
	return now.Sub(last) >= reportEvery || last.Sub(now) > time.Second
}

func (k *nodeConditions) find(conditionType string) *corev1.NodeCondition {
	i := slices.IndexFunc(k.conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == conditionType })
	if i < 0 {
		return nil
	}
	return &k.conditions[i]
}

// ownedTypes returns the conditions that we applied, from a Node's managed fields, in
// the form of structured-merge-diff's fieldpath: a member "f:name", an element of a
// keyed list `k:{"type":"Ready"}`. client-go's extraction would need the schema of
// the whole API in RAM.
func ownedTypes(entries []metav1.ManagedFieldsEntry) []string {
	var types []string
	for _, e := range entries {
		if e.Manager != fieldManager || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "status" || e.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Status struct {
				Conditions map[string]json.RawMessage `json:"f:conditions"`
			} `json:"f:status"`
		}
		if json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range fields.Status.Conditions {
			var element struct{ Type string }
			keyed, ok := strings.CutPrefix(key, "k:")
			if ok && json.Unmarshal([]byte(keyed), &element) == nil && element.Type != "" {
				types = append(types, element.Type)
			}
		}
	}
	slices.Sort(types)
	return types
}
