package peers

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// earlyoom is earlyoom 1.7 (of Debian 12) with its defaults (earlyoom(1)): SIGTERM to
// the process with the highest oom_score when available memory and free swap, if
// there is any, are both at or below 10 % of their totals, SIGKILL at 5 %. It looks up
// to ten times a second, a recording has a sample each second. Since 1.8 the memory
// total is MemAvailable + AnonPages, which a recording does not have.
type earlyoom struct {
	least float64 // % of memory available, so far
	begun bool
}

const earlyoomPercent = 10

func earlyOOM() judgement.Rule {
	return judgement.Rule{
		Name:      "earlyoom",
		Source:    "earlyoom 1.7 with its defaults: a process is ended when at most 10 % of memory is available and at most 10 % of swap is free (https://github.com/rfjakob/earlyoom/blob/v1.7/MANPAGE.md)",
		Resources: []plugins.Resource{plugins.Memory}, Highest: plugins.Hard, Unnamed: "not judged: a recording lacks oom_score of processes, by which it chooses",
		New: func(judgement.Label, []*snapshot.Sample) judgement.Judge { return &earlyoom{} },
	}
}

func (e *earlyoom) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	total, ok1 := s.Memory.TotalBytes.Get()
	available, ok2 := s.Memory.AvailableBytes.Get()
	swap, ok3 := s.Memory.SwapTotalBytes.Get()
	free, ok4 := s.Memory.SwapFreeBytes.Get()
	if !ok1 || !ok2 || !ok3 || !ok4 || total == 0 {
		return nil, "MemTotal, MemAvailable, SwapTotal or SwapFree of /proc/meminfo"
	}
	memory := percent(available, total)
	if !e.begun || memory < e.least {
		e.least, e.begun = memory, true
	}
	if memory <= earlyoomPercent && (swap == 0 || percent(free, swap) <= earlyoomPercent) {
		list = append(list, node(plugins.Memory, plugins.Hard))
	}
	return list, ""
}

// Near is how near it came.
func (e *earlyoom) Near() string { return fmt.Sprintf("available at least %.0f %%", e.least) }

func percent(part, of uint64) float64 { return 100 * float64(part) / float64(of) }
