package advise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// Action is what an agent without dry run would have done to one workload.
type Action struct {
	Name string `json:"name"`
	// Throttled is how often it would have been throttled, by what would have been limited:
	// the name of a disk, cpu or memory.
	Throttled map[string]uint64 `json:"throttled,omitempty"`
	// Evicted is how often a pod of that name would have been evicted, EvictedUnthrottled
	// without a throttle before on what it would have been evicted for.
	Evicted            uint64 `json:"evicted,omitempty"`
	EvictedUnthrottled uint64 `json:"evictedUnthrottled,omitempty"`
}

// actions counts what would have been done, by the name of a workload.
type actions struct {
	by      map[string]*Action
	omitted uint64
}

// maxWorkloads bounds the names: each run of a CronJob has a new one.
const maxWorkloads = 10_000

func (a *actions) watch(m replay.Moment) {
	for i := range m.Throttled {
		t := &m.Throttled[i]
		a.of(t.Name).Throttled[cmp.Or(t.Disk, string(throttle.Target{Memory: t.Memory}.Resource()))]++
	}
	if m.Decision == nil {
		return
	}
	for _, c := range m.Decision.Evicted() {
		of := a.of(c.Pod.Namespace + "/" + c.Pod.Name)
		of.Evicted++
		if !throttledBefore(m, &c) {
			of.EvictedUnthrottled++
		}
	}
}

// of is the action on a workload; beyond maxWorkloads one that is in no list.
func (a *actions) of(name string) *Action {
	if is := a.by[name]; is != nil {
		return is
	}
	is := &Action{Name: name, Throttled: map[string]uint64{}}
	switch {
	case len(a.by) == maxWorkloads:
		a.omitted++
		return is
	case a.by == nil:
		a.by = map[string]*Action{}
	}
	a.by[name] = is
	return is
}

// throttledBefore reports whether a pod that is evicted is throttled on what it is evicted
// for, or was and that did not help.
func throttledBefore(m replay.Moment, c *evict.Considered) bool {
	for t, of := range m.Throttles {
		its := slices.ContainsFunc(m.Snapshot.Workloads, func(w snapshot.WorkloadState) bool { return w.Cgroup == t.Cgroup && w.PodUID == c.Pod.UID })
		if its && relieves(t, m.Decision, c.For) && (of.InForce() || m.Snapshot.Time.Before(of.UselessUntil)) {
			return true
		}
	}
	return false
}

// relieves reports whether a throttle is on what a verdict is about: outer plugins do not
// tell their resource, but a disk in their scope.
func relieves(t throttle.Target, d *replay.Decision, of evict.VerdictRef) bool {
	if t.Disk == "" {
		return plugins.Resource(t.Resource()) == of.Resource
	}
	return slices.ContainsFunc(d.Causes, func(c evict.Cause) bool {
		return c.Plugin == of.Plugin && c.Scope == t.Disk && c.Level > plugins.None
	})
}

// sorted are the actions on all workloads, those that would have been evicted most often
// first.
func (a *actions) sorted() []Action {
	list := []Action{}
	for _, name := range slices.Sorted(maps.Keys(a.by)) {
		list = append(list, *a.by[name])
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
