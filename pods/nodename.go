package pods

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// creatorSetNodeName reports whether a pod's creator set spec.nodeName, by the managed
// fields: such a creator owns f:spec/f:nodeName, while a scheduler's binding owns
// nothing. Erased managed fields ([{}]) protect no pod: any client that may change
// the pod can erase them.
func creatorSetNodeName(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, ownsNodeName)
}

// ownsNodeName reports whether an entry owns spec.nodeName. An unreadable one does not.
func ownsNodeName(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil || entry.Subresource != "" {
		return false
	}
	if entry.FieldsV1.GetRawString() == strippedNodeNameOwner { // the stripped form, without decoding
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

// strippedNodeNameOwner is the entry as strip leaves it.
const strippedNodeNameOwner = `{"f:spec":{"f:nodeName":{}}}`

func stripManagedFields(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	if !creatorSetNodeName(fields) {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strippedNodeNameOwner)}}
}
