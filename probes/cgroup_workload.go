package probes

import (
	"cmp"
	"slices"
	"time"
)

// tracked is a workload and what is kept of it between reads.
type tracked struct {
	*node
	c *Cgroups
	w Workload // as it was read last; IO is written over by the next read
	// files are those that are read again and again.
	files  [keptFiles]keptFile
	io     []WorkloadIO                // of the read before; the two change places
	readAt [ofMemory + 1]time.Duration // of each group; 0: not, or not well

	// quiet: at the last read nothing moved. While CPU time and IO do not move
	// either, nothing else is read until fullDue.
	quiet    bool
	gone     bool
	detailed bool // since something moved last
	restDue  bool
	fullDue  time.Duration
	spread   time.Duration // so that not all are due at once
	absent   []absence
	begun    uint32 // the groups that are being read, a bit each

	seldomAt    time.Duration // when what seldom changes was read; restDue: it is due
	unthrottled bool          // nothing of it ran under a CPU quota
	// memory.stat was slow and is not read before; slowBefore: the last time.
	statAgain  time.Duration
	slowBefore bool
	blkio      []byte    // of cgroup v1, as it was read last,
	whyNoIO    string    // and what was wrong with it
	process    cgroupDir // of /proc, of one in the pod's network namespace
	// Where no such process was found it is looked for less and less often.
	networkDue, networkPatience time.Duration
	whyNoNetwork                string
}

// A fileGroup of a workload is what is read, and so found absent, together.
type fileGroup int

const (
	ofCPU fileGroup = iota
	ofIO
	ofEvents
	ofCPUStall
	ofMemoryStall
	ofIOStall
	tallied // how many groups above are sums over what is below
)

const (
	ofMemory   = tallied + iota // memory in use
	ofPressure                  // all of it
	ofDetail                    // what is dear
	ofSeldom                    // what hardly ever changes
	ofStat                      // memory.stat
	ofThrottling
)

// isStall tells pressure, whose reasons have a place of their own.
func (p fileGroup) isStall() bool { return p >= ofCPUStall && p <= ofIOStall }

// fullEvery is how long a workload in which nothing seems to move is believed,
// and memoryEvery its memory, which may be reclaimed from one that sleeps.
// detailEvery is how old what is dear may be, and restEvery how old where
// nothing moved since. They are a little shorter for some, so that not all fall
// on one tick.
const (
	fullEvery   = 30 * time.Second
	memoryEvery = 5 * time.Second
	detailEvery = 10 * time.Second
	restEvery   = 2 * time.Minute
)

func newTracked(c *Cgroups, n *node) *tracked {
	t := &tracked{node: n, c: c, w: newWorkload(n.cgroup), process: noDir}
	t.w.Inode = n.inode()
	// Inodes of cgroups are a number of files apart, which is mostly even: their
	// last digits tell few of them apart, those of a multiple (Fibonacci
	// hashing) all.
	t.spread = time.Duration(t.w.Inode*0x9E3779B97F4A7C15>>61) * detailEvery / 16
	for i := range t.files {
		t.files[i].fd = -1
	}
	return t
}

func (t *tracked) close() {
	for i := range t.files {
		t.closeFile(&t.files[i])
	}
	t.leaveProcess()
}

// read brings the workload up to date, and is false when it is not there any
// more.
//
// A task that stalls, or takes memory, ran before, and IO that is done for a
// cgroup later, such as the writing back of its pages, is IO of it: where
// neither CPU time nor IO moved the rest did not either.
func (t *tracked) read() bool {
	now := t.c.now
	first, due := t.w.At == 0, now >= t.fullDue
	if due {
		t.readAt = [ofMemory + 1]time.Duration{} // nothing is believed
		t.fullDue = now + fullEvery - t.spread
	}
	moved := t.readCPU()
	moved = t.readIO() || moved
	stalls := false
	full := due || moved || !t.quiet
	if full || now >= t.readAt[ofMemory]+memoryEvery-t.spread/2 {
		moved = t.readMemory() || moved
	}
	if full {
		stalled := t.readMoving()
		stalls = stalled > worthDetail
		t.quiet = !first && !moved && stalled == 0 && !t.w.CPUMicroseconds.IsZero()
	}
	t.detailed = t.detailed && t.quiet
	urgent := stalls && t.c.urgent > 0
	if urgent {
		t.c.urgent--
	}
	if first || urgent || full && now >= t.detailDue() {
		t.readDetail(urgent)
	}
	t.w.At = now
	t.sayAbsent()
	return !t.gone && t.here()
}

// worthDetail is how much a workload must have stalled on memory since it was
// read last to be looked at in detail before its turn, in µs.
const worthDetail = 1000

// here says whether the cgroup is still there. A file that was kept open and
// could be read is proof of it.
func (t *tracked) here() bool {
	if t.files[fileCPU].fd >= 0 || t.files[fileMemory].fd >= 0 {
		return true
	}
	i := slices.IndexFunc(t.in, func(nd nodeDir) bool { return nd.inode != 0 })
	return i >= 0 && t.c.alive(t.node, i)
}

// readMoving reads the rest of what moves, and returns by how much the stall on
// memory did, or 1 when only another stall did.
func (t *tracked) readMoving() (stalled uint64) {
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

// readDetail reads what is dear, and what it costs several files.
func (t *tracked) readDetail(urgent bool) {
	t.begin(ofDetail)
	t.restDue = t.w.DetailAt == 0 || t.c.now >= t.seldomAt+restEvery-t.spread
	if t.restDue {
		t.seldomAt = t.c.now
	}
	t.w.DetailAt = t.c.now
	t.because(ofDetail, "processes", cmp.Or(t.noProcs, t.noList))
	t.readMemoryDetail(urgent)
	t.readThrottling()
	t.readNetwork()
	t.detailed = t.quiet
}

// detailDue is when the dear files are to be read again: late when nothing
// moved since they were.
func (t *tracked) detailDue() time.Duration {
	if t.detailed {
		return t.w.DetailAt + restEvery - t.spread
	}
	return t.w.DetailAt + detailEvery - t.spread
}
