package probes

import (
	"errors"
	"fmt"
	"io/fs"
)

// The measurements' names in Absent.
const (
	nameMemory       = "memory"
	nameMemoryBytes  = "memoryBytes"
	nameInactiveFile = "inactiveFileBytes"
	nameMemoryLimit  = "memoryLimitBytes"
	nameLimitHits    = "limitHitsTotal"
	nameOOMKills     = "oomKillsTotal"
	nameCPU          = "cpuMicrosecondsTotal"
	nameThrottled    = "throttledMicrosecondsTotal"
	nameIO           = "io"
	namePressure     = "pressure"
)

// readMemoryV2 reads the memory controller (kernel cgroup-v2.rst, "Memory").
func (r *reading) readMemoryV2() {
	d, ok := r.in(unified, nameMemory)
	if !ok {
		return
	}
	current, err := r.number(d, "memory.current")
	if errors.Is(err, fs.ErrNotExist) {
		r.w.Absent.Because(nameMemory, notEnabled("memory"))
		return
	}
	r.take(&r.w.MemoryBytes, nameMemoryBytes, someIf(current, err), "memory.current", err)

	stat, err := r.keyed(d, "memory.stat", "inactive_file")
	r.take(&r.w.InactiveFileBytes, nameInactiveFile, stat[0], "inactive_file in memory.stat", err)
	r.readLimitV2(d)

	events, err := r.keyed(d, "memory.events", "high", "max", "oom_kill")
	hits, sumErr := sum(events[0], events[1])
	r.take(&r.w.LimitHits, nameLimitHits, hits, "high and max in memory.events", firstOf(err, sumErr))
	r.take(&r.w.OOMKills, nameOOMKills, events[2], "oom_kill in memory.events", err)
}

// readLimitV2 reads memory.max, where "max" is no limit: absent, and nothing
// is wrong.
func (r *reading) readLimitV2(d cgroupDir) {
	b, err := r.read(d, "memory.max")
	if err == nil && string(trimNewline(b)) == "max" {
		return
	}
	r.takeNumber(&r.w.MemoryLimitBytes, nameMemoryLimit, d, "memory.max")
}

// readCPUV2 reads cpu.stat, which every cgroup has; its line of throttling
// only with the cpu controller.
func (r *reading) readCPUV2() {
	d, ok := r.in(unified, nameCPU)
	if !ok {
		r.in(unified, nameThrottled)
		return
	}
	stat, err := r.keyed(d, "cpu.stat", "usage_usec", "throttled_usec")
	r.take(&r.w.CPUMicroseconds, nameCPU, stat[0], "usage_usec in cpu.stat", err)
	if err == nil && stat[1].IsZero() {
		r.w.Absent.Because(nameThrottled, notEnabled("cpu"))
		return
	}
	throttled, err := r.sumBelow(unified, stat[1], err, "cpu.stat", "throttled_usec")
	r.take(&r.w.ThrottledMicroseconds, nameThrottled, throttled, "throttled_usec in cpu.stat", err)
}

// sumBelow adds to a cgroup's own counter those of the cgroups below it: what
// the kernel counts only where it happens, although a pod's containers are the
// ones that carry quotas and limits. The sum falls when a container goes; it
// is a reset then, as for every counter that goes back.
func (r *reading) sumBelow(hierarchy string, own Opt[uint64], err error, file, key string) (Opt[uint64], error) {
	if own.IsZero() {
		return own, err
	}
	total := own
	err = eachBelow(r.path(hierarchy), func(d cgroupDir) error {
		values, err := r.keyed(d, file, key)
		if err != nil || values[0].IsZero() {
			return err // one without the controller has nothing to add
		}
		total, err = sum(total, values[0])
		return err
	})
	if err != nil {
		return Opt[uint64]{}, fmt.Errorf("a cgroup below: %w", err)
	}
	return total, nil
}

// readIOV2 reads io.stat.
func (r *reading) readIOV2() {
	d, ok := r.in(unified, nameIO)
	if !ok {
		return
	}
	b, err := r.read(d, "io.stat")
	if err != nil {
		r.w.Absent.Because(nameIO, whyNotV2("io", err))
		return
	}
	if r.w.IO, err = parseIOStat(b); err != nil {
		r.w.Absent.Because(nameIO, fmt.Sprintf("io.stat: %v", err))
	}
}

// readPressure reads the pressure files, which only cgroup v2 has.
func (r *reading) readPressure() {
	d, ok := r.in(unified, namePressure)
	if !ok {
		return
	}
	p := &r.w.Pressure
	for _, f := range []struct {
		resource string
		to       *Stall
	}{{"cpu", &p.CPU}, {"memory", &p.Memory}, {"io", &p.IO}} {
		st, why := r.readCgroupStall(d, f.resource)
		if why != "" {
			p.Absent.Because(f.resource, why)
			continue
		}
		*f.to = st
	}
}

func (r *reading) readCgroupStall(d cgroupDir, resource string) (Stall, string) {
	file := resource + ".pressure"
	b, err := r.read(d, file)
	if err != nil {
		if isGone(err) && r.pressureIsOff(d) {
			return Stall{}, whyPSICgroupOff
		}
		return Stall{}, psiReason(err)
	}
	st, err := parsePSI(b)
	if err != nil {
		return Stall{}, fmt.Sprintf("%s: %v", file, err)
	}
	return st, ""
}

// pressureIsOff reads cgroup.pressure (since kernel 6.1): 0 hides the files.
func (r *reading) pressureIsOff(d cgroupDir) bool {
	on, err := r.number(d, "cgroup.pressure")
	return err == nil && on == 0
}

// whyNotV2 says that a file of a controller is missing because the cgroup
// above does not hand the controller down (cgroup.subtree_control).
func whyNotV2(controller string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return notEnabled(controller)
	}
	return err.Error()
}

func notEnabled(controller string) string {
	return fmt.Sprintf("the %s controller is not enabled for this cgroup", controller)
}
