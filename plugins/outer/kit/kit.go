// Package kit makes an outer plugin: a process that tells the agent of a
// pressure which the agent does not know, and if it likes which pods should go.
//
// # Usage
//
//	func main() {
//		kit.Main("conntrack-fill", conntrack{})
//	}
//
// The plugin is a value with one method, Threshold. One that also has Top, Evict
// or Run (Topper, Evicter, Runner) is asked more. A test of it calls these methods:
// they take and return plain values, and know nothing of sockets.
//
// Main serves it on a socket in the agent's directory, says in its log whether
// the agent takes it, and ends clean on SIGTERM. Server does the same below a
// program that has a main of its own.
//
// # Concurrency
//
// Of Threshold, Top and Evict one runs at a time. Run runs beside them.
package kit

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Plugin says whether its threshold is met. It is asked about once every 5 s,
// and each answer counts: one that is asked for only once is not lost.
type Plugin interface {
	// Threshold is told the pods of the node; none on a host without a cluster.
	// An error says that nothing can be said now, and why: not measured is not
	// zero. After some errors in a row the plugin is asked less often. The
	// context ends when nobody waits for the answer any more.
	Threshold(ctx context.Context, pods []*corev1.Pod) (Threshold, error)
}

// Topper is a Plugin that can say whose pressure it is.
type Topper interface {
	// Top is asked while the threshold is met, and past its grace.
	Top(context.Context, Ask) (Named, error)
}

// Evicter is a Plugin that wants pods to go whatever the threshold is.
type Evicter interface {
	// Evict is asked before Threshold.
	Evict(ctx context.Context, pods []*corev1.Pod) (Evictions, error)
}

// Runner is a Plugin that has work of its own beside the answers, such as to
// look once a second.
type Runner interface {
	// Run lives until the context is done. Its error ends the plugin.
	Run(context.Context) error
}

// Level says how hard a threshold is met.
type Level int

// The levels. Soft is a condition and a taint: new pods go elsewhere. Hard is
// evictions too.
const (
	None Level = iota
	Soft
	Hard
)

// Threshold is a plugin's answer.
type Threshold struct {
	Level Level
	// Observed stands above Limit, or below it where less is worse. They are
	// for people: nobody compares them again, and Level alone counts.
	Observed, Limit float64
	Below           bool
	// Scope is what it is about where a plugin watches several things, such as
	// a device. Ask.Scope is it again.
	Scope string
	// Grace is how long the threshold must stay met before pods are asked for,
	// in whole seconds, rounded up.
	Grace time.Duration
	// Condition on the node while Level is Soft or Hard; nil: none.
	Condition *Condition
	// Candidates, if any, are the only pods that Ask shows.
	Candidates []*corev1.Pod
}

// Condition is a condition on the Node and a taint of its name.
type Condition struct {
	// Name is a qualified name without its prefix: "ConntrackFull" becomes
	// plimsoll.dev/ConntrackFull.
	Name string
	// Effects of the taint. None: what the agent has for the level.
	// NoExecute is refused unless the agent's configuration allows it.
	Effects []corev1.TaintEffect
	// CNR puts it on the node's Katalyst CustomNodeResource; its effects are
	// <QoS level>/<effect>.
	CNR bool
}

// Ask is the question which pods should go.
type Ask struct {
	Pods []*corev1.Pod
	// N is how many at most. 0 when the level is Soft: nobody is evicted then.
	N int
	// Scope is that of the Threshold.
	Scope string
	// Records by pod UID are what is known of disruption budgets.
	Records map[string]Record
}

// Named is which pods should go, the most deserving first.
type Named struct {
	Pods []*corev1.Pod
	// Grace to end by themselves, in seconds; nil: what each pod asks for. The
	// agent keeps it within its limits.
	Grace *int64
}

// Evictions are pods that should go whatever the threshold is.
type Evictions struct {
	Pods []Eviction
	// Condition that holds now; nil: none.
	Condition *Condition
}

// Eviction is one of them.
type Eviction struct {
	Pod    *corev1.Pod
	Reason string
	// Force: it must go. Without it, it may, one of them in a round.
	Force bool
	// Grace is as in Named.
	Grace *int64
}

// Record is what is known of a pod's disruption budget.
type Record struct {
	HasPDB                                                           bool
	DisruptionsAllowed, CurrentHealthy, DesiredHealthy, ExpectedPods int
}
