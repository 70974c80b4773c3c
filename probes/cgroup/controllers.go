package cgroup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// What is read of each controller: memory, CPU, IO, pressure; of cgroup v2, and of
// v1 in the functions with V1 in their name.

// readMemory reads the memory in use.
func (t *trackedWorkload) readMemory() (moved bool) {
	t.beginGroup(ofMemory)
	t.readAt[ofMemory] = t.reader.now
	was, from := t.w.MemoryBytes, t.reader.from.memory
	i, ok := t.sourceDir(ofMemory, from, nameMemory)
	switch {
	case !ok:
		t.w.MemoryBytes = snapshot.Opt[uint64]{}
	case from.v1:
		t.number(ofMemory, &t.w.MemoryBytes, nameMemoryBytes, fileMemory, i, "memory.usage_in_bytes")
	default:
		b, err := t.readKept(fileMemory, i, "memory.current")
		if errors.Is(err, fs.ErrNotExist) {
			t.w.MemoryBytes = snapshot.Opt[uint64]{}
			t.recordAbsent(ofMemory, nameMemory, notEnabled("memory"))
			break
		}
		t.storeNumber(ofMemory, &t.w.MemoryBytes, nameMemoryBytes, "memory.current", b, err)
	}
	return t.w.MemoryBytes != was
}

// memoryDir returns the directory of the memory controller's other files, if it
// is enabled.
func (t *trackedWorkload) memoryDir() (i int, v1, ok bool) {
	from := t.reader.from.memory
	ok = from.dir >= 0 && t.in[from.dir].inode != 0
	return from.dir, from.v1, ok && (from.v1 || !errors.Is(t.files[fileMemory].missing, fs.ErrNotExist))
}

// readEvents reads how often the cgroup, or one below, reached its limit and
// was OOM-killed. Where the kernel does not sum that over cgroups it is expensive, and
// part of the detail.
func (t *trackedWorkload) readEvents() {
	i, v1, ok := t.memoryDir()
	if v1 || !ok || t.reader.localEvents || t.unchanged(ofEvents) {
		return
	}
	var high, most, kills snapshot.Opt[uint64]
	b, err := t.readKept(fileEvents, i, "memory.events")
	if err == nil {
		err = keyed(b, "memory.events", func(key []byte, value uint64) {
			switch string(key) {
			case "high":
				high = snapshot.Some(value)
			case "max":
				most = snapshot.Some(value)
			case "oom_kill":
				kills = snapshot.Some(value)
			}
		})
	}
	hits, sumErr := sum(high, most)
	t.store(ofEvents, &t.w.LimitHits, hits, nameLimitHits, "high and max in memory.events", cmp.Or(err, sumErr))
	t.store(ofEvents, &t.w.OOMKills, kills, nameOOMKills, "oom_kill in memory.events", err)
}

// readLocalEvents sums what readEvents reads, as on v1.
func (t *trackedWorkload) readLocalEvents(i int) {
	const file = "memory.events"
	hits, err := t.sumAll(&t.hits, i, file, func(b []byte) (snapshot.Opt[uint64], error) {
		high, err1 := valueOfKey(b, file, "high")
		most, err2 := valueOfKey(b, file, "max")
		all, err3 := sum(high, most)
		return all, cmp.Or(err1, err2, err3)
	})
	t.store(ofDetail, &t.w.LimitHits, hits, nameLimitHits, "high and max in memory.events", err)
	kills, err := t.sumKeyed(&t.kills, i, file, "oom_kill")
	t.store(ofDetail, &t.w.OOMKills, kills, nameOOMKills, "oom_kill in memory.events", err)
}

