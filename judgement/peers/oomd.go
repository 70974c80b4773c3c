package peers

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// oomd is oomd with the rules of its etc/desktop.json, which it ships, and the plugins
// as docs/core_plugins.md describes them: pressure_above 60 on memory for 30 s and
// memory_reclaim in the last 10 s, or swap_free below 15 %. The file watches
// user.slice and system.slice, whose pressure a recording does not have: here it is
// the root, which the plugins take as "/". Pressure is full, as its source reads it.
type oomd struct {
	full      averages
	most      float64       // of avg10, so far
	above     time.Duration // since when; 0: it is not
	reclaimed reclaimed
	moved     time.Duration // when pages were reclaimed last; 0: never
}

const (
	desktopPercent = 60
	desktopFor     = 30 * time.Second
	desktopReclaim = 10 * time.Second
	desktopSwap    = 15 // % that must be free
)

func desktop() judgement.Rule {
	return judgement.Rule{
		Name:      "oomd",
		Source:    "oomd 0.5, rules of its etc/desktop.json on the root cgroup: memory pressure_above 60 for 30 s with memory_reclaim in the last 10 s, or swap_free below 15 % (https://github.com/facebookincubator/oomd/blob/main/docs/core_plugins.md)",
		Resources: []plugins.Resource{plugins.Memory}, Highest: plugins.Hard, Unnamed: "not judged: a recording lacks memory.low of cgroups, by which it chooses",
		New: func(judgement.Label, []*snapshot.Sample) judgement.Judge { return &oomd{} },
	}
}

func (o *oomd) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	if !o.full.add(s.Monotonic, s.Pressure.Memory.Full) {
		return nil, lacksMemoryPSI
	}
	swap, ok1 := s.Memory.SwapTotalBytes.Get()
	free, ok2 := s.Memory.SwapFreeBytes.Get()
	if !ok1 || !ok2 {
		return nil, "SwapTotal or SwapFree of /proc/meminfo"
	}
	o.most = max(o.most, o.full.avg10)
	if o.reclaimed.more(s) {
		o.moved = s.Monotonic
	}
	switch {
	case o.full.avg10 <= desktopPercent:
		o.above = 0
	case o.above == 0:
		o.above = s.Monotonic
	}
	reclaims := o.moved > 0 && s.Monotonic-o.moved <= desktopReclaim
	pressed := o.above > 0 && s.Monotonic-o.above >= desktopFor && reclaims
	if pressed || swap > 0 && percent(free, swap) < desktopSwap {
		list = append(list, node(plugins.Memory, plugins.Hard))
	}
	return list, ""
}

// Near is how near it came.
func (o *oomd) Near() string { return fmt.Sprintf("avg10 at most %.0f %%", o.most) }
