package history

import (
	"slices"
	"strings"
	"time"
)

// PastWorkload is a workload of which values are kept. It may still be there.
type PastWorkload struct {
	Cgroup string
	// Title is its name; that of a pod begins with its namespace. PodUID is empty for
	// one that is no pod.
	Title, PodUID string
	// LastSeen is the end of the last step with values of it.
	LastSeen time.Time
}

// Past are the workloads that a name means, as for Workload, the latest first.
func (s *Store) Past(name string) []PastWorkload {
	if s == nil || name == "" { // no title is the name of none
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return pastOf(s.workloads(name))
}

// Search are the workloads of whose names one contains a text, in upper or lower case,
// the latest first.
func (s *Store) Search(text string) []PastWorkload {
	if s == nil {
		return nil
	}
	text = strings.ToLower(text)
	has := func(name string) bool { return strings.Contains(strings.ToLower(name), text) }
	s.mu.Lock()
	defer s.mu.Unlock()
	return pastOf(slices.DeleteFunc(s.of(kindWorkload), func(one *series) bool {
		return !has(one.name) && !has(one.title) && !has(one.pod)
	}))
}

func pastOf(list []*series) []PastWorkload {
	past := make([]PastWorkload, len(list))
	for i, one := range list {
		past[i] = PastWorkload{one.name, one.title, one.pod, time.Unix((one.seen+1)*int64(fineStep.Seconds()), 0).UTC()}
	}
	slices.SortStableFunc(past, func(a, b PastWorkload) int { return b.LastSeen.Compare(a.LastSeen) })
	return past
}
