package lease

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace of the agents' heartbeats: apart from the kubelets', which would
// otherwise seem to live where only an agent does.
const Namespace = "plimsoll-node-lease"

// Annotations that a heartbeat carries, in the same write as the renewal.
const (
	// NodeAnnotation is a NodeReport: how the node is.
	NodeAnnotation = "plimsoll.dev/node"
	// EvictionsAnnotation is a list of Request: what the agent asks the
	// controller to evict. The controller reads it, the agent alone writes it.
	EvictionsAnnotation = "plimsoll.dev/evictions"
	// GrantedAnnotation is a list of Answer. The controller alone writes it.
	GrantedAnnotation = "plimsoll.dev/granted"
)

// NodeReport is what a node says of itself with each beat, as compact JSON.
type NodeReport struct {
	// Pressure is the level, soft or hard, by resource: memory, disk, network,
	// filesystem. A resource without pressure is left out.
	Pressure map[string]string `json:"pressure,omitempty"`
	// Plugins is the level that outer plugins are at, by name; those without
	// pressure are left out, and where it is many at once the rest.
	Plugins map[string]string `json:"plugins,omitempty"`
	// Budget is how many data movers this node may run at a time; absent when
	// nothing limits them but Velero's own configuration.
	Budget *int `json:"budget,omitempty"`
	// HoldUntil is when the node takes new data movers again; absent when it
	// takes them now.
	HoldUntil *metav1.MicroTime `json:"holdUntil,omitempty"`
}

// Request asks the controller for one eviction.
type Request struct {
	// UID of the pod. The controller evicts no other pod of this name.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Plugin that names the pod, and why, as the decision record tells it.
	Plugin string `json:"plugin"`
	Reason string `json:"reason"`
	// Resource that the plugin is about, and the level, soft or hard, that it is
	// at; empty: not said, as by outer plugins of a resource.
	Resource string `json:"resource,omitempty"`
	Level    string `json:"level,omitempty"`
	// Urgent: memory is below its floor, and the kernel's turn is next.
	Urgent bool `json:"urgent,omitempty"`
	// GraceSeconds of the eviction; absent for the pod's own.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
	// Since is when the agent chose the pod, by the node's clock.
	Since metav1.MicroTime `json:"since"`
	// DryRun: it is judged, also by the API server, and nobody goes.
	DryRun bool `json:"dryRun,omitempty"`
}

// Answer is what became of a Request.
type Answer struct {
	UID string `json:"uid"`
	// Since of the Request: a pod may be asked for again. Zero: it answers none,
	// and notes that the pod may go; it is written before the API server is asked.
	Since metav1.MicroTime `json:"since"`
	// Owner of the pod where it was accepted: whoever leads next counts by it
	// who went.
	Owner string `json:"owner,omitempty"`
	// Result is one of Accepted, Blocked, Refused and Gone.
	Result Result `json:"result"`
	// Code is the reason in one word, where the controller refused.
	Code string `json:"code,omitempty"`
	// Reason is empty where Result says all.
	Reason string `json:"reason,omitempty"`
	// RetryAfterSeconds is how long after the answer it may be asked for again;
	// absent: nobody knows.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
	// Past is the brake that stood and let this one go all the same; it is counted
	// by that.
	Past string `json:"past,omitempty"`
	// At is when the controller answered, by the API server's clock.
	At metav1.MicroTime `json:"at"`
}

// Result of a Request.
type Result string

// The results.
const (
	Accepted Result = "accepted" // the API server took the eviction
	Blocked  Result = "blocked"  // this pod may not go now: a disruption budget forbids it, or its volumes are not known
	Refused  Result = "refused"  // a cluster budget or the brake is against it
	Gone     Result = "gone"     // there is no such pod any more
)

// Carried is what a heartbeat carries in its annotations.
type Carried struct {
	Report   NodeReport
	Requests []Request
	Answers  []Answer
}

// Micro is t as a heartbeat carries it.
func Micro(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
}
