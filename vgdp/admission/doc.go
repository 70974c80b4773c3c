// Package admission holds Velero's data mover loads in a cluster, and issues and
// revokes tickets as package vgdp decides.
//
// # Usage
//
//	r := &admission.Reconciler{Dynamic: d, Core: core, Leases: coordination, Classes: storage, …}
//	err := r.Run(ctx) // while this replica is the leader
//
// # Flow
//
//	loads, Backups, movers ───────────────► stores ─┐
//	Nodes, node-agents, agents' Leases ───► stores ─┼► observe ─► decide ─► write ─► patches of loads
//	Gates, ConfigMap, targets, diagnoses ─► reads ──┘                         └───► the Gates
//
// The Reconciler is level-triggered: each round observes everything (observe.go),
// decides without any I/O (plan.go, which asks package vgdp), and writes the
// differences (write.go): first the Gates, then the dry runs that test them, then the
// loads. The next round begins when the stores have the writes of this one. Its state
// in memory can be lost: when a ticket of its epoch was first seen, since when a load is
// prepared, and since when pressure holds it, until that is written.
//
// # Concurrency
//
// Run belongs to one goroutine, and to one leader at a time. Reports and Counts may be
// called from any.
package admission
