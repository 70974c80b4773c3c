package view

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// Absence is something that was not measured, and why.
type Absence struct {
	// Where it was missed: "node", or a plugin, a device, a workload; or, where
	// several miss it for one reason, "12 workloads".
	Where string
	// What is its name in the JSON of the snapshot.
	What string
	Why  string
}

// Absences is all that the state lacks, with its reasons: of the node first.
func (s *State) Absences() []Absence {
	var list absences
	n := s.Snapshot
	list.add("node", "nodes", n.Absent, n.Memory.Absent, ofPressure(n.Pressure.Totals.Absent), n.Network.Absent)
	for _, v := range s.Levels.Verdicts {
		if v.Absent != "" {
			list.add("plugin "+v.Plugin, "plugins", probes.Absent{"verdict": v.Absent})
		}
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
	for i := range n.Workloads {
		w := &n.Workloads[i]
		list.add("workload "+w.Cgroup, "workloads", w.Absent, ofPressure(w.Pressure.Absent))
	}
	return list.all()
}

// ofPressure says of what cpu, memory and io are missed.
func ofPressure(absent probes.Absent) probes.Absent {
	var out probes.Absent
	for what, why := range absent {
		out.Because("pressure."+what, why)
	}
	return out
}

// absences in the order they were added, those of one kind with one reason
// joined: 250 pods on an old kernel lack the same thing.
type absences struct {
	list   []Absence
	counts []int
	plural []string
}

func (a *absences) add(where, plural string, of ...probes.Absent) {
	for _, absent := range of {
		for _, what := range slices.Sorted(maps.Keys(absent)) {
			a.one(Absence{Where: Printable(where), What: Printable(what), Why: Printable(absent[what])}, plural)
		}
	}
}

func (a *absences) one(n Absence, plural string) {
	for i, was := range a.list {
		if a.plural[i] == plural && was.What == n.What && was.Why == n.Why {
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

// FailedProbes are the readers that failed in the newest sample.
func (s *State) FailedProbes() []probes.Probe {
	var list []probes.Probe
	for _, p := range s.Snapshot.Probes {
		if p.Error != "" {
			list = append(list, p)
		}
	}
	return list
}

// NotedProbes are the readers of the newest sample of which there is something
// to know, such as that they read less often than every tick.
func (s *State) NotedProbes() []probes.Probe {
	var list []probes.Probe
	for _, p := range s.Snapshot.Probes {
		if p.Note != "" {
			list = append(list, p)
		}
	}
	return list
}

// Reason is why a measurement is absent: that of the first key that has one.
func Reason(absent probes.Absent, keys ...string) string {
	for _, k := range keys {
		if why, ok := absent[k]; ok {
			return Printable(why)
		}
	}
	return "not measured"
}
