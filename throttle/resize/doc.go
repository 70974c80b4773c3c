// Package resize throttles the CPU of pods by in-place resize: it lowers the CPU limits of
// their containers in the API, and restores them.
//
// # Usage
//
//	limits, err := resize.Recorded(node)  // those of an earlier agent
//	journal := throttle.Journal{Limits: limits}
//	api := &resize.API{Core: core, Node: "n1"}
//
// and in each round:
//
//	pass := api.Pass(ctx)
//	pass.Read(journal.Limits)
//	journal.Files, journal.Save = pass, pass.Record
//	if why := pass.Exempt(pod); why == "" { ... pass.Knobs(cgroup, pod) ... }
//	resizing := pass.Resizing(journal.Limits) // what is not in effect of what was written before
//	err := journal.Set(want)
//
// The limits before are recorded in an annotation of the Node before the first is changed
// (write-ahead), so that the next agent, or plimsoll release, finds them without the disk
// of the node; the owner of a pod cannot write there.
//
// # Concurrency
//
// A Pass belongs to one goroutine.
package resize
