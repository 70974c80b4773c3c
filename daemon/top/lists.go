package top

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// listTables divide the remaining lines between devices and workloads: up to a
// third for devices, the rest for workloads; unused lines go to the next list.
func listTables(s *view.State, roomy bool, height int) []table {
	heads := 3
	if roomy {
		heads *= 2 // each after an empty line
	}
	mounts, more := view.Filesystems(s.Snapshot.Filesystems, filesystemsShown)
	if !roomy || len(mounts) == 0 { // in a small frame the note of its probe reports a mount that hangs
		mounts = nil
	} else {
		heads += 2 + len(mounts)
	}
	free := max(3, height-heads)
	disks, _ := view.Disks(s.Snapshot.Disks)
	nics, _ := view.NICs(s.Snapshot.NICs)
	workloads := view.ByPressure(s.Snapshot.Workloads)
	unused := max(0, free-len(workloads))
	disksShown := view.BusiestDisks(disks, max(1, free/5, unused/2))
	nicsShown := view.BusiestNICs(nics, max(1, free/6, unused-len(disksShown)))
	room := max(1, free-len(disksShown)-len(nicsShown))
	tables := []table{
		workloadTable(workloads[:min(room, len(workloads))], len(workloads), s.WorkloadName),
		diskTable(disksShown, len(disks)),
		nicTable(nicsShown, len(nics)),
	}
	if len(mounts) > 0 {
		tables = append(tables, filesystemTable(s.Snapshot, mounts, len(mounts)+len(more)))
	}
	return tables
}

// headWithCount adds how many of all are shown, if not all are.
func headWithCount(what string, shown, all int) string {
	if shown == all {
		return what
	}
	return fmt.Sprintf("%s (%d of %d)", what, shown, all)
}

// device is its name and its kind.
func device(name, kind string) string { return strings.TrimSpace(name + " " + kind) }

func diskTable(disks []snapshot.DiskState, all int) table {
	t := table{head: []string{headWithCount("DISK", len(disks), all), "r/s", "w/s", "read", "written", "r await", "w await", "queue", "busy"}}
	for _, d := range disks {
		r, ok := d.Rates.Get()
		t.rows = append(t.rows, row{id: d.Name, cells: []cell{
			text(device(d.Name, view.DiskKind(&d.Disk))),
			rate(ok, r.ReadsPerSecond, view.Number), rate(ok, r.WritesPerSecond, view.Number),
			rate(ok, r.ReadBytesPerSecond, view.ByteRate), rate(ok, r.WrittenBytesPerSecond, view.ByteRate),
			value(r.ReadAwaitSeconds, view.Seconds), value(r.WriteAwaitSeconds, view.Seconds),
			rate(ok, r.QueueLength, view.Number), rate(ok, r.BusyRatio, view.Ratio),
		}})
	}
	return t
}

func nicTable(nics []snapshot.NICState, all int) table {
	t := table{head: []string{headWithCount("NIC", len(nics), all), "receive", "transmit", "speed", "used", "errors", "drops"}}
	for _, n := range nics {
		r, ok := n.Rates.Get()
		t.rows = append(t.rows, row{id: n.Name, cells: []cell{
			text(device(n.Name, view.NICKind(&n.NIC))),
			rate(ok, r.ReceiveBytesPerSecond, view.BitRate), rate(ok, r.TransmitBytesPerSecond, view.BitRate),
			value(n.SpeedBytesPerSecond, func(v uint64) string { return view.BitRate(float64(v)) }),
			value(utilization(r), view.Ratio),
			highlightIf(rate(ok, r.ErrorsPerSecond, perSecond), r.ErrorsPerSecond > 0), highlightIf(rate(ok, r.DropsPerSecond, perSecond), r.DropsPerSecond > 0),
		}})
	}
	return t
}

// utilization is the utilization of the busier direction.
func utilization(r snapshot.NICRates) snapshot.Opt[float64] {
	in, ok1 := r.ReceiveUtilizationRatio.Get()
	out, ok2 := r.TransmitUtilizationRatio.Get()
	if !ok1 && !ok2 {
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(max(in, out))
}

func workloadTable(shown []*snapshot.WorkloadState, all int, name func(*snapshot.WorkloadState) string) table {
	t := table{head: []string{headWithCount("WORKLOAD", len(shown), all), "cpu", "memory", "limit", "mem stall", "io stall", "hits"}}
	for _, w := range shown {
		r, _ := w.Rates.Get() // each part is absent without rates
		l := row{id: w.Cgroup, cells: []cell{
			text(name(w)),
			value(r.CPUCores, view.Number),
			value(w.WorkingSetBytes, size),
			value(w.MemoryLimitBytes, size),
			value(r.Pressure.Memory.Full, view.Ratio),
			value(r.Pressure.IO.Full, view.Ratio),
			value(r.LimitHits, view.Count),
		}}
		if view.AtOwnLimit(w) {
			l.cells[0].span = span{"own limit: " + l.cells[0].text, yellow}
		}
		t.rows = append(t.rows, l)
	}
	return t
}

func size(b uint64) string { return view.Bytes(float64(b)) }

// warningsShown below the lists of a small frame.
const warningsShown = 2

// warnings is what a reader must know to trust the numbers above.
func warnings(s *view.State, roomy bool) []line {
	list := allWarnings(s)
	most := warningsShown
	if roomy {
		most *= 4
	}
	if len(list) > most {
		more := len(list) - most + 1
		list = append(list[:most-1], line{{fmt.Sprintf("and %d more: see the status page", more), yellow}})
	}
	return append(list, absences(view.Absences(s), roomy)...)
}

func allWarnings(s *view.State) []line {
	var list []line
	if e := s.Agent.ConfigError; e != "" {
		list = append(list, line{{"configuration: ", yellow}, {"reload failed, the previous one stays in force: " + e, plain}})
	}
	for _, p := range view.FailedProbes(s.Snapshot.Probes) {
		list = append(list, line{{"probe " + p.Name + " failed: ", yellow}, {p.Error, plain}})
	}
	for _, n := range s.Agent.Restrictions {
		list = append(list, line{{"note: ", dim}, {n, plain}})
	}
	for _, p := range view.NotedProbes(s.Snapshot.Probes) {
		list = append(list, line{{"probe " + p.Name + ": ", dim}, {p.Note, plain}})
	}
	return list
}

// absences is one line in a small frame, so that the measured values fit.
func absences(all []view.Absence, roomy bool) []line {
	if len(all) == 0 {
		return nil
	}
	most := 1
	if roomy {
		most = warningsShown * 2
	}
	lead := fmt.Sprintf("unavailable (%d): ", len(all))
	var list []line
	for _, a := range all[:min(most, len(all))] {
		list = append(list, line{{lead, dim}, {a.Where + " " + a.What + ": " + a.Reason, plain}})
		lead = strings.Repeat(" ", len(lead))
	}
	return list
}
