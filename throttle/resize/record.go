package resize

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// Annotation on a Node records which CPU limits of its pods are ours, and what was there
// before.
const Annotation = names.Prefix + "resized"

// maxRecorded bounds what is read: more than is ever written.
const maxRecorded = 256

// Recorded are the limits that a Node records. What the agent does not write is left out.
func Recorded(node *corev1.Node) ([]throttle.Limit, error) {
	text := node.Annotations[Annotation]
	if text == "" {
		return nil, nil
	}
	var all, list []throttle.Limit
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("annotation %s of Node %s: %w", Annotation, node.Name, err)
	}
	known := map[throttle.Container]bool{}
	for _, l := range all {
		c := l.Container
		if l.Name == throttle.Resize && c.UID != "" && c.Namespace != "" && c.Pod != "" && c.Name != "" && l.Device == "" &&
			l.Original > 0 && l.Value > 0 && !known[c] && len(list) < maxRecorded {
			known[c], list = true, append(list, l)
		}
	}
	return list, nil
}

// recordPatch is the merge patch of a Node that records these limits.
func recordPatch(limits []throttle.Limit) ([]byte, error) {
	var text any // null: no annotation
	if len(limits) > 0 {
		b, err := json.Marshal(limits)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{Annotation: text}}})
}
