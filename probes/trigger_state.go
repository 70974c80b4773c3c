package probes

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Trigger is an armed PSI trigger.
type Trigger struct {
	// Cgroup is empty for the whole host.
	Cgroup   string
	Resource string // memory or io
	// Stall and Window as the kernel accepted them: without CAP_SYS_RESOURCE
	// windows are multiples of 2 s.
	Stall, Window time.Duration
}

// TriggerState has the armed triggers and how often they fired.
type TriggerState struct {
	Armed []Trigger
	// Fired counts by resource since the start, also across re-arming.
	Fired map[string]uint64
	// Absent has the reason why nothing is armed, by places such as "host
	// memory" or "/kubepods.slice io". A cgroup that does not exist has no
	// entry.
	Absent snapshot.Absent
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

// Reasons returns a line for each reason why triggers are not armed, with the
// places it applies to. It replaces a reason that is among told with instead.
func (s *TriggerState) Reasons(told snapshot.Absent, instead string) []string {
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
