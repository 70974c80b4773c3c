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
	"maps"
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
	// NUMA: read the memory of workloads on each NUMA node, too.
	NUMA bool

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
	// begin is the index in tracked at which the next read begins, so that what has only some
	// of them, or reads only some ahead of schedule, reaches all in turn.
	begin int

	now     time.Duration // time of the running read
	fds     fdBudget
	buf     []byte     // for the file that is being read
	path    pathBuffer // for the file that is being opened
	devices interner
	names   interner // of children
	// childNames are those of the cgroup that is being listed.
	childNames []string
	reasons    interner
	found      []absence // absences in the workload that is being read
	hostNS     uint64    // inode of the host's network namespace
	pids       []int     // of the pod that is being read
	proc       string    // mountpoint of procfs
	// Parsed files of cgroup v1, until they are merged.
	operations, size []blkioDevice
	hurry            bool
	earlyDetails     int // how many more workloads may be read in detail before they are due
	earlyThrottling  int // and how many more may have their throttling read
	parts            []part
	pace             pace
	// localEvents: memory.events does not count what happens in cgroups below
	// (memory_localevents).
	localEvents bool
}

// Flavour is "v2", "v1", or "hybrid": v1 with a unified hierarchy beside it.
func (r *Reader) Flavour() string {
	_, v2 := r.at[unified]
	switch {
	case !v2:
		return "v1"
	case len(r.at) > 1:
		return "hybrid"
	}
	return "v2"
}

// Same reports whether another Reader finds the same layout, and searches below the same
// roots.
func (r *Reader) Same(o *Reader) bool {
	return slices.Equal(r.dirs, o.dirs) && r.walked == o.walked && maps.Equal(r.at, o.at) && slices.Equal(r.roots, o.roots) && r.localEvents == o.localEvents
}

// Hierarchy is the directory with the cgroups of a controller (cpu, blkio), and
// whether it is of cgroup v1; empty if there is none. The io of v2 is the blkio
// of v1.
func (r *Reader) Hierarchy(controller string) (dir string, v1 bool) {
	if i, there := r.at[controller]; there {
		return r.dirs[i], true
	}
	if i, there := r.at[unified]; there {
		return r.dirs[i], false
	}
	return "", false
}

// UnifiedDir is the directory of the cgroup v2 hierarchy, the only one with
// pressure files; empty if none is mounted.
func (r *Reader) UnifiedDir() string {
	i, mounted := r.at[unified]
	if !mounted {
		return ""
	}
	return r.dirs[i]
}

// IOSource is the file that the IO of workloads comes from.
func (r *Reader) IOSource() snapshot.IOSource {
	if r.from.io.v1 {
		return snapshot.IOBlkio
	}
	return snapshot.IOStat
}

