package cgroup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// trackedWorkload is a workload and its state between reads.
type trackedWorkload struct {
	*node
	reader *Reader
	w      snapshot.Workload // as of the last read; the next one overwrites IO
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
	phase      float64 // where in each interval it is due, in [0, 1)
	absent     []absence
	begun      uint32 // the groups that are being read, a bit each

	seldomAt  time.Duration // when the seldom group was read; seldomDue: it is due
	noQuota   bool          // no process of it had run under a CPU quota at quotaAt
	quotaAt   time.Duration
	cpuStall  snapshot.Stall // when its throttling was read
	hitsStall snapshot.Stall // on memory, when the hits of its limit were
	// The counters that the kernel does not sum over cgroups.
	throttled, hits, kills subtreeSum
	// memory.stat was slow and is not read before statAgain; slowBefore: the
	// last read was slow; statMemory: the memory in use at that read.
	statAgain  time.Duration
	slowBefore bool
	statMemory snapshot.Opt[uint64]
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
	ofHits // of the limit, on v1
)

// isStall reports whether the group is pressure, whose reasons are kept
// separately.
func (p fileGroup) isStall() bool { return p >= ofCPUStall && p <= ofIOStall }

// fullEvery is how often an idle workload is read in full nevertheless, and
// memoryEvery how often its memory, which may be reclaimed while it is idle.
// detailEvery is the interval of the expensive values, idleDetailEvery the same while
// idle. Each workload has a point of its own in each interval, so that not all are due
// at one tick.
const (
	fullEvery       = 30 * time.Second
	memoryEvery     = 5 * time.Second
	detailEvery     = 10 * time.Second
	idleDetailEvery = 2 * time.Minute
	// jitter is how early a tick may be and still have the detail read, which a window of
	// 10 s needs once: as much as such a window may be shorter.
	jitter = 50 * time.Millisecond
)

func newTracked(r *Reader, n *node) *trackedWorkload {
	t := &trackedWorkload{node: n, reader: r, w: snapshot.NewWorkload(n.cgroup), process: noDir}
	t.w.Inode = n.inode()
	if t.w.Kind == snapshot.KindPod && !n.pod { // it has the name alone
		t.w.Kind, t.w.PodUID, t.w.Name = snapshot.KindOther, "", n.cgroup
	}
	t.phase = rand.New(rand.NewPCG(t.w.Inode, 0)).Float64() // readers of one tree read alike
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
	now := t.reader.now
	first, due := t.w.At == 0, now >= t.fullDue
	if due {
		t.readAt = [ofMemory + 1]time.Duration{} // discards all cached values
		t.fullDue = t.nextDue(now, fullEvery)
	}
	moved := t.readCPU()
	moved = t.readIO() || moved
	stalls := false
	full := due || moved || !t.idle
	if full || now >= t.nextDue(t.readAt[ofMemory], memoryEvery) {
		moved = t.readMemory() || moved
	}
	if full {
		stalled := t.readChanging()
		stalls = stalled > earlyDetailStall
		t.idle = !first && !moved && stalled == 0 && !t.w.CPUMicroseconds.IsZero()
	}
	t.detailRead = t.detailRead && t.idle
	urgent := stalls && t.reader.earlyDetails > 0
	if urgent {
		t.reader.earlyDetails--
	}
	detail := first || urgent || full && now >= t.detailDue()
	if detail {
		t.readDetail(urgent)
	}
	t.followThrottling(detail)
	t.w.At = now
	t.closeIdle()
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
	return i >= 0 && t.reader.alive(t.node, i)
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
	t.seldomDue = t.w.DetailAt == 0 || t.reader.now >= t.nextDue(t.seldomAt, idleDetailEvery)
	if t.seldomDue {
		t.seldomAt = t.reader.now
	}
	t.w.DetailAt = t.reader.now
	t.recordAbsent(ofDetail, "processes", cmp.Or(t.procsError, t.listError))
	t.readMemoryDetail(urgent)
	t.readNetwork()
	t.detailRead = t.idle
}

// unnoticedWait is how long the tasks of a workload may wait for a CPU, in µs, until its
// throttling is read again: a hundredth of the time between two details, a twentieth where
// no quota was found.
func (t *trackedWorkload) unnoticedWait() uint64 {
	if t.noQuota {
		return uint64((detailEvery / 20).Microseconds())
	}
	return uint64((detailEvery / 100).Microseconds())
}

