// Package admission holds Velero's loads in a cluster, and lets them go as
// package vgdp decides.
//
// # Usage
//
//	r := &admission.Reconciler{Dynamic: d, Core: core, Leases: coordination, …}
//	err := r.Run(ctx) // while this replica leads
//
// # Flow
//
//	loads, Backups ──────────────────► shelf ──┐
//	node-agents, their ConfigMap, Nodes ► shelf ├─► vgdp.Decide ──► edits ──► patches of loads
//	agents' Leases ──────────────────► shelf ──┘        └────────────────► keeper: the Gates
//
// The Reconciler is level-triggered: whatever happens, it looks at all that is
// known, has it decided, and writes the differences. What is written is known
// again before the next look. It keeps in memory only what may be lost: when a
// ticket of its own epoch was seen, and since when a load is prepared.
//
// # Concurrency
//
// Run belongs to one goroutine, and one leader at a time. Reports and Tally may
// be called from any.
package admission
