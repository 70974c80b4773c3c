package web

import "github.com/plimsoll-dev/plimsoll/snapshot"

// podMetrics are all metrics of workloads.
type podMetrics struct {
	families []podFamily
	disks    []podDiskFamily
}

// append appends the series of the rows, by metric.
func (m podMetrics) append(b []byte, rows []podRow) []byte {
	slot := 0
	for i := range m.families {
		b = m.families[i].append(b, rows, slot)
		slot += len(m.families[i].of)
	}
	for i := range m.disks {
		b = m.disks[i].append(b, rows, i)
	}
	return b
}

// seriesOf counts the series that a workload would have.
func (m podMetrics) seriesOf(w *snapshot.WorkloadState) int {
	n := len(m.disks) * len(w.IO)
	for i := range m.families {
		for _, v := range m.families[i].of {
			if !v.value(w).IsZero() {
				n++
			}
		}
	}
	return n
}

// podFamily is one metric of workloads.
type podFamily struct {
	name, kind, help string
	// scale is how many of the kernel's units are one of the metric's.
	scale uint64
	of    []podValue
}

// podValue is the value of one series of a workload.
type podValue struct {
	resource string // empty: no such label
	value    func(*snapshot.WorkloadState) snapshot.Opt[uint64]
}

// podDiskFamily is one metric of workloads on disks.
type podDiskFamily struct {
	name, help string
	value      func(*snapshot.WorkloadIO) uint64
}

const microseconds = 1e6

// podFamilies are the metrics of workloads, except those of disks.
func podFamilies() []podFamily {
	type workload = snapshot.WorkloadState
	type value = snapshot.Opt[uint64]
	list := []podFamily{
		{"plimsoll_pod_cpu_seconds_total", counter, "CPU time used (cpu.stat usage_usec, v1 cpuacct.usage).", microseconds, one(func(w *workload) value { return w.CPUMicroseconds })},
		{"plimsoll_pod_cpu_throttled_seconds_total", counter, "Time throttled by its CPU quota (cpu.stat throttled_usec, v1 throttled_time).", microseconds, one(func(w *workload) value { return w.ThrottledMicroseconds })},
		{"plimsoll_pod_memory_bytes", gauge, "Memory charged to it, page cache included (memory.current, v1 memory.usage_in_bytes).", 1, one(func(w *workload) value { return w.MemoryBytes })},
		{"plimsoll_pod_memory_working_set_bytes", gauge, "Memory charged to it without inactive file pages (memory.stat inactive_file).", 1, one(func(w *workload) value { return w.WorkingSetBytes })},
		{"plimsoll_pod_swap_bytes", gauge, "Swap used (memory.swap.current, v1 memory.stat total_swap).", 1, one(func(w *workload) value { return w.SwapBytes })},
		{"plimsoll_pod_oom_kills_total", counter, "Its processes killed by the OOM killer (memory.events oom_kill, v1 memory.oom_control).", 1, one(func(w *workload) value { return w.OOMKills })},
		{"plimsoll_pod_memory_limit_hits_total", counter, "How often it hit its own memory limit (memory.events high and max, v1 memory.failcnt).", 1, one(func(w *workload) value { return w.LimitHits })},
		{"plimsoll_pod_pressure_waiting_seconds_total", counter, "Time in which at least one of its tasks waited for the resource (cgroup PSI, some).", microseconds, stallsOf(func(s snapshot.Stall) value { return s.Some })},
		{"plimsoll_pod_pressure_stalled_seconds_total", counter, "Time in which all its tasks waited for the resource and none ran (cgroup PSI, full).", microseconds, stallsOf(func(s snapshot.Stall) value { return s.Full })},
	}
	return append(list, podNetworkFamilies()...)
}

// one is a family with a single series.
func one(value func(*snapshot.WorkloadState) snapshot.Opt[uint64]) []podValue {
	return []podValue{{value: value}}
}

