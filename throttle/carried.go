package throttle

import (
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Carried is the most that a disk carries, zero in a direction of which that is not learned, and
// how often it has fallen.
type Carried struct {
	Rates
	Falls int
}

// carried is what each disk carries, as far as that is learned, and no less than it did while it
// is measured what workloads use.
func carried(s *snapshot.Snapshot, l *plugins.Levels) map[string]Carried {
	list := make(map[string]Carried, len(l.Disks))
	for i := range l.Disks {
		d := &l.Disks[i]
		list[d.Device] = Carried{Rates{Read: d.ReadBytesPerSecond, Write: d.WrittenBytesPerSecond}, d.Falls}
	}
	least := func(most *float64, does float64) {
		if *most > 0 {
			*most = max(*most, does)
		}
	}
	for i := range s.Disks {
		d := &s.Disks[i]
		of, lately := list[d.Name], s.Within(justNow).Disk(&d.Disk)
		for _, does := range []snapshot.Opt[snapshot.DiskRates]{d.Rates, lately} {
			r, _ := does.Get()
			least(&of.Read, r.ReadBytesPerSecond)
			least(&of.Write, r.WrittenBytesPerSecond)
		}
		list[d.Name] = of
	}
	return list
}

// within is a use that is no more than its disk carries, or the CPUs are: what a workload used
// before the burst credit of a volume ended, or what a cache took, is more, and a limit
// derived from it would limit nothing.
func (in *Input) within(t Target, used Rates) Rates {
	most := in.Carried[t.Disk]
	bound := func(used *float64, most float64) {
		if most > 0 { // else it is not known
			*used = min(*used, most)
		}
	}
	bound(&used.Read, most.Read)
	bound(&used.Write, most.Write)
	bound(&used.CPU, float64(in.CPUs))
	return used
}

// followFall lowers the base of a throttle to what its disk carries, if the disk has fallen since
// that was measured. Nothing else lowers it: what a disk does meanwhile is in part the effect of
// the limit.
func (in *Input) followFall(t Target, c Throttle) Throttle {
	of := in.Carried[t.Disk]
	if of.Rates == (Rates{}) {
		return c // what it carries is not known
	}
	if of.Falls > c.Falls {
		if c.Base = in.within(t, c.Base); !of.knows(c.Base) {
			return c // a direction follows once it is known what the disk carries of it
		}
	}
	c.Falls = of.Falls
	return c
}

// knows what the disk carries in each direction that was used.
func (of Carried) knows(used Rates) bool {
	return (used.Read == 0 || of.Read > 0) && (used.Write == 0 || of.Write > 0)
}

// through is how many times more a workload used before it was throttled at all, as far as
// its limits tell: who may read less writes less elsewhere, and needs less CPU. The base of
// another throttle is not to be the effect of the first one. One without a limit in force has no
// effect.
func (in *Input) through(list map[Target]Throttle, cgroup string) float64 {
	most := 1.0
	for t, c := range list {
		if t.Cgroup == cgroup && c.InForce() && !in.Workloads[cgroup].DryRun && !in.Unwritten[t] {
			if in.Pending[t] {
				c = c.AsWritten(nil)
			}
			most = max(most, c.Base.over(c.Limits()))
		}
	}
	return most
}
