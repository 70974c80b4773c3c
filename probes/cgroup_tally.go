package probes

import "time"

// tally has the counters of a parent cgroup, which include all cgroups below.
// While one of them is unchanged, so is that counter of every child, which then
// need not be read. This holds for stall too: a cgroup stalls when a child of
// it does.
type tally struct {
	*tracked
	asked time.Duration
	// moved is when each counter was last seen to change, before any of the
	// children was read.
	moved [tallied]time.Duration
}

// fewest is the number of children from which reading the parent pays off.
const fewest = 4

// askTally reads a parent cgroup, once per read. The root is not read: on v2
// its CPU time is sampled at clock ticks (kernel/cgroup/rstat.c,
// root_cgroup_cputime).
func (c *Cgroups) askTally(n *node) {
	if n.cgroup == "/" || len(n.below) < fewest {
		n.closeTally()
		return
	}
	if n.tally == nil {
		n.tally = &tally{tracked: newTracked(c, n)}
	}
	if n.tally.asked == c.now {
		return
	}
	n.tally.ask()
	if n.tally.gone {
		n.closeTally()
	}
}

func (s *tally) ask() {
	first := s.asked == 0
	s.asked = s.c.now
	s.readAt = [ofMemory + 1]time.Duration{}
	was := s.w
	cpu, io := s.readCPU(), s.readIO()
	s.readEvents()
	s.readPressure()
	now := &s.w
	for of, moved := range [tallied]bool{
		ofCPU:         cpu,
		ofIO:          io,
		ofEvents:      now.LimitHits != was.LimitHits || now.OOMKills != was.OOMKills,
		ofCPUStall:    now.Pressure.CPU != was.Pressure.CPU,
		ofMemoryStall: now.Pressure.Memory != was.Pressure.Memory,
		ofIOStall:     now.Pressure.IO != was.Pressure.IO,
	} {
		if first || moved || s.readAt[of] == 0 {
			s.moved[of] = s.asked
		}
	}
	s.begun, s.c.found = 0, s.c.found[:0] // the reasons are not used
}

func (n *node) closeTally() {
	if n.tally != nil {
		n.tally.close()
		n.tally = nil
	}
}

// stands reports whether a group of values is unchanged since it was read,
// because the parent's counter is. If not, it marks the group as being read.
func (t *tracked) stands(of fileGroup) bool {
	if s := t.above; s != nil && s.tally != nil && t.readAt[of] >= s.tally.moved[of] {
		return true
	}
	t.begin(of)
	t.readAt[of] = t.c.now
	return false
}

// unread marks a group that could not be read, to be tried again.
func (t *tracked) unread(of fileGroup) {
	if of <= ofMemory {
		t.readAt[of] = 0
	}
}
