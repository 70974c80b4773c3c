package fleet

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
)

// Settings of the fleet.
type Settings struct {
	Enabled     bool          `yaml:"enabled" why:"Whether the agents' heartbeats are watched, and what they ask for is answered."`
	Grace       time.Duration `yaml:"grace" why:"How long an agent may be silent before its conditions become Unknown: four beats, as Kubernetes gives a kubelet."`
	TaintsStay  time.Duration `yaml:"taintsStay" why:"How long the taints of a silent agent stay after it was last heard: agents die because of pressure, and are upgraded. Not below the agents' eviction.transition."`
	MassSilence float64       `yaml:"massSilence" unit:"ratio" why:"From more than this share of silent agents on it is taken for the controller's own blindness: nothing is marked, lifted or granted."`
	Evictions   Evictions     `yaml:"evictions" why:"What limits the evictions that agents ask for, over the whole cluster."`
	Protect     pods.Rules    `yaml:"protect" why:"Which pods are never evicted, whichever agent asks."`
}

// Evictions are the budgets of the cluster.
type Evictions struct {
	Share       float64       `yaml:"share" unit:"ratio" why:"How many of the cluster's pods may go in each per, one at least."`
	Per         time.Duration `yaml:"per" why:"The time that share is counted over."`
	PerOwner    time.Duration `yaml:"perOwner" why:"In so long one pod of an owner may go: of a Deployment, a StatefulSet, a CronJob."`
	ZoneTainted float64       `yaml:"zoneTainted" unit:"ratio" why:"While agents keep pods away from more than this share of a zone's nodes, and more than one, by taints NoSchedule or NoExecute for a pressure that lasts, or because a node with pressure is not ready, evictions there are held back: its pods would have nowhere to go."`
	CommonCause float64       `yaml:"commonCause" unit:"ratio" why:"While more than this share of the nodes, and at least three, have one pressure, evictions for it are held back: shared storage is slow or a threshold is bad, and evictions would only spread it. At hard only nodes at hard count."`
	BrakedPer   time.Duration `yaml:"brakedPer" why:"While evictions are held back, one pod goes all the same in so long where memory is at hard: of the zone, or with a common cause of the cluster. Whoever presses a few nodes would else keep help from all others; a rule that is wrong everywhere must not empty a zone."`
	UrgentPer   time.Duration `yaml:"urgentPer" why:"The same for memory below its floor, of each zone: the kernel's turn is next."`
	MaxGrace    time.Duration `yaml:"maxGrace" why:"The longest that an evicted pod gets to end by itself, whatever its agent asks for. As the agents' eviction.maxGrace."`
	// ForceGraceZero is as the agents' plugins.forceGraceZero.
	ForceGraceZero []string `yaml:"forceGraceZero" unit:"names" why:"Which plugins, as agents name them, may have pods deleted without any grace: the API server forgets such a pod while it may still run. As the agents' plugins.forceGraceZero."`
}

// counted is how long one that went counts: for its owner, and in this period and
// the one before for the share of its node.
func (e *Evictions) counted() time.Duration { return max(2*e.Per, e.PerOwner) }

// past is the time in which one goes past a brake.
func (e *Evictions) past(b Brake) time.Duration {
	if b == BrakeUrgent {
		return e.UrgentPer
	}
	return e.BrakedPer
}

// countedPast is how long one that went past a brake counts, which is longer.
func (e *Evictions) countedPast(b Brake) time.Duration {
	if b == "" {
		return e.counted()
	}
	return max(e.counted(), turns*e.past(b))
}

// DefaultSettings are those of a fresh install.
func DefaultSettings() Settings {
	return Settings{
		Enabled: true, Grace: 40 * time.Second, TaintsStay: 5 * time.Minute, MassSilence: 0.55,
		Evictions: Evictions{Share: 0.01, Per: 5 * time.Minute, PerOwner: 10 * time.Minute, ZoneTainted: 0.10, CommonCause: 0.30, BrakedPer: 10 * time.Minute, UrgentPer: time.Minute, MaxGrace: 30 * time.Second},
		Protect:   pods.DefaultRules(),
	}
}
