package web

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

type pagePressure struct {
	Name, What string
	Some, Full cell
	Spark      sparkline
}

func pagePressures(s *view.State) []pagePressure {
	n, trend := s.Snapshot, s.Snapshot.Trend()
	card := func(name, key, what string, r snapshot.StallRatio, of func(snapshot.TrendPoint) snapshot.StallRatio) pagePressure {
		p := pagePressure{
			Name: name, What: what,
			Some: cellOf(r.Some, view.Ratio, merged(n.Pressure.Totals.Absent, n.Absent), key, "rates"),
			Full: cellOf(r.Full, view.Ratio, merged(n.Pressure.Totals.Absent, n.Absent), key, "rates"), Spark: newSparkline(trend, of),
		}
		if key == "cpu" {
			p.Full = cell{Text: view.Unknown, Why: "the kernel defines no PSI full for the CPU of a whole node"}
		}
		return p
	}
	cpu := "busy " + view.Optional(n.CPU.BusyRatio, view.Ratio) + " of " + view.Optional(n.CPU.Online, func(c int) string { return view.Count(uint64(c)) }) + " CPUs"
	return []pagePressure{
		card("CPU", "cpu", cpu, n.Pressure.CPU, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.CPU }),
		card("Memory", "memory", "tasks that wait for memory", n.Pressure.Memory, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.Memory }),
		card("I/O", "io", "tasks that wait for a disk", n.Pressure.IO, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.IO }),
	}
}

// merged is the reasons of several sources; the first one wins.
func merged(list ...snapshot.Absent) snapshot.Absent {
	var out snapshot.Absent
	for _, absent := range list {
		for what, why := range absent {
			if _, known := out[what]; !known {
				out.Because(what, why)
			}
		}
	}
	return out
}

func memoryFacts(n *snapshot.Snapshot) []fact {
	m, absent := n.Memory, merged(n.Memory.Absent, n.Absent)
	perSecond := func(v float64) string { return view.Number(v) + "/s" }
	scans, _ := m.ScansPerSecond.Get()
	kills, _ := m.MemoryRates.OOMKills.Get() // absent: nothing to highlight
	list := []fact{
		{
			"Available", cellOf(m.AvailableBytes, wholeNumber(view.Bytes), absent, "availableBytes", "meminfo"),
			"of " + view.Optional(m.TotalBytes, wholeNumber(view.Bytes)) + " (" + view.Optional(m.AvailableRatio, view.Ratio) + ")",
		},
		{"Reclaim scans", highlightIf(cellOf(m.ScansPerSecond, perSecond, absent, "vmstat", "rates"), scans > 0), "pages, global reclaim only"},
		{"Refaults", cellOf(m.RefaultsPerSecond, perSecond, absent, "vmstat", "rates"), "reclaimed pages read again"},
		{
			"OOM kills", highlightIf(cellOf(m.MemoryRates.OOMKills, view.Count, absent, "vmstat", "rates"), kills > 0),
			"in the window, " + view.Optional(m.Memory.OOMKills, view.Count) + " since boot",
		},
		swapFact(m.Memory, absent),
		{"Swap-ins", cellOf(m.SwapInsPerSecond, perSecond, absent, "vmstat", "rates"), "pages"},
	}
	if e, shrinks := n.Exhaustion.Memory().Get(); shrinks {
		list = append(list, fact{"Exhausted in", highlightIf(cell{Text: "about " + e.About()}, view.ExhaustedSoon(e)), e.Range()})
	}
	return list
}

func swapFact(m snapshot.Memory, absent snapshot.Absent) fact {
	if total, ok := m.SwapTotalBytes.Get(); ok && total == 0 {
		return fact{"Swap", cell{Text: "none"}, "this node has no swap"}
	}
	free := cellOf(m.SwapFreeBytes, wholeNumber(view.Bytes), absent, "swapFreeBytes", "meminfo")
	return fact{"Swap free", free, "of " + view.Optional(m.SwapTotalBytes, wholeNumber(view.Bytes))}
}

func networkFacts(n *snapshot.Snapshot) []fact {
	w, absent := n.Network, merged(n.Network.Absent, n.Absent)
	absent.Because("idle", "no segment was sent")
	perSecond := func(v float64) string { return view.Number(v) + "/s" }
	return []fact{
		{"TCP retransmits", cellOf(w.TCPRetransmitRatio, view.Ratio, absent, "tcp", "tcpRetransmitsTotal", "rates", "idle"), "of segments sent"},
		{"Listen drops", cellOf(w.ListenDropsPerSecond, perSecond, absent, "listenDropsTotal", "rates"), "connections dropped at full listen queues"},
		{"Receive squeezed", cellOf(w.SoftnetSqueezedPerSecond, perSecond, absent, "softnetSqueezedTotal", "rates"), "softirq budget used up; normal on busy nodes"},
	}
}

type diskRow struct {
	ID, Name, Kind                                                       string // ID is the name as it is, for links
	ReadIOPS, WriteIOPS, Read, Write, ReadAwait, WriteAwait, Queue, Busy cell
}