// stallsOf is a family with a series for each resource.
func stallsOf(kind func(snapshot.Stall) snapshot.Opt[uint64]) []podValue {
	type workload = snapshot.WorkloadState
	return []podValue{
		{"cpu", func(w *workload) snapshot.Opt[uint64] { return kind(w.Pressure.CPU) }},
		{"memory", func(w *workload) snapshot.Opt[uint64] { return kind(w.Pressure.Memory) }},
		{"io", func(w *workload) snapshot.Opt[uint64] { return kind(w.Pressure.IO) }},
	}
}

func podNetworkFamilies() []podFamily {
	type network = snapshot.WorkloadNetwork
	of := func(value func(network) uint64) []podValue {
		return one(func(w *snapshot.WorkloadState) snapshot.Opt[uint64] {
			n, ok := w.Network.Get()
			if !ok {
				return snapshot.Opt[uint64]{}
			}
			return snapshot.Some(value(n))
		})
	}
	return []podFamily{
		{"plimsoll_pod_network_receive_bytes_total", counter, "Bytes received in its network namespace, without lo (/proc/PID/net/dev).", 1, of(func(n network) uint64 { return n.ReceiveBytes })},
		{"plimsoll_pod_network_transmit_bytes_total", counter, "Bytes sent in its network namespace, without lo (/proc/PID/net/dev).", 1, of(func(n network) uint64 { return n.TransmitBytes })},
		{"plimsoll_pod_network_receive_packets_total", counter, "Packets received in its network namespace, without lo (/proc/PID/net/dev).", 1, of(func(n network) uint64 { return n.ReceivePackets })},
		{"plimsoll_pod_network_transmit_packets_total", counter, "Packets sent in its network namespace, without lo (/proc/PID/net/dev).", 1, of(func(n network) uint64 { return n.TransmitPackets })},
	}
}

func podDiskFamilies() []podDiskFamily {
	return []podDiskFamily{
		{"plimsoll_pod_disk_reads_completed_total", "Reads on the device (io.stat rios, v1 blkio.throttle).", func(d *snapshot.WorkloadIO) uint64 { return d.Reads }},
		{"plimsoll_pod_disk_writes_completed_total", "Writes on the device (io.stat wios, v1 blkio.throttle).", func(d *snapshot.WorkloadIO) uint64 { return d.Writes }},
		{"plimsoll_pod_disk_read_bytes_total", "Bytes read from the device (io.stat rbytes, v1 blkio.throttle).", func(d *snapshot.WorkloadIO) uint64 { return d.ReadBytes }},
		{"plimsoll_pod_disk_written_bytes_total", "Bytes written to the device (io.stat wbytes, v1 blkio.throttle).", func(d *snapshot.WorkloadIO) uint64 { return d.WrittenBytes }},
	}
}

// append omits the family if no workload has a value.
func (f *podFamily) append(b []byte, rows []podRow, slot int) []byte {
	start := len(b)
	b = appendHeader(b, f.name, f.kind, f.help)
	header := len(b)
	for i := range f.of {
		for r := range rows {
			v, ok := f.of[i].value(rows[r].workload).Get()
			if !ok {
				continue
			}
			b = append(b, rows[r].prefixes[slot+i]...)
			b = append(appendScaled(b, v, f.scale), '\n')
		}
	}
	if len(b) == header {
		return b[:start]
	}
	return b
}

func (f *podDiskFamily) append(b []byte, rows []podRow, slot int) []byte {
	start := len(b)
	b = appendHeader(b, f.name, counter, f.help)
	header := len(b)
	for r := range rows {
		for i := range rows[r].devices {
			b = append(b, rows[r].devices[i].prefixes[slot]...)
			b = append(appendCount(b, f.value(&rows[r].workload.IO[i])), '\n')
		}
	}
	if len(b) == header {
		return b[:start]
	}
	return b
}
