package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// sourceDir returns the directory (an index in node.in) of a source's files;
// without one, the value name is absent.
func (t *trackedWorkload) sourceDir(of fileGroup, from source, name string) (int, bool) {
	switch {
	case from.dir < 0:
		t.recordAbsent(of, name, t.c.reasons.internJoined("no ", from.hierarchy, " hierarchy is mounted"))
		return 0, false
	case t.in[from.dir].inode != 0:
		return from.dir, true
	case errors.Is(t.in[from.dir].err, fs.ErrNotExist):
		t.recordAbsent(of, name, t.c.reasons.internJoined("no cgroup of this path in the ", from.hierarchy, " hierarchy"))
	default:
		t.recordAbsent(of, name, fmt.Sprintf("the %s hierarchy: %v", from.hierarchy, t.in[from.dir].err))
	}
	return 0, false
}

// absence is the reason why a value of a group is absent.
type absence struct {
	of        fileGroup
	what, why string
}

// beginGroup starts the reading of a group: its earlier absences no longer hold.
func (t *trackedWorkload) beginGroup(of fileGroup) { t.begun |= 1 << of }

func (t *trackedWorkload) recordAbsent(of fileGroup, what, why string) {
	if why != "" {
		t.retryGroup(of)
		t.c.found = append(t.c.found, absence{of, what, why})
	}
}

// publishAbsent copies the reasons to the workload. It makes new maps only if a
// reason changed, since Samples share them.
func (t *trackedWorkload) publishAbsent() {
	begun, found := t.begun, t.c.found
	t.begun, t.c.found = 0, found[:0]
	if len(found) == 0 && len(t.absent) == 0 {
		return
	}
	for _, a := range t.absent {
		if begun&(1<<a.of) == 0 {
			found = append(found, a)
		}
	}
	slices.SortStableFunc(found, func(a, b absence) int { return int(a.of) - int(b.of) })
	t.c.found = found[:0]
	if slices.Equal(found, t.absent) {
		return
	}
	t.absent = append(t.absent[:0], found...)
	t.w.Absent, t.w.Pressure.Absent = nil, nil
	for _, a := range t.absent {
		to := &t.w.Absent
		if a.of.isStall() {
			to = &t.w.Pressure.Absent
		}
		to.Because(a.what, a.why)
	}
}
