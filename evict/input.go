package evict

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// MinRound is the minimum time between two rounds.
const MinRound = time.Second

// CallTimeout bounds the call that evicts one pod: no longer than a round, and long
// enough for an API server that is merely busy.
const CallTimeout = 5 * time.Second

// Config of the coordinator: the configuration keys below eviction.
type Config struct {
	Enabled             bool          `yaml:"enabled" why:"Whether pods are evicted at all. It does not affect conditions and taints."`
	DryRun              bool          `yaml:"dryRun" why:"Only log and record what would be done: no condition, no taint, no eviction. True, so that a fresh install only observes."`
	Round               time.Duration `yaml:"round" why:"How often plugins are asked and evictions are decided; a rule that becomes met starts a round at once."`
	Cooldown            time.Duration `yaml:"cooldown" why:"Cooldown: how long after a pod terminated no further pod is chosen, so that its effect is measured first. Longer than the rules' windows."`
	Transition          time.Duration `yaml:"transition" why:"How long a condition and its taint stay after the level was last met, so that they do not flap."`
	MaxTerminationGrace time.Duration `yaml:"maxGrace" why:"Upper bound of an evicted pod's termination grace period; a shorter period of the pod is kept."`
	Via                 string        `yaml:"via" unit:"direct, controller or request" why:"Who evicts: the agent itself (direct), or the controller (controller), which approves the agent's eviction requests within the cluster eviction limit. With controller, a stolen agent token evicts no pod of another node, and without a running controller no pod is evicted. With request the agent makes an EvictionRequest (lifecycle.k8s.io/v1alpha1, Kubernetes 1.37 with the feature gate EvictionRequestAPI), and withdraws it when relief comes first."`
	// ViaFallback matters with Via controller alone.
	ViaFallback      bool          `yaml:"viaFallback" why:"Whether the agent itself evicts for hard memory pressure when the controller does not answer: one pod of the node in 10 min. It needs the right to evict (deploy/rbac-evict-direct.yaml)."`
	ViaFallbackAfter time.Duration `yaml:"viaFallbackAfter" why:"How long the controller must not have answered a request before the agent evicts itself: twice the time in which a new leader is elected (election.duration)."`
	// Limits are upper bounds: a round evicts no more than needed.
	Limits          Limits        `yaml:"limits" why:"Eviction rate limits; they hold for every pressure."`
	DryRunPlugins   []string      `yaml:"dryRunPlugins" unit:"names" why:"Plugins whose verdicts are decided as a dry run beside the others: they neither mark nor evict. A plugin's name, \"*\" for all, \"-name\" for all but one."`
	ReportOnly      time.Duration `yaml:"reportOnly" why:"How long a new or changed rule is report-only, or its own window where that is longer: a typo that parses must not evict pods on every node."`
	MaxAge          time.Duration `yaml:"maxAge" why:"The oldest measurement by which a pod is evicted: an agent that was frozen wakes up with old values. Three rounds where these are longer."`
	ReliefWait      time.Duration `yaml:"reliefWait" why:"How long no pod is evicted for a pressure for which pods were just throttled, and while one of them may still be throttled further. Forced evictions, and memory below its floor, do not wait. 0s: no wait."`
	OverdueAfter    time.Duration `yaml:"overdueAfter" why:"How long after the end of its termination grace period (at most maxGrace) the usage of a terminating pod still counts as released; then other pods may be evicted in its place."`
	UrgentWait      time.Duration `yaml:"urgentWait" why:"The same where memory is below its floor: how long the usage of a terminating pod counts as released, whatever its termination grace period."`
	InProgressWait  time.Duration `yaml:"inProgressWait" why:"How long a pod that another component evicts in its own way, such as a virtual machine that is migrated, counts as released before it is gone; then it counts as refused. 2m is how long Kubernetes itself lets an announced eviction stand that is not carried out."`
	KubeletCooldown time.Duration `yaml:"kubeletCooldown" why:"Cooldown after an eviction by the kubelet for node pressure: no pod is chosen for the same resource. Evictions for a pod's own limit do not count."`
	Taints          FlapBackoff   `yaml:"taints" why:"Flap backoff of taints."`
	MinRelief       float64       `yaml:"minRelief" unit:"ratio" why:"A pod is evicted only if that releases this share of the resource, or all that must be released: evicting small pods does not help."`
	Protect         pods.Rules    `yaml:"protect" why:"Pods that are never evicted, beside static, DaemonSet and data mover pods, pods without a controller and pods that can run on this node only."`
	// OptOuts are read when the agent starts.
	OptOuts pods.OptOuts `yaml:"optOut" unit:"key=value" why:"Annotations or labels by which a pod's owner opts out of evictions at soft. A change needs a restart."`
	// OptOutHard are the namespaces whose opt-out holds at hard too.
	OptOutHard []string `yaml:"optOutHard" unit:"namespaces" why:"Namespaces in which an opt-out holds at hard too; \"*\": in all. Elsewhere it holds at soft only, or every tenant could make its pods immune."`
}

