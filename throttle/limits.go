package throttle

// Limits converts throttles in force to limits of cgroups, but those that are resized. Devices are the numbers of disks by name; a
// disk that does not exist any more needs none. in says in which cgroups a limit on a disk
// must be written for one.
func Limits(throttles map[Target]Throttle, devices map[string]string, in func(cgroup string) []string) map[Knob]float64 {
	want := map[Knob]float64{}
	for t, c := range throttles {
		if !c.InForce() || c.Resized {
			continue
		}
		limits := c.Limits()
		if t.Memory {
			want[Knob{Cgroup: t.Cgroup, Name: Memory}] = limits.Memory
			continue
		}
		if t.Disk == "" {
			want[Knob{Cgroup: t.Cgroup, Name: CPU}] = limits.CPU
			continue
		}
		device := devices[t.Disk]
		if device == "" {
			continue
		}
		for _, cgroup := range in(t.Cgroup) {
			want[Knob{Cgroup: cgroup, Name: Read, Device: device}] = limits.Read
			want[Knob{Cgroup: cgroup, Name: Write, Device: device}] = limits.Write
		}
	}
	return want
}
