package agents

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// Settings of the agents' supervision.
type Settings struct {
	Enabled     bool          `yaml:"enabled" why:"Whether the controller watches the agents' heartbeats and answers their eviction requests."`
	Grace       time.Duration `yaml:"monitorGracePeriod" why:"How long an agent's heartbeat may be missing before the agent is silent and its conditions become Unknown: four heartbeats, as Kubernetes gives a kubelet."`
	TaintsStay  time.Duration `yaml:"taintRemovalDelay" why:"How long the taints of a silent agent stay after its last heartbeat: an agent may have died of the pressure, or is being upgraded. Not below the agents' eviction.transition."`
	MassSilence float64       `yaml:"unhealthyThreshold" unit:"ratio" why:"Full disruption: while more than this share of the agents, and at least three, have not renewed their Leases for half of monitorGracePeriod, the controller suspects its own view. It changes no conditions or taints and refuses evictions."`
	Evictions   Evictions     `yaml:"evictions" why:"Limits of the evictions that agents request, over the whole cluster."`
	Protect     pods.Rules    `yaml:"protect" why:"Which pods are never evicted, whichever agent requests it."`
}

// Evictions are the cluster eviction limit and the brakes.
type Evictions struct {
	Share       float64       `yaml:"maxShare" unit:"ratio" why:"Cluster eviction limit: the share of the cluster's pods that may be evicted in each period, at least one pod."`
	Per         time.Duration `yaml:"period" why:"The time over which maxShare is counted."`
	PerOwner    time.Duration `yaml:"ownerInterval" why:"The shortest time between two evictions of pods of one owner: a Deployment, a StatefulSet, a CronJob."`
	ZoneTainted float64       `yaml:"zoneTaintedThreshold" unit:"ratio" why:"Evictions in a zone are braked while more than this share of its nodes, and more than one, keep pods away: by a taint NoSchedule or NoExecute for a pressure that lasts, or because a node with pressure is not ready. Evicted pods would find no node there."`
	CommonCause float64       `yaml:"commonCauseThreshold" unit:"ratio" why:"Evictions for a pressure are braked while more than this share of the nodes, and at least three, have it: shared storage is slow or a threshold is wrong, and evictions would only move the pressure. For a request at hard only nodes at hard count."`
	BrakedPer   time.Duration `yaml:"brakedInterval" why:"While evictions are braked, one pod may still be evicted in this time for memory at hard: one of the zone, or with a common cause one of the cluster. So pressure on a few nodes cannot block help for all others, and a rule that is wrong everywhere cannot empty a zone."`
	UrgentPer   time.Duration `yaml:"urgentInterval" why:"The same for memory below its floor, one pod of each zone: otherwise the kernel's OOM killer acts next."`
	MaxGrace    time.Duration `yaml:"maxGrace" why:"The longest termination grace of an evicted pod, whatever its agent requests. As the agents' eviction.maxGrace."`
	// ForceGraceZero has the meaning of the agents' plugins.forceGraceZero.
	ForceGraceZero []string `yaml:"forceGraceZero" unit:"names" why:"Which plugins, as agents name them, may evict pods with a termination grace of 0: the API server deletes such a pod at once, while its containers may still run. As the agents' plugins.forceGraceZero."`
}

// counted is how long an eviction counts: for its owner, and in this period and
// the one before for the share of its node.
func (e *Evictions) counted() time.Duration { return max(2*e.Per, e.PerOwner) }

// past is the period in which one pod may be evicted past a brake.
func (e *Evictions) past(b Brake) time.Duration {
	if b == BrakeUrgent {
		return e.UrgentPer
	}
	return e.BrakedPer
}

// countedPast is how long an eviction past a brake counts: longer than others.
func (e *Evictions) countedPast(b Brake) time.Duration {
	if b == "" {
		return e.counted()
	}
	return max(e.counted(), fairnessPeriods*e.past(b))
}

// DefaultSettings are those of a fresh install.
func DefaultSettings() Settings {
	return Settings{
		Enabled: true, Grace: 40 * time.Second, TaintsStay: 5 * time.Minute, MassSilence: 0.55,
		Evictions: Evictions{Share: 0.01, Per: 5 * time.Minute, PerOwner: 10 * time.Minute, ZoneTainted: 0.10, CommonCause: 0.30, BrakedPer: 10 * time.Minute, UrgentPer: time.Minute, MaxGrace: 30 * time.Second},
		Protect:   pods.DefaultRules(),
	}
}

// Validate says which values must not be used.
func (s Settings) Validate(at problems.Section) {
	at.Duration("monitorGracePeriod", s.Grace, time.Second, time.Hour)
	at.Duration("taintRemovalDelay", s.TaintsStay, s.Grace, problems.MaxDuration)
}

const maxPluginName = 128

// Validate says which values must not be used.
func (e Evictions) Validate(at problems.Section) {
	at.Duration("period", e.Per, time.Second, problems.MaxDuration)
	at.Duration("ownerInterval", e.PerOwner, time.Second, problems.MaxDuration)
	at.Duration("brakedInterval", e.BrakedPer, e.UrgentPer, problems.MaxDuration)
	at.Duration("urgentInterval", e.UrgentPer, time.Second, problems.MaxDuration)
	at.Duration("maxGrace", e.MaxGrace, time.Second, problems.MaxDuration)
	for i, name := range e.ForceGraceZero {
		at.Element("forceGraceZero", i).Must(name != "" && len(name) <= maxPluginName, "want a plugin's name, got "+problems.Quote(name))
	}
}
