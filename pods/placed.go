package pods

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namesNode says whether a pod's creator named its node, by the API server's
// record of who set which field: a creator who names a node owns
// f:spec/f:nodeName from then on, while the binding that a scheduler makes owns
// nothing. A record that was erased (managedFields: [{}]) says that of nobody:
// who may change a pod may erase it, and what is missing protects no pod.
func namesNode(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, ownsNode)
}

// ownsNode: an entry owns the node's name. One that cannot be read does not.
func ownsNode(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil || entry.Subresource != "" {
		return false
	}
	if entry.FieldsV1.GetRawString() == strippedNamed { // as below, without the work
		return true
	}
	var owned struct {
		Spec struct {
			NodeName json.RawMessage `json:"f:nodeName"`
		} `json:"f:spec"`
	}
	err := json.NewDecoder(entry.FieldsV1.GetRawReader()).Decode(&owned)
	return err == nil && owned.Spec.NodeName != nil
}

// strippedNamed is the record as strip leaves it, in the record's own form.
const strippedNamed = `{"f:spec":{"f:nodeName":{}}}`

func stripManagedFields(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	if !namesNode(fields) {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strippedNamed)}}
}