// followThrottling reads the throttling with the detail, and as soon as tasks of the
// workload waited for a CPU since: what its quota holds back waits. While they did not,
// the counter is as of now. Without a quota it is read seldom.
func (t *trackedWorkload) followThrottling(detail bool) {
	waited, known := t.waitedForCPU()
	switch {
	case detail && t.throttlingDue(waited):
	case known && waited < t.unnoticedWait():
		t.w.ThrottledAt = t.reader.now
		return
	case !known || t.reader.earlyThrottling == 0:
		return
	default:
		t.reader.earlyThrottling--
	}
	t.readThrottling()
}

// throttlingDue reports whether to read the throttling with the detail. A new container
// may have a quota, and may be the first that runs.
func (t *trackedWorkload) throttlingDue(waited uint64) bool {
	dir := t.reader.from.throttling.dir
	if !t.noQuota || t.seldomDue || waited >= t.unnoticedWait() || dir < 0 {
		return true
	}
	t.reader.subtree(t.node, dir)
	return t.in[dir].listedAt > t.quotaAt
}

// waitedForCPU is how long the tasks of the workload waited for a CPU since its
// throttling was read, in µs; unknown without that, or without pressure.
func (t *trackedWorkload) waitedForCPU() (waited uint64, known bool) {
	now, was := t.w.Pressure.CPU.Full, t.cpuStall.Full
	if now.IsZero() {
		now, was = t.w.Pressure.CPU.Some, t.cpuStall.Some
	}
	n, ok1 := now.Get()
	before, ok2 := was.Get()
	return n - before, ok1 && ok2 && !t.w.ThrottledMicroseconds.IsZero()
}

// detailDue is when to read the detail again: later if nothing changed since.
func (t *trackedWorkload) detailDue() time.Duration {
	if t.detailRead {
		return t.nextDue(t.w.DetailAt, idleDetailEvery)
	}
	return t.nextDue(t.w.DetailAt, detailEvery)
}

// nextDue is when to read again what was last read at that time: at the workload's own
// point of the interval, but an interval after the last time at the latest; either a
// little early.
func (t *trackedWorkload) nextDue(last, every time.Duration) time.Duration {
	after := last + 2*jitter // by then a point that this reading was for has passed
	own := time.Duration(t.phase * float64(every))
	left := every - (after+every-own)%every
	return last + min(every, 2*jitter+left) - jitter
}

// unchanged reports whether a group of values is unchanged since it was read,
// because the parent's counter is. If not, it marks the group as being read.
func (t *trackedWorkload) unchanged(of fileGroup) bool {
	if s := t.parent; s != nil && s.parentCounters != nil && t.readAt[of] >= s.parentCounters.changedAt[of] {
		return true
	}
	t.beginGroup(of)
	t.readAt[of] = t.reader.now
	return false
}

// retryGroup marks a group that could not be read, to be tried again.
func (t *trackedWorkload) retryGroup(of fileGroup) {
	if of <= ofMemory {
		t.readAt[of] = 0
	}
}

// keptFile is a file of a cgroup that is kept open.
type keptFile struct {
	fd      int
	missing error  // error of the last attempt to open it
	why     string // the reason derived from it
	again   time.Duration
}

// The kept files. Two of them may be one file in one cgroup version, and one
// may not exist in the other.
type fileID int

const (
	fileMemory fileID = iota
	fileEvents
	fileCPU
	fileIO
	fileIOBytes
	filePressureCPU
	filePressureMemory
	filePressureIO
	keptFiles
)

// readKept reads a file that is read again and again, and keeps the descriptor
// if the budget allows.
func (t *trackedWorkload) readKept(id fileID, i int, name string) ([]byte, error) {
	f := &t.files[id]
	if f.fd < 0 {
		if f.missing != nil && t.reader.now < f.again {
			return nil, f.missing
		}
		fd, err := t.openFile(i, name)
		if err != nil {
			f.missing, f.again, f.why = fmt.Errorf("%s: %w", name, err), t.reader.now+recheck, ""
			if isOutOfResources(err) {
				f.again = t.reader.now
			}
			return nil, f.missing
		}
		f.fd, f.missing = fd, nil
		if !t.reader.fds.take() {
			defer t.closeUnkept(f)
		}
	}
	return t.readOpen(f.fd, name)
}