// Who evicts.
const (
	ViaDirect     = "direct"
	ViaController = "controller"
	// ViaRequest: by an EvictionRequest, which components of the cluster respond to (KEP-4563).
	ViaRequest = "request"
)

// DefaultConfig is that of a fresh install: a dry run.
func DefaultConfig() Config {
	return Config{
		Enabled: true, DryRun: true, Via: ViaDirect, ViaFallbackAfter: 30 * time.Second, Round: 5 * time.Second, Cooldown: 30 * time.Second, Transition: 5 * time.Minute,
		Limits: Limits{PerRound: 3, PerMinute: 5, PerOwnerHour: 6}, ReportOnly: 10 * time.Minute, MaxAge: 15 * time.Second,
		ReliefWait: 10 * time.Second, OverdueAfter: 30 * time.Second, UrgentWait: 5 * time.Second, InProgressWait: 2 * time.Minute, KubeletCooldown: time.Minute, Taints: FlapBackoff{Minimum: 5 * time.Minute, Maximum: time.Hour},
		MaxTerminationGrace: 30 * time.Second, MinRelief: 0.2, Protect: pods.DefaultRules(), OptOuts: pods.DefaultOptOuts(),
	}
}

// OldestMeasurement is the age up to which pods are evicted by a measurement.
func (c *Config) OldestMeasurement() time.Duration { return max(c.MaxAge, 3*c.Round) }

// maxReliefWait bounds what delays an eviction for milder measures.
const maxReliefWait = time.Minute

// maxInProgressWait bounds how long a pod that does not go holds back other evictions.
const maxInProgressWait = 10 * time.Minute

// Validate says which values must not be used.
func (c Config) Validate(at problems.Section) {
	at.Duration("round", c.Round, MinRound, problems.MaxDuration)
	at.Duration("cooldown", c.Cooldown, 0, problems.MaxDuration)
	at.Duration("transition", c.Transition, 0, problems.MaxDuration)
	at.Duration("reliefWait", c.ReliefWait, 0, maxReliefWait)
	at.Duration("urgentWait", c.UrgentWait, 0, maxReliefWait)
	at.Duration("inProgressWait", c.InProgressWait, 0, maxInProgressWait)
	at.Duration("maxGrace", c.MaxTerminationGrace, time.Second, problems.MaxDuration)
	at.OneOf("via", c.Via, ViaDirect, ViaController, ViaRequest)
	at.Duration("viaFallbackAfter", c.ViaFallbackAfter, CallTimeout, problems.MaxDuration) // a round waits that long
	at.Duration("reportOnly", c.ReportOnly, 0, problems.MaxDuration)
	at.Duration("maxAge", c.MaxAge, time.Second, time.Hour)
	at.Duration("overdueAfter", c.OverdueAfter, 0, problems.MaxDuration)
	at.Duration("kubeletCooldown", c.KubeletCooldown, 0, problems.MaxDuration)
	for i, name := range c.DryRunPlugins {
		in := at.Element("dryRunPlugins", i)
		in.Must(name != "" && name != "-" && name != "-*", "want the name of a plugin, * or -name")
		bare := strings.TrimPrefix(name, "-")
		before := slices.ContainsFunc(c.DryRunPlugins[:i], func(o string) bool { return strings.TrimPrefix(o, "-") == bare })
		in.Must(!before, problems.Quote(bare)+" is named twice")
	}
	for i, optOut := range c.OptOuts {
		if err := pods.ValidateOptOut(optOut); err != nil {
			at.Element("optOut", i).Must(false, err.Error())
		}
	}
}

// Input is all that a round decides by.
type Input struct {
	Time time.Time
	// Uptime is CLOCK_BOOTTIME, which cannot be set, and Boot the boot ID.
	Uptime time.Duration
	Boot   string
	// Rules by plugin name. A plugin without one counts as unchanged as long as
	// its name is the same.
	Rules map[string]plugins.Rule
	// Levels of now, and those of the round before; nil in the first.
	Levels, Before *plugins.Levels
	Config         Config
	// Cluster is nil for an agent that runs without one.
	Cluster *Cluster
	// Contention has the culprits and sufferers at the time of Levels.
	Contention []snapshot.Contention
	// Relief is the throttling that is tried before an eviction.
	Relief []Relief
	// Standings are those of the plugins of NamingPlugins, by name. One without keeps the
	// limit that its names had.
	Standings map[string]Standing
	// State is the state that the round before left.
	State State

	// exclude matches verdicts that are not in this part of the round; nil: none. whole has
	// those of all parts; nil: Levels has.
	exclude func(plugins.Verdict) bool
	whole   *plugins.Levels
	// terminated are candidates of this round that no longer exist.
	terminated []Considered
}

