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

// agentCache is the cache of Leases and Nodes, joined by name.
type agentCache struct {
	// wake signals a new eviction request; its capacity is 1.
	wake          chan struct{}
	leases, nodes objectStore

	mu     sync.Mutex // guards agents
	agents map[string]*Agent
}

func newAgentCache() *agentCache {
	s := &agentCache{wake: make(chan struct{}, 1), agents: map[string]*Agent{}}
	s.leases = objectStore{name: "leases", sight: s, set: s.setLease}
	s.nodes = objectStore{name: "nodes", sight: s, set: s.setNode}
	return s
}

// synced tells whether the initial lists are complete.
func (s *agentCache) synced() bool { return s.leases.synced.Load() && s.nodes.synced.Load() }

// list returns copies of all agents, in no order.
func (s *agentCache) list() []Agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Agent, 0, len(s.agents))
	for _, a := range s.agents {
		list = append(list, *a)
	}
	return list
}

// setLease stores a Lease; nil: it was deleted. Only a renewal is a heartbeat, since
// others write to Leases too.
func (s *agentCache) setLease(name string, object any, now time.Time) {
	l, _ := object.(*coordinationv1.Lease)
	s.update(name, now, func(a *Agent) (sign bool) {
		was := a.Lease
		a.Lease = l
		if l == nil {
			a.Carried, a.ParseErr = lease.Content{}, nil
			return false
		}
		if was == nil || !sameCarried(was, l) {
			a.Carried, a.ParseErr = lease.ReadContent(l.Annotations)
		}
		if was == nil || was.Annotations[lease.EvictionsAnnotation] != l.Annotations[lease.EvictionsAnnotation] {
			a.RequestedAt = now
			s.signal(a)
		}
		renewed := was != nil && !was.Spec.RenewTime.Equal(l.Spec.RenewTime)
		if renewed {
			a.LastRenewal = now
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
	return [3]string{lease.NodeAnnotation, lease.EvictionsAnnotation, lease.AnswersAnnotation}
}

// setNode stores a Node; nil: it was deleted. A status written by its agent is a
// heartbeat, and so is a new Node of the same name.
func (s *agentCache) setNode(name string, object any, now time.Time) {
	n, _ := object.(*corev1.Node)
	s.update(name, now, func(a *Agent) (sign bool) {
		was := a.Node
		a.Node = n
		if was == nil || n == nil {
			return n != nil
		}
		return was.UID != n.UID || !lease.LastHeartbeat(was.Status.Conditions).Equal(lease.LastHeartbeat(n.Status.Conditions))
	})
}

// update updates an agent, and drops it when it has neither Lease nor Node.
func (s *agentCache) update(name string, now time.Time, change func(*Agent) (sign bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil {
		a = &Agent{Name: name, LastHeartbeat: now}
		s.agents[name] = a
	}
	if change(a) {
		a.LastHeartbeat = now
	}
	if a.Lease == nil && a.Node == nil {
		delete(s.agents, name)
	}
}

// signal triggers a reconcile, at most once in reconcileInterval for one agent: the next
// round comes by then anyway, and an agent that keeps changing its requests must not
// cause more.
func (s *agentCache) signal(a *Agent) {
	if len(a.Carried.Requests) == 0 || a.RequestedAt.Sub(a.signalledAt) < reconcileInterval {
		return
	}
	a.signalledAt = a.RequestedAt
	select {
	case s.wake <- struct{}{}:
	default: // already signalled
	}
}

// names of the agents that match.
func (s *agentCache) names(has func(*Agent) bool) []string {
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

// objectStore is the reflector store that feeds the sight.
type objectStore struct {
	name   string
	sight  *agentCache
	set    func(name string, object any, now time.Time)
	synced atomic.Bool
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
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, ResourceVersion: l.ResourceVersion, Annotations: lease.FilterAnnotations(l.Annotations)},
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
		if c.Type == corev1.NodeReady || lease.IsOurs(c.Type) {
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
func (s *objectStore) Transformer() cache.TransformFunc { return transform }

// Add, Update and Delete implement [cache.ReflectorStore].
func (s *objectStore) Add(o any) error    { return s.Update(o) }
func (s *objectStore) Delete(o any) error { s.set(nameOf(o), nil, time.Now()); return nil }

// Update stores an object.
func (s *objectStore) Update(o any) error {
	o, err := transform(o)
	if err == nil {
		s.set(nameOf(o), o, time.Now())
	}
	return err
}

// Replace stores a complete list.
func (s *objectStore) Replace(list []any, _ string) error {
	there := map[string]bool{}
	for _, o := range list {
		there[nameOf(o)] = true
		if err := s.Update(o); err != nil {
			return err
		}
	}
	for _, name := range s.sight.names(func(a *Agent) bool { return s.has(a) && !there[a.Name] }) {
		s.set(name, nil, time.Now())
	}
	s.synced.Store(true)
	return nil
}

func (s *objectStore) has(a *Agent) bool {
	if s == &s.sight.nodes {
		return a.Node != nil
	}
	return a.Lease != nil
}

// Resync does nothing.
func (s *objectStore) Resync() error { return nil }
