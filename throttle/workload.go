package throttle

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Config says which pods may be throttled, movers aside.
type Config struct {
	Enabled bool     `yaml:"enabled" why:"Whether pods that cause a pressure are throttled before any pod is evicted for it. Velero's data movers have a switch of their own: vgdp.enabled."`
	DryRun  bool     `yaml:"dryRun" why:"Whether to decide only: what would be throttled is shown and logged. true, so that a fresh install observes."`
	Classes []string `yaml:"classes" unit:"QoS classes" why:"The QoS classes whose pods may be throttled: BestEffort, Burstable. A Burstable pod keeps the CPU and the memory that it requests. Pods that are never evicted are throttled only where their owner allows it (label plimsoll.dev/throttle=allow), Guaranteed pods never."`
	Resize  bool     `yaml:"resize" why:"Whether the CPU of a Burstable pod is throttled by in-place resize of its containers' CPU limits, where all have one and the API server serves it, and by cpu.max of its cgroup elsewhere. Needs deploy/rbac-resize.yaml."`
	Never   []string `yaml:"never" unit:"namespaces" why:"Namespaces whose pods are never throttled, also at hard and whatever their labels say."`
}

// The QoS classes.
const (
	bestEffort = "BestEffort"
	burstable  = "Burstable"
	guaranteed = "Guaranteed"
)

// DefaultConfig is that of a fresh install.
func DefaultConfig() Config {
	return Config{Enabled: true, DryRun: true, Classes: []string{bestEffort}}
}

// Validate says which values must not be used.
func (c Config) Validate(at problems.Section) {
	for i, class := range c.Classes {
		at.Element("classes", i).Must(class == bestEffort || class == burstable, fmt.Sprintf("%q: want %s or %s", class, bestEffort, burstable))
	}
	for i, namespace := range c.Never {
		at.Element("never", i).Must(namespace != "", "want the name of a namespace")
	}
}

// Workload is what is known of a workload that runs.
type Workload struct {
	// Unlisted: its pod, or the label of its namespace, is not listed yet, since the agent has
	// just started: it keeps the limits that it has, and gets none.
	Unlisted bool
	// Mover: it is a data mover of Velero. DryRun: its limits are not written.
	Mover, DryRun bool
	// RequestCores and RequestBytes that it may always use.
	RequestCores, RequestBytes float64
	// holds so many bytes of memory.
	holds float64
	// Liveness is the least time in which a liveness or startup probe that fails has its
	// container ended; 0: it has none.
	Liveness time.Duration
	// Terminating: its kubelet ends it.
	Terminating bool
	// Resizable: its CPU may be throttled by in-place resize, as far as the configuration
	// and its QoS class say.
	Resizable bool
	// Exempt is why it is not throttled; ExemptAtSoft is why only hard pressure throttles
	// it. Empty: it may be.
	Exempt, ExemptAtSoft string
}

// With takes from its pod how much memory it requests, and how long it may be held back.
func (w Workload) With(p *pods.Pod) Workload {
	w.RequestBytes, w.Liveness, w.Terminating = float64(p.MemoryRequestBytes), p.Liveness, !p.TerminatesBy.IsZero()
	return w
}

// Exemption is why it is not throttled at a level; empty: it may be.
func (w *Workload) Exemption(level plugins.Level) string {
	if w.Exempt == "" && level < plugins.Hard {
		return w.ExemptAtSoft
	}
	return w.Exempt
}

// Relieves tells whether a throttle of it relieves a pressure. Of the CPU, that of a mover
// does for memory and the network, too.
func (w *Workload) Relieves(t Target, v *plugins.Verdict) bool {
	switch v.Resource {
	case plugins.Disk:
		return t.Disk != "" && t.Disk == v.Scope
	case plugins.CPU:
		return t.Resource() == snapshot.SharedCPU
	case plugins.Memory:
		return t.Memory || t.Resource() == snapshot.SharedCPU && w.Mover
	case plugins.NetworkIO:
		return t.Resource() == snapshot.SharedCPU && w.Mover
	case plugins.Filesystem: // space does not come back by throttling
	}
	return false
}

// Label values of names.Throttle, by which the owner of a pod allows or forbids throttling.
// A value that is neither forbids it, too.
const (
	allow = "allow"
	never = "never"
)

// Of is what a pod may be throttled by. An owner's label forbids only up to soft, since
// every tenant could make its pods immune otherwise, except where optOutHard says so; it
// allows what costs the owner alone. The label of its namespace, which an administrator
// writes, forbids at hard as well.
func (c *Config) Of(p *pods.Pod, ofNamespace string, optOutHard []string) Workload {
	w := Workload{DryRun: c.DryRun}.With(p)
	w.RequestCores = float64(p.CPURequestMillicores) / 1000
	w.Resizable = c.Resize && p.QoS == burstable
	switch {
	case !c.Enabled:
		w.Exempt = "throttle.enabled is false"
	case slices.Contains(c.Never, p.Namespace):
		w.Exempt = "namespace " + p.Namespace + " is in throttle.never"
	case p.QoS == guaranteed:
		w.Exempt = "it is Guaranteed: it uses what it requested"
	case ofNamespace == pods.Unlisted: // it may forbid it
		w.Unlisted = true
	case ofNamespace != "" && ofNamespace != allow:
		w.Exempt = fmt.Sprintf("namespace %s forbids it: label %s=%s", p.Namespace, names.Throttle, ofNamespace)
	case p.Throttle == allow && !p.Static():
	case len(p.Protections) > 0 && ofNamespace != allow:
		w.Exempt = "protected: " + p.Protections[0].Why
	case ofNamespace != allow && !slices.Contains(c.Classes, p.QoS) && !(p.LowQoS && slices.Contains(c.Classes, bestEffort)):
		w.Exempt = fmt.Sprintf("QoS class %s is not in throttle.classes", p.QoS)
	case p.Throttle != "":
		w.ExemptAtSoft = fmt.Sprintf("its owner forbids it: label %s=%s", names.Throttle, p.Throttle)
		if slices.Contains(optOutHard, p.Namespace) || slices.Contains(optOutHard, "*") {
			w.Exempt = w.ExemptAtSoft
		}
	}
	return w
}
