package probes

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Trigger is one that is armed.
type Trigger struct {
	// Cgroup is empty for the whole host.
	Cgroup   string
	Resource string // memory or io
	// Stall and Window as the kernel took them: without CAP_SYS_RESOURCE it
	// knows no windows but multiples of 2 s.
	Stall, Window time.Duration
}

// TriggerState is what is armed, and what came of it.
type TriggerState struct {
	Armed []Trigger
	// Fired counts by resource since the start, whatever was armed anew since.
	Fired map[string]uint64
	// Absent tells for places such as "host memory" or "/kubepods.slice io" why
	// nothing is armed there. A cgroup that does not exist is no such place.
	Absent Absent
}

// Cgroups that have triggers, sorted.
func (s *TriggerState) Cgroups() []string {
	set := map[string]bool{}
	for _, t := range s.Armed {
		set[t.Cgroup] = true
	}
	delete(set, "") // the host
	return slices.Sorted(maps.Keys(set))
}

// Without has a line for each reason why something is not armed, after the
// places that it keeps from it. In the place of a reason that is among those
// told elsewhere, it says instead.
func (s *TriggerState) Without(told Absent, instead string) []string {
	where := map[string][]string{}
	for _, place := range slices.Sorted(maps.Keys(s.Absent)) {
		why := s.Absent[place]
		if slices.Contains(slices.Collect(maps.Values(told)), why) {
			why = instead
		}
		where[why] = append(where[why], place)
	}
	var lines []string
	for _, why := range slices.Sorted(maps.Keys(where)) {
		lines = append(lines, strings.Join(where[why], ", ")+": "+why)
	}
	return lines
}
