package vgdp

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// Features of a node that the scheduler filters by.
type Features struct {
	Name          string
	Labels        map[string]string
	Taints        []corev1.Taint
	Unschedulable bool
}

// Obstacle is why a node is not possible, in one word.
type Obstacle string

// The obstacles.
const (
	ObstacleAffinity    Obstacle = "affinity" // loadAffinity or the operating system excludes it
	ObstacleVolume      Obstacle = "volume"   // the volume's topology excludes it
	ObstacleCordoned    Obstacle = "cordoned"
	ObstacleTaint       Obstacle = "taint"
	ObstacleAgent       Obstacle = "agent" // no node-agent of its Velero is ready there
	ObstacleNodeDeleted Obstacle = "gone"  // the node does not exist
)

// Place is where the pod of a data mover may run.
type Place struct {
	affinity, volume *selector
	tolerations      []corev1.Toleration
	key              string
}

// NewPlace is the place of a pod with this affinity and these tolerations, and of a
// volume with this topology; nil: anywhere.
func NewPlace(pod *corev1.Affinity, volume *corev1.NodeSelector, tolerations []corev1.Toleration) Place {
	var required *corev1.NodeSelector
	if pod != nil && pod.NodeAffinity != nil {
		required = pod.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	p := Place{affinity: newSelector(required), volume: newSelector(volume), tolerations: tolerations}
	text, err := json.Marshal([]any{required, volume, tolerations})
	if err != nil {
		panic(err) // plain values, which JSON can always encode
	}
	p.key = string(text)
	return p
}

// OnOS adds Velero's requirement for the operating system of the source.
func OnOS(a *LoadAffinity, windows bool) *LoadAffinity {
	out := &LoadAffinity{}
	if a != nil {
		out = a.copy()
	}
	operator := metav1.LabelSelectorOpNotIn
	if windows {
		operator = metav1.LabelSelectorOpIn
	}
	s := &out.NodeSelector
	s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelOSStable, Operator: operator, Values: []string{"windows"},
	})
	return out
}

// AllowedTopologies of a storage class as a selector; nil: all.
func AllowedTopologies(terms []corev1.TopologySelectorTerm) *corev1.NodeSelector {
	if len(terms) == 0 {
		return nil
	}
	s := &corev1.NodeSelector{}
	for _, t := range terms {
		var term corev1.NodeSelectorTerm
		for _, e := range t.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: e.Key, Operator: corev1.NodeSelectorOpIn, Values: e.Values,
			})
		}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, term)
	}
	return s
}

// obstacle is why the pod cannot run on the node; empty: it can.
func (p *Place) obstacle(n *Features) Obstacle {
	switch {
	case !p.affinity.selects(n):
		return ObstacleAffinity
	case !p.volume.selects(n):
		return ObstacleVolume
	case n.Unschedulable:
		return ObstacleCordoned
	case !p.tolerates(n.Taints):
		return ObstacleTaint
	}
	return ""
}

func (p *Place) tolerates(taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule &&
			!slices.ContainsFunc(p.tolerations, func(o corev1.Toleration) bool {
				return o.ToleratesTaint(klog.Background(), &t, false)
			})
	})
}
