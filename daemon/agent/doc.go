// Package agent is the agent of a node: its parts, and the loops, sample, round and throttle
// (loops.go), which are the map of everything else.
package agent