// readMemoryDetail reads memory.stat, which can take milliseconds for a large
// cgroup, and values that seldom change.
func (t *trackedWorkload) readMemoryDetail(urgent bool) {
	i, v1, ok := t.memoryDir()
	if !ok {
		return
	}
	t.readNUMA(i, v1)
	if v1 {
		t.readMemoryDetailV1(urgent, i)
		return
	}
	if t.reader.localEvents {
		t.readLocalEvents(i)
	}
	t.readMemoryStat(urgent, i, statLine{"inactive_file", nameInactiveFile, &t.w.InactiveFileBytes},
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
// pauses, while the workload does not stall on memory and uses about as much as before.
func (t *trackedWorkload) readMemoryStat(urgent bool, i int, lines ...statLine) {
	if t.reader.now < t.statAgain && !urgent && !t.memoryMoved() {
		return
	}
	t.beginGroup(ofStat)
	t.w.StatAt, t.statMemory = t.reader.now, t.w.MemoryBytes
	b, took, err := t.timedStat(i)
	t.paceStat(took)
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

// timedStat reads memory.stat, and how long that took: by the clock, which costs no system
// call, or in CPU time after a slow read.
func (t *trackedWorkload) timedStat(i int) (b []byte, took time.Duration, err error) {
	const file = "memory.stat"
	if t.slowBefore {
		begun := threadTime()
		b, err = t.readOnce(i, file)
		return b, threadTime() - begun, err
	}
	begun := time.Now()
	b, err = t.readOnce(i, file)
	return b, time.Since(begun), err
}

// memoryMoved reports whether the memory in use is a tenth more or less than when
// memory.stat was read: then what is inactive of it is not known any more.
func (t *trackedWorkload) memoryMoved() bool {
	now, _ := t.w.MemoryBytes.Get()
	was, _ := t.statMemory.Get()
	return max(now, was)-min(now, was) > was/10
}

// slowStat is the time from which a read of memory.stat is slow. On a host of many CPUs
// the kernel sums it over all of them, for a cgroup and all below.
const slowStat = 10 * time.Millisecond

func (t *trackedWorkload) paceStat(took time.Duration) {
	switch {
	case took < slowStat:
		t.slowBefore = false
	case !t.slowBefore: // another process or the hypervisor may have taken the CPU
		t.slowBefore = true
	default:
		t.statAgain = t.reader.now + idleDetailEvery
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

// noLimitV1 is above any real limit of v1: the kernel prints "none" as the
// largest multiple of a page below 2^63.
const noLimitV1 = 1 << 62

// readMemoryDetailV1 reads the memory hierarchy (kernel cgroup-v1/memory.rst).
// total_inactive_file and total_swap include all cgroups below; limit hits and
// kills are counted only where they happen, and are summed.
func (t *trackedWorkload) readMemoryDetailV1(urgent bool, i int) {
	t.readMemoryStat(urgent, i, statLine{"total_inactive_file", nameInactiveFile, &t.w.InactiveFileBytes},
		statLine{"total_rss", nameRSS, &t.w.RSSBytes}, statLine{"total_swap", nameSwap, &t.w.SwapBytes}, statLine{"total_pgpgin", nameCharged, &t.w.Charged})
	if t.hitsUnchanged() {
		return
	}
	was := t.w.LimitHits
	t.hitsStall = t.w.Pressure.Memory
	t.beginGroup(ofHits)
	hits, err := t.sumAll(&t.hits, i, "memory.failcnt", func(b []byte) (snapshot.Opt[uint64], error) { return number(b, "memory.failcnt") })
	t.store(ofHits, &t.w.LimitHits, hits, nameLimitHits, "memory.failcnt", err)
	if t.seldomDue || t.w.LimitHits != was {
		t.readSeldomV1(i)
	}
}

// hitsUnchanged reports whether no limit was reached since the hits were summed: who reaches one
// reclaims, which is a stall on memory. An allocation that may not wait reclaims nothing: its
// hits are seen later, as all are without the pressure of these very tasks.
func (t *trackedWorkload) hitsUnchanged() bool {
	p := &t.w.Pressure
	waited, _ := p.CPU.Some.Get() // nothing runs without ever waiting for a CPU
	return !t.seldomDue && waited > 0 && !t.w.LimitHits.IsZero() && !p.Memory.Some.IsZero() && p.Memory == t.hitsStall
}

// readSeldomV1 reads the limit, and the OOM kills, which do not change while
// the limit is not reached.
func (t *trackedWorkload) readSeldomV1(i int) {
	t.beginGroup(ofSeldom)
	// The cgroup's own limit, as its hits are its own, and as with v2; the
	// hierarchical one of memory.stat would be that of kubepods for most pods.
	t.numberOnce(ofSeldom, &t.w.MemoryLimitBytes, nameMemoryLimit, i, "memory.limit_in_bytes")
	if limit, _ := t.w.MemoryLimitBytes.Get(); limit >= noLimitV1 {
		t.w.MemoryLimitBytes = snapshot.Opt[uint64]{}
	}
	kills, err := t.sumKeyed(&t.kills, i, "memory.oom_control", "oom_kill")
	t.store(ofSeldom, &t.w.OOMKills, kills, nameOOMKills, "oom_kill in memory.oom_control (kernel before 4.13)", err)
}

// readCPU reads the CPU time, from cpu.stat or cpuacct.usage.
func (t *trackedWorkload) readCPU() (moved bool) {
	if t.unchanged(ofCPU) {
		return false
	}
	was, from := t.w.CPUMicroseconds, t.reader.from.cpu
	i, ok := t.sourceDir(ofCPU, from, nameCPU)
	switch {
	case !ok:
		t.w.CPUMicroseconds = snapshot.Opt[uint64]{}
	case from.v1:
		t.readCPUV1(i)
	default:
		b, err := t.readKept(fileCPU, i, "cpu.stat")
		var usage snapshot.Opt[uint64]
		if err == nil {
			usage, err = valueOfKey(b, "cpu.stat", "usage_usec")
		}
		t.store(ofCPU, &t.w.CPUMicroseconds, usage, nameCPU, "usage_usec in cpu.stat", err)
	}
	return t.w.CPUMicroseconds != was
}

// readCPUV1 reads cpuacct.usage, in nanoseconds.
func (t *trackedWorkload) readCPUV1(i int) {
	t.number(ofCPU, &t.w.CPUMicroseconds, nameCPU, fileCPU, i, "cpuacct.usage")
	t.w.CPUMicroseconds = microseconds(t.w.CPUMicroseconds)
}

func microseconds(nanoseconds snapshot.Opt[uint64]) snapshot.Opt[uint64] {
	n, ok := nanoseconds.Get()
	if !ok {
		return nanoseconds
	}
	return snapshot.Some(n / 1000)
}

// readThrottling sums the throttling of a cgroup and those below it: the kernel
// counts it only where it happens, and quotas are on a pod's containers.
func (t *trackedWorkload) readThrottling() {
	from, key := t.reader.from.throttling, "throttled_usec"
	if from.v1 {
		key = "throttled_time"
	}
	t.beginGroup(ofThrottling)
	t.cpuStall = t.w.Pressure.CPU
	t.w.ThrottledAt = t.reader.now
	i, ok := t.sourceDir(ofThrottling, from, nameThrottled)
	if !ok {
		return
	}
	periods := uint64(0)
	all, err := t.sumAll(&t.throttled, i, "cpu.stat", func(b []byte) (snapshot.Opt[uint64], error) {
		n, _ := valueOfKey(b, "cpu.stat", "nr_periods")
		ran, _ := n.Get()
		periods += ran
		return valueOfKey(b, "cpu.stat", key)
	})
	t.noQuota, t.quotaAt = err == nil && periods == 0, t.reader.now
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

// readIO reads the IO per device, from io.stat or the blkio files.
func (t *trackedWorkload) readIO() (moved bool) {
	if t.unchanged(ofIO) {
		return false
	}
	t.io, t.w.IO = t.w.IO, t.io[:0]
	from := t.reader.from.io
	i, ok := t.sourceDir(ofIO, from, nameIO)
	switch {
	case !ok:
	case from.v1:
		t.readIOV1(i)
	default:
		b, err := t.readKept(fileIO, i, "io.stat")
		if err != nil {
			t.recordAbsent(ofIO, nameIO, whyNotV2("io", err))
			break
		}
		if t.w.IO, err = parseIOStat(b, t.w.IO, t.reader.devices); err != nil {
			t.recordAbsent(ofIO, nameIO, fmt.Sprintf("io.stat: %v", err))
		}
	}
	return !slices.Equal(t.w.IO, t.io)
}

const whyBlkioInactive = "blkio inactive: the kernel counts only devices that ever had a throttle rule"

// readIOV1 reads blk-throttle's counters of the cgroup and all below it.
func (t *trackedWorkload) readIOV1(i int) {
	const bytesFile, operationsFile = "blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"
	b, err := t.readKept(fileIOBytes, i, bytesFile)
	if err == nil && t.blkio != nil && bytes.Equal(b, t.blkio) {
		// Every operation but a flush transfers bytes: if the bytes are
		// unchanged, the other file need not be read.
		t.w.IO = append(t.w.IO, t.io...)
		t.recordNoIO()
		return
	}
	t.blkio, t.whyNoIO = append(t.blkio[:0], b...), ""
	r := t.reader
	if r.size, err = blkioDevices(b, err, r.size[:0], r.devices, bytesFile); err != nil {
		t.whyNoIO = err.Error()
	}
	b, err = t.readKept(fileIO, i, operationsFile)
	if r.operations, err = blkioDevices(b, err, r.operations[:0], r.devices, operationsFile); err != nil {
		t.whyNoIO = err.Error()
	}
	t.w.IO, err = joinBlkio(r.operations, r.size, t.w.IO)
	switch {
	case t.whyNoIO != "":
	case err != nil:
		t.whyNoIO = err.Error()
	case len(t.w.IO) == 0:
		t.whyNoIO = whyBlkioInactive
	}
	if t.whyNoIO != "" && t.whyNoIO != whyBlkioInactive {
		t.blkio = nil // the other file may be readable next time
	}
	t.recordNoIO()
}

// recordNoIO records the reason for absent IO. Devices that the kernel does not
// count stay as they are.
func (t *trackedWorkload) recordNoIO() {
	read := t.readAt[ofIO]
	t.recordAbsent(ofIO, nameIO, t.whyNoIO)
	if t.whyNoIO == whyBlkioInactive {
		t.readAt[ofIO] = read
	}
}

func blkioDevices(b []byte, err error, devices []blkioDevice, known interner, file string) ([]blkioDevice, error) {
	if err != nil {
		return devices, err
	}
	if devices, err = parseBlkio(b, devices, known); err != nil {
		return devices, fmt.Errorf("%s: %w", file, err)
	}
	return devices, nil
}

// readPressure reads the pressure files, which only cgroup v2 has.
func (t *trackedWorkload) readPressure() {
	t.beginGroup(ofPressure)
	i, ok := t.sourceDir(ofPressure, t.reader.from.pressure, namePressure)
	if !ok {
		return
	}
	p := &t.w.Pressure
	t.readStall(ofCPUStall, i, &p.CPU, filePressureCPU, "cpu", "cpu.pressure")
	t.readStall(ofMemoryStall, i, &p.Memory, filePressureMemory, "memory", "memory.pressure")
	t.readStall(ofIOStall, i, &p.IO, filePressureIO, "io", "io.pressure")
}

func (t *trackedWorkload) readStall(of fileGroup, i int, to *snapshot.Stall, id fileID, resource, file string) {
	if t.unchanged(of) {
		return
	}
	*to = snapshot.Stall{}
	b, err := t.readKept(id, i, file)
	if err != nil {
		t.recordAbsent(of, resource, t.whyNoStall(i, &t.files[id], err))
		return
	}
	if *to, err = psi.Parse(b); err != nil {
		t.recordAbsent(of, resource, fmt.Sprintf("%s: %v", file, err))
	}
}

// whyNoStall distinguishes PSI disabled for this cgroup from PSI missing in the
// kernel. The result is cached until the file is tried again.
func (t *trackedWorkload) whyNoStall(i int, f *keptFile, err error) string {
	if f.missing != nil && f.why != "" {
		return f.why
	}
	f.why = psi.Reason(err)
	if isRemoved(err) && t.pressureIsOff(i) {
		f.why = psi.WhyOffForCgroup
	}
	return f.why
}

// pressureIsOff reads cgroup.pressure (since kernel 6.1): 0 hides the pressure
// files.
func (t *trackedWorkload) pressureIsOff(i int) bool {
	b, err := t.readOnce(i, "cgroup.pressure")
	return err == nil && string(trimNewline(b)) == "0"
}

// sumKeyed sums one line of a file over a cgroup and those below.
func (t *trackedWorkload) sumKeyed(to *subtreeSum, i int, file, key string) (snapshot.Opt[uint64], error) {
	return t.sumAll(to, i, file, func(b []byte) (snapshot.Opt[uint64], error) { return valueOfKey(b, file, key) })
}

// sumAll sums a counter over a cgroup and those below it; a child without a
// value adds nothing.
func (t *trackedWorkload) sumAll(to *subtreeSum, i int, file string, value func([]byte) (snapshot.Opt[uint64], error)) (snapshot.Opt[uint64], error) {
	b, err := t.readOwn(i, file)
	if err != nil {
		return snapshot.Opt[uint64]{}, err
	}
	v, err := value(b)
	own, counted := v.Get()
	if !counted || err != nil {
		return snapshot.Opt[uint64]{}, err
	}
	parts := append(t.reader.parts[:0], part{value: own})
	for _, dir := range t.reader.subtree(t.node, i) {
		v, err := t.readChild(dir, file, value)
		if err != nil {
			return snapshot.Opt[uint64]{}, fmt.Errorf("child cgroup: %w", err)
		}
		if n, counted := v.Get(); counted {
			parts = append(parts, part{dir, n})
		}
	}
	t.reader.parts = parts
	return to.update(parts)
}

// readOwn reads a file of the cgroup itself; cpu.stat of v2 is open.
func (t *trackedWorkload) readOwn(i int, file string) ([]byte, error) {
	if file == "cpu.stat" && !t.reader.from.throttling.v1 {
		return t.readKept(fileCPU, i, file)
	}
	return t.readOnce(i, file)
}

// readChild reads a file of a child cgroup; a removed one has no value.
func (t *trackedWorkload) readChild(dir, file string, value func([]byte) (snapshot.Opt[uint64], error)) (snapshot.Opt[uint64], error) {
	fd, err := t.reader.path.open(anywhere, dir, "/", file)
	if err == nil {
		defer closeFD(fd)
		t.reader.buf, err = readShown(fd, file, t.reader.buf)
	} else {
		err = fmt.Errorf("%s: %w", file, err)
	}
	if err != nil {
		return snapshot.Opt[uint64]{}, ignoreRemoved(err)
	}
	return value(t.reader.buf)
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

// whyNotV2 maps a missing file of a controller to its cause: the parent cgroup
// does not enable the controller (cgroup.subtree_control).
func whyNotV2(controller string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return notEnabled(controller)
	}
	return err.Error()
}

func notEnabled(controller string) string {
	const why = " controller is not enabled for this cgroup"
	switch controller { // constants, since it may be needed at every read
	case "memory":
		return "the memory" + why
	case "io":
		return "the io" + why
	}
	return "the " + controller + why
}
