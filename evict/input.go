package evict

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Config of the coordinator.
type Config struct {
	Enabled    bool          `yaml:"enabled" why:"Whether pods are evicted at all; conditions and taints are another switch."`
	DryRun     bool          `yaml:"dryRun" why:"Whether only to say what would be done: no condition, no taint, no eviction. True, so that a fresh install observes."`
	Round      time.Duration `yaml:"round" why:"How often plugins are asked and evictions decided when nothing presses; a rule that becomes met starts a round at once."`
	Settle     time.Duration `yaml:"settle" why:"How long after a pod has gone nobody is chosen, so that its relief is seen first; longer than the rules' windows."`
	Transition time.Duration `yaml:"transition" why:"How long a condition and its taint stay after the level was last met, so that neither flaps."`
	MaxGrace   time.Duration `yaml:"maxGrace" why:"The longest that an evicted pod gets to end by itself; a pod that asks for less gets what it asks for."`
	MinRelief  float64       `yaml:"minRelief" unit:"ratio" why:"A pod is evicted only if its going gives back this share of the resource, or all that is missing; evicting small pods helps nobody."`
	Protect    pods.Rules    `yaml:"protect" why:"Who is never evicted, beside static, mirror, DaemonSet and mover pods, those without a controller and those that can run on this node only."`
	// OptOutHard are the namespaces whose opt-out holds at hard too.
	OptOutHard []string `yaml:"optOutHard" unit:"namespaces" why:"Where plimsoll.dev/skip-eviction holds at hard too; elsewhere only at soft, else anybody could make himself untouchable."`
}

// DefaultConfig is that of a fresh install: it observes.
func DefaultConfig() Config {
	return Config{
		Enabled: true, DryRun: true, Round: 5 * time.Second, Settle: 30 * time.Second, Transition: 5 * time.Minute,
		MaxGrace: 30 * time.Second, MinRelief: 0.2, Protect: pods.DefaultRules(),
	}
}

// Input is all that a round decides by.
type Input struct {
	Time time.Time
	// Levels of now, and those of the round before; nil in the first.
	Levels, Before *plugins.Levels
	Config         Config
	// Cluster is nil for an agent that runs without one.
	Cluster *Cluster
	// Memory is what the rounds before left.
	Memory Memory
}

// Cluster is what is known of the cluster in this round.
type Cluster struct {
	Pods pods.List
	Node Node
	// Marked is empty once the API server has acknowledged the taints that
	// Mark asked for, else why it has not.
	Marked string
}

// Node is what a round needs to know of the Node object.
type Node struct {
	// Unknown is why it could not be read in this round; empty: it was.
	Unknown string
	// KubeletPressure is the pressure conditions of the kubelet's own that are
	// True, such as MemoryPressure.
	KubeletPressure []string
}

// ReadNode takes the facts from a Node object, or from why there is none.
func ReadNode(n *corev1.Node, err error) Node {
	if err != nil {
		return Node{Unknown: err.Error()}
	}
	var out Node
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
			if c.Status == corev1.ConditionTrue {
				out.KubeletPressure = append(out.KubeletPressure, string(c.Type))
			}
		}
	}
	return out
}

// kubeletCondition is the kubelet's own pressure for a resource.
func kubeletCondition(r plugins.Resource) string {
	switch r {
	case plugins.Memory:
		return string(corev1.NodeMemoryPressure)
	case plugins.Disk, plugins.Filesystem:
		return string(corev1.NodeDiskPressure)
	}
	return ""
}
