// Package evict is the coordinator: it turns verdicts into conditions, taints
// and evictions within limits, and keeps the reasons.
//
// # Usage
//
// A round (a reconcile pass) is Mark, then Decide for each part that Split finds
// (in force, and dry run), then the actors: Mark returns the conditions and taints
// that the verdicts call for, Decide which candidates are evicted and why each
// other one is skipped, the Tainter and the Evictor carry it out,
// Decision.RecordAnswer records the API server's answers, and Decision.More finds
// further evictions that are needed.
//
// # Concurrency
//
// Mark and Decide are pure functions of their input. A Log is written by one
// goroutine; List may be called from any.
package evict

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Decision is what one round decided, with its reasons.
type Decision struct {
	// ID is unique on this node: the round's time in nanoseconds, base 36.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Causes are the verdicts that were met, and those that ended since the
	// round before.
	Causes []Cause `json:"causes"`
	// Code is the round's outcome in one word: evicted (would-evict in a dry
	// run), or why no pod is evicted.
	Code Code `json:"code"`
	// Reason is the same in one sentence.
	Reason string `json:"reason"`
	// DryRun: nothing was written to the cluster.
	DryRun bool `json:"dryRun,omitempty"`
	// Candidates in eviction order, each with its outcome.
	Candidates []Considered `json:"candidates,omitempty"`
	// Omitted counts further candidates, all of them skipped.
	Omitted int `json:"omitted,omitempty"`
	// TerminatedAt is when the last evicted pod was seen to have terminated.
	TerminatedAt time.Time `json:"goneAt,omitzero"`
	// After is the causes again after the cooldown: how far the pressure fell.
	After []Cause `json:"after,omitempty"`
}

// Cause is a verdict that a decision rests on.
type Cause struct {
	Plugin    string                `json:"plugin"`
	Scope     string                `json:"scope"`
	Level     plugins.Level         `json:"level"`
	Since     time.Time             `json:"since"`
	Observed  snapshot.Opt[float64] `json:"observed,omitzero"`
	Operator  string                `json:"operator,omitempty"`
	Threshold snapshot.Opt[float64] `json:"threshold,omitzero"`
	Unit      string                `json:"unit,omitempty"`
	Reason    string                `json:"reason"`
	// Target is what must be released for the pressure to end, and Credit the
	// terminating pods whose usage counted as released.
	Target snapshot.Opt[float64] `json:"releaseTarget,omitzero"`
	Credit []Credit              `json:"credit,omitempty"`
	// Contention is the first three culprits and sufferers of the verdict's
	// resource; nil where they were not known, or the level had ended.
	Contention *snapshot.Contention `json:"contention,omitempty"`
}

// Considered is a candidate with its outcome.
type Considered struct {
	plugins.Candidate
	// Pod is the agent's own copy; nil for what is not a pod in the API server.
	Pod *pods.Pod `json:"pod,omitempty"`
	// Plugins that named it.
	Plugins []string `json:"plugins"`
	// Code is evicted, would-evict, or why it was skipped.
	Code Code `json:"code"`
	// Reason is the same in one sentence.
	Reason string `json:"because"`
	// Answers of the API server, in order.
	Answers []Answer `json:"answers,omitempty"`
	// TerminatedAt is when the evicted pod was seen to have terminated.
	TerminatedAt time.Time `json:"goneAt,omitzero"`
	// For is the verdict for which it is evicted; zero for skipped ones. It is
	// not recorded.
	For VerdictRef `json:"-"`
}

// Code is one word for an outcome or a reason, for metrics and tests: one of
// those below, or a code of pods.Protection.
type Code string

// The codes.
const (
	CodeEvicted    Code = "evicted"     // the API server accepted its eviction
	CodeInProgress Code = "in-progress" // another component carries its eviction out
	CodeWouldEvict Code = "would-evict" // dry run: it would have been evicted
	CodeEnded      Code = "ended"       // the pressure has ended

	CodeStandalone  Code = "standalone"   // standalone mode, no cluster
	CodeOff         Code = "off"          // eviction.enabled is false
	CodeSoft        Code = "soft"         // soft level: no pod is evicted
	CodeLatched     Code = "latched"      // the level is latched, its pressure is gone
	CodeNoCandidate Code = "no-candidate" // the plugin lacks a measurement and names no pod
	CodeStale       Code = "stale"        // the pods, the Node or the measurements are out of date
	CodeKubelet     Code = "kubelet"      // the kubelet evicts pods itself, or has just done so
	CodeReportOnly  Code = "report-only"  // the rule is new or was changed, or its plugin may evict no pod
	CodeGrace       Code = "grace"        // eviction grace period of the plugin
	CodeRelief      Code = "relief"       // pods were throttled: waiting for the effect
	CodeTaint       Code = "taint"        // the taint is not yet acknowledged
	CodeTerminating Code = "terminating"  // the usage of a terminating pod counts as released
	CodeCooldown    Code = "cooldown"     // cooldown after an eviction
	CodeBrake       Code = "brake"        // the controller refuses evictions for this verdict
	CodeRateLimit   Code = "rate-limit"   // the eviction rate limit of the node or owner is reached
	CodeState       Code = "state"        // the eviction state cannot be saved
	CodeNone        Code = "all-skipped"  // no candidate may or needs to be evicted

	CodeNotAPod        Code = "not-a-pod"       // a service or other cgroup
	CodeUnknownPod     Code = "unknown-pod"     // the API server does not list it
	CodeNotAllowed     Code = "not-shown"       // the plugin may not name it
	CodeOverdue        Code = "overdue"         // it should have terminated, and still exists
	CodeFinished       Code = "finished"        // it has terminated by itself
	CodeOptedOut       Code = "opted-out"       // its owner opted out (eviction.optOut)
	CodeTolerates      Code = "tolerates"       // it tolerates our taint
	CodeTooSmall       Code = "too-small"       // its eviction would release too little
	CodePDB            Code = "pdb"             // a PodDisruptionBudget forbids it
	CodeRefused        Code = "refused"         // the API server, or the controller, refused
	CodeTerminated     Code = "gone"            // it had already terminated
	CodeUnknownOutcome Code = "unknown-outcome" // no answer: the outcome is unknown
	CodeNext           Code = "next"            // evicted if no earlier candidate is
	CodeRoundLimit     Code = "round-limit"     // the limit of evictions per round is reached
	CodeNotNeeded      Code = "not-needed"      // earlier evictions release enough
)

// FirstEvicted is the first candidate whose eviction was accepted, or is in progress;
// false if there is none.
func (d *Decision) FirstEvicted() (Considered, bool) {
	for _, c := range d.Candidates {
		if c.evicted() {
			return c, true
		}
	}
	return Considered{}, false
}

// Evicted are all candidates whose eviction was accepted, or is in progress.
func (d *Decision) Evicted() []Considered {
	var list []Considered
	for _, c := range d.Candidates {
		if c.evicted() {
			list = append(list, c)
		}
	}
	return list
}

func (c *Considered) evicted() bool {
	return c.Code == CodeEvicted || c.Code == CodeInProgress || c.Code == CodeWouldEvict
}

// Level is the highest of the causes.
func (d *Decision) Level() plugins.Level {
	highest := plugins.None
	for _, c := range d.Causes {
		highest = max(highest, c.Level)
	}
	return highest
}
