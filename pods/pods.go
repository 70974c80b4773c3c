// Package pods knows the pods of one node: it watches them, joins them with
// the workloads that the probes see, and says of each why it must not be
// evicted, judged on the host's own copy whatever anybody else says.
//
// # Usage
//
// A Watcher runs for the agent's life. List gives what is known now and asks
// nobody; Resolve, before a decision, looks up what a pod itself does not tell:
// where its volumes are. Until then a pod with claims is protected.
//
// # Concurrency
//
// List and Resolve may be called from any goroutine.
package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Pod is what is known of a pod: facts that a decision needs. Its environment,
// its annotations and its commands are not kept.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// CgroupUID is the UID in the name of its cgroup: of a static pod the hash
	// of its manifest (annotation kubernetes.io/config.hash), else UID.
	CgroupUID string `json:"cgroupUid"`
	// Owner is its controller, such as a ReplicaSet; empty without one.
	Owner Owner `json:"owner,omitzero"`
	// QoS is the pod's class: Guaranteed, Burstable or BestEffort.
	QoS string `json:"qos"`
	// LowQoS goes first: BestEffort, or Katalyst's reclaimed_cores.
	LowQoS   bool  `json:"lowQos"`
	Priority int32 `json:"priority"`
	// MemoryRequestBytes and CPURequestMillicores of its containers together; 0
	// where none asks. What they ask for of Katalyst's reclaimed resources is
	// part of it.
	MemoryRequestBytes   uint64 `json:"memoryRequestBytes"`
	CPURequestMillicores uint64 `json:"cpuRequestMillicores,omitempty"`
	// MemoryLimitBytes and CPULimitMillicores are 0 where there is none, as for
	// a pod of which one container has none.
	MemoryLimitBytes   uint64 `json:"memoryLimitBytes,omitempty"`
	CPULimitMillicores uint64 `json:"cpuLimitMillicores,omitempty"`
	// RSSOveruse is how many times its memory request its RSS may be, by
	// Katalyst's annotation; 0 where it does not say.
	RSSOveruse float64   `json:"rssOveruseRatio,omitempty"`
	Created    time.Time `json:"created"`
	// GraceSeconds is how long it asks for to end by itself.
	GraceSeconds int64 `json:"graceSeconds"`
	// Phase is Pending, Running, Succeeded, Failed or Unknown.
	Phase string `json:"phase"`
	// StatusReason is why it is in its phase, such as Evicted by the kubelet.
	StatusReason string `json:"statusReason,omitempty"`
	// StatusMessage of one that the kubelet evicted because the node was short of
	// something says of what; empty for one at a limit of its own.
	StatusMessage string `json:"statusMessage,omitempty"`
	// GoneBy is, of a pod that was deleted, when its grace period ends; zero
	// of one that was not.
	GoneBy time.Time `json:"goneBy,omitzero"`
	// Protections are all reasons why it is never evicted, even forced.
	Protections []Protection `json:"protections,omitempty"`
	// Tolerations say which taints would not keep it away.
	Tolerations []corev1.Toleration `json:"-"`
	// OptedOut: plimsoll.dev/skip-eviction is "true" as annotation or label.
	OptedOut bool `json:"optedOut,omitempty"`
}

// Owner is the controller of a pod.
type Owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Protection is one reason why a pod is never evicted.
type Protection struct {
	// Code is one word, for metrics and tests.
	Code string `json:"code"`
	// Why is the reason for a person, with the fact that decided.
	Why string `json:"why"`
}

// The protections' codes.
const (
	Static       = "static"        // the API server's picture of what a kubelet made from a file or URL
	Critical     = "critical"      // its priority is the system's
	DaemonSet    = "daemonset"     // it would come back to this node at once
	NoController = "no-controller" // nobody would make it again
	OnlyHere     = "only-here"     // it can run on this node only
	Namespace    = "namespace"     // its namespace is protected
	Mover        = "mover"         // it moves data for Velero, which would wait for hours
	Unresolved   = "unresolved"    // where its volumes are is not known
)

// Rules are the protections that configuration can change.
type Rules struct {
	Namespaces []string `yaml:"namespaces" unit:"names" why:"Namespaces whose pods are never evicted: the cluster's own, Velero's and Plimsoll's."`
	Priority   int      `yaml:"priority" why:"Pods of this priority or higher are never evicted; system-node-critical and system-cluster-critical are above the default."`
}

// DefaultRules are those of a fresh install.
func DefaultRules() Rules {
	return Rules{Namespaces: []string{"kube-system", "velero", "plimsoll-system"}, Priority: 2_000_000_000}
}

// List is the pods of the node at one moment.
type List struct {
	Pods []Pod
	// Synced: all pods of the node were seen at least once.
	Synced bool
	// StaleSince is since when the API server was not heard; zero while it is.
	// One that hangs is missed after 45 s at most, one that is gone at once. A
	// watch that ends in turn, every few minutes, sets it for milliseconds.
	StaleSince time.Time
	// StaleBecause is the error that the API server was last heard by.
	StaleBecause string

	// byCgroup maps cgroup UIDs to places in Pods; nil where List did not
	// come from a Watcher.
	byCgroup map[string]int
}

// ByCgroupUID finds the pod of a workload. A UID that is no pod's own is looked
// for among the static pods' hashes. A pod that the API server does not list
// is not found: nothing is known of it, and nothing protects it here.
func (l List) ByCgroupUID(uid string) (Pod, bool) {
	byCgroup := l.byCgroup
	if byCgroup == nil {
		byCgroup = indexByCgroup(l.Pods)
	}
	if i, there := byCgroup[uid]; there {
		return l.Pods[i], true
	}
	return Pod{}, false
}

// indexByCgroup maps cgroup UIDs to places. A pod's own UID wins over a hash,
// which is an annotation and may be anybody's claim; of static pods with one
// hash the newest wins, which replaces those that are on their way out.
func indexByCgroup(all []Pod) map[string]int {
	byCgroup := make(map[string]int, len(all))
	for i, p := range all {
		before, there := byCgroup[p.CgroupUID]
		if !there || joinsBefore(p, all[before]) {
			byCgroup[p.CgroupUID] = i
		}
	}
	return byCgroup
}

// joinsBefore tells which of two pods of one cgroup UID it is.
func joinsBefore(a, b Pod) bool {
	if ownA, ownB := a.UID == a.CgroupUID, b.UID == b.CgroupUID; ownA != ownB {
		return ownA
	}
	return a.Created.After(b.Created)
}
