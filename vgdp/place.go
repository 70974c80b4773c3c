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

// Place is where the pod of a data mover may run. The zero value: on every node without
// taints.
type Place struct{ *place }

type place struct {
	affinity    *selector
	volumes     []*selector
	tolerations []corev1.Toleration
	// What it was made of, and that as text: places with the same are the same.
	of  PlaceSpec
	key string
}

// PlaceSpec is what a Place is made of.
type PlaceSpec struct {
	// Affinity of the pod; nil: anywhere.
	Affinity *corev1.Affinity
	// Volumes are the topologies of its volumes, each of which must match.
	Volumes []*corev1.NodeSelector
	// Tolerations of the pod, see MoverTolerations.
	Tolerations []corev1.Toleration
}

// NewPlace is a place.
func NewPlace(of PlaceSpec) Place {
	p := &place{tolerations: of.Tolerations, of: of}
	if of.Affinity != nil && of.Affinity.NodeAffinity != nil {
		p.affinity = newSelector(of.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	for _, v := range of.Volumes {
		p.volumes = append(p.volumes, newSelector(v))
	}
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // plain values, which JSON can always encode
	}
	p.key = string(text)
	return Place{p}
}

// With is the place with one more volume; nil: without a topology.
func (p Place) With(volume *corev1.NodeSelector) Place {
	if volume == nil {
		return p
	}
	of := p.get().of
	of.Volumes = append(slices.Clone(of.Volumes), volume)
	return NewPlace(of)
}

// text is the same for places that are the same.
func (p Place) text() string {
	if p.place == nil {
		return ""
	}
	return p.key
}

// get is the place of a Place that may be zero.
func (p Place) get() *place {
	if p.place == nil {
		return &place{}
	}
	return p.place
}

// OnOS adds Velero's requirement for the operating system.
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

// obstacle is why the pod cannot run on the node; empty: it can. Topology.candidates
// relies on the volumes being the first.
func (p *place) obstacle(n *Features) Obstacle {
	switch {
	case slices.ContainsFunc(p.volumes, func(v *selector) bool { return !v.selects(n) }):
		return ObstacleVolume
	case !p.affinity.selects(n):
		return ObstacleAffinity
	case n.Unschedulable:
		return ObstacleCordoned
	case !p.tolerates(n.Taints):
		return ObstacleTaint
	}
	return ""
}

func (p *place) tolerates(taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule &&
			!slices.ContainsFunc(p.tolerations, func(o corev1.Toleration) bool {
				return o.ToleratesTaint(klog.Background(), &t, false)
			})
	})
}

// inherited are the keys of the tolerations that a mover's pod inherits from the
// node-agents (ThirdPartyTolerations in pkg/util of Velero 1.17 and later).
func inherited() []string {
	return []string{"kubernetes.azure.com/scalesetpriority", "CriticalAddonsOnly"}
}

// MoverTolerations are the tolerations of the pod of a data mover: for each key that
// Velero knows the first toleration of the node-agents of that operating system, and on
// Windows those of its usual taint. Every other toleration of the node-agents is theirs
// alone.
func MoverTolerations(agent []corev1.Toleration, windows bool) []corev1.Toleration {
	var list []corev1.Toleration
	for _, key := range inherited() {
		if i := slices.IndexFunc(agent, func(t corev1.Toleration) bool { return t.Key == key }); i >= 0 {
			list = append(list, agent[i])
		}
	}
	if windows {
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			list = append(list, corev1.Toleration{Key: "os", Operator: corev1.TolerationOpEqual, Value: "windows", Effect: effect})
		}
	}
	return list
}
