// Package pods knows the pods of one node: it watches them (an informer that stores
// stripped pods), joins them with the workloads that the probes see, and tells for
// each why it is protected, by the API server's copy and not by what plugins say.
//
// # Usage
//
// A Watcher runs for the agent's life. List returns its store without a request;
// Resolve, before a decision, looks up where the volumes of pods can be used. Until
// then a pod with claims is protected.
//
// # Concurrency
//
// List and Resolve may be called from any goroutine.
package pods

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// Pod has the facts of a pod that a decision needs. Environment, annotations and
// commands are not stored.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// CgroupUID is the UID in the name of its cgroup: of a static pod the hash
	// of its manifest (annotation kubernetes.io/config.hash), else UID.
	CgroupUID string `json:"cgroupUid"`
	// Owner is its controller, such as a ReplicaSet; zero without one.
	Owner Owner `json:"owner,omitzero"`
	// QoS is the pod's class: Guaranteed, Burstable or BestEffort.
	QoS string `json:"qos"`
	// LowQoS is evicted first: BestEffort, or Katalyst's reclaimed_cores.
	LowQoS   bool  `json:"lowQos"`
	Priority int32 `json:"priority"`
	// MemoryRequestBytes and CPURequestMillicores of all containers, requests for
	// Katalyst's reclaimed resources included; 0 without a request.
	MemoryRequestBytes   uint64 `json:"memoryRequestBytes"`
	CPURequestMillicores uint64 `json:"cpuRequestMillicores,omitempty"`
	// StorageRequestBytes is the request of ephemeral-storage of all containers.
	StorageRequestBytes uint64 `json:"storageRequestBytes,omitempty"`
	// MemoryLimitBytes and CPULimitMillicores are 0 without a limit, also if only
	// one container has none.
	MemoryLimitBytes   uint64 `json:"memoryLimitBytes,omitempty"`
	CPULimitMillicores uint64 `json:"cpuLimitMillicores,omitempty"`
	// RSSOveruse is the RSS limit as a multiple of the memory request, from
	// Katalyst's annotation; 0 without one.
	RSSOveruse float64   `json:"rssOveruseRatio,omitempty"`
	Created    time.Time `json:"created"`
	// GraceSeconds is its termination grace period.
	GraceSeconds int64 `json:"graceSeconds"`
	// Phase is Pending, Running, Succeeded, Failed or Unknown.
	Phase string `json:"phase"`
	// StatusReason is why it is in its phase, such as Evicted by the kubelet.
	StatusReason string `json:"statusReason,omitempty"`
	// StatusMessage is the kubelet's message for a pod that it evicted for node
	// pressure; empty for others, also for evictions at a limit of the pod's own.
	StatusMessage string `json:"statusMessage,omitempty"`
	// TerminatesBy is when the termination grace period of a terminating pod ends
	// (deletionTimestamp); zero for others.
	TerminatesBy time.Time `json:"goneBy,omitzero"`
	// DeletionGraceSeconds is that period; 0 for others.
	DeletionGraceSeconds int64 `json:"-"`
	// EvictedElsewhere is the mark of another component that evicts it, where the pod
	// is not terminating yet: an annotation or a condition. Empty: none.
	EvictedElsewhere string `json:"evictedElsewhere,omitempty"`
	// Protections are all reasons why it is never evicted, even if forced.
	Protections []Protection `json:"protections,omitempty"`
	// Tolerations of taints.
	Tolerations []corev1.Toleration `json:"-"`
	// OptedOut is the annotation or label by which the pod's owner opts out of
	// evictions, such as plimsoll.dev/skip-eviction=true; empty: none.
	OptedOut string `json:"optedOut,omitempty"`
	// Throttle is the label by which its owner allows or forbids throttling it; empty:
	// none.
	Throttle string `json:"throttle,omitempty"`
	// Liveness is the least time in which a liveness or startup probe that begins to fail
	// has its container ended; 0: it has none.
	Liveness time.Duration `json:"-"`
	// Maintenance: it belongs to a job by which Velero maintains a backup repository.
	Maintenance bool `json:"maintenance,omitempty"`
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
	// Why is the reason for people, with the deciding fact.
	Why string `json:"why"`
}

// The protections' codes.
const (
	Static       = "static"          // mirror pod of a static pod
	Critical     = "critical"        // its priority is at or above the limit
	DaemonSet    = "daemonset"       // its DaemonSet would recreate it on this node
	NoController = "no-controller"   // no controller would recreate it
	OnlyHere     = "bound-to-node"   // it can run on this node only
	Namespace    = "namespace"       // its namespace is protected
	Mover        = "mover"           // a data mover pod: Velero would wait for it for hours
	Unresolved   = "volumes-unknown" // unknown where its volumes can be used
)

// Rules are the protections that configuration can change.
type Rules struct {
	Namespaces []string `yaml:"namespaces" unit:"names" why:"Namespaces whose pods are never evicted: the cluster's own, Velero's and Plimsoll's. A list replaces the default."`
	Priority   int      `yaml:"priority" why:"Pods of this priority or higher are never evicted; system-node-critical and system-cluster-critical are above the default."`
}

// DefaultRules are those of a fresh install.
func DefaultRules() Rules {
	return Rules{Namespaces: []string{"kube-system", "velero", "openshift-adp", "plimsoll-system"}, Priority: 2_000_000_000}
}

// maxPriority is that of system-cluster-critical, the lowest of the critical classes.
const maxPriority = 2_000_000_000

// Validate says which values must not be used.
func (r Rules) Validate(at problems.Section) {
	at.Must(r.Priority <= maxPriority,
		fmt.Sprintf("%d would allow evicting pods that Kubernetes calls critical (%d and above)", r.Priority, maxPriority), "priority")
}

// List is the pods of the node at one moment.
type List struct {
	Pods []Pod
	// Synced: a complete list was received at least once.
	Synced bool
	// StaleSince is when the connection to the API server was lost; zero while it
	// is up. A hanging API server is noticed after 45 s at most, a closed
	// connection at once. The regular end of a watch, every few minutes, sets it
	// for milliseconds.
	StaleSince time.Time
	// StaleBecause is the last error.
	StaleBecause string

	// byCgroup maps cgroup UIDs to indices in Pods; nil if List did not come from
	// a Watcher.
	byCgroup map[string]int
}

// ByCgroupUID finds the pod of a workload, by its UID or, for a static pod, by its
// hash. A pod that the API server does not list is not found.
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

// indexByCgroup maps cgroup UIDs to indices. A pod's own UID wins over a hash,
// which is only an annotation. Of mirror pods with one hash one that does not terminate wins,
// then the oldest: a kubelet deletes those that it did not make, which a finalizer delays.
func indexByCgroup(all []Pod) map[string]int {
	byCgroup := make(map[string]int, len(all))
	for i, p := range all {
		before, there := byCgroup[p.CgroupUID]
		if !there || winsCgroup(p, all[before]) {
			byCgroup[p.CgroupUID] = i
		}
	}
	return byCgroup
}

// winsCgroup reports whether a wins over b for their common cgroup UID.
func winsCgroup(a, b Pod) bool {
	if ownA, ownB := a.UID == a.CgroupUID, b.UID == b.CgroupUID; ownA != ownB {
		return ownA
	}
	if endsA, endsB := !a.TerminatesBy.IsZero(), !b.TerminatesBy.IsZero(); endsA != endsB {
		return endsB
	}
	return a.Created.Before(b.Created)
}
