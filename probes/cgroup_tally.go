package probes

import "time"

// tally is what a cgroup says of all that is below it. While one of its counters
// stands still, so does that counter of every cgroup below, which then need not
// be read to know it. Stall counts too: some task of a cgroup stalls when some
// task below it does.
type tally struct {
	*tracked
	asked time.Duration
	// moved is when each counter was last seen to have moved, before any of the
	// cgroups below was read.
	moved [tallied]time.Duration
}

// fewest workloads directly below a cgroup for which it pays to ask it.
const fewest = 4

// askTally asks a cgroup once a read what moved in all below it. The root is not
// asked: on v2 its CPU time is sampled at the clock's ticks
// (kernel/cgroup/rstat.c, root_cgroup_cputime).
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
	s.begun, s.c.found = 0, s.c.found[:0] // nobody asks why
}

func (n *node) closeTally() {
	if n.tally != nil {
		n.tally.close()
		n.tally = nil
	}
}

// stands says whether a group is as it was read, because nothing of it moved in
// all that is below the cgroup above. If not, its reading begins.
func (t *tracked) stands(of fileGroup) bool {
	if s := t.above; s != nil && s.tally != nil && t.readAt[of] >= s.tally.moved[of] {
		return true
	}
	t.begin(of)
	t.readAt[of] = t.c.now
	return false
}

// unread is said of a group that could not be read: it is tried again.
func (t *tracked) unread(of fileGroup) {
	if of <= ofMemory {
		t.readAt[of] = 0
	}
}
