package vgdp

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// selector of nodes with the scheduler's semantics: one term must match with all its
// requirements. A term without requirements, or with an invalid one, never matches. nil
// selects all.
type selector struct{ terms []term }

type term struct{ labels, fields []labels.Requirement }

func newSelector(s *corev1.NodeSelector) *selector {
	if s == nil {
		return nil
	}
	out := &selector{}
	for _, t := range s.NodeSelectorTerms {
		ofLabels, err1 := allParsed(t.MatchExpressions)
		ofFields, err2 := allParsed(t.MatchFields)
		if err1 == nil && err2 == nil && len(ofLabels)+len(ofFields) > 0 {
			out.terms = append(out.terms, term{ofLabels, ofFields})
		}
	}
	return out
}

func allParsed(list []corev1.NodeSelectorRequirement) (out []labels.Requirement, err error) {
	for _, e := range list {
		r, err := parsed(e)
		if err != nil {
			return nil, err
		}
		out = append(out, *r)
	}
	return out, nil
}

func parsed(e corev1.NodeSelectorRequirement) (*labels.Requirement, error) {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	return labels.NewRequirement(e.Key, operators[e.Operator], e.Values)
}

func (s *selector) selects(n *Features) bool {
	return s == nil || slices.ContainsFunc(s.terms, func(t term) bool {
		return hold(t.labels, n.Labels) && hold(t.fields, map[string]string{"metadata.name": n.Name})
	})
}

// oneOf is a label that nodes of the term have, with one of these values; empty: it wants
// none.
func (t *term) oneOf() (label string, values []string) {
	for i := range t.labels {
		if r := &t.labels[i]; r.Operator() == selection.In {
			return r.Key(), r.ValuesUnsorted()
		}
	}
	return "", nil
}

func hold(list []labels.Requirement, of labels.Set) bool {
	for i := range list {
		if !list[i].Matches(of) {
			return false
		}
	}
	return true
}
