package lease

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/names"
)

// Namespace of the agents' heartbeats. It is not that of the kubelets', since a
// kubelet would otherwise seem alive while only the agent is.
const Namespace = "plimsoll-node-lease"

// Annotations that a heartbeat carries, in the same write as the renewal.
const (
	// AgentAnnotation is the ID of the agent's state directory, which the kernel
	// lets one agent lock at a time. It reveals two agents with separate state
	// directories, for example one of the package beside one of the chart.
	AgentAnnotation = names.Prefix + "agent"
	// NodeAnnotation is a NodeReport.
	NodeAnnotation = names.Prefix + "node-report"
	// EvictionsAnnotation is a list of Request: the agent's eviction requests. Only
	// the agent writes it.
	EvictionsAnnotation = names.Prefix + "eviction-requests"
	// AnswersAnnotation is a list of Answer. Only the controller writes it.
	AnswersAnnotation = names.Prefix + "eviction-answers"
)

// NodeReport is the state of a node in each heartbeat, as compact JSON.
type NodeReport struct {
	// Pressure is the level, soft or hard, by resource: memory, disk, network,
	// filesystem. A resource without pressure is left out.
	Pressure map[string]string `json:"pressure,omitempty"`
	// Reported is the level by resource of rules that only report: it is shown and
	// counts for nothing.
	Reported map[string]string `json:"reported,omitempty"`
	// NotJudged are the resources of which all or a part was not judged, or not lately,
	// so that their absence from Pressure is no all-clear.
	NotJudged []string `json:"notJudged,omitempty"`
	// Plugins is the level of outer plugins, by name. Those without pressure are
	// left out, and those beyond MaxPlugins.
	Plugins map[string]string `json:"plugins,omitempty"`
	// DataMoverBudget is the data mover budget: how many data mover loads this node may run;
	// absent if only Velero's own configuration limits them.
	DataMoverBudget *int `json:"budget,omitempty"`
	// HoldUntil is the end of the node's start hold; absent without one.
	HoldUntil *metav1.MicroTime `json:"holdUntil,omitempty"`
}

// Request is an eviction request to the controller.
type Request struct {
	// UID of the pod. The controller evicts no other pod of this name.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Plugin that names the pod, and why, as in the decision.
	Plugin string `json:"plugin"`
	Reason string `json:"reason"`
	// Resource of the verdict, and its level, soft or hard; empty: not known, as
	// the resource of outer plugins.
	Resource string `json:"resource,omitempty"`
	Level    string `json:"level,omitempty"`
	// Urgent: memory is below its floor, and the kernel's OOM killer is next.
	Urgent bool `json:"urgent,omitempty"`
	// GraceSeconds is the termination grace period; absent: the pod's own.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
	// Since is when the agent chose the pod, by the node's clock.
	Since metav1.MicroTime `json:"since"`
	// DryRun: it is checked, also by the API server, and no pod is evicted.
	DryRun bool `json:"dryRun,omitempty"`
}

// Answer is the controller's answer to a Request.
type Answer struct {
	UID string `json:"uid"`
	// Since of the Request, which may be repeated for a pod. Zero: not an answer but
	// the controller's note that it is about to evict the pod, written before the
	// API server is asked.
	Since metav1.MicroTime `json:"since"`
	// Owner of an evicted pod: the next leader counts evictions by owner.
	Owner string `json:"owner,omitempty"`
	// Result is one of Accepted, InProgress, Blocked, Refused and Gone.
	Result Result `json:"result"`
	// Code is the reason in one word, where the controller refused.
	Code string `json:"code,omitempty"`
	// Reason in one sentence; empty if Result says all.
	Reason string `json:"reason,omitempty"`
	// RetryAfterSeconds is how long after the answer it may be requested again;
	// absent: not known.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
	// PassedBrake is the brake that was on and allowed this eviction all the same; the
	// eviction counts for that brake's own limit.
	PassedBrake string `json:"past,omitempty"`
	// DryRun: the Request was one, so no pod was evicted.
	DryRun bool `json:"dryRun,omitempty"`
	// At is when the controller answered, by the API server's clock.
	At metav1.MicroTime `json:"at"`
}

// Result of a Request.
type Result string

// The results.
const (
	Accepted Result = "accepted" // the API server accepted the eviction
	// InProgress: another component ends the pod in its own way, such as a migration.
	InProgress Result = "in-progress"
	Blocked    Result = "blocked" // not now: a PodDisruptionBudget forbids it, or the pod's volumes are not known
	Refused    Result = "refused" // the cluster eviction limit or the brake forbids it
	Gone       Result = "gone"    // the pod no longer exists
)

// Content is the decoded content of a heartbeat's annotations.
type Content struct {
	Report   NodeReport
	Requests []Request
	Answers  []Answer
}

// Micro is t in microseconds, the resolution of a heartbeat.
func Micro(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
}
