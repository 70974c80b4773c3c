// Package cgroup reads the workloads of a node from its cgroups: of v2, of v1, or
// of both in a hybrid layout.
//
// # Usage
//
// Find finds the hierarchies and returns a Reader of them, whose Read returns
// every pod, service and other cgroup with processes: CPU time, memory, IO,
// pressure and the network of pods. A value that was not measured is an Opt
// without a value, and the Absent beside it has the reason.
//
// # Concurrency
//
// A Reader belongs to one goroutine. The workloads that it returns never change
// and may be shared.
package cgroup

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Reader reads workloads from the host's cgroup hierarchies. It belongs to one
// goroutine.
//
// Between reads it caches open files, each of which costs one system call per
// read, and their last values. An idle cgroup is not read further.
type Reader struct {
	// dirs are the hierarchies' directories, each once; the first walked of
	// them are searched for workloads.
	dirs   []string
	walked int
	// at is the index in dirs of a controller of v1, or of unified.
	at    map[string]int
	from  sources
	roots []string

	trees    []*node // of roots; nil if there is no such cgroup
	tracked  []*trackedWorkload
	unsorted bool

	now     time.Duration // time of the running read
	fds     fdBudget
	buf     []byte     // for the file that is being read
	path    pathBuffer // for the file that is being opened
	devices interner
	reasons interner
	found   []absence // absences in the workload that is being read
	hostNS  uint64    // inode of the host's network namespace
	pids    []int     // of the pod that is being read
	proc    string    // mountpoint of procfs
	// Parsed files of cgroup v1, until they are merged.
	operations, size []blkioDevice
	earlyDetails     int // how many more workloads may be read in detail before they are due
	pace             pace
}

// Flavour is "v2", "v1", or "hybrid": v1 with a unified hierarchy beside it.
func (c *Reader) Flavour() string {
	_, v2 := c.at[unified]
	switch {
	case !v2:
		return "v1"
	case len(c.at) > 1:
		return "hybrid"
	}
	return "v2"
}

// Hierarchy is the directory with the cgroups of a controller (cpu, blkio), and
// whether it is of cgroup v1; empty if there is none. The io of v2 is the blkio
// of v1.
func (c *Reader) Hierarchy(controller string) (dir string, v1 bool) {
	if i, there := c.at[controller]; there {
		return c.dirs[i], true
	}
	if i, there := c.at[unified]; there {
		return c.dirs[i], false
	}
	return "", false
}

// IOSource is the file that the IO of workloads comes from.
func (c *Reader) IOSource() snapshot.IOSource {
	if c.from.io.v1 {
		return snapshot.IOBlkio
	}
	return snapshot.IOStat
}

// Read returns the workloads at an instant of CLOCK_MONOTONIC, sorted by
// Cgroup, without those removed meanwhile. A value that cannot be read is
// absent, with the reason. An error means that no cgroup file system is
// mounted.
//
// If reads would need more than one percent of a CPU, they are made less often:
// the workloads then are as of their own At, and Note has the reason.
//
// Absent has the JSON names and these groups: memory (all of it), io, network,
// pressure, and processes (the cgroup's processes or children could not be
// read).
func (c *Reader) Read(at time.Duration) ([]snapshot.Workload, error) {
	if err := c.mounted(); err != nil {
		c.Close()
		return nil, err
	}
	if c.pace.tooEarly(at) {
		return c.workloads(), nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime()
	c.now, c.earlyDetails = at, maxEarlyDetails
	if c.hostNS == 0 {
		c.hostNS = c.hostNamespace()
	}
	c.refreshAll()
	if c.readAll() {
		// A cgroup was removed before its files were read. Another one may have
		// its path already.
		c.refreshAll()
		c.readAll()
	}
	c.pace.record(at, threadTime()-begun)
	return c.workloads(), nil
}

// maxEarlyDetails is how many workloads per read are read in detail ahead of schedule
// because they stall on memory: in a shortage all of them do.
const maxEarlyDetails = 64

// Note returns a remark on reduced reading; "" if every tick reads all.
func (c *Reader) Note() string {
	slow := 0
	for _, t := range c.tracked {
		if c.now < t.statAgain {
			slow++
		}
	}
	note := c.pace.note()
	if slow > 0 {
		note = strings.TrimPrefix(fmt.Sprintf("%s; memory.stat of %d workloads takes longer than %s and is read every %s", note, slow, slowStat, idleDetailEvery), "; ")
	}
	return note
}

// Close closes the cached files. A Read after it starts anew.
func (c *Reader) Close() {
	for i, n := range c.trees {
		if n != nil {
			c.forget(n)
			c.trees[i] = nil
		}
	}
	c.tracked = nil
}

// mounted returns an error if no hierarchy is there any more. An unmounted one
// looks like an empty directory, which must not pass for an idle host.
func (c *Reader) mounted() error {
	var first error
	for _, dir := range c.dirs[:c.walked] {
		_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return fmt.Errorf("read cgroups: no cgroup file system: %w", first)
}

func (c *Reader) refreshAll() {
	for i, root := range c.roots {
		n := c.trees[i]
		if n != nil && !c.stillSame(n) {
			c.forget(n)
			n = nil
		}
		if n == nil {
			n = c.newNode(root, nil)
			c.trees[i] = n
		}
		if n != nil && !n.pod {
			c.refresh(n)
		}
	}
	if !c.unsorted {
		return
	}
	c.tracked = slices.DeleteFunc(c.tracked, func(t *trackedWorkload) bool { return t.removed })
	slices.SortFunc(c.tracked, func(a, b *trackedWorkload) int { return strings.Compare(a.w.Cgroup, b.w.Cgroup) })
	c.unsorted = false
}

// readAll reads every workload that was not read at this instant, and reports
// whether one of them was removed. It reads all parent cgroups first: activity
// after a workload's read must not be in its parent's counters already.
func (c *Reader) readAll() (gone bool) {
	for _, t := range c.tracked {
		if t.parent != nil {
			c.readParentCounters(t.parent)
		}
	}
	for _, t := range c.tracked {
		if t.removed || t.w.At == c.now { // gone: removed with its parent
			continue
		}
		if !t.read() {
			gone = true
			c.drop(t.node)
		}
	}
	return gone
}

// drop forgets a removed cgroup and has its parent listed again.
func (c *Reader) drop(n *node) {
	c.forget(n)
	if n.parent == nil {
		c.trees[slices.Index(c.trees, n)] = nil
		return
	}
	n.parent.children = slices.DeleteFunc(n.parent.children, func(b *node) bool { return b == n })
	n.parent.listAgain = true
}

// workloads copies the current values, since a Sample never changes. It
// allocates twice, however many workloads there are.
func (c *Reader) workloads() []snapshot.Workload {
	devices := 0
	for _, t := range c.tracked {
		devices += len(t.w.IO)
	}
	all := make([]snapshot.Workload, 0, len(c.tracked))
	io := make([]snapshot.WorkloadIO, 0, devices)
	for _, t := range c.tracked {
		if t.removed {
			continue
		}
		all = append(all, t.w)
		if len(t.w.IO) > 0 {
			io = append(io, t.w.IO...)
			all[len(all)-1].IO = io[len(io)-len(t.w.IO) : len(io) : len(io)]
		}
	}
	return all
}

// UnifiedDir is the directory of the cgroup v2 hierarchy, the only one with
// pressure files; empty if none is mounted.
func (c *Reader) UnifiedDir() string {
	i, mounted := c.at[unified]
	if !mounted {
		return ""
	}
	return c.dirs[i]
}
