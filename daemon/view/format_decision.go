package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Eviction is the summary of the evictions of one decision; the Decision has the details.
type Eviction struct {
	// Decision is the ID of the Decision.
	Decision string    `json:"decision"`
	Time     time.Time `json:"time"`
	// Code is that of the first pod: in-progress until another component carries the
	// eviction out, which may not end the pod at all.
	Code evict.Code `json:"code,omitempty"`
	// DryRun: no pod was evicted.
	DryRun bool `json:"dryRun,omitempty"`
	// Name is the first pod's, with its namespace, and Reason why it was evicted.
	Name   string `json:"name"`
	Reason string `json:"why"`
	// More is how many other pods the decision evicts.
	More int `json:"more,omitempty"`
	// TerminatedAt is when the last of the pods was found to be terminated.
	TerminatedAt time.Time `json:"goneAt,omitzero"`
}

// Text is the eviction in a few words, without its time: "evicted web/a: why;
// terminated after 12 s".
func (e *Eviction) Text() string {
	name, why := e.Pods(), ": "+Printable(e.Reason)
	text, outcome := "evicted "+name+why, "still terminating"
	switch {
	case e.DryRun:
		return "dry run: would evict " + name + why
	case e.Code == evict.CodeInProgress:
		text, outcome = "eviction of "+name+" requested"+why, "not carried out yet"
	}
	if !e.TerminatedAt.IsZero() {
		outcome = "terminated after " + Age(e.TerminatedAt.Sub(e.Time))
	}
	return text + "; " + outcome
}

// Pods names the first pod, and counts the others.
func (e *Eviction) Pods() string {
	if e.More == 0 {
		return Printable(e.Name)
	}
	return Printable(e.Name) + " and " + Count(uint64(e.More)) + " more"
}

// latestEviction is nil if no decision evicts a pod.
func latestEviction(decisions []evict.Decision) *Eviction {
	for i := range decisions {
		d := &decisions[i]
		if evicted := d.Evicted(); len(evicted) > 0 {
			c := &evicted[0]
			return &Eviction{Decision: d.ID, Time: d.Time, Code: c.Code, DryRun: d.DryRun, Name: c.Name, Reason: c.Why, More: len(evicted) - 1, TerminatedAt: d.TerminatedAt}
		}
	}
	return nil
}

// DecisionText is a decision's outcome in a few words.
func DecisionText(d *evict.Decision) string {
	switch d.Code {
	case evict.CodeEvicted:
		return "evicted"
	case evict.CodeInProgress:
		return "eviction in progress"
	case evict.CodeWouldEvict:
		return "dry run: would evict"
	case evict.CodeEnded:
		return "pressure ended"
	case evict.CodeUnknownOutcome:
		return "eviction outcome unknown"
	case evict.CodeSoft:
		return "no eviction needed"
	default:
		return "no pod evicted"
	}
}

// NamedEarlierText is when a candidate's plugin named it, where that was in an
// earlier round; empty: in this one.
func NamedEarlierText(d *evict.Decision, c *evict.Considered) string {
	if c.NamedAt.IsZero() {
		return ""
	}
	return fmt.Sprintf(" at %s, %s before", Clock(c.NamedAt), Age(d.Time.Sub(c.NamedAt)))
}

// CandidateText is a candidate's outcome in a few words.
func CandidateText(c *evict.Considered) string {
	switch c.Code {
	case evict.CodeEvicted:
		return "evicted"
	case evict.CodeInProgress:
		return "eviction in progress"
	case evict.CodeWouldEvict:
		return "would be evicted"
	case evict.CodeUnknownOutcome:
		return "outcome unknown"
	case evict.CodeTerminated:
		return "already deleted"
	case evict.CodeTerminating:
		switch {
		case c.Pod != nil && !c.Pod.TerminatesBy.IsZero():
			return "already terminating"
		case c.Pod != nil && c.Pod.EvictedElsewhere != "":
			return "evicted by another component"
		}
	default: // the code tells why it was skipped
	}
	return "skipped: " + Printable(string(c.Code))
}

