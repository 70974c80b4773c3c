package vgdp

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Node of the cluster, without its pressure.
type Node struct {
	Features
	// Agents are Velero's node-agents there, by the namespace of their Velero.
	Agents map[string]Agent
}

// Agent is a node-agent of Velero's.
type Agent struct {
	Ready bool
	// Concurrency in force, see Binding.
	Concurrency int
	// PrepareLimit that it read at its start; 0: none.
	PrepareLimit int
}

// Topology is the nodes of the cluster and which of them each load can run on. It belongs
// to one goroutine, caches what it derives, and is rebuilt when a node changes.
type Topology struct {
	nodes      []Node // by name
	index      map[string]int
	boundReach []Reach            // of loads bound to each node
	agents     map[string][]Agent // by namespace and node
	reaches    map[reachKey]*Reach
	labelled   map[string]map[string][]int // by label and value, where it was asked for
	prepare    map[string]int              // by namespace: the highest PrepareLimit of its agents
}

type reachKey struct{ namespace, place string }

// NewTopology of nodes in any order.
func NewTopology(nodes []Node) *Topology {
	f := &Topology{
		nodes: slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) }),
		index: map[string]int{}, agents: map[string][]Agent{}, reaches: map[reachKey]*Reach{}, labelled: map[string]map[string][]int{}, prepare: map[string]int{},
	}
	f.boundReach = make([]Reach, len(nodes))
	for i := range f.nodes {
		f.index[f.nodes[i].Name] = i
		f.boundReach[i] = Reach{Nodes: []string{f.nodes[i].Name}, nodes: []int{i}, bound: true}
		for namespace, a := range f.nodes[i].Agents {
			f.agentsOf(namespace)[i] = a
			most, seen := f.prepare[namespace]
			switch {
			case !a.Ready:
			case !seen:
				f.prepare[namespace] = a.PrepareLimit
			case most == 0 || a.PrepareLimit == 0:
				f.prepare[namespace] = 0
			default:
				f.prepare[namespace] = max(most, a.PrepareLimit)
			}
		}
	}
	return f
}

// HasAgent tells whether a node-agent of a Velero is on a node, ready or not.
func (f *Topology) HasAgent(node, namespace string) bool {
	_, has := f.Agent(node, namespace)
	return has
}

// Agent of a Velero on a node.
func (f *Topology) Agent(node, namespace string) (a Agent, there bool) {
	if i, known := f.index[node]; known {
		a, there = f.nodes[i].Agents[namespace]
	}
	return a, there
}

// Plain are the nodes on which a pod without tolerations and affinity may run, but for
// those with Windows.
func (f *Topology) Plain() (list []string) {
	for i := range f.nodes {
		n := &f.nodes[i]
		repels := slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
		if !n.Unschedulable && !repels && n.Labels[corev1.LabelOSStable] != string(corev1.Windows) {
			list = append(list, n.Name)
		}
	}
	return list
}

// Reach is the nodes that a load can run on, and why it cannot on the others.
type Reach struct {
	Nodes []string
	// Excluded is how many nodes each obstacle excludes; a node counts for the
	// first that it has.
	Excluded map[Obstacle]int

	nodes []int
	bound bool // to its one node, regardless of the scheduler
}

// ReachOf is the reach of a load: all possible nodes, with and without pressure.
func (f *Topology) ReachOf(l *Load) *Reach {
	if l.Node != "" {
		return f.bound(l)
	}
	key := reachKey{l.Namespace, l.Place.text()}
	r := f.reaches[key]
	if r == nil {
		r = f.unbound(l)
		f.reaches[key] = r
	}
	return r
}

func (f *Topology) unbound(l *Load) *Reach {
	r := &Reach{Excluded: map[Obstacle]int{}}
	p, agents := l.Place.get(), f.agentsOf(l.Namespace)
	visit := func(i int) {
		obstacle := p.obstacle(&f.nodes[i].Features)
		if obstacle == "" && !agents[i].Ready {
			obstacle = ObstacleAgent
		}
		r.add(i, f.nodes[i].Name, obstacle)
	}
	candidates, few := f.candidates(p)
	if !few {
		for i := range f.nodes {
			visit(i)
		}
		return r
	}
	for _, i := range candidates {
		visit(i)
	}
	if others := len(f.nodes) - len(candidates); others > 0 {
		r.Excluded[ObstacleVolume] += others
	}
	return r
}

// candidates are all nodes where the volumes of a place can be, and maybe more: those
// with a label value that the topology of one of them names. Each volume of a local disk
// has a place of its own, and each place would else be held against every node. few is
// false where no volume names one.
func (f *Topology) candidates(p *place) (list []int, few bool) {
	for _, v := range p.volumes {
		if list, few := f.named(v); few {
			return list, true
		}
	}
	return nil, false
}

// named are the nodes with one of the label values that a selector wants, where each of
// its terms wants some.
func (f *Topology) named(s *selector) (list []int, few bool) {
	if s == nil {
		return nil, false
	}
	for i := range s.terms {
		key, values := s.terms[i].oneOf()
		if key == "" {
			return nil, false
		}
		for _, value := range values {
			list = append(list, f.byValue(key)[value]...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), true
}

// byValue are the nodes by the value of a label.
func (f *Topology) byValue(label string) map[string][]int {
	values := f.labelled[label]
	if values == nil {
		values = map[string][]int{}
		for i := range f.nodes {
			if value, has := f.nodes[i].Labels[label]; has {
				values[value] = append(values[value], i)
			}
		}
		f.labelled[label] = values
	}
	return values
}

// bound is the reach of a load with a fixed node: the scheduler does not decide, but
// the node needs a ready node-agent.
func (f *Topology) bound(l *Load) *Reach {
	i, there := f.index[l.Node]
	switch {
	case !there:
		return &Reach{Excluded: map[Obstacle]int{ObstacleNodeDeleted: 1}}
	case !f.agentsOf(l.Namespace)[i].Ready:
		return &Reach{Excluded: map[Obstacle]int{ObstacleAgent: 1}}
	}
	return &f.boundReach[i]
}

// agentsOf are the node-agents of a Velero by node; the zero value: none.
func (f *Topology) agentsOf(namespace string) []Agent {
	if f.agents[namespace] == nil {
		f.agents[namespace] = make([]Agent, len(f.nodes))
	}
	return f.agents[namespace]
}

func (r *Reach) add(i int, name string, o Obstacle) {
	if o != "" {
		r.Excluded[o]++
		return
	}
	r.nodes, r.Nodes = append(r.nodes, i), append(r.Nodes, name)
}
