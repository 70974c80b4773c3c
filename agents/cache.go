package agents

import (
	"cmp"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/store"
)

// agentCache is the cache of Leases and Nodes, joined by name.
type agentCache struct {
	// wake signals a new eviction request, and the first lists.
	wake   store.Signal
	leases *store.Store[*coordinationv1.Lease]
	nodes  *store.Store[*corev1.Node]

	mu     sync.Mutex // guards agents
	agents map[string]*Agent
}

func newAgentCache() *agentCache {
	s := &agentCache{wake: store.NewSignal(), agents: map[string]*Agent{}}
	s.leases = store.New("leases", s.wake, trimLease, func(was, is *coordinationv1.Lease) bool { return s.setLease(cmp.Or(is, was).Name, is, time.Now()) })
	s.nodes = store.New("nodes", s.wake, trimNode, func(was, is *corev1.Node) bool { s.setNode(cmp.Or(is, was).Name, is, time.Now()); return false })
	return s
}

// synced tells whether the initial lists are complete.
func (s *agentCache) synced() bool { return s.leases.Synced() && s.nodes.Synced() }

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
// others write to Leases too. It tells whether the agent's requests need a round.
func (s *agentCache) setLease(name string, l *coordinationv1.Lease, now time.Time) (wake bool) {
	s.update(name, now, func(a *Agent) (sign bool) {
		was := a.Lease
		a.Lease = l
		if l == nil {
			a.Carried, a.ParseErr, a.UnreadableSince, a.Contention = lease.Content{}, nil, time.Time{}, nil
			return false
		}
		if was == nil || !sameCarried(was, l) {
			a.readAnnotations(now)
		}
		if was == nil || was.Annotations[lease.ContentionAnnotation] != l.Annotations[lease.ContentionAnnotation] {
			a.Contention = contentionOf(l.Annotations)
		}
		if was == nil || was.Annotations[lease.EvictionsAnnotation] != l.Annotations[lease.EvictionsAnnotation] {
			a.RequestedAt = now
			wake = a.signal()
		}
		renewed := was != nil && a.renewTime() != nil && !was.Spec.RenewTime.Equal(l.Spec.RenewTime)
		if renewed {
			a.LastRenewal, a.Heard = now, true
		}
		return was == nil || renewed
	})
	return wake
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
func (s *agentCache) setNode(name string, n *corev1.Node, now time.Time) {
	s.update(name, now, func(a *Agent) (sign bool) {
		was := a.Node
		a.Node = n
		if was == nil || n == nil {
			return n != nil
		}
		written := was.UID != n.UID || !lease.LastHeartbeat(was.Status.Conditions).Equal(lease.LastHeartbeat(n.Status.Conditions))
		a.Heard = a.Heard || written
		return written
	})
}

// recordHeartbeat records one that the API server has and this cache does not have yet.
func (s *agentCache) recordHeartbeat(name string, now time.Time) {
	s.update(name, now, func(a *Agent) (sign bool) { a.Heard = true; return true })
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

// signal tells whether new requests need a round: at most once in reconcileInterval for
// one agent. The next round comes by then anyway, and an agent that keeps changing its
// requests must not cause more.
func (a *Agent) signal() bool {
	if len(a.Carried.Requests) == 0 || a.RequestedAt.Sub(a.signalledAt) < reconcileInterval {
		return false
	}
	a.signalledAt = a.RequestedAt
	return true
}

// trimLease keeps what is used of a Lease. What the agent of one without renewTime reported
// is as old as its last renewal, so it is dropped; the controller's answers are kept.
func trimLease(o any) (*coordinationv1.Lease, error) {
	l, is := o.(*coordinationv1.Lease)
	if !is {
		return nil, store.ErrType(o)
	}
	annotations := lease.FilterAnnotations(l.Annotations)
	if l.Spec.RenewTime == nil {
		annotations = only(annotations, lease.AnswersAnnotation)
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: l.Namespace, ResourceVersion: l.ResourceVersion, Annotations: annotations},
		Spec:       coordinationv1.LeaseSpec{RenewTime: l.Spec.RenewTime},
	}, nil
}

// trimNode reduces a Node, which has 15 kB and more.
func trimNode(o any) (*corev1.Node, error) {
	n, is := o.(*corev1.Node)
	if !is {
		return nil, store.ErrType(o)
	}
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
	return trimmed, nil
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
