package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Names of the measurements in Absent.
const (
	nameMemory       = "memory"
	nameMemoryBytes  = "memoryBytes"
	nameInactiveFile = "inactiveFileBytes"
	nameSwap         = "swapBytes"
	nameRSS          = "rssBytes"
	nameReclaimed    = "reclaimedTotal"
	nameCharged      = "chargedTotal"
	nameMemoryLimit  = "memoryLimitBytes"
	nameLimitHits    = "limitHitsTotal"
	nameOOMKills     = "oomKillsTotal"
	nameCPU          = "cpuMicrosecondsTotal"
	nameThrottled    = "throttledMicrosecondsTotal"
	nameIO           = "io"
	nameNetwork      = "network"
	namePressure     = "pressure"
)

// readMemory reads the memory in use.
func (t *trackedWorkload) readMemory() (moved bool) {
	t.beginGroup(ofMemory)
	t.readAt[ofMemory] = t.c.now
	was, from := t.w.MemoryBytes, t.c.from.memory
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
	from := t.c.from.memory
	ok = from.dir >= 0 && t.in[from.dir].inode != 0
	return from.dir, from.v1, ok && (from.v1 || !errors.Is(t.files[fileMemory].missing, fs.ErrNotExist))
}

// readEvents reads how often the cgroup, or one below, reached its limit and
// was OOM-killed. On v1 that is expensive, and part of the detail.
func (t *trackedWorkload) readEvents() {
	i, v1, ok := t.memoryDir()
	if v1 || !ok || t.unchanged(ofEvents) {
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

func (t *trackedWorkload) readCPU() (moved bool) {
	if t.unchanged(ofCPU) {
		return false
	}
	was, from := t.w.CPUMicroseconds, t.c.from.cpu
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

func (t *trackedWorkload) readIO() (moved bool) {
	if t.unchanged(ofIO) {
		return false
	}
	t.io, t.w.IO = t.w.IO, t.io[:0]
	from := t.c.from.io
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
		if t.w.IO, err = parseIOStat(b, t.w.IO, t.c.devices); err != nil {
			t.recordAbsent(ofIO, nameIO, fmt.Sprintf("io.stat: %v", err))
		}
	}
	return !slices.Equal(t.w.IO, t.io)
}

// readPressure reads the pressure files, which only cgroup v2 has.
func (t *trackedWorkload) readPressure() {
	t.beginGroup(ofPressure)
	i, ok := t.sourceDir(ofPressure, t.c.from.pressure, namePressure)
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