// openFile opens a file of the cgroup. If it is missing, either the kernel has
// no such file here or the cgroup was removed.
func (t *trackedWorkload) openFile(i int, name string) (int, error) {
	d, mine, err := t.reader.open(t.node, i)
	if err != nil {
		t.removed = t.removed || isRemoved(err) // it existed when it was listed
		return -1, err
	}
	if mine {
		defer d.close()
	}
	fd, err := t.reader.path.open(d, name)
	if errors.Is(err, fs.ErrNotExist) && !d.alive(&t.reader.path) {
		t.removed = true
	}
	return fd, err
}

// readOnce reads a file by its path, without keeping it open: the kept files were
// read just before, which proved that this path is the known cgroup. If none
// could be kept, the inode is checked at the end of the read.
func (t *trackedWorkload) readOnce(i int, name string) ([]byte, error) {
	fd, err := t.reader.path.open(anywhere, t.reader.dirs[i], t.cgroup, "/", name)
	if err != nil {
		t.removed = t.removed || isRemoved(err) && !t.reader.alive(t.node, i)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer closeFD(fd)
	return t.readOpen(fd, name)
}

// readOpen reads an open file of the cgroup, and notes if the cgroup was
// removed meanwhile.
func (t *trackedWorkload) readOpen(fd int, name string) (text []byte, err error) {
	t.reader.buf, err = readShown(fd, name, t.reader.buf)
	t.removed = t.removed || isRemoved(err)
	return t.reader.buf, err
}

func (t *trackedWorkload) closeFile(f *keptFile) {
	if f.fd >= 0 {
		t.reader.fds.left++
		t.closeUnkept(f)
	}
}

// closeIdle closes the files that are not read while the workload is idle, where many are open.
func (t *trackedWorkload) closeIdle() {
	if !t.idle || t.reader.fds.left >= idleKept {
		return
	}
	for _, id := range [...]fileID{fileEvents, filePressureCPU, filePressureMemory, filePressureIO} {
		t.closeFile(&t.files[id])
	}
}

func (t *trackedWorkload) closeUnkept(f *keptFile) {
	closeFD(f.fd)
	f.fd = -1
}

// sourceDir returns the directory (an index in node.in) of a source's files;
// without one, the value name is absent.
func (t *trackedWorkload) sourceDir(of fileGroup, from source, name string) (int, bool) {
	switch {
	case from.dir < 0:
		t.recordAbsent(of, name, t.reader.reasons.internJoined("no ", from.hierarchy, " hierarchy is mounted"))
		return 0, false
	case t.in[from.dir].inode != 0:
		return from.dir, true
	case errors.Is(t.in[from.dir].err, fs.ErrNotExist):
		t.recordAbsent(of, name, t.reader.reasons.internJoined("no cgroup of this path in the ", from.hierarchy, " hierarchy"))
	default:
		t.recordAbsent(of, name, fmt.Sprintf("the %s hierarchy: %v", from.hierarchy, t.in[from.dir].err))
	}
	return 0, false
}

// absence is the reason why a value of a group is absent.
type absence struct {
	of        fileGroup
	what, why string
}

// beginGroup starts the reading of a group: its earlier absences no longer hold.
func (t *trackedWorkload) beginGroup(of fileGroup) { t.begun |= 1 << of }

func (t *trackedWorkload) recordAbsent(of fileGroup, what, why string) {
	if why != "" {
		t.retryGroup(of)
		t.reader.found = append(t.reader.found, absence{of, what, why})
	}
}

// publishAbsent copies the reasons to the workload. It makes new maps only if a
// reason changed, since Samples share them.
func (t *trackedWorkload) publishAbsent() {
	begun, found := t.begun, t.reader.found
	t.begun, t.reader.found = 0, found[:0]
	if len(found) == 0 && len(t.absent) == 0 {
		return
	}
	for _, a := range t.absent {
		if begun&(1<<a.of) == 0 {
			found = append(found, a)
		}
	}
	slices.SortStableFunc(found, func(a, b absence) int { return int(a.of) - int(b.of) })
	t.reader.found = found[:0]
	if slices.Equal(found, t.absent) {
		return
	}
	t.absent = append(t.absent[:0], found...)
	t.w.Absent, t.w.Pressure.Absent = nil, nil
	for _, a := range t.absent {
		to := &t.w.Absent
		if a.of.isStall() {
			to = &t.w.Pressure.Absent
		}
		to.Because(a.what, a.why)
	}
}

// maxNUMANodes is the kernel's own bound (CONFIG_NODES_SHIFT up to 10).
const maxNUMANodes = 1024

// readNUMA reads memory.numa_stat, which costs about as much as memory.stat.
func (t *trackedWorkload) readNUMA(i int, v1 bool) {
	t.w.NUMA = nil
	if !t.reader.NUMA {
		return
	}
	b, err := t.readOnce(i, "memory.numa_stat")
	if err == nil {
		t.w.NUMA, err = parseNUMAStat(b, v1)
	}
	if err != nil {
		t.recordAbsent(ofDetail, nameNUMA, err.Error())
	}
}

// numaUnit is the unit of a line of memory.numa_stat, in bytes; 0 if the line is not
// used. Lines of v1 without hierarchical are of the cgroup without those below it.
func numaUnit(key []byte, v1 bool) uint64 {
	switch string(key) {
	case "anon", "shmem", "active_file":
		if !v1 {
			return 1
		}
	case "hierarchical_anon", "hierarchical_unevictable":
		if v1 {
			return uint64(os.Getpagesize())
		}
	}
	return 0
}

// numaSums are sums by NUMA node, in the order of the file.
type numaSums []snapshot.WorkloadNUMA

// parseNUMAStat sums the lines that are used for each NUMA node, such as
// "anon N0=4096 N1=0", or on v1 "hierarchical_anon=2 N0=1 N1=1".
func parseNUMAStat(b []byte, v1 bool) (sums numaSums, err error) {
	used := false
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		key, rest := parse.Field(line)
		key, _, _ = bytes.Cut(key, []byte{'='})
		unit := numaUnit(key, v1)
		if unit == 0 {
			continue
		}
		used = true
		if sums, err = sums.add(rest, unit); err != nil {
			return nil, fmt.Errorf("memory.numa_stat: %w", parse.LineError(line, err))
		}
	}
	if !used {
		return nil, errNoNUMALines
	}
	return sums, nil
}

