package cgroup

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// trackedWorkload is a workload and its state between reads.
type trackedWorkload struct {
	*node
	c *Reader
	w snapshot.Workload // as of the last read; the next one overwrites IO
	// files are those that are read again and again.
	files  [keptFiles]keptFile
	io     []snapshot.WorkloadIO       // of the previous read; the two are swapped
	readAt [ofMemory + 1]time.Duration // when each group was read; 0: not, or with an error

	// idle: nothing changed at the last read. While CPU time and IO are
	// unchanged too, nothing else is read until fullDue.
	idle       bool
	removed    bool
	detailRead bool // the detail was read since the last change
	seldomDue  bool
	fullDue    time.Duration
	phase      time.Duration // spreads the schedules of the workloads
	absent     []absence
	begun      uint32 // the groups that are being read, a bit each

	seldomAt time.Duration // when the seldom group was read; seldomDue: it is due
	noQuota  bool          // no process of it ran under a CPU quota
	// memory.stat was slow and is not read before statAgain; slowBefore: the
	// last read was slow.
	statAgain  time.Duration
	slowBefore bool
	blkio      []byte    // of cgroup v1, as last read,
	whyNoIO    string    // and the reason if IO is absent
	process    cgroupDir // /proc directory of a process in the pod's network namespace
	// Without such a process, the search is repeated with exponential backoff.
	networkDue, networkBackoff time.Duration
	whyNoNetwork               string
}

// A fileGroup is the values of a workload that are read, or absent, together.
type fileGroup int

const (
	ofCPU fileGroup = iota
	ofIO
	ofEvents
	ofCPUStall
	ofMemoryStall
	ofIOStall
	summedGroups // number of the groups above, which are sums over the children
)

const (
	ofMemory   = summedGroups + iota // memory in use
	ofPressure                       // all of it
	ofDetail                         // what is expensive to read
	ofSeldom                         // what hardly ever changes
	ofStat                           // memory.stat
	ofThrottling
)

// isStall reports whether the group is pressure, whose reasons are kept
// separately.
func (p fileGroup) isStall() bool { return p >= ofCPUStall && p <= ofIOStall }

// fullEvery is how often an idle workload is read in full nevertheless, and
// memoryEvery how often its memory, which may be reclaimed while it is idle.
// detailEvery is the interval of the expensive values, idleDetailEvery the same while
// idle. The intervals are slightly shortened per workload, so that not all are
// due at one tick.
const (
	fullEvery       = 30 * time.Second
	memoryEvery     = 5 * time.Second
	detailEvery     = 10 * time.Second
	idleDetailEvery = 2 * time.Minute
)

func newTracked(c *Reader, n *node) *trackedWorkload {
	t := &trackedWorkload{node: n, c: c, w: snapshot.NewWorkload(n.cgroup), process: noDir}
	t.w.Inode = n.inode()
	// Inodes of cgroups differ by a number of files, which is mostly even, so
	// their last digits distinguish few of them. Fibonacci hashing spreads
	// them.
	t.phase = time.Duration(t.w.Inode*0x9E3779B97F4A7C15>>61) * detailEvery / 16
	for i := range t.files {
		t.files[i].fd = -1
	}
	return t
}

func (t *trackedWorkload) close() {
	for i := range t.files {
		t.closeFile(&t.files[i])
	}
	t.leaveProcess()
}

// read updates the workload, and returns false if it was removed.
//
// A task that stalls or takes memory has run before, and IO done later for a
// cgroup, such as writeback of its pages, counts as its IO: if neither CPU time
// nor IO changed, nothing else did.
func (t *trackedWorkload) read() bool {
	now := t.c.now
	first, due := t.w.At == 0, now >= t.fullDue
	if due {
		t.readAt = [ofMemory + 1]time.Duration{} // discards all cached values
		t.fullDue = now + fullEvery - t.phase
	}
	moved := t.readCPU()
	moved = t.readIO() || moved
	stalls := false
	full := due || moved || !t.idle
	if full || now >= t.readAt[ofMemory]+memoryEvery-t.phase/2 {
		moved = t.readMemory() || moved
	}
	if full {
		stalled := t.readChanging()
		stalls = stalled > earlyDetailStall
		t.idle = !first && !moved && stalled == 0 && !t.w.CPUMicroseconds.IsZero()
	}
	t.detailRead = t.detailRead && t.idle
	urgent := stalls && t.c.earlyDetails > 0
	if urgent {
		t.c.earlyDetails--
	}
	if first || urgent || full && now >= t.detailDue() {
		t.readDetail(urgent)
	}
	t.w.At = now
	t.publishAbsent()
	return !t.removed && t.exists()
}

// earlyDetailStall is the stall on memory since the last read, in µs, from which a
// workload is read in detail ahead of schedule.
const earlyDetailStall = 1000

// exists reports whether the cgroup still exists. A kept file that could be read
// proves it.
func (t *trackedWorkload) exists() bool {
	if t.files[fileCPU].fd >= 0 || t.files[fileMemory].fd >= 0 {
		return true
	}
	i := slices.IndexFunc(t.in, func(nd nodeDir) bool { return nd.inode != 0 })
	return i >= 0 && t.c.alive(t.node, i)
}

// readChanging reads the remaining changing values, and returns the increase of
// the memory stall in µs, or 1 if only another stall increased.
func (t *trackedWorkload) readChanging() (stalled uint64) {
	was := t.w.Pressure
	t.readEvents()
	t.readPressure()
	if t.w.Pressure.CPU != was.CPU || t.w.Pressure.IO != was.IO || t.w.Pressure.Memory != was.Memory {
		stalled = 1
	}
	now, _ := t.w.Pressure.Memory.Some.Get()
	before, known := was.Memory.Some.Get()
	if known && now > before {
		stalled = max(stalled, now-before)
	}
	return stalled
}

// readDetail reads the expensive values, and those that take several files.
func (t *trackedWorkload) readDetail(urgent bool) {
	t.beginGroup(ofDetail)
	t.seldomDue = t.w.DetailAt == 0 || t.c.now >= t.seldomAt+idleDetailEvery-t.phase
	if t.seldomDue {
		t.seldomAt = t.c.now
	}
	t.w.DetailAt = t.c.now
	t.recordAbsent(ofDetail, "processes", cmp.Or(t.procsError, t.listError))
	t.readMemoryDetail(urgent)
	t.readThrottling()
	t.readNetwork()
	t.detailRead = t.idle
}

// detailDue is when to read the detail again: later if nothing changed since.
func (t *trackedWorkload) detailDue() time.Duration {
	if t.detailRead {
		return t.w.DetailAt + idleDetailEvery - t.phase
	}
	return t.w.DetailAt + detailEvery - t.phase
}
