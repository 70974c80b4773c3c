package curb

import (
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// Wanted is the limits that curbs ask for. Devices are the numbers of disks by
// name; a disk that is gone needs none.
func Wanted(curbs map[vgdp.Target]vgdp.Curb, devices map[string]string) map[Knob]float64 {
	want := map[Knob]float64{}
	for t, c := range curbs {
		limits := c.Limits()
		if t.Disk == "" {
			want[Knob{Cgroup: t.Mover, Name: CPU}] = limits.CPU
			continue
		}
		if device := devices[t.Disk]; device != "" {
			want[Knob{t.Mover, Read, device}] = limits.Read
			want[Knob{t.Mover, Write, device}] = limits.Write
		}
	}
	return want
}
