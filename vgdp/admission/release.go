package admission

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// ReleasePatch is the JSON merge patch that removes all annotations of the
// controller from a load, and restores the data mover of a hidden one; nil: there
// is nothing to remove. A user's priority stays.
func ReleasePatch(u *unstructured.Unstructured) (body []byte, hidden bool, err error) {
	was := u.GetAnnotations()
	words := map[string]any{}
	for _, word := range []string{gate.Admitted, gate.Started, gate.OriginalDataMover, gate.Waiting, gate.Diagnosis} {
		if _, there := was[word]; there {
			words[word] = nil
		}
	}
	patch := map[string]any{}
	if hidden = fields(u.Object).text("spec", "datamover") == gate.HiddenMover; hidden {
		var original any // nil: it was left out
		if mover := was[gate.OriginalDataMover]; mover != "" {
			original = mover
		}
		patch["spec"] = map[string]any{"datamover": original}
	}
	if len(words) == 0 && !hidden {
		return nil, false, nil
	}
	patch["metadata"] = map[string]any{"resourceVersion": u.GetResourceVersion(), "annotations": words}
	body, err = json.Marshal(patch)
	return body, hidden, err
}