// CauseTitle names a cause: "memory-stall", or with its device
// "disk-contention nvme0n1".
func CauseTitle(c evict.Cause) string {
	if c.Scope == "" || c.Scope == "node" {
		return Printable(c.Plugin)
	}
	return Printable(c.Plugin) + " " + Printable(c.Scope)
}

// PodText is what the eviction order of a pod depends on: QoS, priority, owner
// and requests.
func PodText(p *pods.Pod) string {
	qos := Printable(p.QoS)
	if p.LowQoS {
		qos += " (low QoS: evicted first)"
	}
	request := "requests no memory"
	if p.MemoryRequestBytes > 0 {
		request = "requests " + Bytes(float64(p.MemoryRequestBytes)) + " of memory"
	}
	if p.CPURequestMillicores > 0 {
		request += fmt.Sprintf(" and %.4g CPUs", float64(p.CPURequestMillicores)/1000)
	}
	owner := "no owner"
	if p.Owner.Kind != "" {
		owner = Printable(p.Owner.Kind + " " + p.Owner.Name)
	}
	return fmt.Sprintf("%s · priority %d · %s · %s", qos, p.Priority, owner, request)
}

// AnswerSource is the API server, or the controller where the request went there.
func AnswerSource(a evict.Answer) string {
	if a.Via == evict.ViaController {
		return "controller"
	}
	return "API server"
}

// AnswerText is an answer with its status code: "evicted (201)". The server's
// message is left out if said contains it already.
func AnswerText(a evict.Answer, said string) string {
	text := string(a.Outcome)
	if a.DryRun {
		text += ", dry run"
	}
	if a.Code != 0 {
		text += fmt.Sprintf(" (%d)", a.Code)
	}
	if a.Text != "" && !strings.Contains(said, a.Text) {
		text += ": " + a.Text
	}
	return Printable(text)
}

// TerminatedText is when an evicted candidate terminated; empty where it was not evicted.
func TerminatedText(d *evict.Decision, c *evict.Considered) string {
	switch {
	case !c.TerminatedAt.IsZero():
		return Clock(c.TerminatedAt) + " UTC, " + Age(c.TerminatedAt.Sub(d.Time)) + " after the decision"
	case c.Code == evict.CodeEvicted, c.Code == evict.CodeInProgress:
		return "not yet"
	}
	return ""
}

// PressureChanges is how far the pressure fell, a line for each cause. It is empty
// until the cooldown is over.
func PressureChanges(d *evict.Decision) []string {
	var list []string
	for _, was := range d.Causes {
		for _, is := range d.After {
			if is.Plugin == was.Plugin && is.Scope == was.Scope {
				list = append(list, pressureChange(was, is))
			}
		}
	}
	return list
}

// pressureChange adds the thresholds where they differ: then the two values belong to
// two rules with different windows.
func pressureChange(was, is evict.Cause) string {
	from, to := observedText(was), observedText(is)
	if was.Threshold != is.Threshold {
		from, to = from+thresholdText(was), to+thresholdText(is)
	}
	return CauseTitle(was) + ": " + levelChange(was.Level, is.Level) + ", " + from + " → " + to + "; now " + Printable(is.Reason)
}

// observedText is the value of a cause, or Unknown.
func observedText(c evict.Cause) string {
	return Optional(c.Observed, func(v float64) string { return Quantity(v, c.Unit) })
}

func thresholdText(c evict.Cause) string {
	t, known := c.Threshold.Get()
	if !known {
		return ""
	}
	return " (threshold " + Printable(c.Operator) + " " + Quantity(t, c.Unit) + ")"
}

func levelChange(was, is plugins.Level) string {
	if was == is {
		return "still " + is.String()
	}
	return was.String() + " → " + is.String()
}
