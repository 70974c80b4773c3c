package probes

import (
	"slices"
	"strings"
)

// largest puts those with the most of something, and at least so much, into top
// in order, as many as fit, and counts the others.
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

// nesting takes what a workload does out of the workload that holds it, whose
// counters have it too.
type nesting struct {
	s *Snapshot
	// holders are the workloads that hold others, and where their uses are: of
	// pods none, and mostly none at all.
	holders []holder
}

type holder struct{ workload, first, count int }

func (s *Snapshot) nesting() nesting {
	n := nesting{s: s}
	for i := range s.Workloads {
		if w := &s.Workloads[i].Workload; w.Kind != KindPod && s.holdsAny(i) {
			n.holders = append(n.holders, holder{workload: i})
		}
	}
	return n
}

// holdsAny: those below come after, though not always at once: /a, /a-b, /a/b.
func (s *Snapshot) holdsAny(i int) bool {
	of := s.Workloads[i].Cgroup
	for _, w := range s.Workloads[i+1:] {
		if !strings.HasPrefix(w.Cgroup, of) {
			return false
		}
		if isBelow(w.Cgroup, of) {
			return true
		}
	}
	return false
}

// isBelow says whether a cgroup is below another. The root is not asked.
func isBelow(cgroup, of string) bool {
	return len(cgroup) > len(of) && cgroup[len(of)] == '/' && cgroup[:len(of)] == of
}

// leave is told of a workload's uses, which are the last ones. Those of the one
// that holds it came before: its path is shorter.
func (n nesting) leave(workload int, uses []use, first int) {
	nearest := -1
	for i := range n.holders {
		h := &n.holders[i]
		switch of := n.s.Workloads[h.workload].Cgroup; {
		case h.workload == workload:
			h.first, h.count = first, len(uses)-first
		case isBelow(n.s.Workloads[workload].Cgroup, of):
			nearest = i // later ones are longer
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
