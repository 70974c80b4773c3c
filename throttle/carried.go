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
