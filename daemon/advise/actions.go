package advise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// Action is what an agent without dry run would have done to one workload.
type Action struct {
	Name string `json:"name"`
	// Throttled is how often it would have been throttled, by what would have been limited:
	// the name of a disk, cpu or memory.
	Throttled map[string]uint64 `json:"throttled,omitempty"`
	// Evicted is how often a pod of that name would have been evicted, EvictedUnthrottled
	// without having been throttled before.
	Evicted            uint64 `json:"evicted,omitempty"`
	EvictedUnthrottled uint64 `json:"evictedUnthrottled,omitempty"`
}

// actions are the workloads of a replay to which anything would have been done, those that
// would have been evicted most often first.
func actions(r *replay.Report) []Action {
	by := map[string]*Action{}
	of := func(name string) *Action {
		if by[name] == nil {
			by[name] = &Action{Name: name, Throttled: map[string]uint64{}}
		}
		return by[name]
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		for _, c := range d.Evicted() {
			a := of(c.Pod.Namespace + "/" + c.Pod.Name)
			a.Evicted++
			if !slices.ContainsFunc(r.Throttled, func(t replay.Throttling) bool { return t.Name == a.Name && t.OffsetSeconds <= d.OffsetSeconds }) {
				a.EvictedUnthrottled++
			}
		}
	}
	for _, t := range r.Throttled {
		limited := cmp.Or(t.Disk, string(throttle.Target{Memory: t.Memory}.Resource()))
		of(t.Name).Throttled[limited]++
	}
	list := []Action{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, *by[name])
	}
	slices.SortStableFunc(list, func(a, b Action) int { return cmp.Compare(b.Evicted, a.Evicted) })
	return list
}

// throttled is how often by what, for people.
func (a *Action) throttled() string {
	var parts []string
	for _, limited := range slices.Sorted(maps.Keys(a.Throttled)) {
		parts = append(parts, fmt.Sprintf("%d × %s", a.Throttled[limited], limited))
	}
	return strings.Join(parts, ", ")
}

// actionRows is the table of actions.
func (a *Advice) actionRows() [][]string {
	rows := [][]string{{"WORKLOAD", "THROTTLED", "EVICTED", "NOT THROTTLED BEFORE"}}
	for i := range a.Actions[:min(maxLines, len(a.Actions))] {
		of := &a.Actions[i]
		rows = append(rows, []string{of.Name, of.throttled(), view.Count(of.Evicted), view.Count(of.EvictedUnthrottled)})
	}
	if more := len(a.Actions) - maxLines; more > 0 {
		rows = append(rows, []string{fmt.Sprintf("and %d more", more)})
	}
	return rows
}
