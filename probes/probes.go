// Package probes reads the counters of a node from procfs and sysfs, and those
// of its workloads through probes/cgroup.
//
// # Usage
//
// A Host reads one Sample: counters and gauges as the kernel prints them.
// Package snapshot derives rates from Samples. Triggers wake the agent as soon as
// tasks stall. A Recorder writes Samples to a file and Play reads them.
//
// Absent is not zero: a value that was not measured is an Opt without a value,
// and the Absent beside it has the reason.
//
// # Concurrency
//
// A Host belongs to one goroutine. A Sample that was handed over never changes
// and may be shared.
package probes
