package top

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// list is one of the lists between which Tab changes.
type list int

const (
	workloadList list = iota
	diskList
	nicList
	filesystemList
	verdictList
	noteList
	lists // their number
)

func (k list) name() string {
	return [lists]string{"workloads", "disks", "NICs", "filesystems", "verdicts", "notes"}[k]
}

// table of the list, in its own order.
func (k list) table(s *view.State) table {
	switch k {
	case diskList:
		disks, idle := view.Disks(s.Snapshot.Disks)
		return diskTable(append(disks, idle...), len(disks)+len(idle))
	case nicList:
		nics, idle := view.NICs(s.Snapshot.NICs)
		return nicTable(append(nics, idle...), len(nics)+len(idle))
	case filesystemList:
		return filesystemTable(s.Snapshot, s.Snapshot.Filesystems, len(s.Snapshot.Filesystems))
	case verdictList:
		return verdictTable(s)
	case noteList:
		return noteTable(s)
	case workloadList, lists:
	}
	return workloadTable(view.ByPressure(s.Snapshot.Workloads), len(s.Snapshot.Workloads), s.WorkloadName)
}

// size is the number of its rows without a filter.
func (k list) size(s *view.State) int {
	switch k {
	case diskList:
		return len(s.Snapshot.Disks)
	case nicList:
		return len(s.Snapshot.NICs)
	case filesystemList:
		return len(s.Snapshot.Filesystems)
	case verdictList:
		return len(s.Levels.Verdicts)
	case noteList:
		return len(notes(s))
	case workloadList, lists:
	}
	return len(s.Snapshot.Workloads)
}

func verdictID(v plugins.Verdict) string { return v.Plugin + " " + v.Scope }

// verdictTable has the highest levels first.
func verdictTable(s *view.State) table {
	t := table{head: []string{"VERDICT", "level", "for", "observed", "threshold"}}
	for _, v := range s.Levels.Verdicts {
		quantity := func(x float64) string { return view.Quantity(x, v.Unit) }
		age := s.Age(v.Since)
		observed, threshold := value(v.Observed, quantity), value(v.Threshold, quantity)
		observed.key /= threshold.key // quantities of several units are compared by their thresholds
		if v.Operator != "" && !v.Threshold.IsZero() {
			threshold.text = v.Operator + " " + threshold.text
		}
		level := cell{span{v.Level.String(), verdictStyle(v)}, float64(v.Level)}
		t.rows = append(t.rows, row{id: verdictID(v), cells: []cell{text(pluginName(v)), level, {span{view.Age(age), plain}, age.Seconds()}, observed, threshold}})
	}
	t.sort(1, false)
	return t
}

// notes are all warnings and missing measurements.
func notes(s *view.State) []line {
	list := allWarnings(s)
	for _, u := range s.UnjudgedText() {
		list = append(list, line{{"not judged: ", bold}, {u, plain}})
	}
	for _, a := range view.Absences(s) {
		list = append(list, line{{a.Where + " ", dim}, {a.What + ": " + a.Reason, plain}})
	}
	return list
}

func noteTable(s *view.State) table {
	t := table{head: []string{"NOTE"}}
	for _, n := range notes(s) {
		var all strings.Builder
		for _, part := range n {
			all.WriteString(part.text)
		}
		t.rows = append(t.rows, row{id: all.String(), cells: []cell{text(all.String())}})
	}
	return t
}

// table of the list that is shown, filtered and sorted.
func (s Screen) table() table {
	p := s.places[s.list]
	t := s.list.table(s.state).filter(p.filter)
	t.middle = s.list != noteList // a sentence is cut at its end
	if p.column > 0 {
		t.sort(p.column-1, p.reverse)
	} else if p.reverse {
		slices.Reverse(t.rows)
	}
	return t
}
