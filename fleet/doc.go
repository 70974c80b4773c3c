// Package fleet is the controller's half of the agents' heartbeats: it says
// which agents are silent and what becomes of their conditions and taints, and
// which of the evictions that agents ask for are granted.
//
// # Usage
//
//	r := &fleet.Reconciler{Nodes: core, Leases: coordination, …}
//	err := r.Run(ctx) // while this replica leads
//
// Judge and Grant decide: pure functions of what was seen, what is remembered
// and the time. The Reconciler sees, asks them, and acts.
//
// # Concurrency
//
// Run belongs to one goroutine. Report and Tally may be called from any. What
// the deciders take and give are values that nobody changes afterwards.
package fleet
