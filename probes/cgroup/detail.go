package cgroup

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// readMemoryDetail reads memory.stat, which can take milliseconds for a large
// cgroup, and values that seldom change.
func (t *trackedWorkload) readMemoryDetail(urgent bool) {
	i, v1, ok := t.memoryDir()
	switch {
	case !ok:
		return
	case v1:
		t.readMemoryDetailV1(i)
		return
	}
	t.readMemoryStat(i, statLine{"inactive_file", nameInactiveFile, &t.w.InactiveFileBytes},
		statLine{"anon", nameRSS, &t.w.RSSBytes}, statLine{"pgsteal", nameReclaimed, &t.w.Reclaimed})
	if t.seldomDue {
		t.beginGroup(ofSeldom)
		t.readLimitV2(i)
	}
	// A workload without swap uses some only in a shortage.
	if swapped, known := t.w.SwapBytes.Get(); known && swapped == 0 && !urgent && !t.seldomDue {
		return
	}
	t.numberOnce(ofDetail, &t.w.SwapBytes, nameSwap, i, "memory.swap.current")
}

// statLine is a line of memory.stat, the measurement's name, and its field.
type statLine struct {
	key, name string
	to        *snapshot.Opt[uint64]
}

// readMemoryStat reads lines of memory.stat. After two slow reads in a row it
// pauses.
func (t *trackedWorkload) readMemoryStat(i int, lines ...statLine) {
	if t.c.now < t.statAgain {
		return
	}
	t.beginGroup(ofStat)
	begun := time.Now()
	b, err := t.readOnce(i, "memory.stat")
	t.paceStat(time.Since(begun))
	for _, l := range lines {
		*l.to = snapshot.Opt[uint64]{}
	}
	if err == nil {
		err = keyed(b, "memory.stat", func(key []byte, value uint64) {
			for _, l := range lines {
				if l.key == string(key) {
					*l.to = snapshot.Some(value)
				}
			}
		})
	}
	for _, l := range lines {
		if l.to.IsZero() || err != nil {
			t.store(ofStat, l.to, snapshot.Opt[uint64]{}, l.name, l.key+" in memory.stat", err)
		}
	}
}

// slowStat is the duration from which a read of memory.stat is slow. On a host
// of many CPUs the kernel sums it over all of them, for a cgroup and all below.
const slowStat = 10 * time.Millisecond

func (t *trackedWorkload) paceStat(took time.Duration) {
	switch {
	case took < slowStat:
		t.slowBefore = false
	case !t.slowBefore: // the reader may have waited for a CPU
		t.slowBefore = true
	default:
		t.statAgain = t.c.now + idleDetailEvery
	}
}

// readLimitV2 reads memory.max, where "max" is no limit: the value is absent
// without a reason.
func (t *trackedWorkload) readLimitV2(i int) {
	b, err := t.readOnce(i, "memory.max")
	if err == nil && string(trimNewline(b)) == "max" {
		t.w.MemoryLimitBytes = snapshot.Opt[uint64]{}
		return
	}
	t.storeNumber(ofSeldom, &t.w.MemoryLimitBytes, nameMemoryLimit, "memory.max", b, err)
}

// readThrottling sums the throttling of a cgroup and those below it: the kernel
// counts it only where it happens, and quotas are on a pod's containers.
// Without any quota it is read less often.
func (t *trackedWorkload) readThrottling() {
	from, key := t.c.from.throttling, "throttled_usec"
	if from.v1 {
		key = "throttled_time"
	}
	// A new container may have a quota, and may be the first that runs.
	if t.noQuota && !t.seldomDue && from.dir >= 0 && t.c.subtreeHolds(&t.in[from.dir]) {
		return
	}
	t.beginGroup(ofThrottling)
	t.w.ThrottledAt = t.c.now
	i, ok := t.sourceDir(ofThrottling, from, nameThrottled)
	if !ok {
		return
	}
	periods := uint64(0)
	all, err := t.sumAll(i, "cpu.stat", func(b []byte) (snapshot.Opt[uint64], error) {
		n, _ := valueOfKey(b, "cpu.stat", "nr_periods")
		ran, _ := n.Get()
		periods += ran
		return valueOfKey(b, "cpu.stat", key)
	})
	t.noQuota = err == nil && periods == 0
	switch {
	case from.v1:
		t.store(ofThrottling, &t.w.ThrottledMicroseconds, microseconds(all), nameThrottled, "throttled_time in cpu.stat (CONFIG_CFS_BANDWIDTH)", err)
	case err == nil && all.IsZero():
		t.w.ThrottledMicroseconds = all
		t.recordAbsent(ofThrottling, nameThrottled, notEnabled("cpu"))
	default:
		t.store(ofThrottling, &t.w.ThrottledMicroseconds, all, nameThrottled, "throttled_usec in cpu.stat", err)
	}
}

