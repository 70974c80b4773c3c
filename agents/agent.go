package agents

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// Heard: this process has seen a heartbeat, not only what an earlier one has left.
	Heard bool
	// LastRenewal is the time of the last renewal of the Lease seen by this process;
	// zero: none. Requests in a Lease that is not renewed may be obsolete.
	LastRenewal time.Time
	// Lease and Node, trimmed; nil where there is none. A Lease without renewTime is no
	// heartbeat: its agent renews it no more.
	Lease *coordinationv1.Lease
	Node  *corev1.Node
	// Carried are the decoded annotations of the Lease, ParseErr the decoding error.
	Carried  lease.Content
	ParseErr error
	// UnreadableSince is since when its answers, and so its past evictions, cannot be
	// read; zero: they can.
	UnreadableSince time.Time
	// Contention of its heartbeat; nil where it reports none that can be read.
	Contention *lease.NodeContention
	// RequestedAt is when its current requests were first seen, and rang when they last
	// triggered a reconcile.
	RequestedAt time.Time
	signalledAt time.Time
}

// hasAgent tells whether the node has, or had, an agent.
func (a *Agent) hasAgent() bool {
	return a.Node != nil && (a.renewTime() != nil || a.tainted() || !lease.LastHeartbeat(a.Node.Status.Conditions).IsZero())
}

// renewTime of its Lease; nil: it renews none.
func (a *Agent) renewTime() *metav1.MicroTime {
	if a.Lease == nil {
		return nil
	}
	return a.Lease.Spec.RenewTime
}

// readAnnotations decodes those of the Lease. That answers cannot be read is the error that
// matters most.
func (a *Agent) readAnnotations(now time.Time) {
	a.Carried, a.ParseErr = lease.ReadContent(a.Lease.Annotations)
	_, err := lease.ReadContent(only(a.Lease.Annotations, lease.AnswersAnnotation))
	if err == nil {
		a.UnreadableSince = time.Time{}
		return
	}
	a.ParseErr = err
	if a.UnreadableSince.IsZero() {
		a.UnreadableSince = now
	}
}

// mustKeepAnswers tells whether the answers in its Lease must stay there: they cannot be
// read, and an eviction among them may still count. Those past a brake of brakedInterval
// count longest.
func (a *Agent) mustKeepAnswers(now time.Time, e *Evictions) bool {
	return !a.UnreadableSince.IsZero() && now.Sub(a.UnreadableSince) < e.countedPast(BrakeCommon)
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

// knownSilent tells whether the agent, of which this process has seen no heartbeat, was
// silent before: its conditions say so, or, where it has none, its Node is not ready.
func (a *Agent) knownSilent() bool {
	if lease.LastHeartbeat(a.Node.Status.Conditions).IsZero() {
		return !a.Heard && a.notReady()
	}
	return !a.Heard && a.allUnknown()
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
