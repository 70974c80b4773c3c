package throttle

// Limits converts throttles in force to limits. Devices are the numbers of disks by name; a
// disk that does not exist any more needs none.
func Limits(throttles map[Target]Throttle, devices map[string]string) map[Knob]float64 {
	want := map[Knob]float64{}
	for t, c := range throttles {
		if !c.InForce() {
			continue
		}
		limits := c.Limits()
		if t.Disk == "" {
			want[Knob{Cgroup: t.Cgroup, Name: CPU}] = limits.CPU
			continue
		}
		if device := devices[t.Disk]; device != "" {
			want[Knob{t.Cgroup, Read, device}] = limits.Read
			want[Knob{t.Cgroup, Write, device}] = limits.Write
		}
	}
	return want
}