func diskRows(s *view.State, disks []snapshot.DiskState) []diskRow {
	rows := make([]diskRow, 0, len(disks))
	for _, d := range disks {
		r, ok := d.Rates.Get()
		absent := merged(d.Absent, s.Snapshot.Absent)
		absent.Because("idle", "no request completed")
		rate := rateCell(ok, absent)
		rows = append(rows, diskRow{
			ID: d.Name, Name: view.Printable(d.Name), Kind: diskKind(&d.Disk),
			ReadIOPS: rate(r.ReadsPerSecond, view.Number), WriteIOPS: rate(r.WritesPerSecond, view.Number),
			Read: rate(r.ReadBytesPerSecond, view.ByteRate), Write: rate(r.WrittenBytesPerSecond, view.ByteRate),
			ReadAwait: cellOf(r.ReadAwaitSeconds, view.Seconds, absent, "rates", "idle"), WriteAwait: cellOf(r.WriteAwaitSeconds, view.Seconds, absent, "rates", "idle"),
			Queue: rate(r.QueueLength, view.Number), Busy: rate(r.BusyRatio, view.Ratio),
		})
	}
	return rows
}

// diskKind is the kind of a disk, its size and whether it is rotational, as far
// as known.
func diskKind(d *snapshot.Disk) string {
	words := []string{view.DiskKind(d), view.Optional(d.SizeBytes, wholeNumber(view.Size))}
	if rotational, ok := d.Rotational.Get(); ok && rotational {
		words = append(words, "rotational")
	} else if ok {
		words = append(words, "not rotational")
	}
	return strings.TrimPrefix(strings.Join(words, " · "), " · ")
}

// rateCell formats the rates of one device, which are all present or all
// absent.
func rateCell(ok bool, absent snapshot.Absent) func(float64, func(float64) string) cell {
	return func(v float64, format func(float64) string) cell {
		if !ok {
			return cellOf(snapshot.Opt[float64]{}, format, merged(absent, snapshot.Absent{"new": "it is new, or its counters were reset"}), "rates", "new")
		}
		return cell{Text: format(v)}
	}
}

type nicRow struct {
	ID, Name, Kind                                                     string
	Receive, Transmit, ReceiveUsed, TransmitUsed, Speed, Errors, Drops cell
}

func nicRows(s *view.State, nics []snapshot.NICState) []nicRow {
	rows := make([]nicRow, 0, len(nics))
	for _, n := range nics {
		r, ok := n.Rates.Get()
		absent := merged(n.Absent, s.Snapshot.Absent)
		rate := rateCell(ok, absent)
		perSecond := func(v float64) string { return view.Number(v) + "/s" }
		used := func(o snapshot.Opt[float64]) cell {
			return cellOf(o, view.Ratio, absent, "speedBytesPerSecond", "rates")
		}
		rows = append(rows, nicRow{
			ID: n.Name, Name: view.Printable(n.Name), Kind: view.NICKind(&n.NIC),
			Receive: rate(r.ReceiveBytesPerSecond, view.BitRate), Transmit: rate(r.TransmitBytesPerSecond, view.BitRate),
			ReceiveUsed: used(r.ReceiveUtilizationRatio), TransmitUsed: used(r.TransmitUtilizationRatio),
			Speed:  cellOf(n.SpeedBytesPerSecond, wholeNumber(view.BitRate), absent, "speedBytesPerSecond"),
			Errors: highlightIf(rate(r.ErrorsPerSecond, perSecond), r.ErrorsPerSecond > 0), Drops: highlightIf(rate(r.DropsPerSecond, perSecond), r.DropsPerSecond > 0),
		})
	}
	return rows
}

type workloadRow struct {
	ID, Name, Kind, Where, OwnLimit                     string
	CPU, Memory, Limit, MemoryStall, IOStall, LimitHits cell
}

// workloadsShown, those with the highest pressure.
const workloadsShown = 15

func workloadRows(s *view.State) (rows []workloadRow, hidden int) {
	list := view.ByPressure(s.Snapshot.Workloads)
	shown := min(workloadsShown, len(list))
	for _, w := range list[:shown] {
		rows = append(rows, newWorkload(s, w))
	}
	return rows, len(list) - shown
}

func newWorkload(s *view.State, w *snapshot.WorkloadState) workloadRow {
	r, _ := w.Rates.Get() // each part is absent without rates
	rest := snapshot.Absent{"none": "no limit is set"}
	if w.Rates.IsZero() {
		rest.Because("rates", "it is new, or its counters were reset")
	}
	absent, stalls := merged(w.Absent, s.Snapshot.Absent, rest), merged(w.Pressure.Absent, s.Snapshot.Absent, rest)
	if why, ok := w.Absent["pressure"]; ok {
		stalls.Because("rates", why)
	}
	row := workloadRow{
		ID: w.Cgroup, Name: view.Printable(s.WorkloadName(w)), Kind: view.Printable(string(w.Kind)), Where: view.Printable(w.Cgroup),
		CPU:         cellOf(r.CPUCores, view.Number, absent, "cpuMicrosecondsTotal", "rates"),
		Memory:      cellOf(w.WorkingSetBytes, wholeNumber(view.Bytes), absent, "memoryBytes", "inactiveFileBytes", "memory"),
		Limit:       cellOf(w.MemoryLimitBytes, wholeNumber(view.Bytes), absent, "memoryLimitBytes", "memory", "none"),
		MemoryStall: stallCell(r.Pressure.Memory, stalls, "memory"), IOStall: stallCell(r.Pressure.IO, stalls, "io"),
		LimitHits: cellOf(r.LimitHits, view.Count, absent, "limitHitsTotal", "memory", "rates"),
	}
	if view.AtOwnLimit(w) {
		row.OwnLimit = view.OwnLimitText
	}
	return row
}

// highlightStall is the stall of a workload from which its cell is highlighted.
const highlightStall = 0.05

func stallCell(r snapshot.StallRatio, absent snapshot.Absent, key string) cell {
	full, _ := r.Full.Get() // absent: nothing to highlight
	return highlightIf(cellOf(r.Full, view.Ratio, absent, key, "rates"), full >= highlightStall)
}
