package throttle

import "github.com/plimsoll-dev/plimsoll/plugins"

// carried is what each disk carries, as far as that is learned.
func carried(l *plugins.Levels) map[string]Rates {
	list := make(map[string]Rates, len(l.Disks))
	for i := range l.Disks {
		d := &l.Disks[i]
		list[d.Device] = Rates{Read: d.ReadBytesPerSecond, Write: d.WrittenBytesPerSecond}
	}
	return list
}

// within is the base of a throttle, no more than its disk carries, or the CPUs are: what a workload used
// before the burst credit of a volume ended, or what a cache took, is more, and a limit
// derived from it would limit nothing.
func (in *Input) within(t Target, base Rates) Rates {
	most := in.Carried[t.Disk]
	bound := func(used, most float64) float64 {
		if most > 0 {
			return min(used, most)
		}
		return used // not known
	}
	base.Read, base.Write, base.CPU = bound(base.Read, most.Read), bound(base.Write, most.Write), bound(base.CPU, float64(in.CPUs))
	return base
}

// through is how many times more a workload used before it was throttled at all, as far as
// its limits tell: who may read less writes less elsewhere, and needs less CPU. The base of
// another throttle is not to be the effect of the first one. One without a limit in force has no
// effect.
func (in *Input) through(list map[Target]Throttle, cgroup string) float64 {
	most := 1.0
	for t, c := range list {
		if t.Cgroup == cgroup && c.InForce() && !in.Workloads[cgroup].DryRun && !in.Unwritten[t] {
			most = max(most, c.Base.over(c.Limits()))
		}
	}
	return most
}
