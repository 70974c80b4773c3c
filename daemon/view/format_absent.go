package view

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Absence is a missing measurement, with the reason.
type Absence struct {
	// Where it is missing: "node", a plugin, a device, a workload; or, where
	// several lack it for the same reason, "12 workloads".
	Where string
	// What is the measurement's name in the JSON of the snapshot.
	What   string
	Reason string
}

// Absences are all missing measurements with their reasons, the node's first.
func Absences(s *State) []Absence {
	var list absences
	n := s.Snapshot
	list.add("node", "nodes", n.Absent, n.Memory.Absent, pressureAbsences(n.Pressure.Totals.Absent), n.Network.Absent)
	for _, v := range s.Levels.Verdicts {
		if v.Absent != "" {
			list.add("plugin "+v.Plugin, "plugins", snapshot.Absent{"verdict": v.Absent})
		}
	}
	for i := range n.NUMANodes {
		list.add(fmt.Sprintf("NUMA node %d", n.NUMANodes[i].ID), "NUMA nodes", n.NUMANodes[i].Absent)
	}
	for i := range n.Disks {
		list.add("disk "+n.Disks[i].Name, "disks", n.Disks[i].Absent)
	}
	for i := range n.NICs {
		list.add("NIC "+n.NICs[i].Name, "NICs", n.NICs[i].Absent)
	}
	for i := range n.Filesystems {
		list.add("filesystem "+n.Filesystems[i].Mountpoint, "filesystems", n.Filesystems[i].Absent)
	}
	if n.Rootfs != nil {
		list.add("container runtime", "container runtimes", n.Rootfs.Absent)
	}
	for i := range n.Workloads {
		w := &n.Workloads[i]
		list.add("workload "+w.Cgroup, "workloads", w.Absent, pressureAbsences(w.Pressure.Absent))
	}
	return list.all()
}

// pressureAbsences prefixes the keys cpu, memory and io with "pressure.".
func pressureAbsences(absent snapshot.Absent) snapshot.Absent {
	var out snapshot.Absent
	for what, why := range absent {
		out.Because("pressure."+what, why)
	}
	return out
}

// absences in the order they were added. Those of one kind and reason are
// joined: on an old kernel 250 pods lack the same measurement.
type absences struct {
	list   []Absence
	counts []int
	plural []string
}

func (a *absences) add(where, plural string, of ...snapshot.Absent) {
	for _, absent := range of {
		for _, what := range slices.Sorted(maps.Keys(absent)) {
			a.join(Absence{Where: Printable(where), What: Printable(what), Reason: Printable(absent[what])}, plural)
		}
	}
}

func (a *absences) join(n Absence, plural string) {
	for i, was := range a.list {
		if a.plural[i] == plural && was.What == n.What && was.Reason == n.Reason {
			a.counts[i]++
			return
		}
	}
	a.list, a.counts, a.plural = append(a.list, n), append(a.counts, 1), append(a.plural, plural)
}

func (a *absences) all() []Absence {
	for i, count := range a.counts {
		if count > 1 {
			a.list[i].Where = fmt.Sprintf("%d %s", count, a.plural[i])
		}
	}
	return a.list
}

// FailedProbes are those of a sample's probes that failed.
func FailedProbes(all []snapshot.Probe) []snapshot.Probe {
	var list []snapshot.Probe
	for _, p := range all {
		if p.Error != "" {
			list = append(list, p)
		}
	}
	return list
}

// NotedProbes are those of a sample's probes that have a note, such as that they read
// less often than every tick.
func NotedProbes(all []snapshot.Probe) []snapshot.Probe {
	var list []snapshot.Probe
	for _, p := range all {
		if p.Note != "" {
			list = append(list, p)
		}
	}
	return list
}

// AbsentReason is why a measurement is absent, from the first key that has a reason.
func AbsentReason(absent snapshot.Absent, keys ...string) string {
	for _, k := range keys {
		if why, ok := absent[k]; ok {
			return Printable(why)
		}
	}
	return "not measured"
}
