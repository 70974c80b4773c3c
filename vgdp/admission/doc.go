// Package admission holds Velero's data mover loads in a cluster, and issues and
// revokes tickets as package vgdp decides.
//
// # Usage
//
//	r := &admission.Reconciler{Dynamic: d, Core: core, Leases: coordination, …}
//	err := r.Run(ctx) // while this replica is the leader
//
// # Flow
//
//	loads, Backups ──────────────────► shelf ──┐
//	node-agents, their ConfigMap, Nodes ► shelf ├─► vgdp.Decide ──► edits ──► patches of loads
//	agents' Leases ──────────────────► shelf ──┘        └────────────────► keeper: the Gates
//
// The Reconciler is level-triggered: each round observes everything, decides, and
// writes the differences. The next round begins when the caches have the writes of
// this one. Its state in memory can be lost: when a ticket of its epoch was first
// seen, and since when a load is prepared.
//
// # Concurrency
//
// Run belongs to one goroutine, and to one leader at a time. Reports and Tally may be
// called from any.
package admission
