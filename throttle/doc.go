// Package throttle slows down the pods that cause a pressure, before any pod is evicted
// for it: it limits what they read, write and compute to a part of what they used, and
// their memory to what they hold, and removes the limits again.
//
// # Usage
//
// Each round:
//
//	in := throttle.NewInput(snapshot, levels, workloads, throttles) // who presses, and who may be throttled
//	throttles = throttle.Next(throttles, in)                        // pure
//	err := journal.Set(throttle.Limits(throttles, devices))
//
// A Journal records which limits are the agent's own and what was there before. Set makes
// the wanted limits the only ones of the agent; with none wanted it removes all. The
// limits are saved before the first of them is written (write-ahead), so that the next
// agent finds them after a crash.
//
// Changes by other programs are respected: a limit counts as the agent's own only while
// the agent's value is in force.
//
// # Concurrency
//
// Decisions are values. A Journal belongs to one goroutine; with a Timeout it calls its Files
// in others, for one knob or disk in one at a time.
package throttle
