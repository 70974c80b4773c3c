package cgroup

import (
	"bytes"
	"fmt"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// noLimitV1 is above any real limit of v1: the kernel prints "none" as the
// largest multiple of a page below 2^63.
const noLimitV1 = 1 << 62

const whyBlkioInactive = "blkio inactive: the kernel counts only devices that ever had a throttle rule"

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
	c := t.c
	if c.size, err = blkioDevices(b, err, c.size[:0], c.devices, bytesFile); err != nil {
		t.whyNoIO = err.Error()
	}
	b, err = t.readKept(fileIO, i, operationsFile)
	if c.operations, err = blkioDevices(b, err, c.operations[:0], c.devices, operationsFile); err != nil {
		t.whyNoIO = err.Error()
	}
	t.w.IO, err = joinBlkio(c.operations, c.size, t.w.IO)
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

// readMemoryDetailV1 reads the memory hierarchy (kernel cgroup-v1/memory.rst).
// total_inactive_file and total_swap include all cgroups below; limit hits and
// kills are counted only where they happen, and are summed.
func (t *trackedWorkload) readMemoryDetailV1(i int) {
	t.readMemoryStat(i, statLine{"total_inactive_file", nameInactiveFile, &t.w.InactiveFileBytes},
		statLine{"total_rss", nameRSS, &t.w.RSSBytes}, statLine{"total_swap", nameSwap, &t.w.SwapBytes}, statLine{"total_pgpgin", nameCharged, &t.w.Charged})
	was := t.w.LimitHits
	hits, err := t.sumAll(i, "memory.failcnt", func(b []byte) (snapshot.Opt[uint64], error) { return number(b, "memory.failcnt") })
	t.store(ofDetail, &t.w.LimitHits, hits, nameLimitHits, "memory.failcnt", err)
	if t.seldomDue || t.w.LimitHits != was {
		t.readSeldomV1(i)
	}
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
	kills, err := t.sumKeyed(i, "memory.oom_control", "oom_kill")
	t.store(ofSeldom, &t.w.OOMKills, kills, nameOOMKills, "oom_kill in memory.oom_control (kernel before 4.13)", err)
}
