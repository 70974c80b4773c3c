// Package probes reads what presses on this node from procfs, sysfs and
// cgroupfs, and derives from it one immutable Snapshot per tick.
//
// # Usage
//
// A Host reads one Sample: counters and gauges as the kernel gave them. A
// History is fed Samples in order and returns a Snapshot for each: rates and
// ratios over a sliding window, which stay right over wraps, resets,
// re-created devices and suspend. A Recording keeps Samples on disk and gives
// them back.
//
// Absent is not zero: what was not measured is an Opt without a value, and
// the reason stands in an Absent beside it.
//
// # Concurrency
//
// Host and History belong to one goroutine. A Sample that was handed over and
// a Snapshot never change and may be shared.
package probes
