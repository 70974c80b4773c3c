// Package probes reads the counters of a node from procfs, sysfs and cgroupfs,
// and derives one immutable Snapshot per tick from them.
//
// # Usage
//
// A Host reads one Sample: counters and gauges as the kernel prints them. A
// History takes Samples in order and returns a Snapshot for each: rates and
// ratios over a sliding window, which stay right over counter wraps, resets,
// re-created devices and suspend. A Recorder writes Samples to a file and Play
// reads them.
//
// Absent is not zero: a value that was not measured is an Opt without a value,
// and the Absent beside it has the reason.
//
// # Concurrency
//
// Host and History belong to one goroutine. A Snapshot, and a Sample that was
// handed over, never change and may be shared.
package probes
