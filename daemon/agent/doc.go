// Package agent is the agent of a node: its parts, and the two loops, sample and round
// (loops.go), which are the map of everything else.
package agent
