// Package kit builds an outer plugin: a process that reports a pressure which
// the agent does not measure, and optionally the pods to evict for it.
//
// # Usage
//
//	func main() {
//		kit.Main("conntrack-fill", conntrack{})
//	}
//
// The plugin is a value with one method, Threshold. It may also have Top, Evict
// or Run (Topper, Evicter, Runner). A test calls these methods directly: they
// take and return plain values, without sockets.
//
// Main serves it on a socket in the agent's directory, logs whether the agent
// registered it, and ends cleanly on SIGTERM. Server does the same in a program
// that has a main of its own.
//
// # Concurrency
//
// Only one of Threshold, Top and Evict runs at a time. Run runs beside them.
package kit

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Plugin reports whether its threshold is met. It is called about once every 5
// s, and no answer is lost: an answer that is given only once counts too.
type Plugin interface {
	// Threshold gets the pods of the node; none on a host without a cluster. An
	// error means that the value cannot be measured now, which is not zero;
	// after some errors in a row the plugin is called less often (a circuit
	// breaker). The context ends when the agent stops waiting for the answer.
	Threshold(ctx context.Context, pods []*corev1.Pod) (Threshold, error)
}

// Topper is a Plugin that can name the pods that cause the pressure.
type Topper interface {
	// Top is called while the threshold is met and its grace period is over.
	Top(context.Context, Ask) (Named, error)
}

// Evicter is a Plugin that names pods to evict whatever the threshold.
type Evicter interface {
	// Evict is called before Threshold.
	Evict(ctx context.Context, pods []*corev1.Pod) (Evictions, error)
}

// Runner is a Plugin with work of its own beside the answers, such as sampling
// once a second.
type Runner interface {
	// Run returns when the context is done. Its error ends the plugin.
	Run(context.Context) error
}

// Level is how severely a threshold is met.
type Level int

// The levels. Soft marks the node with a condition and a taint, so that new
// pods are scheduled elsewhere. Hard also evicts pods.
const (
	None Level = iota
	Soft
	Hard
)

// Threshold is a plugin's answer.
type Threshold struct {
	Level Level
	// Observed is above Limit, or below it if Below is set. They are for
	// display: only Level is evaluated.
	Observed, Limit float64
	Below           bool
	// Scope is what the threshold is about if a plugin watches several things,
	// such as a device. Ask.Scope repeats it.
	Scope string
	// Grace is how long Level must have been above None, Soft included, before pods are
	// asked for, in whole seconds, rounded up.
	Grace time.Duration
	// Condition on the node while Level is Soft or Hard; nil: none.
	Condition *Condition
	// Candidates, if any, limit the pods in Ask.
	Candidates []*corev1.Pod
}

// Condition is a condition on the Node and a taint of its name.
type Condition struct {
	// Name is a qualified name without its prefix: "ConntrackFull" becomes
	// plimsoll.dev/ConntrackFull.
	Name string
	// Effects of the taint; nil: that of the level, PreferNoSchedule at soft and
	// NoSchedule at hard and with an Eviction that must be; empty: no taint. NoExecute is refused unless the agent's
	// configuration allows it.
	Effects []corev1.TaintEffect
	// CNR sets it on the node's Katalyst CustomNodeResource; its effects are
	// <QoS level>/<effect>, and none where Effects is nil.
	CNR bool
}

// Ask is the request for pods to evict.
type Ask struct {
	Pods []*corev1.Pod
	// N is the most pods that may be named; 0 at level Soft, at which no pod is
	// evicted.
	N int
	// Scope is that of the Threshold.
	Scope string
	// Records has the PodDisruptionBudgets by pod UID.
	Records map[string]Record
}

// Named has the pods to evict, the best candidate first.
type Named struct {
	Pods []*corev1.Pod
	// Grace is the termination grace in seconds; nil: that of each pod. The
	// agent limits it.
	Grace *int64
}

// Evictions are pods to evict whatever the threshold.
type Evictions struct {
	Pods []Eviction
	// Condition that is met now; nil: none.
	Condition *Condition
}

// Eviction is one pod to evict.
type Eviction struct {
	Pod    *corev1.Pod
	Reason string
	// Force: it must be evicted, and stays requested for 5 minutes. Otherwise it may be,
	// one such pod per round, in this round alone, and not where its owner opted out.
	Force bool
	// Grace is as in Named.
	Grace *int64
}

// Record is the state of a pod's PodDisruptionBudget.
type Record struct {
	HasPDB                                                           bool
	DisruptionsAllowed, CurrentHealthy, DesiredHealthy, ExpectedPods int
}
