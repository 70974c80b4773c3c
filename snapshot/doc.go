// Package snapshot is what is known of a node at one moment, as values: the
// Sample of all counters, the Snapshot with rates over a window, the History that
// derives one from the other, and contention: which workload waits because of
// which.
//
// It reads no kernel file and calls no API server (package probes does), so that
// what decides can import it.
//
// # Concurrency
//
// A Snapshot never changes. A History belongs to one goroutine.
package snapshot
