package probes

import "fmt"

// noLimitV1 is above what any limit of v1 is: the kernel shows "none" as the
// largest multiple of a page below 2^63.
const noLimitV1 = 1 << 62

const whyBlkioInactive = "blkio inactive: the kernel counts only devices that ever had a throttle rule"

// readMemoryV1 reads the memory hierarchy (kernel cgroup-v1/memory.rst). Usage
// and total_inactive_file have all that is below; hits and kills are counted
// only where they happen, and are added up.
func (r *reading) readMemoryV1() {
	d, ok := r.in("memory", nameMemory)
	if !ok {
		return
	}
	r.takeNumber(&r.w.MemoryBytes, nameMemoryBytes, d, "memory.usage_in_bytes")
	stat, err := r.keyed(d, "memory.stat", "total_inactive_file")
	r.take(&r.w.InactiveFileBytes, nameInactiveFile, stat[0], "total_inactive_file in memory.stat", err)

	// The cgroup's own limit, as hits are of its own, and as with v2; the
	// hierarchical one of memory.stat would be that of kubepods for most pods.
	r.takeNumber(&r.w.MemoryLimitBytes, nameMemoryLimit, d, "memory.limit_in_bytes")
	if limit, _ := r.w.MemoryLimitBytes.Get(); limit >= noLimitV1 {
		r.w.MemoryLimitBytes = Opt[uint64]{}
	}
	hits, err := r.sumFailcnt(d)
	r.take(&r.w.LimitHits, nameLimitHits, hits, "memory.failcnt", err)

	kills, err := r.keyed(d, "memory.oom_control", "oom_kill")
	all, err := r.sumBelow("memory", kills[0], err, "memory.oom_control", "oom_kill")
	r.take(&r.w.OOMKills, nameOOMKills, all, "oom_kill in memory.oom_control (kernel before 4.13)", err)
}

func (r *reading) sumFailcnt(d cgroupDir) (Opt[uint64], error) {
	own, err := r.number(d, "memory.failcnt")
	if err != nil {
		return Opt[uint64]{}, err
	}
	total := Some(own)
	err = eachBelow(r.path("memory"), func(below cgroupDir) error {
		n, err := r.number(below, "memory.failcnt")
		if err == nil {
			total, err = sum(total, Some(n))
		}
		return err
	})
	if err != nil {
		return Opt[uint64]{}, fmt.Errorf("a cgroup below: %w", err)
	}
	return total, nil
}

// readCPUV1 reads cpuacct.usage and the throttled_time of cpu.stat, both in
// nanoseconds.
func (r *reading) readCPUV1() {
	if d, ok := r.in("cpuacct", nameCPU); ok {
		r.takeNumber(&r.w.CPUMicroseconds, nameCPU, d, "cpuacct.usage")
		r.w.CPUMicroseconds = microseconds(r.w.CPUMicroseconds)
	}
	if d, ok := r.in("cpu", nameThrottled); ok {
		stat, err := r.keyed(d, "cpu.stat", "throttled_time")
		all, err := r.sumBelow("cpu", stat[0], err, "cpu.stat", "throttled_time")
		r.take(&r.w.ThrottledMicroseconds, nameThrottled, microseconds(all), "throttled_time in cpu.stat (CONFIG_CFS_BANDWIDTH)", err)
	}
}

func microseconds(nanoseconds Opt[uint64]) Opt[uint64] {
	n, ok := nanoseconds.Get()
	if !ok {
		return nanoseconds
	}
	return Some(n / 1000)
}

// readIOV1 reads what blk-throttle counted for the cgroup and all below it.
func (r *reading) readIOV1() {
	d, ok := r.in("blkio", nameIO)
	if !ok {
		return
	}
	operations, err := r.readBlkio(d, "blkio.throttle.io_serviced_recursive")
	size, sizeErr := r.readBlkio(d, "blkio.throttle.io_service_bytes_recursive")
	var joinErr error
	r.w.IO, joinErr = joinBlkio(operations, size)
	err = firstOf(firstOf(err, sizeErr), joinErr)
	switch {
	case err != nil:
		r.w.Absent.Because(nameIO, err.Error())
	case len(r.w.IO) == 0:
		r.w.Absent.Because(nameIO, whyBlkioInactive)
	}
}

func (r *reading) readBlkio(d cgroupDir, file string) ([]blkioDevice, error) {
	b, err := r.read(d, file)
	if err != nil {
		return nil, err
	}
	devices, err := parseBlkio(b)
	if err != nil {
		return devices, fmt.Errorf("%s: %w", file, err)
	}
	return devices, nil
}