// Standing is what an outer plugin may do at present, whether it is registered or has
// ended: it may have named pods under another configuration, or before a rival came.
type Standing struct {
	// Beside limits its verdicts.
	Beside plugins.Beside
	// Excluded is why no pod is evicted for it, not even a forced one; empty: pods may be.
	Excluded string
	// Unknown: the limits are those of a plugin of which it is not known yet what it may do,
	// such as after a restart. No pod is evicted for it, and no EvictionRequest withdrawn.
	Unknown bool
}

// Cluster is the state of the cluster in this round.
type Cluster struct {
	Pods pods.List
	Node Node
	// Unmarked is empty once the API server has acknowledged the taints that
	// Mark asked for, else why it has not.
	Unmarked string
}

// Node is what a round needs to know of the Node object.
type Node struct {
	// ReadError is why it could not be read in this round; empty: it was.
	ReadError string
	// KubeletPressure is the pressure conditions of the kubelet's own that are
	// True, such as MemoryPressure.
	KubeletPressure []string
}

// CandidatePods returns the pods that plugins name as candidates, or named before, by the
// UIDs of their cgroups, in that order.
func CandidatePods(in Input) (uids []string) {
	for _, v := range in.Levels.Verdicts {
		for _, c := range v.Candidates {
			if active(v) && c.PodUID != "" {
				uids = append(uids, c.PodUID)
			}
		}
	}
	for _, f := range in.State.Named {
		uids = append(uids, f.UID)
	}
	return uids
}

// excluded is why no pod is evicted for a plugin, whatever it says or said; empty: pods
// may be. Its Standing may be newer than its verdict.
func (in Input) excluded(v plugins.Verdict) string {
	s := in.Standings[v.Plugin]
	switch {
	case s.Excluded != "":
		return "no pod is evicted for this plugin: " + s.Excluded
	case v.Beside == plugins.BesideMark || s.Beside == plugins.BesideMark:
		return "another process may ask this plugin, too, and plugins.beside is mark: its verdicts evict no pod"
	case s.Beside == plugins.BesideReport && !in.Config.DryRun:
		return "another process may ask this plugin, too, so that its verdicts are a dry run"
	}
	return ""
}

// standingUnknown reports whether it is not known yet what a plugin may do.
func (in Input) standingUnknown(plugin string) bool {
	return in.Standings[plugin].Unknown && !IsDryRun(in.Config.DryRunPlugins, plugin)
}

// NamingPlugins returns the outer plugins that name candidates, that named pods before, or
// for which EvictionRequests were made.
func NamingPlugins(in Input) (list []string) {
	for _, v := range in.Levels.Verdicts {
		if len(v.Candidates) > 0 {
			list = append(list, v.Plugin)
		}
	}
	for _, n := range in.State.Named {
		list = append(list, n.Plugin)
	}
	for _, l := range in.State.Victims {
		for _, key := range l.Met {
			list = append(list, pluginOf(key))
		}
	}
	slices.Sort(list)
	inner := plugins.Names()
	return slices.DeleteFunc(slices.Compact(list), func(name string) bool { return slices.Contains(inner, name) })
}

// ReadNode extracts what a round needs from a Node object, or from the error of
// reading it.
func ReadNode(n *corev1.Node, err error) Node {
	if err != nil {
		return Node{ReadError: err.Error()}
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

// kubeletCondition is the kubelet's pressure condition for a resource; known is
// false for an unknown resource, for which any may apply.
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

// WithLevels is the same part of a round with other levels.
func (in Input) WithLevels(l *plugins.Levels) Input {
	in.Levels, in.whole = l, l
	if l != nil && in.exclude != nil {
		in.Levels = &plugins.Levels{Time: l.Time, Verdicts: slices.DeleteFunc(slices.Clone(l.Verdicts), in.exclude)}
	}
	return in
}

// judged reports whether a verdict of this round matches, in whichever part. The state is
// that of all parts: none forgets what it has for the verdicts of another.
func (in Input) judged(match func(plugins.Verdict) bool) bool {
	return slices.ContainsFunc(cmp.Or(in.whole, in.Levels).Verdicts, match)
}

// besideOthers reports whether this is the dry run of some plugins, beside the part of
// the round that is in force.
func (in Input) besideOthers() bool { return in.Config.DryRun && in.exclude != nil }
