package web

import (
	"strconv"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// appendHost appends the counters of the whole host.
func appendHost(b []byte, shot *snapshot.Snapshot) []byte {
	b = appendCPU(b, shot.CPU.CPU)
	return appendFamilies(b, []snapshot.Snapshot{*shot}, noLabels, []family[snapshot.Snapshot]{
		{
			"plimsoll_memory_total_bytes", gauge, "Memory of the host (/proc/meminfo MemTotal).",
			func(b []byte, s *snapshot.Snapshot) []byte { return appendOptCount(b, s.Memory.TotalBytes) },
		},
		{
			"plimsoll_memory_available_bytes", gauge, "Memory available without swapping (/proc/meminfo MemAvailable).",
			func(b []byte, s *snapshot.Snapshot) []byte { return appendOptCount(b, s.Memory.AvailableBytes) },
		},
		{
			"plimsoll_memory_refaults_total", counter, "Pages read again soon after reclaim (/proc/vmstat workingset_refault).",
			func(b []byte, s *snapshot.Snapshot) []byte { return appendOptCount(b, s.Memory.Refaults) },
		},
		{
			"plimsoll_oom_kills_total", counter, "Processes killed by the OOM killer, in cgroups too (/proc/vmstat oom_kill).",
			func(b []byte, s *snapshot.Snapshot) []byte { return appendOptCount(b, s.Memory.Memory.OOMKills) },
		},
		{
			"plimsoll_network_tcp_retransmits_total", counter, "TCP segments retransmitted (/proc/net/snmp RetransSegs).",
			func(b []byte, s *snapshot.Snapshot) []byte { return appendOptCount(b, s.Network.TCPRetransmits) },
		},
		{
			"plimsoll_network_listen_drops_total", counter, "Connections dropped at listening sockets (/proc/net/netstat ListenDrops).",
			func(b []byte, s *snapshot.Snapshot) []byte { return appendOptCount(b, s.Network.ListenDrops) },
		},
		{
			"plimsoll_softnet_squeezed_total", counter, "Receive polls that ended with packets left because the softirq budget or time was used up, all CPUs (/proc/net/softnet_stat time_squeeze).",
			func(b []byte, s *snapshot.Snapshot) []byte { return appendOptCount(b, s.Network.SoftnetSqueezed) },
		},
	})
}

// appendNUMA appends the memory of each NUMA node, while plugins.numaMemory is on.
func appendNUMA(b []byte, list []snapshot.NUMANode) []byte {
	label := func(b []byte, n *snapshot.NUMANode) []byte { return appendLabel(b, "numa", strconv.Itoa(n.ID)) }
	return appendFamilies(b, list, label, []family[snapshot.NUMANode]{
		{
			"plimsoll_numa_memory_total_bytes", gauge, "Memory of the NUMA node, while plugins.numaMemory is on and there are several (nodeN/meminfo MemTotal).",
			func(b []byte, n *snapshot.NUMANode) []byte { return appendOptCount(b, n.TotalBytes) },
		},
		{
			"plimsoll_numa_memory_available_bytes", gauge, "Memory of the NUMA node that is available without swapping, by the kernel's formula for MemAvailable.",
			func(b []byte, n *snapshot.NUMANode) []byte { return appendOptCount(b, n.AvailableBytes) },
		},
	})
}

// cpuMode is one mode of all CPUs together.
type cpuMode struct {
	name    string
	seconds snapshot.Opt[float64]
}

// appendCPU omits idle and iowait: they may decrease a little (proc(5)), which
// would look like a counter reset.
func appendCPU(b []byte, c snapshot.CPU) []byte {
	var modes []cpuMode
	for _, name := range []string{"user", "nice", "system", "irq", "softirq", "steal"} {
		if seconds, ok := c.Seconds[name]; ok {
			modes = append(modes, cpuMode{name, snapshot.Some(seconds)})
		}
	}
	label := func(b []byte, m *cpuMode) []byte { return appendLabel(b, "mode", m.name) }
	return appendFamilies(b, modes, label, []family[cpuMode]{
		{
			"plimsoll_cpu_seconds_total", counter, "Busy time of all CPUs, by mode; without idle and iowait, which may decrease (/proc/stat).",
			func(b []byte, m *cpuMode) []byte { return appendOptFloat(b, m.seconds) },
		},
	})
}

// stalls is PSI of one resource.
type stalls struct {
	resource string
	total    snapshot.Stall
	ratio    snapshot.StallRatio
}

type stallRatio struct {
	resource, kind string
	ratio          snapshot.Opt[float64]
}

// appendPressure appends PSI of the node (Documentation/accounting/psi.rst).
func appendPressure(b []byte, p *snapshot.PressureState) []byte {
	all := []stalls{
		{"cpu", p.Totals.CPU, p.CPU},
		{"memory", p.Totals.Memory, p.Memory},
		{"io", p.Totals.IO, p.IO},
	}
	label := func(b []byte, s *stalls) []byte { return appendLabel(b, "resource", s.resource) }
	b = appendFamilies(b, all, label, []family[stalls]{
		{
			"plimsoll_pressure_waiting_seconds_total", counter, "Time in which at least one task waited for the resource (/proc/pressure, some).",
			func(b []byte, s *stalls) []byte { return appendOptScaled(b, s.total.Some, 1e6) },
		},
		{
			"plimsoll_pressure_stalled_seconds_total", counter, "Time in which all tasks waited for the resource and none ran (/proc/pressure, full).",
			func(b []byte, s *stalls) []byte { return appendOptScaled(b, s.total.Full, 1e6) },
		},
	})
	var ratios []stallRatio
	for i := range all {
		s := &all[i]
		ratios = append(ratios, stallRatio{s.resource, "some", s.ratio.Some}, stallRatio{s.resource, "full", s.ratio.Full})
	}
	labels := func(b []byte, r *stallRatio) []byte {
		return appendLabels(b, "resource", r.resource, "kind", r.kind)
	}
	return appendFamilies(b, ratios, labels, []family[stallRatio]{
		{
			"plimsoll_pressure_ratio", gauge, "Share of the window in which at least one task (some) or all tasks (full) waited for the resource (/proc/pressure).",
			func(b []byte, r *stallRatio) []byte { return appendOptFloat(b, r.ratio) },
		},
	})
}
