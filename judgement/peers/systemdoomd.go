package peers

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// systemdOomd is systemd-oomd 252 with its defaults, watching the root slice (oomd.conf(5),
// systemd.resource-control(5): ManagedOOMMemoryPressure=kill, ManagedOOMSwap=kill on -.slice).
// It kills when memory full avg10 has been above DefaultMemoryPressureLimit= 60 %
// for DefaultMemoryPressureDurationSec= 30 s and there was reclaim in the last 30 s
// (RECLAIM_DURATION_USEC, src/oom/oomd-manager.c), or when of swap and of memory more than
// SwapUsedLimit= 90 % is used. A recording has no pgscan of the root cgroup, which
// counts reclaim at limits too: any page that was scanned or taken back counts.
type systemdOomd struct {
	full      averages
	most      float64       // of avg10, so far
	above     time.Duration // since when; 0: it is not
	reclaimed reclaimed
	moved     time.Duration // when pages were reclaimed last; 0: never
}

const (
	oomdReclaim  = 30 * time.Second
	oomdPressure = 60 // %
	oomdFor      = 30 * time.Second
	oomdUsed     = 0.90
)

func systemd() judgement.Rule {
	return judgement.Rule{
		Name:      "systemd-oomd",
		Source:    "systemd-oomd 252 with its defaults, watching the root slice: memory full avg10 above 60 % for 30 s with reclaim in the last 30 s, or more than 90 % of swap and of memory used (https://www.freedesktop.org/software/systemd/man/252/oomd.conf.html)",
		Resources: []plugins.Resource{plugins.Memory}, Highest: plugins.Hard, Unnamed: "not judged: a recording lacks pgscan of cgroups, by which it chooses",
		New: func(judgement.Label, []*snapshot.Sample) judgement.Judge { return &systemdOomd{} },
	}
}

func (o *systemdOomd) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	if !o.full.add(s.Monotonic, s.Pressure.Memory.Full) {
		return nil, lacksMemoryPSI
	}
	used, known := usedUp(s.Memory)
	if !known {
		return nil, "MemTotal, MemAvailable, SwapTotal or SwapFree of /proc/meminfo"
	}
	o.most = max(o.most, o.full.avg10)
	if o.reclaimed.more(s) {
		o.moved = s.Monotonic
	}
	switch {
	case o.full.avg10 <= oomdPressure:
		o.above = 0
	case o.above == 0:
		o.above = s.Monotonic
	}
	reclaims := o.moved > 0 && s.Monotonic-o.moved <= oomdReclaim
	if pressed := o.above > 0 && s.Monotonic-o.above >= oomdFor && reclaims; pressed || used {
		list = append(list, node(plugins.Memory, plugins.Hard))
	}
	return list, ""
}

// Near is how near it came.
func (o *systemdOomd) Near() string { return fmt.Sprintf("avg10 at most %.0f %%", o.most) }

// reclaimed is how many pages were as of the last sample.
type reclaimed struct {
	pages uint64
	begun bool
}

// more reports whether any were since the sample before.
func (r *reclaimed) more(s *snapshot.Sample) bool {
	now := allReclaimed(s)
	more := r.begun && now > r.pages
	r.pages, r.begun = now, true
	return more
}

// allReclaimed is every page that was scanned or taken back.
func allReclaimed(s *snapshot.Sample) uint64 {
	direct, _ := s.Memory.ScansDirect.Get()
	kswapd, _ := s.Memory.ScansKswapd.Get()
	sum := direct + kswapd
	for i := range s.Workloads {
		own, _ := s.Workloads[i].Reclaimed.Get()
		sum += own
	}
	return sum
}

func usedUp(m snapshot.Memory) (used, known bool) {
	total, ok1 := m.TotalBytes.Get()
	available, ok2 := m.AvailableBytes.Get()
	swap, ok3 := m.SwapTotalBytes.Get()
	free, ok4 := m.SwapFreeBytes.Get()
	used = swap > 0 && float64(swap-free) > oomdUsed*float64(swap) && float64(total-available) > oomdUsed*float64(total)
	return used, ok1 && ok2 && ok3 && ok4
}
