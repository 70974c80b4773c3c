package evict

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Victim is a pod that was chosen for eviction.
type Victim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// GraceSeconds is its termination grace period.
	GraceSeconds int64 `json:"graceSeconds"`

	// Since when it is chosen, by which plugin and why, at which level of which
	// resource, and whether memory is below its floor. Only the controller's
	// eviction request has these.
	Since    time.Time        `json:"-"`
	Plugin   string           `json:"-"`
	Why      string           `json:"-"`
	Level    plugins.Level    `json:"-"`
	Resource plugins.Resource `json:"-"`
	Urgent   bool             `json:"-"`
	// Fallback: the controller did not answer, and the agent evicts the pod itself.
	Fallback bool `json:"-"`
}

// Outcome is what an answer of the API server, or of the controller, means.
type Outcome string

// The outcomes.
const (
	Evicted        Outcome = "evicted"         // accepted: the pod terminates
	NotFound       Outcome = "gone"            // no pod with that UID exists any more
	InProgress     Outcome = "in-progress"     // another component ends the pod in its own way, such as a migration
	Blocked        Outcome = "blocked"         // a PodDisruptionBudget forbids it for now
	Refused        Outcome = "refused"         // a retry would be refused, too
	Braked         Outcome = "braked"          // every pod is refused for this verdict now
	UnknownOutcome Outcome = "unknown-outcome" // it may have been accepted or not
)

// Answer is the answer to one eviction request.
type Answer struct {
	Time    time.Time `json:"time"`
	Outcome Outcome   `json:"outcome"`
	// Code is the HTTP status; 0 without an answer.
	Code int `json:"code,omitempty"`
	// RetryAfter is the API server's Retry-After; 0 without one.
	RetryAfter time.Duration `json:"-"`
	// Text is the API server's own, or the error's.
	Text string `json:"text,omitempty"`
	// DryRun: the API server checked it and deleted nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Via is ViaController for an answer of the controller, and ViaRequest for one to an
	// EvictionRequest.
	Via string `json:"via,omitempty"`
}

// reason is the answer's text after the name of its author.
func (a *Answer) reason() string {
	if a.Via == ViaController {
		return "the controller: " + a.Text
	}
	return "the API server: " + a.Text
}