// sumKeyed sums one line of a file over a cgroup and those below.
func (t *trackedWorkload) sumKeyed(i int, file, key string) (snapshot.Opt[uint64], error) {
	return t.sumAll(i, file, func(b []byte) (snapshot.Opt[uint64], error) { return valueOfKey(b, file, key) })
}

// sumAll sums a counter over a cgroup and those below it; a child without a
// value adds nothing. The sum decreases when a container is removed, which
// counts as a reset.
func (t *trackedWorkload) sumAll(i int, file string, value func([]byte) (snapshot.Opt[uint64], error)) (snapshot.Opt[uint64], error) {
	b, err := t.readOnce(i, file)
	if err != nil {
		return snapshot.Opt[uint64]{}, err
	}
	total, err := value(b)
	if total.IsZero() || err != nil {
		return snapshot.Opt[uint64]{}, err
	}
	for _, dir := range t.c.subtree(t.node, i) {
		v, err := t.readChild(dir, file, value)
		if err == nil && !v.IsZero() {
			total, err = sum(total, v)
		}
		if err != nil {
			return snapshot.Opt[uint64]{}, fmt.Errorf("child cgroup: %w", err)
		}
	}
	return total, nil
}

// readChild reads a file of a child cgroup; a removed one has no value.
func (t *trackedWorkload) readChild(dir, file string, value func([]byte) (snapshot.Opt[uint64], error)) (snapshot.Opt[uint64], error) {
	fd, err := t.c.path.open(dir, "/", file)
	if err == nil {
		defer closeFD(fd)
		t.c.buf, err = readShown(fd, file, t.c.buf)
	} else {
		err = fmt.Errorf("%s: %w", file, err)
	}
	if err != nil {
		return snapshot.Opt[uint64]{}, ignoreRemoved(err)
	}
	return value(t.c.buf)
}

// listed is a workload's cgroup or one below, in one hierarchy, with its number
// of links when its children were listed.
type listed struct {
	path  string
	links uint64
}

// subtree returns the directories of all cgroups below one. It lists again only
// if a number of links changed (0 for a removed cgroup): listing a directory of
// sixty files is expensive, and a pod's containers seldom change.
func (c *Reader) subtree(n *node, i int) []string {
	nd := &n.in[i]
	if c.subtreeHolds(nd) {
		return nd.paths
	}
	nd.subtree = c.appendSubtree(nil, c.dirs[i]+n.cgroup)
	nd.paths = nd.paths[:0]
	for _, l := range nd.subtree[1:] {
		nd.paths = append(nd.paths, l.path)
	}
	return nd.paths
}

// subtreeHolds reports whether the listed subtree is still current.
func (c *Reader) subtreeHolds(nd *nodeDir) bool {
	moved := func(l listed) bool { return c.path.links(l.path) != l.links || l.links < 2 }
	return nd.subtree != nil && !slices.ContainsFunc(nd.subtree, moved)
}

// appendSubtree appends a directory and all below it. A directory that cannot
// be listed counts as empty.
func (c *Reader) appendSubtree(list []listed, dir string) []listed {
	links := c.path.links(dir)
	list = append(list, listed{dir, links})
	if links == 2 {
		return list
	}
	names, _ := appendDirs(nil, dir)
	for _, name := range names {
		list = c.appendSubtree(list, dir+"/"+name)
	}
	return list
}

func ignoreRemoved(err error) error {
	if isRemoved(err) {
		return nil
	}
	return err
}

// storeNumber stores the value of a file that is one number.
func (t *trackedWorkload) storeNumber(of fileGroup, to *snapshot.Opt[uint64], name, file string, b []byte, err error) {
	var v snapshot.Opt[uint64]
	if err == nil {
		v, err = number(b, file)
	}
	t.store(of, to, v, name, file, err)
}

func (t *trackedWorkload) number(of fileGroup, to *snapshot.Opt[uint64], name string, id fileID, i int, file string) {
	b, err := t.readKept(id, i, file)
	t.storeNumber(of, to, name, file, b, err)
}

func (t *trackedWorkload) numberOnce(of fileGroup, to *snapshot.Opt[uint64], name string, i int, file string) {
	b, err := t.readOnce(i, file)
	t.storeNumber(of, to, name, file, b, err)
}

// store stores a value, or the reason why it is absent.
func (t *trackedWorkload) store(of fileGroup, to *snapshot.Opt[uint64], v snapshot.Opt[uint64], name, what string, err error) {
	*to = v
	if v.IsZero() {
		t.recordAbsent(of, name, cmp.Or(err, fmt.Errorf("no %s", what)).Error())
	}
}
