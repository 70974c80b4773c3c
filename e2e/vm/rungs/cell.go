// Package rungs holds what an experiment measured: what each way of throttling a pod
// does to the workload that waits for it, to the pod itself and to the node. A cell is
// one load with one rung; e2e/vm/hog makes the load, e2e/vm/witness runs a cell, and a
// test in e2e/vm runs them one by one. The table of them is in docs/adr/0091.
package rungs

import "time"

// Cell is one load with one rung, on one cgroup version.
type Cell struct {
	Cgroup string `json:"cgroup"` // v1 or v2
	Load   string `json:"load"`
	Rung   string `json:"rung"`
}

// The loads. All but calm are of the culprit; calm is none at all.
const (
	Calm   = "calm"
	Eater  = "eater"
	Leak   = "leak"
	Direct = "disk, direct"
	Synced = "disk, buffered and fsync"
	// Ordered is Synced where a commit of the journal waits for what is written: ext4
	// with dioread_lock, which was the default before Linux 5.6.
	Ordered = "the same with dioread_lock"
	CPU     = "cpu"
	Forks   = "forks"
)

// The rungs, by the names of their files. All but io.latency are set on the culprit's
// pod cgroup; that one is set on the sufferer's.
const (
	None         = "none"
	IOMax        = "io.max"
	IOWeight     = "io.weight"
	BFQWeight    = "io.bfq.weight"
	IOLatency    = "io.latency"
	CPUMax       = "cpu.max"
	CPUWeight    = "cpu.weight"
	MemoryHigh   = "memory.high"
	MemoryBelow  = "memory.high at 4/5" // of what the pod holds
	Freeze       = "cgroup.freeze"
	PIDs         = "pids.max"
	Blkio        = "blkio.throttle"
	BlkioInner   = "blkio.throttle of the container"
	BlkioWeight  = "blkio.bfq.weight"
	Quota        = "cpu.cfs_quota_us"
	Shares       = "cpu.shares"
	FreezerState = "freezer.state"
)

// Cells are all cells of a cgroup version, those first that decide most.
func Cells(version string) []Cell {
	all := []Cell{{version, Calm, None}}
	for _, load := range []string{Eater, Synced, Ordered, Direct, CPU, Forks, Leak} {
		all = append(all, Cell{version, load, None})
		for _, rung := range rungsOf(version, load) {
			all = append(all, Cell{version, load, rung})
		}
	}
	return all
}

// rungsOf are the rungs tried on a load: of its own resource first. Those of another
// resource are tried where the load uses it at all.
func rungsOf(version, load string) []string {
	if version == "v1" {
		return map[string][]string{
			Eater:   {FreezerState, Quota, Shares},
			Leak:    {FreezerState, Quota},
			Direct:  {Blkio, BlkioInner, BlkioWeight, FreezerState, Quota},
			Synced:  {Blkio, BlkioInner, BlkioWeight, FreezerState, Quota},
			Ordered: {BlkioInner, Quota, FreezerState},
			CPU:     {Quota, Shares, FreezerState},
			Forks:   {Quota, FreezerState, PIDs, Shares},
		}[load]
	}
	return map[string][]string{
		Eater:   {MemoryHigh, Freeze, MemoryBelow, CPUMax, CPUWeight, IOMax},
		Leak:    {MemoryHigh, Freeze, MemoryBelow, CPUMax},
		Direct:  {IOMax, Freeze, IOWeight, BFQWeight, IOLatency, CPUMax, MemoryHigh},
		Synced:  {IOMax, Freeze, IOWeight, BFQWeight, IOLatency, CPUMax, MemoryHigh, MemoryBelow},
		Ordered: {IOMax, Freeze, CPUMax},
		CPU:     {CPUMax, CPUWeight, Freeze},
		Forks:   {CPUMax, Freeze, PIDs, CPUWeight, MemoryHigh},
	}[load]
}

// Spec is what the witness is told of a cell.
type Spec struct {
	Cell
	// Root is where the cgroups are mounted, Name the cgroup that is made in there.
	Root, Name string
	// Dir, where a file system is mounted that all share; Device the disk below it, MAJ:MIN.
	Dir, Device string
	// Hog and Witness are the programs.
	Hog, Witness string
	// LimitMiB is the memory of all pods together where that is not the machine's; 0.
	LimitMiB int
	// CPUs are those that the pods may use, on v1; empty: all.
	CPUs string
	// Threads of a load on the disk, and HashKiB that the sufferer hashes in a request.
	Threads, HashKiB int
	// How long each phase lasts.
	Before, Under, With, After, Over time.Duration
}

// Record is what came of a cell. Times are in ms, but where a name says otherwise.
type Record struct {
	Cell
	Kernel string `json:"kernel"`
	Date   string `json:"date"`
	// Absent is why there is nothing more, such as a file that this kernel lacks; Lost
	// that the machine gave no answer any more, and for how long it was asked.
	Absent string `json:"absent,omitempty"`
	Lost   string `json:"lost,omitempty"`
	// Set is what was written, and Wrote how long the longest write took; Took until
	// the kernel said that it holds, where it says so (freezers).
	Set    []string `json:"set,omitempty"`
	Wrote  float64  `json:"wrote,omitempty"`
	Took   float64  `json:"took,omitempty"`
	Before Phase    `json:"before"`
	Under  Phase    `json:"under"`
	With   Phase    `json:"with"`
	After  Phase    `json:"after"`
	Over   Phase    `json:"over"`
	// Ended is the phase in which the culprit ended by itself, mostly killed for want
	// of memory; SuffererEnded the same of the sufferer.
	Ended         string `json:"ended,omitempty"`
	SuffererEnded string `json:"suffererEnded,omitempty"`
	// Kill is how long the culprit took to be gone when it was killed with the rung
	// set again; KillFreed tells that it was gone only after the rung was taken off.
	Kill      float64 `json:"kill,omitempty"`
	KillFreed bool    `json:"killFreed,omitempty"`
	// Stacks are where tasks stood in the kernel while the rung was set, by task: each
	// with how often it was seen.
	Stacks map[string][]string `json:"stacks,omitempty"`
	// Said is what the kernel logged of tasks that it killed or that hung.
	Said []string `json:"said,omitempty"`
}

// Phase is what was seen in one part of a cell: before the load, under it without the
// rung, with the rung, after that was taken off, and over: when the load has ended.
type Phase struct {
	Seconds  float64 `json:"seconds"`
	Requests int     `json:"requests"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	// Parts are the 99th percentiles of the parts of a request.
	Parts map[string]float64 `json:"parts,omitempty"`
	// Probes of the sufferer, and those without an answer in a second; of the culprit.
	Probes        int `json:"probes"`
	Failed        int `json:"failed"`
	CulpritProbes int `json:"culpritProbes,omitempty"`
	CulpritFailed int `json:"culpritFailed,omitempty"`
	// Rate of the culprit in its unit a second: MiB, ms of CPU time, or programs.
	Rate float64 `json:"rate"`
	// Gap is the longest one of a beat of 100 ms outside the pods.
	Gap float64 `json:"gap"`
	// Waits are the longest of what the node did beside the pods, by name.
	Waits map[string]float64 `json:"waits,omitempty"`
	// Available is the least memory that was available, in MiB.
	Available int `json:"available"`
}
