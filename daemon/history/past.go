package history

import (
	"slices"
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

func pastOf(list []*series) []PastWorkload {
	past := make([]PastWorkload, len(list))
	for i, one := range list {
		past[i] = PastWorkload{one.name, one.title, one.pod, time.Unix((one.seen+1)*int64(fineStep.Seconds()), 0).UTC()}
	}
	slices.SortStableFunc(past, func(a, b PastWorkload) int { return b.LastSeen.Compare(a.LastSeen) })
	return past
}
