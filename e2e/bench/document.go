package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const documentHead = `<!-- Written by make bench. -->
# Benchmarks

` + "`make bench`" + ` measures Plimsoll beside its peers in one run and writes this page. Ratios and counts are the claims; times
belong to the machine and vary between machines by a factor of two.
`

const documentNotes = `
## How it is measured

- **In turns.** Each tick runs ours, the bare loop and the peers one after the other, starting with another one each time.
  The figure is the CPU time of the whole process, garbage collection included: the median of the means of 15 ticks each.
  All pods are read at each tick, however much of a CPU that takes; an agent reads some of them, in turn, where it is more
  than 1 %.
- **The bare loop** is one pread of each file, kept open, without using the bytes. Our reader reads more than the five
  files that the goal names (cpu.stat, memory.current, memory.pressure, io.stat, io.pressure; on v1 their counterparts),
  and some of them not every tick. inotify records what our reader reads, tick by tick, and the loop reads exactly that:
  the goal of 1.3 is against this loop. A second loop opens for a read, and closes, the files that our reader opens for it:
  what is read seldom is opened anew. The number of reads covers all pods and the cgroups above them. The five files
  alone are shown as well.
- **busy**: all pods' counters change between two ticks. **90 % idle**: those of every tenth pod do.
- **RECORDED**: the files of one pod on a real cgroup v2 (its kernel is named in e2e/bench/testdata/v2-pod.txtar),
  copied many times with other numbers. A file in memory is cheaper to read than the kernel's own, for ours and for the peers.
- **This host's cgroups** have a container in every pod, with a process that uses 200 µs of CPU and touches a page every
  200 ms when it is busy.
- **A second of the agent** is what it computes at a tick, by stage, in the benchmark's own process: the median of the
  means of the CPU time of 15 ticks each, without garbage collection, which has a row of its own (one collection, divided by
  the ticks in which the heap doubles). All pods and the cgroups above them change in all files that are read, which no real
  node does. The loop of the five files reads them twice and counts the second time, when they are in the caches.
- **MADE-UP machine**: files as a kernel prints them, with so many CPUs, disks and veths, beside the recorded pods. What the
  kernel needs to print its own is not in it. One number grows, while the others are the smallest.
- **The agent** is the built program with its default configuration, except for its paths and its root of workloads. CPU
  and memory are those of a cgroup of its own, with the kernel's memory for it. Its ticks are those of the time before,
  without the first; a p99 of less than 100 ticks is the longest of them.
- **tick: 5s** is the same agent with a longer tick. What triggers of the kernel add to its samples under pressure is not
  in it: nothing is pressed here.
- **The controller** is the built program beside etcd, a real API server and simulated agents on the same CPUs, for 30 s.
- **The loop of the five files, once a second** is the bare loop over the files that the goal names, in the benchmark's own
  process, read ten times, a second apart: what the kernel needs when its caches hold other data. Where that is above a
  goal for the whole agent, no program that reads each pod's files can meet the goal on this machine.
- **Who of so many loads goes on** is one decision about data mover loads, with what is known of the nodes from the decision
  before: a twelfth of the nodes is under pressure, half of the loads are bound to nodes. The peer is the same rules as in
  the tests, which keep no order; they cannot decide 50,000.
- **cAdvisor** is its own manager (github.com/google/cadvisor/lib) with the metrics and plugins of a kubelet, sampling each
  second: its program is not a module that can be pinned. Its cgroups include those of containers. It is measured after the
  agent, not at the same time.
- "not measured" is neither met nor missed, and says why.
`

// document writes the page.
func document(w io.Writer, table []Row) {
	fmt.Fprintf(w, "%s\nMachine: %s.\n\n", documentHead, machine())
	WriteMarkdown(w, table)
	fmt.Fprint(w, documentNotes)
}

// machine is what the numbers belong to.
func machine() string {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	parts := []string{
		fmt.Sprintf("%d × %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name")),
		"MemTotal " + field("/proc/meminfo", "MemTotal"), "Linux " + kernel, runtime.Version(),
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// field is the first value of a name in a file of names and values.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `\s*:\s*(.*)$`).FindSubmatch(text)
	if m == nil {
		return "unknown"
	}
	return string(m[1])
}
