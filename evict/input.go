package evict

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// MinRound is how close rounds may follow one another.
const MinRound = time.Second

// Config of the coordinator.
type Config struct {
	Enabled    bool          `yaml:"enabled" why:"Whether pods are evicted at all; conditions and taints are another switch."`
	DryRun     bool          `yaml:"dryRun" why:"Whether only to say what would be done: no condition, no taint, no eviction. True, so that a fresh install observes."`
	Round      time.Duration `yaml:"round" why:"How often plugins are asked and evictions decided when nothing presses; a rule that becomes met starts a round at once."`
	Settle     time.Duration `yaml:"settle" why:"How long after a pod has gone nobody is chosen, so that its relief is seen first; longer than the rules' windows."`
	Transition time.Duration `yaml:"transition" why:"How long a condition and its taint stay after the level was last met, so that neither flaps."`
	MaxGrace   time.Duration `yaml:"maxGrace" why:"The longest that an evicted pod gets to end by itself; a pod that asks for less gets what it asks for."`
	Via        string        `yaml:"via" unit:"direct or controller" why:"Who evicts: the agent itself (direct), or the controller (controller), which grants under the budgets of the whole cluster what the agent's Lease asks for. Then a stolen token evicts nobody elsewhere, and without a controller nobody goes."`
	// ViaFallback matters with Via controller alone.
	ViaFallback      bool          `yaml:"viaFallback" why:"Whether the agent itself evicts for memory at hard when the controller does not answer: one pod of the node in 10 min. It needs the right to evict (deploy/rbac-evict-direct.yaml)."`
	ViaFallbackAfter time.Duration `yaml:"viaFallbackAfter" why:"How long the controller must have left a request without an answer before that: twice what a new leader takes (its election.duration)."`
	// Limits hold beside what a round finds needed.
	Limits        Limits        `yaml:"limits" why:"How many evictions there may be, whatever presses."`
	DryRunPlugins []string      `yaml:"dryRunPlugins" unit:"names" why:"Whose verdicts are decided as a dry run beside those that count: they neither mark nor evict. A plugin's name, \"*\" for all, \"-name\" for all but one."`
	ReportFirst   time.Duration `yaml:"reportFirst" why:"How long a rule that is new or was changed only reports, or as long as it takes to be met where that is longer: a typo that parses must not arm a fleet."`
	MaxAge        time.Duration `yaml:"maxAge" why:"How old what was measured may be for anybody to be evicted by it: an agent that was frozen wakes up with what it saw last. Three rounds where these are longer."`
	ReliefWait    time.Duration `yaml:"reliefWait" why:"How long nobody is evicted for a pressure for which data movers have just been slowed down; not where a plugin forces it, nor where memory is below its floor. 0s: not at all."`
	Late          time.Duration `yaml:"late" why:"How long after the end of its grace period, of which maxGrace counts at most, a pod that is still there counts as released; then others may go in its place."`
	UrgentWait    time.Duration `yaml:"urgentWait" why:"How long a pod that is ending counts as released where memory is below its floor, whatever its grace period: what it has not given back by then others must."`
	KubeletTurn   time.Duration `yaml:"kubeletTurn" why:"How long after an eviction by the kubelet because the node was short of a resource nobody is chosen for that resource: its relief is seen first. Evictions for a limit of the pod's own do not count."`
	Taints        Flapping      `yaml:"taints" why:"How a taint that comes and goes is calmed."`
	MinRelief     float64       `yaml:"minRelief" unit:"ratio" why:"A pod is evicted only if its going gives back this share of the resource, or all that is missing; evicting small pods helps nobody."`
	Protect       pods.Rules    `yaml:"protect" why:"Who is never evicted, beside static, DaemonSet and mover pods, those without a controller and those that can run on this node only."`
	// OptOutHard are the namespaces whose opt-out holds at hard too.
	OptOutHard []string `yaml:"optOutHard" unit:"namespaces" why:"Where plimsoll.dev/skip-eviction holds at hard too; elsewhere only at soft, else anybody could make himself untouchable."`
}

// Who evicts.
const (
	ViaDirect     = "direct"
	ViaController = "controller"
)

// DefaultConfig is that of a fresh install: it observes.
func DefaultConfig() Config {
	return Config{
		Enabled: true, DryRun: true, Via: ViaDirect, ViaFallbackAfter: 30 * time.Second, Round: 5 * time.Second, Settle: 30 * time.Second, Transition: 5 * time.Minute,
		Limits: Limits{PerRound: 3, PerMinute: 5, PerOwnerHour: 6}, ReportFirst: 10 * time.Minute, MaxAge: 15 * time.Second,
		ReliefWait: 10 * time.Second, Late: 30 * time.Second, UrgentWait: 5 * time.Second, KubeletTurn: time.Minute, Taints: Flapping{Minimum: 5 * time.Minute, Maximum: time.Hour},
		MaxGrace: 30 * time.Second, MinRelief: 0.2, Protect: pods.DefaultRules(),
	}
}

// Input is all that a round decides by.
type Input struct {
	Time time.Time
	// Uptime is CLOCK_BOOTTIME, which nobody can set, and Boot the boot ID.
	Uptime time.Duration
	Boot   string
	// Rules by the name of their plugin. One that is not among them is the same
	// as long as it has its name.
	Rules map[string]plugins.Rule
	// Levels of now, and those of the round before; nil in the first.
	Levels, Before *plugins.Levels
	Config         Config
	// Cluster is nil for an agent that runs without one.
	Cluster *Cluster
	// Contention is who hurts whom at the time of Levels.
	Contention []probes.Contention
	// Relief is what is done about the pressure before anybody is evicted for it.
	Relief []Relief
	// Memory is what the rounds before left.
	Memory Memory

	// leave tells the verdicts that are not of this part of the round; nil: none.
	leave func(plugins.Verdict) bool
	// gone are candidates of this round that are not there any more.
	gone []Considered
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

// Named are the pods of which somebody says that they should go, by the UIDs of
// their cgroups, in the order in which that is said.
func Named(in Input) (uids []string) {
	for _, v := range in.Levels.Verdicts {
		for _, c := range v.Candidates {
			if calls(v) && c.PodUID != "" {
				uids = append(uids, c.PodUID)
			}
		}
	}
	for _, f := range in.Memory.Forced {
		uids = append(uids, f.UID)
	}
	return uids
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

// kubeletCondition is the kubelet's own pressure for a resource, empty for none.
// Of a resource that is not known it may be any.
func kubeletCondition(r plugins.Resource) (condition string, known bool) {
	switch r {
	case plugins.Memory:
		return string(corev1.NodeMemoryPressure), true
	case plugins.Disk, plugins.Filesystem:
		return string(corev1.NodeDiskPressure), true
	case plugins.NetworkIO, plugins.CPU:
		return "none", true
	}
	return "", false
}