// add adds the values of one line. The kernel prints the NUMA nodes of each line in one
// order.
func (s numaSums) add(values []byte, unit uint64) (numaSums, error) {
	for at := 0; ; at++ {
		field, rest := parse.Field(values)
		if len(field) == 0 {
			return s, nil
		}
		values = rest
		node, n, err := numaField(field)
		switch {
		case err != nil:
			return nil, err
		case at == len(s) && s.has(node):
			return nil, parse.ErrDuplicate
		case at == len(s):
			s = append(s, snapshot.WorkloadNUMA{Node: node})
		case s[at].Node != node:
			return nil, errNUMAOrder
		}
		if n > maxNUMABytes/unit || s[at].Bytes > maxNUMABytes {
			return nil, parse.ErrTooLarge
		}
		s[at].Bytes += n * unit
	}
}

func (s numaSums) has(node int) bool {
	return slices.ContainsFunc(s, func(n snapshot.WorkloadNUMA) bool { return n.Node == node })
}

var (
	errNUMAField   = errors.New("not a NUMA node with a number")
	errNUMAOrder   = errors.New("NUMA nodes in another order than in the line before")
	errNoNUMALines = errors.New("memory.numa_stat has none of the lines that are used")
)

// maxNUMABytes keeps sums of some values below 2^64.
const maxNUMABytes = 1 << 60

// numaField parses N0=4096.
func numaField(field []byte) (node int, value uint64, err error) {
	name, digits, ok := bytes.Cut(field, []byte{'='})
	if !ok || len(name) < 2 || name[0] != 'N' {
		return 0, 0, errNUMAField
	}
	id, err := parse.Uint(name[1:])
	if err != nil || id >= maxNUMANodes {
		return 0, 0, errNUMAField
	}
	value, err = parse.Uint(digits)
	return int(id), value, err
}
