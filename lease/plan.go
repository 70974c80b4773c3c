package lease

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// known is what the Node said when it was last read or written.
type known struct {
	// conditions of the Node, ours and others'.
	conditions []corev1.NodeCondition
	// owned are the types of those that we applied.
	owned []string
}

// ours are conditions by their name, whoever is recorded to own them: anybody
// who may write the Node can clear the record, and the API server then takes
// what is there for somebody else's. Others are ours that we applied, such as
// Ready.
func (k *known) ours(t corev1.NodeConditionType) bool {
	return Ours(t) || slices.Contains(k.owned, string(t))
}

func knownOf(node *corev1.Node) *known {
	return &known{conditions: node.Status.Conditions, owned: ownedTypes(node.ManagedFields)}
}

// plan returns the conditions to apply, and why; no reason when there is
// nothing to write. A condition's time of transition moves only with its
// status, its heartbeat with every write.
func plan(k *known, want []Condition, now time.Time, reportEvery time.Duration) ([]corev1.NodeCondition, Write) {
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

// overdue: a heartbeat ahead of our clock is as good as none, or a clock that
// was set back would keep the status from being written.
func overdue(last, now time.Time, reportEvery time.Duration) bool {
	return now.Sub(last) >= reportEvery || last.Sub(now) > time.Second
}

func (k *known) find(conditionType string) *corev1.NodeCondition {
	i := slices.IndexFunc(k.conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == conditionType })
	if i < 0 {
		return nil
	}
	return &k.conditions[i]
}

// ownedTypes reads from a Node's managed fields which conditions we applied,
// in the form of structured-merge-diff's fieldpath: a member "f:name", an
// element of a keyed list `k:{"type":"Ready"}`. client-go's extraction would
// hold the schema of the whole API in memory for it.
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
