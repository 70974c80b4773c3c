package snapshot

// lastingKey is a sufferer at one resource.
type lastingKey struct {
	resource       SharedResource
	device, cgroup string
}

// continueWaits sets how long each sufferer has been one, from the snapshot before;
// nil: a new window, in which all waits begin. Of more sufferers than are listed those
// that are not listed begin anew when they are.
func (s *Snapshot) continueWaits(last *Snapshot) {
	before := map[lastingKey]float64{}
	if last != nil {
		passed := (s.Monotonic() - last.Monotonic()).Seconds()
		for i := range last.Contention {
			c := &last.Contention[i]
			for _, p := range c.Sufferers {
				lasted, _ := p.LastingSeconds.Get() // each of a History has it
				before[lastingKey{c.Resource, c.Device, p.Cgroup}] = lasted + passed
			}
		}
	}
	for i := range s.Contention {
		c := &s.Contention[i]
		for j := range c.Sufferers {
			p := &c.Sufferers[j]
			p.LastingSeconds = Some(before[lastingKey{c.Resource, c.Device, p.Cgroup}])
		}
	}
}
