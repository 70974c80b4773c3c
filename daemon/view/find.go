package view

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// WorkloadName is a workload's display name: of a pod that the API server lists its
// namespace and name.
func (s *State) WorkloadName(w *snapshot.WorkloadState) string {
	p := snapshot.Party{Name: w.Title(), PodUID: w.PodUID}
	s.Cluster.resolveName(&p)
	return p.Name
}

// FindWorkloads are the workloads with this cgroup, or else with this display name or
// pod UID, which several may have.
func (s *State) FindWorkloads(name string) []*snapshot.WorkloadState {
	var list []*snapshot.WorkloadState
	for i := range s.Snapshot.Workloads {
		w := &s.Snapshot.Workloads[i]
		if w.Cgroup == name {
			return []*snapshot.WorkloadState{w}
		}
		if name != "" && (w.PodUID == name || w.Name == name || s.WorkloadName(w) == name) {
			list = append(list, w)
		}
	}
	return list
}

// FindDevices are the disks and the NICs of this name.
func (s *State) FindDevices(name string) (disks []*snapshot.DiskState, nics []*snapshot.NICState) {
	for i := range s.Snapshot.Disks {
		if d := &s.Snapshot.Disks[i]; d.Name == name {
			disks = append(disks, d)
		}
	}
	for i := range s.Snapshot.NICs {
		if n := &s.Snapshot.NICs[i]; n.Name == name {
			nics = append(nics, n)
		}
	}
	return disks, nics
}

// DiskName is the name of the disk with this number, or the number.
func (s *State) DiskName(number string) (name string, known bool) {
	for i := range s.Snapshot.Disks {
		if s.Snapshot.Disks[i].Number == number {
			return s.Snapshot.Disks[i].Name, true
		}
	}
	return number, false
}

// Found is what a search found.
type Found struct {
	Workloads   []*snapshot.WorkloadState
	Disks       []*snapshot.DiskState
	NICs        []*snapshot.NICState
	Filesystems []*snapshot.Filesystem
	Decisions   []evict.Decision
}

// Search finds the workloads, devices and decisions whose names or reasons contain a
// text, in upper or lower case.
func (s *State) Search(text string, decisions []evict.Decision) Found {
	text = strings.ToLower(text)
	has := func(values ...string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return strings.Contains(strings.ToLower(v), text) })
	}
	var f Found
	for _, w := range ByPressure(s.Snapshot.Workloads) {
		if has(s.WorkloadName(w), w.Cgroup, w.PodUID) {
			f.Workloads = append(f.Workloads, w)
		}
	}
	for i := range s.Snapshot.Disks {
		if d := &s.Snapshot.Disks[i]; has(d.Name, DiskKind(&d.Disk)) {
			f.Disks = append(f.Disks, d)
		}
	}
	for i := range s.Snapshot.NICs {
		if n := &s.Snapshot.NICs[i]; has(n.Name, NICKind(&n.NIC)) {
			f.NICs = append(f.NICs, n)
		}
	}
	for i := range s.Snapshot.Filesystems {
		if m := &s.Snapshot.Filesystems[i]; has(m.Mountpoint, m.Device) {
			f.Filesystems = append(f.Filesystems, m)
		}
	}
	for i := range decisions {
		if has(decisionTexts(&decisions[i])...) {
			f.Decisions = append(f.Decisions, decisions[i])
		}
	}
	return f
}

// decisionTexts are the texts by which a decision is found.
func decisionTexts(d *evict.Decision) []string {
	list := []string{d.ID, string(d.Code), d.Reason}
	for _, c := range d.Causes {
		list = append(list, CauseTitle(c), c.Plugin, c.Scope, c.Reason)
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		list = append(list, c.Name, c.Cgroup, c.PodUID, c.Reason)
		if c.Pod != nil {
			list = append(list, c.Pod.Namespace+"/"+c.Pod.Name)
		}
	}
	return list
}

// DecisionsAbout a workload: those in which it is a candidate, a culprit or a sufferer.
// They are found by its cgroup, or by name once that no longer exists.
func DecisionsAbout(list []evict.Decision, cgroup, name string) []evict.Decision {
	is := func(c, n string) bool { return c == cgroup && c != "" || n == name && n != "" }
	return slices.Collect(func(yield func(evict.Decision) bool) {
		for i := range list {
			if decisionNames(&list[i], is) && !yield(list[i]) {
				return
			}
		}
	})
}

func decisionNames(d *evict.Decision, is func(cgroup, name string) bool) bool {
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if is(c.Cgroup, c.Name) || c.Pod != nil && is("", c.Pod.Namespace+"/"+c.Pod.Name) {
			return true
		}
	}
	for _, c := range d.Causes {
		if c.Contention == nil {
			continue
		}
		if slices.ContainsFunc(c.Contention.Culprits, func(p snapshot.Culprit) bool { return is(p.Cgroup, p.Name) }) ||
			slices.ContainsFunc(c.Contention.Sufferers, func(p snapshot.Sufferer) bool { return is(p.Cgroup, p.Name) }) {
			return true
		}
	}
	return false
}

// DecisionsOn a device: those that it caused.
func DecisionsOn(list []evict.Decision, device string) []evict.Decision {
	var on []evict.Decision
	for i := range list {
		if slices.ContainsFunc(list[i].Causes, func(c evict.Cause) bool { return c.Scope == device }) {
			on = append(on, list[i])
		}
	}
	return on
}

// Knees of a disk, for the directions of which it is known.
func (s *State) Knees(device string) (list []Knee) {
	c := s.Levels.Capacity(device)
	if c == nil {
		return nil
	}
	for _, d := range []struct {
		name        string
		now, before plugins.Carry
	}{{"reading", c.Read, c.Before.Read}, {"writing", c.Write, c.Before.Write}} {
		if d.now.IOPS <= 0 {
			continue
		}
		k := Knee{Direction: d.name, Text: carries(d.now), How: "seen since " + Stamp(c.Since) + " UTC"}
		if d.now.AwaitSeconds > 0 {
			k.How = "at " + Seconds(d.now.AwaitSeconds) + ", " + k.How
		}
		if d.before.IOPS > 0 {
			k.How += "; until then " + carries(d.before)
		}
		list = append(list, k)
	}
	return list
}
