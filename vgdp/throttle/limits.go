package throttle

import (
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// Limits converts throttles to limits. Devices are the numbers of disks by name; a disk
// that does not exist any more needs none.
func Limits(curbs map[vgdp.Target]vgdp.MoverLimit, devices map[string]string) map[Knob]float64 {
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
