// Package client is the agent's half of what agents and the controller tell
// each other in the agent's Lease: Report is about the node, and an
// EvictionRequester asks for evictions and reads the answers. Package agents is
// the controller's half, package lease has the format.
//
// # Usage
//
//	report := &client.Report{Wake: heartbeat.Wake}
//	requester := &client.EvictionRequester{Direct: evictor, Wake: heartbeat.Wake, LateAnswer: …, Round: …}
//	heartbeat.Annotations = func() map[string]string { return client.Annotations(report, requester) }
//	requester.ReadAnswers(attempt.Annotations)               // after each renewal
//	answer := requester.Evict(ctx, victim, dryRun)           // in a round
//
// # Concurrency
//
// The methods may be called from any goroutine; Evict belongs to that of the
// rounds.
package client

import "github.com/plimsoll-dev/plimsoll/lease"

// Annotations are what the agent writes into its Lease with each renewal. What
// is not known yet is left as an earlier agent wrote it.
func Annotations(r *Report, q *EvictionRequester) map[string]string {
	carried := map[string]string{}
	if text, known := r.Encode(); known {
		carried[lease.NodeAnnotation] = text
	}
	if text, known := q.Encode(); known {
		carried[lease.EvictionsAnnotation] = text
	}
	return carried
}
