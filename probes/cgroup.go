package probes

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Cgroups reads workloads from the host's cgroup hierarchies. It belongs to
// one goroutine.
//
// What it knows of a cgroup it keeps between reads: open files, of which each
// costs one system call a read, and what they said. A cgroup in which nothing
// moved is read no further.
type Cgroups struct {
	// dirs are the hierarchies' directories, without repetition; the first
	// walked of them are looked through for workloads.
	dirs   []string
	walked int
	// at tells in which of dirs a controller of v1, or unified, is.
	at    map[string]int
	from  sources
	roots []string

	trees    []*node // of roots; nil while there is no such cgroup
	tracked  []*tracked
	unsorted bool

	now     time.Duration // of the read that is going on
	fds     fdBudget
	buf     []byte // of the file that is being read
	path    cPath  // of the file that is being opened
	devices names
	reasons names
	found   []absence // in what is being read
	hostNS  uint64    // the host's network namespace
	pids    []int     // of the pod that is looked at
	proc    string    // where procfs is mounted
	// What files of cgroup v1 said, until it is put together.
	operations, size []blkioDevice
	urgent           int // how many workloads may still be read in detail before they are due
	pace             pace
}

// Flavour is "v2", "v1", or "hybrid": v1 with a unified hierarchy beside it.
func (c *Cgroups) Flavour() string {
	_, v2 := c.at[unified]
	switch {
	case !v2:
		return "v1"
	case len(c.at) > 1:
		return "hybrid"
	}
	return "v2"
}

// Hierarchy is the directory in which the cgroups of a controller (cpu, blkio)
// are, and whether it is of cgroup v1; empty where there is none. The io of v2
// is the blkio of v1.
func (c *Cgroups) Hierarchy(controller string) (dir string, v1 bool) {
	if i, there := c.at[controller]; there {
		return c.dirs[i], true
	}
	if i, there := c.at[unified]; there {
		return c.dirs[i], false
	}
	return "", false
}

// IOSource is where the IO of workloads comes from.
func (c *Cgroups) IOSource() IOSource {
	if c.from.io.v1 {
		return IOBlkio
	}
	return IOStat
}

// Read returns the workloads that are there at an instant of CLOCK_MONOTONIC,
// sorted by Cgroup. One that is removed meanwhile is not among them; what
// cannot be read of one is absent, with the reason. The error says that there
// is no cgroup file system at all.
//
// Where reading would cost more than a hundredth of a CPU it is done less
// often: the workloads then are as of their own At, and Note says so.
//
// Absent has the JSON names, and these groups: memory (all of it), io,
// network, pressure, and processes (whose cgroup could not be looked into).
func (c *Cgroups) Read(at time.Duration) ([]Workload, error) {
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
	c.now, c.urgent = at, maxUrgent
	if c.hostNS == 0 {
		c.hostNS = c.hostNamespace()
	}
	c.refreshAll()
	if c.readAll() {
		// A cgroup was gone when its files were read. One that took its path
		// may be there already.
		c.refreshAll()
		c.readAll()
	}
	c.pace.spent(at, threadTime()-begun)
	return c.workloads(), nil
}

// maxUrgent is how many workloads a read may look at in detail before it is
// their turn, because they stall on memory: all of them do in a shortage.
const maxUrgent = 64

// Note says what a person should know of how workloads are read; "" when it is
// in full and at every tick.
func (c *Cgroups) Note() string {
	slow := 0
	for _, t := range c.tracked {
		if c.now < t.statAgain {
			slow++
		}
	}
	note := c.pace.note()
	if slow > 0 {
		note = strings.TrimPrefix(fmt.Sprintf("%s; memory.stat of %d workloads takes longer than %s and is read every %s", note, slow, slowStat, restEvery), "; ")
	}
	return note
}

// Close gives back what is kept open. A Read after it begins anew.
func (c *Cgroups) Close() {
	for i, n := range c.trees {
		if n != nil {
			c.forget(n)
			c.trees[i] = nil
		}
	}
	c.tracked = nil
}

// mounted says whether a hierarchy is still there. An unmounted one looks like
// an empty directory; all of them empty must not look like an idle host.
func (c *Cgroups) mounted() error {
	var first error
	for _, dir := range c.dirs[:c.walked] {
		_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
		if err == nil {
			return nil
		}
		first = firstOf(first, err)
	}
	return fmt.Errorf("read cgroups: no cgroup file system: %w", first)
}

func (c *Cgroups) refreshAll() {
	for i, root := range c.roots {
		n := c.trees[i]
		if n != nil && !c.still(n) {
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
	c.tracked = slices.DeleteFunc(c.tracked, func(t *tracked) bool { return t.gone })
	slices.SortFunc(c.tracked, func(a, b *tracked) int { return strings.Compare(a.w.Cgroup, b.w.Cgroup) })
	c.unsorted = false
}

// readAll reads every workload that was not read at this instant, and says
// whether one of them turned out to be gone. The cgroups above are all asked
// before: what a workload does after it was read must not be in what they are
// later compared with.
func (c *Cgroups) readAll() (gone bool) {
	for _, t := range c.tracked {
		if t.above != nil {
			c.askTally(t.above)
		}
	}
	for _, t := range c.tracked {
		if t.gone || t.w.At == c.now { // gone: with the one above it
			continue
		}
		if !t.read() {
			gone = true
			c.drop(t.node)
		}
	}
	return gone
}

// drop forgets a cgroup that is gone and has the one above listed anew.
func (c *Cgroups) drop(n *node) {
	c.forget(n)
	if n.above == nil {
		c.trees[slices.Index(c.trees, n)] = nil
		return
	}
	n.above.below = slices.DeleteFunc(n.above.below, func(b *node) bool { return b == n })
	n.above.unlisted = true
}

// workloads copies what is known: a Sample never changes. It allocates twice,
// however many there are.
func (c *Cgroups) workloads() []Workload {
	devices := 0
	for _, t := range c.tracked {
		devices += len(t.w.IO)
	}
	all := make([]Workload, 0, len(c.tracked))
	io := make([]WorkloadIO, 0, devices)
	for _, t := range c.tracked {
		if t.gone {
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
