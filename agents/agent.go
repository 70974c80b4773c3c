package agents

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
)

// Agent is one node's agent, from its Lease and its Node. The objects that it
// points to are never changed.
type Agent struct {
	// Name of the Node and of the Lease.
	Name string
	// LastHeartbeat is the time of the last heartbeat seen, by this process's monotonic
	// clock: a renewal of the Lease, or a newly written status. Without any it is
	// the time at which the agent was first seen.
	LastHeartbeat time.Time
	// LastRenewal is the time of the last renewal of the Lease seen by this process;
	// zero: none. Requests in a Lease that is not renewed may be obsolete.
	LastRenewal time.Time
	// Lease and Node, trimmed; nil where there is none.
	Lease *coordinationv1.Lease
	Node  *corev1.Node
	// Carried are the decoded annotations of the Lease, Odd the decoding error.
	Carried  lease.Content
	ParseErr error
	// Contention of its heartbeat; nil where it reports none that can be read.
	Contention *lease.NodeContention
	// RequestedAt is when its current requests were first seen, and rang when they last
	// triggered a reconcile.
	RequestedAt time.Time
	signalledAt time.Time
}

// hasAgent tells whether the node has, or had, an agent.
func (a *Agent) hasAgent() bool {
	return a.Node != nil && (a.Lease != nil || a.tainted() || !lease.LastHeartbeat(a.Node.Status.Conditions).IsZero())
}

// tainted tells whether the Node's annotation records taints of Plimsoll.
func (a *Agent) tainted() bool {
	return a.Node != nil && a.Node.Annotations[evict.TaintsAnnotation] != ""
}

// repelsPods tells whether a Plimsoll taint keeps new pods off the Node.
// PreferNoSchedule, as of soft, does not. The content of the annotation is not
// used: the agent controls it, at any length.
func (a *Agent) repelsPods() bool {
	return a.tainted() && slices.ContainsFunc(a.Node.Spec.Taints, func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, names.Prefix) && (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute)
	})
}

// needsUnknown tells whether a Plimsoll condition does not yet say that the agent is
// silent.
func (a *Agent) needsUnknown() bool {
	for _, c := range a.Node.Status.Conditions {
		if lease.IsOurs(c.Type) && c.Reason != lease.ReasonSilent {
			return true
		}
	}
	return false
}

// allUnknown tells whether all Plimsoll conditions already say that the agent is
// silent.
func (a *Agent) allUnknown() bool {
	return !a.needsUnknown() && !lease.LastHeartbeat(a.Node.Status.Conditions).IsZero()
}

// readyStatus is the status of the Node's condition Ready; Unknown without one.
func (a *Agent) readyStatus() corev1.ConditionStatus {
	for _, c := range a.Node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// notReady tells whether the Node has a condition Ready that is not True. A Node
// without the condition counts as up.
func (a *Agent) notReady() bool {
	return slices.ContainsFunc(a.Node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// zone of the Node; empty where it has none.
func (a *Agent) zone() string { return a.Node.Labels[corev1.LabelTopologyZone] }
