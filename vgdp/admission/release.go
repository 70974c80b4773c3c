package admission

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Ended tells whether a load's phase is final.
func Ended(u *unstructured.Unstructured) bool {
	return ended(&vgdp.Load{Phase: vgdp.Phase(fields(u.Object).text("status", "phase"))})
}

// ReleasePatch is the JSON merge patch that removes all annotations of the
// controller from a load, and restores the data mover of a hidden one; nil: there
// is nothing to remove. A user's priority stays.
func ReleasePatch(u *unstructured.Unstructured) (body []byte, hidden bool, err error) {
	was := u.GetAnnotations()
	words := map[string]any{}
	for _, word := range []string{gate.Admitted, gate.Started, gate.OriginalDataMover, gate.Waiting, gate.PostponedUntil, gate.Diagnosis} {
		if _, there := was[word]; there {
			words[word] = nil
		}
	}
	patch := map[string]any{}
	if hidden = isHidden(u); hidden {
		patch["spec"] = map[string]any{"datamover": originalMover(u)}
	}
	if len(words) == 0 && !hidden {
		return nil, false, nil
	}
	patch["metadata"] = map[string]any{"resourceVersion": u.GetResourceVersion(), "annotations": words}
	body, err = json.Marshal(patch)
	return body, hidden, err
}

// StalePatch is the JSON merge patch that restores the data mover of a hidden load that
// no Gate holds any more, by the API server's clock; nil: it is not hidden, or held. It
// says the same as policy plimsoll-release-hidden. A nil Gate: there is none.
func StalePatch(u *unstructured.Unstructured, main *gate.Gate, now time.Time) (body []byte, hidden bool, err error) {
	if !isHidden(u) {
		return nil, false, nil
	}
	leaves := fields(u.Object).yes("spec", "cancel") || u.GetDeletionTimestamp() != nil
	if !leaves && main != nil && main.Spec.Fresh(now) && now.Before(main.Spec.HoldsUntil(u.GetCreationTimestamp().Time, timeOf(u.GetAnnotations()[gate.PostponedUntil]))) {
		return nil, true, nil
	}
	body, err = json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": u.GetResourceVersion(), "annotations": map[string]any{gate.OriginalDataMover: nil}},
		"spec":     map[string]any{"datamover": originalMover(u)},
	})
	return body, true, err
}

func isHidden(u *unstructured.Unstructured) bool {
	return fields(u.Object).text("spec", "datamover") == gate.HiddenMover
}

// originalMover is the data mover that a hidden load had; nil: it was left out.
func originalMover(u *unstructured.Unstructured) any {
	if mover := u.GetAnnotations()[gate.OriginalDataMover]; mover != "" {
		return mover
	}
	return nil
}
