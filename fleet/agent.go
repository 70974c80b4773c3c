package fleet

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// Agent is what is known of one node's agent. The objects that it points to are
// never changed.
type Agent struct {
	// Name of the Node and of the Lease.
	Name string
	// Heard is when a sign of life was seen last, by this process's monotonic
	// clock: a renewal of the Lease, or a newly written status. For an agent that
	// was never heard it is when it was first seen.
	Heard time.Time
	// Renewed is when a renewal of the Lease was seen to come; zero: none since
	// this process looks. What a Lease asks for that nobody renews may be over.
	Renewed time.Time
	// Lease and Node as far as they are needed; nil where there is none.
	Lease *coordinationv1.Lease
	Node  *corev1.Node
	// Carried is what the Lease says, and Odd what of it cannot be read.
	Carried lease.Carried
	Odd     error
	// Asked is when what it asks for was seen first, and rang when that last was
	// cause to look at once.
	Asked time.Time
	rang  time.Time
}

// member tells whether there is an agent at all, or was.
func (a *Agent) member() bool {
	return a.Node != nil && (a.Lease != nil || a.tainted() || !lease.LastHeartbeat(a.Node.Status.Conditions).IsZero())
}

// tainted: the Node's record says that it carries taints of ours.
func (a *Agent) tainted() bool {
	return a.Node != nil && a.Node.Annotations[evict.TaintsAnnotation] != ""
}

// keepsAway: a taint of ours is on the Node that keeps pods away. PreferNoSchedule,
// as of soft, does not. What the record says beside that is not read: it is the
// agent's word, at any length.
func (a *Agent) keepsAway() bool {
	return a.tainted() && slices.ContainsFunc(a.Node.Spec.Taints, func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, taintPrefix) && (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute)
	})
}

// taintPrefix of each taint that an agent may write.
const taintPrefix = "plimsoll.dev/"

// unmarked: it has conditions of ours that do not say that the agent is silent.
func (a *Agent) unmarked() bool {
	for _, c := range a.Node.Status.Conditions {
		if lease.Ours(c.Type) && c.Reason != lease.ReasonSilent {
			return true
		}
	}
	return false
}

// marked: it was said already that the agent is silent.
func (a *Agent) marked() bool {
	return !a.unmarked() && !lease.LastHeartbeat(a.Node.Status.Conditions).IsZero()
}

// ready is what the kubelet says of the Node; Unknown where it says nothing.
func (a *Agent) ready() corev1.ConditionStatus {
	for _, c := range a.Node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// down: the kubelet, or who watches it, says that the Node is not ready. One that
// nobody says anything of counts as any other.
func (a *Agent) down() bool {
	return slices.ContainsFunc(a.Node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// zone of the Node; empty where it has none.
func (a *Agent) zone() string { return a.Node.Labels[corev1.LabelTopologyZone] }
