package evict

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/names"
)

// TaintsAnnotation on a Node records which of its taints are ours. It is written
// in one patch with the taints, so the two never disagree. It is all that a
// restarted agent, or the uninstaller, needs.
const TaintsAnnotation = names.Prefix + TaintsName

// TaintsName is TaintsAnnotation without its prefix.
const TaintsName = "taints"

// OwnTaint is a taint of ours as TaintsAnnotation records it.
type OwnTaint struct {
	Key    string             `json:"key"`
	Effect corev1.TaintEffect `json:"effect"`
	// Since is when it was first set, to the second.
	Since metav1.Time `json:"since"`
}

// Owned returns the taints that TaintsAnnotation records as ours, also those that
// were removed by others since: they are still wanted. None without a readable
// record. Keys without our prefix are ignored: the agent writes the record, and
// with a stolen agent token the controller could be made to remove a foreign
// taint.
func Owned(node *corev1.Node) []OwnTaint {
	var all, list []OwnTaint
	if json.Unmarshal([]byte(node.Annotations[TaintsAnnotation]), &all) != nil {
		return nil
	}
	for _, o := range all {
		if strings.HasPrefix(o.Key, names.Prefix) && o.Effect != "" && !slices.ContainsFunc(list, o.same) {
			list = append(list, o)
		}
	}
	return list
}

// same compares key and effect, which identify a taint.
func (o OwnTaint) same(p OwnTaint) bool { return o.Key == p.Key && o.Effect == p.Effect }

// Is tells whether t has its key and effect.
func (o OwnTaint) Is(t corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }
