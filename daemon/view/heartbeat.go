package view

import (
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// Heartbeat is the state of a Lease and of its renewals.
type Heartbeat struct {
	// Target is the owner of the Lease: agent or node.
	Target   string        `json:"target"`
	Interval time.Duration `json:"-"`
	Duration time.Duration `json:"-"`
	// Renewed is when the API server last acknowledged a renewal.
	Renewed time.Time `json:"renewed,omitzero"`
	// Error of the last attempt, empty when it succeeded.
	Error string `json:"error,omitempty"`
	// Outcomes counts attempts to renew, Dials attempts to connect.
	Outcomes map[lease.Outcome]uint64 `json:"outcomes"`
	Dials    uint64                   `json:"dials"`
	// Last are the last attempts, newest first.
	Last []RenewAttempt `json:"last"`
	// LongestGapSeconds is the longest time between two successful attempts.
	LongestGapSeconds float64 `json:"longestGapSeconds"`
	// RenewDurations is how long successful attempts took.
	RenewDurations Durations `json:"-"`
}

// RenewAttempt is one attempt to renew the Lease.
type RenewAttempt struct {
	Time            time.Time     `json:"time"`
	DurationSeconds float64       `json:"durationSeconds"`
	Outcome         lease.Outcome `json:"outcome"`
	Error           string        `json:"error,omitempty"`
}

// Durations of attempts: cumulative counts by RenewBuckets, their number and sum.
type Durations struct {
	Within  [9]uint64
	Count   uint64
	Seconds float64
}

// RenewBuckets are upper bounds, in seconds.
func RenewBuckets() [9]float64 {
	return [9]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 2, 8}
}

func (d *Durations) add(seconds float64) {
	for i, bound := range RenewBuckets() {
		if seconds <= bound {
			d.Within[i]++
		}
	}
	d.Count++
	d.Seconds += seconds
}

// maxAttempts is the capacity of Heartbeat.Last.
const maxAttempts = 12

// Add records an attempt.
func (h *Heartbeat) Add(a lease.Attempt) {
	h.Outcomes[a.Outcome]++
	b := RenewAttempt{Time: a.Time.UTC(), DurationSeconds: a.Took.Seconds(), Outcome: a.Outcome}
	if a.Err != nil {
		b.Error = a.Err.Error()
	}
	h.Error = b.Error
	h.Last = append([]RenewAttempt{b}, h.Last[:min(len(h.Last), maxAttempts-1)]...)
	if !a.Outcome.Good() {
		return
	}
	ended := a.Time.Add(a.Took)
	if !h.Renewed.IsZero() {
		h.LongestGapSeconds = max(h.LongestGapSeconds, ended.Sub(h.Renewed).Seconds())
	}
	h.Renewed = ended
	h.RenewDurations.add(a.Took.Seconds())
}

// Clone is a deep copy.
func (h *Heartbeat) Clone() Heartbeat {
	c := *h
	c.Outcomes, c.Last = maps.Clone(h.Outcomes), slices.Clone(h.Last)
	return c
}