// Read returns the workloads at an instant of CLOCK_MONOTONIC, sorted by
// Cgroup, without those removed meanwhile. A value that cannot be read is
// absent, with the reason. An error means that no cgroup file system is
// mounted.
//
// Where reading all would need more than one percent of a CPU, a read has some of them, in
// turn: each is as of its own At, and Note has the reason.
//
// Absent has the JSON names and these groups: memory (all of it), io, network,
// pressure, and processes (the cgroup's processes or children could not be
// read).
func (r *Reader) Read(at time.Duration) ([]snapshot.Workload, error) {
	if err := r.mounted(); err != nil {
		r.Close()
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.pace.begin(at, threadTime(), r.hurry)
	r.now, r.earlyDetails, r.earlyThrottling = at, maxEarly, maxEarly
	if r.hurry {
		r.hurry, r.earlyDetails, r.earlyThrottling = false, 0, 0
	}
	if r.hostNS == 0 {
		r.hostNS = r.hostNamespace()
	}
	r.refreshAll()
	if r.readTracked() {
		// A cgroup was removed before its files were read. Another one may have
		// its path already.
		r.refreshAll()
		r.readTracked()
	}
	r.pace.end(len(r.tracked), threadTime())
	return r.workloads(), nil
}

// Hurry has the next Read read all workloads although one percent of a CPU is used up, and
// none in detail ahead of schedule.
func (r *Reader) Hurry() { r.hurry = true }

// maxEarly is how many workloads per read are read in detail ahead of schedule because
// they stall on memory, and of how many the throttling is because they wait for a CPU: in
// a shortage all of them do.
const maxEarly = 64

// Note returns a remark on reduced reading; "" if every tick reads all.
func (r *Reader) Note() string {
	slow := 0
	for _, t := range r.tracked {
		if r.now < t.statAgain {
			slow++
		}
	}
	note := r.pace.note()
	if slow > 0 {
		note = strings.TrimPrefix(fmt.Sprintf("%s; memory.stat of %d workloads takes longer than %s and is read every %s", note, slow, slowStat, idleDetailEvery), "; ")
	}
	return note
}

// Close closes the cached files. A Read after it starts anew.
func (r *Reader) Close() {
	for i, n := range r.trees {
		if n != nil {
			r.forget(n)
			r.trees[i] = nil
		}
	}
	r.tracked = nil
}

// mounted returns an error if no hierarchy is there any more. An unmounted one
// looks like an empty directory, which must not pass for an idle host.
func (r *Reader) mounted() error {
	var first error
	for _, dir := range r.dirs[:r.walked] {
		_, _, err := r.path.stat(anywhere, dir, "/cgroup.procs")
		if err == nil {
			return nil
		}
		first = cmp.Or(first, fmt.Errorf("%s/cgroup.procs: %w", dir, err))
	}
	return fmt.Errorf("read cgroups: no cgroup file system: %w", first)
}

func (r *Reader) refreshAll() {
	for i, root := range r.roots {
		n := r.trees[i]
		if n != nil && !r.stillSame(n) {
			r.forget(n)
			n = nil
		}
		if n == nil {
			n = r.newNode(root, nil)
			r.trees[i] = n
		}
		if n != nil && !n.pod {
			r.refresh(n)
		}
	}
	if !r.unsorted {
		return
	}
	r.tracked = slices.DeleteFunc(r.tracked, func(t *trackedWorkload) bool { return t.removed })
	slices.SortFunc(r.tracked, func(a, b *trackedWorkload) int { return strings.Compare(a.w.Cgroup, b.w.Cgroup) })
	r.unsorted = false
}

// readTracked reads, of the workloads that were not read at this instant, all new ones and as
// many others as the pace allows, and reports whether one of them was removed. It reads all
// parent cgroups first: activity after a workload's read must not be in its parent's counters
// already.
func (r *Reader) readTracked() (gone bool) {
	for _, t := range r.tracked {
		if t.parent != nil {
			t.parent.readParentCounters(r)
		}
	}
	next := nextRead{stopped: -1, afterDetail: r.begin, afterThrottling: r.begin}
	for i := range r.tracked {
		at := (r.begin + i) % len(r.tracked)
		t := r.tracked[at]
		switch {
		case t.removed, t.w.At == r.now: // it is gone with its parent, or was read
		case t.w.At > 0 && !r.pace.next(len(r.tracked), threadTime):
			next.stop(at)
		case !r.readOne(at, &next):
			gone = true
		}
	}
	r.begin = next.begin(r.earlyDetails == 0)
	return gone
}

// readOne reads a workload, and returns false if it was removed.
func (r *Reader) readOne(at int, next *nextRead) (there bool) {
	t := r.tracked[at]
	details, throttling := r.earlyDetails, r.earlyThrottling
	if there = t.read(); !there {
		r.drop(t.node)
	}
	if r.earlyDetails < details {
		next.afterDetail = at + 1
	}
	if r.earlyThrottling < throttling {
		next.afterThrottling = at + 1
	}
	return there
}

// nextRead finds the workload at which the next read begins.
type nextRead struct {
	stopped                      int // the first that the pace did not allow; -1: it allowed all
	afterDetail, afterThrottling int // behind the last that was read ahead of schedule
}

func (n *nextRead) stop(at int) {
	if n.stopped < 0 {
		n.stopped = at
	}
}

// begin is where the next read begins: where this one stopped. If it did not, behind the last
// workload whose throttling was read ahead of schedule; if more stall on memory than may be
// read so, behind the last of those.
func (n *nextRead) begin(stalling bool) int {
	switch {
	case n.stopped >= 0:
		return n.stopped
	case stalling:
		return n.afterDetail
	}
	return n.afterThrottling
}

// drop forgets a removed cgroup and has its parent listed again.
func (r *Reader) drop(n *node) {
	r.forget(n)
	if n.parent == nil {
		r.trees[slices.Index(r.trees, n)] = nil
		return
	}
	n.parent.children = slices.DeleteFunc(n.parent.children, func(b *node) bool { return b == n })
	n.parent.listAgain = true
}

// workloads copies the current values, since a Sample never changes. It
// allocates twice, however many workloads there are.
func (r *Reader) workloads() []snapshot.Workload {
	devices := 0
	for _, t := range r.tracked {
		devices += len(t.w.IO)
	}
	all := make([]snapshot.Workload, 0, len(r.tracked))
	io := make([]snapshot.WorkloadIO, 0, devices)
	for _, t := range r.tracked {
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
