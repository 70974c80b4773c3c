package vgdp

import (
	"cmp"
	"slices"
)

// Node of the cluster, as far as its pressure is not concerned.
type Node struct {
	Features
	// Agents of Velero's that run there, by the namespace of their Velero.
	Agents map[string]Agent
}

// Agent is a node-agent of Velero's.
type Agent struct {
	Ready bool
	// Concurrency that binds it, see Binding.
	Concurrency int
	// PrepareLimit that it read at its start; 0: none.
	PrepareLimit int
}

// Fleet is the nodes, and which of them each load can run on. It belongs to one
// goroutine, keeps what it has found out, and is made anew when a node changes.
type Fleet struct {
	nodes   []Node // by name
	index   map[string]int
	alone   []Reach            // of who is bound to each node
	agents  map[string][]Agent // by namespace and node
	reaches map[reachKey]*Reach
	prepare map[string]int // by namespace: the highest PrepareLimit of its agents
}

type reachKey struct{ namespace, place string }

// NewFleet of nodes in any order.
func NewFleet(nodes []Node) *Fleet {
	f := &Fleet{
		nodes: slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) }),
		index: map[string]int{}, agents: map[string][]Agent{}, reaches: map[reachKey]*Reach{}, prepare: map[string]int{},
	}
	f.alone = make([]Reach, len(nodes))
	for i := range f.nodes {
		f.index[f.nodes[i].Name] = i
		f.alone[i] = Reach{Nodes: []string{f.nodes[i].Name}, nodes: []int{i}, bound: true}
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
func (f *Fleet) HasAgent(node, namespace string) bool {
	_, has := f.Agent(node, namespace)
	return has
}

// Agent of a Velero on a node.
func (f *Fleet) Agent(node, namespace string) (a Agent, there bool) {
	if i, known := f.index[node]; known {
		a, there = f.nodes[i].Agents[namespace]
	}
	return a, there
}

// Reach is the nodes that a load can run on, and why it cannot on the others.
type Reach struct {
	Nodes []string
	// Missed is how many nodes each obstacle excludes; a node counts for the
	// first that it has.
	Missed map[Obstacle]int

	nodes []int
	bound bool // to its one node: the scheduler has no say
}

// Of a load: all nodes that will do, pressed or not.
func (f *Fleet) Of(l *Load) *Reach {
	if l.Node != "" {
		return f.bound(l)
	}
	key := reachKey{l.Namespace, l.Place.key}
	r := f.reaches[key]
	if r == nil {
		r = f.anywhere(l)
		f.reaches[key] = r
	}
	return r
}

func (f *Fleet) anywhere(l *Load) *Reach {
	r := &Reach{Missed: map[Obstacle]int{}}
	agents := f.agentsOf(l.Namespace)
	for i := range f.nodes {
		n := &f.nodes[i]
		obstacle := l.Place.obstacle(&n.Features)
		if obstacle == "" && !agents[i].Ready {
			obstacle = ObstacleAgent
		}
		r.add(i, n.Name, obstacle)
	}
	return r
}

// bound to its node: the scheduler has no say, but its node-agent has.
func (f *Fleet) bound(l *Load) *Reach {
	i, there := f.index[l.Node]
	switch {
	case !there:
		return &Reach{Missed: map[Obstacle]int{ObstacleGone: 1}}
	case !f.agentsOf(l.Namespace)[i].Ready:
		return &Reach{Missed: map[Obstacle]int{ObstacleAgent: 1}}
	}
	return &f.alone[i]
}

// agentsOf a Velero by node; the zero value: none.
func (f *Fleet) agentsOf(namespace string) []Agent {
	if f.agents[namespace] == nil {
		f.agents[namespace] = make([]Agent, len(f.nodes))
	}
	return f.agents[namespace]
}

func (r *Reach) add(i int, name string, o Obstacle) {
	if o != "" {
		r.Missed[o]++
		return
	}
	r.nodes, r.Nodes = append(r.nodes, i), append(r.Nodes, name)
}
