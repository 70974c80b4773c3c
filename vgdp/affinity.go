package vgdp

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AffinityFor is the entry for volumes of a storage class (empty: volumes without
// one): the first of that class, else the first without a class, else nil. It is a
// copy.
func AffinityFor(list []LoadAffinity, class string) *LoadAffinity {
	var general *LoadAffinity
	for i := range list {
		a := &list[i]
		if a.StorageClass == class {
			return a.copy()
		}
		if a.StorageClass == "" && general == nil {
			general = a
		}
	}
	if general == nil {
		return nil
	}
	return general.copy()
}

func (a *LoadAffinity) copy() *LoadAffinity {
	return &LoadAffinity{NodeSelector: *a.NodeSelector.DeepCopy(), StorageClass: a.StorageClass}
}

// PodAffinity is what Velero writes into the pod of a data mover: the selector's
// requirements in each term of the volume's topology. nil: nothing is required. It
// differs from Velero twice: matchLabels are sorted (Velero's order is random), and a
// topology without terms counts as none (Velero makes an affinity without terms, which
// no node satisfies and which loses the selector).
func PodAffinity(selector *metav1.LabelSelector, topology *corev1.NodeSelector) *corev1.Affinity {
	requirements := requirements(selector)
	var terms []corev1.NodeSelectorTerm
	switch {
	case topology != nil && len(topology.NodeSelectorTerms) > 0:
		terms = topology.DeepCopy().NodeSelectorTerms
	case len(requirements) > 0:
		terms = make([]corev1.NodeSelectorTerm, 1)
	default:
		return nil
	}
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, requirements...)
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func requirements(selector *metav1.LabelSelector) []corev1.NodeSelectorRequirement {
	if selector == nil {
		return nil
	}
	var list []corev1.NodeSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		list = append(list, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{selector.MatchLabels[key]},
		})
	}
	for _, e := range selector.MatchExpressions {
		list = append(list, corev1.NodeSelectorRequirement{
			Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: slices.Clone(e.Values),
		})
	}
	return list
}
