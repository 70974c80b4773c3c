package snapshot

import (
	"slices"
	"strings"
)

// largest inserts the uses with the largest values of at least least into top,
// in descending order and up to its capacity, and counts the others.
func largest(top []*use, uses []use, least float64, of func(*use) float64) (_ []*use, more int) {
	for i := range uses {
		u := &uses[i]
		if of(u) < least {
			continue
		}
		at := len(top)
		for at > 0 && of(top[at-1]) < of(u) {
			at--
		}
		if len(top) == cap(top) {
			more++
			if at == len(top) {
				continue
			}
			top = top[:len(top)-1]
		}
		top = slices.Insert(top, at, u)
	}
	return top, more
}

// nesting subtracts a workload's use from the workload that contains it, whose
// counters include it.
type nesting struct {
	workloads []WorkloadState
	// holders are the workloads that contain others, and the index of their
	// uses. Pods are none, and mostly there are none at all.
	holders []holder
}

type holder struct{ workload, first, count int }

func nestingOf(workloads []WorkloadState) nesting {
	n := nesting{workloads: workloads}
	for i := range workloads {
		if w := &workloads[i].Workload; w.Kind != KindPod && n.holdsAny(i) {
			n.holders = append(n.holders, holder{workload: i})
		}
	}
	return n
}

// holdsAny reports whether another workload is below this one. In path order it
// follows, though not always at once: /a, /a-b, /a/b.
func (n nesting) holdsAny(i int) bool {
	of := n.workloads[i].Cgroup
	for _, w := range n.workloads[i+1:] {
		if !strings.HasPrefix(w.Cgroup, of) {
			return false
		}
		if isBelow(w.Cgroup, of) {
			return true
		}
	}
	return false
}

// isBelow reports whether a cgroup is below another one, which is not the root.
func isBelow(cgroup, of string) bool {
	return len(cgroup) > len(of) && cgroup[len(of)] == '/' && cgroup[:len(of)] == of
}

// subtract subtracts a workload's uses, the last in the list, from those of the
// workload that contains it. Those come earlier, since its path is shorter.
func (n nesting) subtract(workload int, uses []use, first int) {
	nearest := -1
	for i := range n.holders {
		h := &n.holders[i]
		switch of := n.workloads[h.workload].Cgroup; {
		case h.workload == workload:
			h.first, h.count = first, len(uses)-first
		case isBelow(n.workloads[workload].Cgroup, of):
			nearest = i // a later one has a longer path
		}
	}
	if nearest < 0 {
		return
	}
	from := n.holders[nearest]
	for _, u := range uses[first:] {
		for j := from.first; j < from.first+from.count; j++ {
			if h := &uses[j]; h.device == u.device {
				h.bytes, h.requests = max(0, h.bytes-u.bytes), max(0, h.requests-u.requests)
				h.waited = max(0, h.waited-u.waited)
			}
		}
	}
}
