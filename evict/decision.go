// Package evict is the coordinator: it turns verdicts into conditions, taints
// and evictions within limits, and keeps the reasons.
//
// # Usage
//
// A round is Mark, then Decide for each part that Split finds (what counts, and
// what is a dry run), then the actors: Mark says which conditions and taints
// the verdicts call for, Decide who goes and why each of the others is spared,
// the Tainter and the Evictor carry it out, Decision.Answered takes in what the
// API server said and Decision.More who is needed besides.
//
// # Concurrency
//
// Mark and Decide are pure functions of their input. A Log belongs to one
// goroutine that writes; List may be called from any.
package evict

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Decision is what one round decided, with its reasons.
type Decision struct {
	// ID is unique on this node: the round's time in nanoseconds, base 36.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Causes are the verdicts that were met, and those that ended since the
	// round before.
	Causes []Cause `json:"causes"`
	// Code is the round's outcome in one word: who goes (evicted, or
	// would-evict in a dry run), or else why nobody does.
	Code Code `json:"code"`
	// Reason is the same in one sentence.
	Reason string `json:"reason"`
	// DryRun: nothing outside was changed.
	DryRun bool `json:"dryRun,omitempty"`
	// Candidates in the order in which they would go, each with its outcome.
	Candidates []Considered `json:"candidates,omitempty"`
	// Omitted counts further candidates, all of them spared.
	Omitted int `json:"omitted,omitempty"`
	// GoneAt is when the last of the evicted pods was seen to be gone.
	GoneAt time.Time `json:"goneAt,omitzero"`
	// After is the causes again, once the node had time to settle: how far the
	// pressure fell.
	After []Cause `json:"after,omitempty"`
}

// Cause is a verdict that a decision rests on.
type Cause struct {
	Plugin    string              `json:"plugin"`
	Scope     string              `json:"scope"`
	Level     plugins.Level       `json:"level"`
	Since     time.Time           `json:"since"`
	Observed  probes.Opt[float64] `json:"observed,omitzero"`
	Operator  string              `json:"operator,omitempty"`
	Threshold probes.Opt[float64] `json:"threshold,omitzero"`
	Unit      string              `json:"unit,omitempty"`
	Reason    string              `json:"reason"`
	// Target is what must be given back for the pressure to end, and Credit who
	// was ending and counted as having given it back.
	Target probes.Opt[float64] `json:"releaseTarget,omitzero"`
	Credit []Credit            `json:"credit,omitempty"`
	// Contention is who hurt whom on what the verdict is about, the first three
	// of each kind; nil where that was not known, or the level had ended.
	Contention *probes.Contention `json:"contention,omitempty"`
}

// Considered is a candidate and what became of it.
type Considered struct {
	plugins.Candidate
	// Pod is what the host knows of it; nil for what is no pod of the API
	// server's.
	Pod *pods.Pod `json:"pod,omitempty"`
	// Plugins that named it.
	Plugins []string `json:"plugins"`
	// Code is evicted, would-evict, or why it was spared.
	Code Code `json:"code"`
	// Because is the same in one sentence.
	Because string `json:"because"`
	// Answers of the API server, in order.
	Answers []Answer `json:"answers,omitempty"`
	// GoneAt is when the pod was seen to be gone, of one that was evicted.
	GoneAt time.Time `json:"goneAt,omitzero"`
	// Asked is what it goes for, of one that may go; zero of others. It is no part
	// of the record.
	Asked Asked `json:"-"`
}

// Code is one word for an outcome or a reason, for metrics and tests. Beside
// those below there are the codes of pods.Protection.
type Code string

// The codes.
const (
	CodeEvicted    Code = "evicted"     // the API server accepted its eviction
	CodeWouldEvict Code = "would-evict" // it would have been evicted, but for the dry run
	CodeEnded      Code = "ended"       // no pressure any more

	CodeStandalone Code = "standalone" // no cluster
	CodeOff        Code = "off"        // eviction is switched off
	CodeSoft       Code = "soft"       // marked, and nobody has to go
	CodeHeld       Code = "held"       // the level lasts, its pressure is gone
	CodeUnnamed    Code = "unnamed"    // the plugin lacks a measurement and names nobody
	CodeStale      Code = "stale"      // the pods or the Node are not known as they are now
	CodeKubelet    Code = "kubelet"    // the kubelet relieves the node itself
	CodeReporting  Code = "reporting"  // the rule is new or was changed
	CodeGrace      Code = "grace"      // not met for long enough
	CodeRelief     Code = "relief"     // what presses was slowed down: it is seen first
	CodeTaint      Code = "taint"      // the taint is not acknowledged
	CodeInFlight   Code = "in-flight"  // a pod that is ending counts as released
	CodeSettle     Code = "settle"     // one has just gone: the node settles
	CodeBrake      Code = "brake"      // the controller lets nobody go for this now
	CodeRate       Code = "rate-limit" // the budget of the node, or of an owner, is used up
	CodeState      Code = "state"      // what was decided cannot be kept
	CodeNobody     Code = "nobody"     // no candidate may or need go

	CodeNotAPod    Code = "not-a-pod"   // a service or other cgroup
	CodeUnknownPod Code = "unknown-pod" // the API server does not list it
	CodeNotShown   Code = "not-shown"   // the plugin's word is not taken for it
	CodeLate       Code = "late"        // it should have ended long ago
	CodeFinished   Code = "finished"    // it ran to its end
	CodeOptedOut   Code = "opted-out"   // plimsoll.dev/skip-eviction
	CodeTolerates  Code = "tolerates"   // our taint would not keep it from coming back
	CodeTooSmall   Code = "too-small"   // its going would not end the pressure
	CodeBudget     Code = "budget"      // a disruption budget forbids it
	CodeRefused    Code = "refused"     // the API server refused
	CodeGone       Code = "gone"        // it had ended already
	CodeUnanswered Code = "unanswered"  // nobody knows whether it was accepted
	CodeNext       Code = "next"        // if those before it may not go
	CodeLimit      Code = "round-limit" // as many as a round allows go before it
	CodeNotNeeded  Code = "not-needed"  // those before it go
)

// Going is the first candidate that goes; false where nobody does.
func (d *Decision) Going() (Considered, bool) {
	for _, c := range d.Candidates {
		if c.goes() {
			return c, true
		}
	}
	return Considered{}, false
}

// Goers are all candidates that go.
func (d *Decision) Goers() []Considered {
	var list []Considered
	for _, c := range d.Candidates {
		if c.goes() {
			list = append(list, c)
		}
	}
	return list
}

func (c *Considered) goes() bool { return c.Code == CodeEvicted || c.Code == CodeWouldEvict }

// Level is the highest of the causes.
func (d *Decision) Level() plugins.Level {
	highest := plugins.None
	for _, c := range d.Causes {
		highest = max(highest, c.Level)
	}
	return highest
}
