package pods

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// placement says who chose a pod's node.
type placement int

const (
	// placementUnknown: the record of who set what is not there any more.
	placementUnknown placement = iota
	// placedByScheduler: whoever created the pod left its node open.
	placedByScheduler
	// placedByCreator: whoever created the pod named its node.
	placedByCreator
)

// placedBy reads it from the API server's record of who set which field: a
// creator who names a node owns f:spec/f:nodeName from then on, while the
// binding that a scheduler makes owns nothing. The record can be erased
// (managedFields: [{}]), and later changes start a new one: only the entry of
// the creation itself, which owns the name of a container, proves that the
// node was left open.
func placedBy(fields []metav1.ManagedFieldsEntry) placement {
	who := placementUnknown
	for _, entry := range fields {
		named, created := readOwned(entry)
		if named {
			return placedByCreator
		}
		if created {
			who = placedByScheduler
		}
	}
	return who
}

// ownedFields is what is read of an entry: what of a pod's specification its
// manager owns.
type ownedFields struct {
	Spec struct {
		NodeName   json.RawMessage                       `json:"f:nodeName"`
		Containers map[string]map[string]json.RawMessage `json:"f:containers"`
	} `json:"f:spec"`
}

// readOwned tells whether an entry owns the node's name, and whether it is of
// the pod's creation. One that cannot be read proves neither.
func readOwned(entry metav1.ManagedFieldsEntry) (named, created bool) {
	if entry.FieldsV1 == nil || entry.Subresource != "" {
		return false, false
	}
	switch entry.FieldsV1.GetRawString() {
	case strippedNamed: // as below, without the work
		return true, false
	case strippedPlaced:
		return false, true
	}
	var owned ownedFields
	if err := json.NewDecoder(entry.FieldsV1.GetRawReader()).Decode(&owned); err != nil {
		return false, false
	}
	for _, container := range owned.Spec.Containers {
		if _, there := container["f:name"]; there {
			created = true
		}
	}
	return owned.Spec.NodeName != nil, created
}

// The record as strip leaves it: who placed the pod, in the record's own form.
const (
	strippedPlaced = `{"f:spec":{"f:containers":{"k":{"f:name":{}}}}}`
	strippedNamed  = `{"f:spec":{"f:nodeName":{}}}`
)

func stripManagedFields(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	kept := ""
	switch placedBy(fields) {
	case placedByCreator:
		kept = strippedNamed
	case placedByScheduler:
		kept = strippedPlaced
	case placementUnknown:
		return nil
	}
	return []metav1.ManagedFieldsEntry{{FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(kept)}}
}
