package agents

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// sight is the cache of Leases and Nodes, joined by name.
type sight struct {
	// asked signals a new eviction request; its capacity is 1.
	asked         chan struct{}
	leases, nodes shelf

	mu     sync.Mutex // guards agents
	agents map[string]*Agent
}

func newSight() *sight {
	s := &sight{asked: make(chan struct{}, 1), agents: map[string]*Agent{}}
	s.leases = shelf{name: "leases", sight: s, see: s.seeLease}
	s.nodes = shelf{name: "nodes", sight: s, see: s.seeNode}
	return s
}

// synced tells whether the initial lists are complete.
func (s *sight) synced() bool { return s.leases.full.Load() && s.nodes.full.Load() }

// all returns copies of all agents, in no order.
func (s *sight) all() []Agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Agent, 0, len(s.agents))
	for _, a := range s.agents {
		list = append(list, *a)
	}
	return list
}

// seeLease stores a Lease; nil: it was deleted. Only a renewal is a heartbeat, since
// others write to Leases too.
func (s *sight) seeLease(name string, object any, now time.Time) {
	l, _ := object.(*coordinationv1.Lease)
	s.change(name, now, func(a *Agent) (sign bool) {
		was := a.Lease
		a.Lease = l
		if l == nil {
			a.Carried, a.Odd = lease.Carried{}, nil
			return false
		}
		if was == nil || !sameCarried(was, l) {
			a.Carried, a.Odd = lease.ReadCarried(l.Annotations)
		}
		if was == nil || was.Annotations[lease.EvictionsAnnotation] != l.Annotations[lease.EvictionsAnnotation] {
			a.Asked = now
			s.ring(a)
		}
		renewed := was != nil && !was.Spec.RenewTime.Equal(l.Spec.RenewTime)
		if renewed {
			a.Renewed = now
		}
		return was == nil || renewed
	})
}

func sameCarried(a, b *coordinationv1.Lease) bool {
	for _, key := range carried() {
		if a.Annotations[key] != b.Annotations[key] {
			return false
		}
	}
	return true
}

func carried() [3]string {
	return [3]string{lease.NodeAnnotation, lease.EvictionsAnnotation, lease.GrantedAnnotation}
}

// seeNode stores a Node; nil: it was deleted. A status written by its agent is a
// heartbeat, and so is a new Node of the same name.
func (s *sight) seeNode(name string, object any, now time.Time) {
	n, _ := object.(*corev1.Node)
	s.change(name, now, func(a *Agent) (sign bool) {
		was := a.Node
		a.Node = n
		if was == nil || n == nil {
			return n != nil
		}
		return was.UID != n.UID || !lease.LastHeartbeat(was.Status.Conditions).Equal(lease.LastHeartbeat(n.Status.Conditions))
	})
}

// change updates an agent, and drops it when it has neither Lease nor Node.
func (s *sight) change(name string, now time.Time, change func(*Agent) (sign bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil {
		a = &Agent{Name: name, Heard: now}
		s.agents[name] = a
	}
	if change(a) {
		a.Heard = now
	}
	if a.Lease == nil && a.Node == nil {
		delete(s.agents, name)
	}
}

// ring triggers a reconcile, at most once in lookEvery for one agent: the next
// round comes by then anyway, and an agent that keeps changing its requests must not
// cause more.
func (s *sight) ring(a *Agent) {
	if len(a.Carried.Requests) == 0 || a.Asked.Sub(a.rang) < lookEvery {
		return
	}
	a.rang = a.Asked
	select {
	case s.asked <- struct{}{}:
	default: // already signalled
	}
}

// names of the agents that match.
func (s *sight) names(has func(*Agent) bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for name, a := range s.agents {
		if has(a) {
			list = append(list, name)
		}
	}
	return list
}

// shelf is the reflector store that feeds the sight.
type shelf struct {
	name  string
	sight *sight
	see   func(name string, object any, now time.Time)
	full  atomic.Bool
}

func nameOf(object any) string {
	switch o := object.(type) {
	case *corev1.Node:
		return o.Name
	case *coordinationv1.Lease:
		return o.Name
	}
	return ""
}

// transform trims an object to what is needed: a Node has 15 kB and more.
func transform(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Node:
		return trimNode(o), nil
	case *coordinationv1.Lease:
		return trimLease(o), nil
	}
	return nil, fmt.Errorf("unexpected object of type %T: want Node or Lease", object)
}

func trimLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, ResourceVersion: l.ResourceVersion, Annotations: lease.Carry(l.Annotations)},
		Spec:       coordinationv1.LeaseSpec{RenewTime: l.Spec.RenewTime},
	}
}

func trimNode(n *corev1.Node) *corev1.Node {
	trimmed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
		Labels: only(n.Labels, corev1.LabelTopologyZone), Annotations: only(n.Annotations, evict.TaintsAnnotation),
	}}
	if len(trimmed.Annotations) > 0 { // taints matter only where the annotation records some
		trimmed.Spec.Taints = n.Spec.Taints
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady || lease.Ours(c.Type) {
			c.Message = ""
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
		}
	}
	return trimmed
}

func only(of map[string]string, keys ...string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		if value, there := of[key]; there {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// Transformer makes the reflector trim the objects of a list as well.
func (s *shelf) Transformer() cache.TransformFunc { return transform }

// Add, Update and Delete implement [cache.ReflectorStore].
func (s *shelf) Add(o any) error    { return s.Update(o) }
func (s *shelf) Delete(o any) error { s.see(nameOf(o), nil, time.Now()); return nil }

// Update stores an object.
func (s *shelf) Update(o any) error {
	o, err := transform(o)
	if err == nil {
		s.see(nameOf(o), o, time.Now())
	}
	return err
}

// Replace stores a complete list.
func (s *shelf) Replace(list []any, _ string) error {
	there := map[string]bool{}
	for _, o := range list {
		there[nameOf(o)] = true
		if err := s.Update(o); err != nil {
			return err
		}
	}
	for _, name := range s.sight.names(func(a *Agent) bool { return s.has(a) && !there[a.Name] }) {
		s.see(name, nil, time.Now())
	}
	s.full.Store(true)
	return nil
}

func (s *shelf) has(a *Agent) bool {
	if s == &s.sight.nodes {
		return a.Node != nil
	}
	return a.Lease != nil
}

// Resync does nothing.
func (s *shelf) Resync() error { return nil }
