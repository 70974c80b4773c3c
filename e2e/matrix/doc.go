// Package matrix says which function of the product works on which version of
// Kubernetes and of Velero, and how it knows: each [Function] is shown by tests of
// this repository, which run against the programs of each version that is pinned
// below e2e/tools. What came of them is kept in records.json, one [Record] for a
// function and a version; docs/compatibility.md is their table. What did not run
// has no record, and its cell says so.
//
// A test says which version it ran against: without that a cell is no *works*. One
// that finds less on a version says what with the attribute [Smaller], and
// one that finds nothing skips itself with the reason.
//
// # Usage
//
//	make matrix K8S="1.34 1.36" VELERO=1.16
package matrix
