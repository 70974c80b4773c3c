// Package agents is the controller's half of the agents' heartbeats: it finds
// silent agents and updates their conditions and taints, as Kubernetes' node
// lifecycle controller does for kubelets, and it approves or refuses the eviction
// requests of agents, within the cluster eviction limit.
//
// # Usage
//
//	r := &agents.Reconciler{Nodes: core, Leases: coordination, …}
//	err := r.Run(ctx) // while this replica is the leader
//
// Judge (silent agents) and Evaluation.Refuse (eviction requests) decide: pure
// functions of the observed objects, the state of the last round and the time.
// The Reconciler observes, calls them, and acts.
//
// # Concurrency
//
// Run belongs to one goroutine. Report and Counts may be called from any. What
// the pure functions take and return is never changed afterwards.
package agents
