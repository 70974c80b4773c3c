package cgroup

import "time"

// parentCounters has the counters of a parent cgroup, which include all cgroups below.
// While one of them is unchanged, so is that counter of every child, which then
// need not be read. This holds for stall too: a cgroup stalls when a child of
// it does.
type parentCounters struct {
	*trackedWorkload
	readTime time.Duration
	// changedAt is when each counter was last seen to change, before any of the
	// children was read.
	changedAt [summedGroups]time.Duration
}

// minChildren is the number of children from which reading the parent pays off.
const minChildren = 4

// readParentCounters reads a parent cgroup, once per read. The root is not read: on v2
// its CPU time is sampled at clock ticks (kernel/cgroup/rstat.c,
// root_cgroup_cputime).
func (n *node) readParentCounters(r *Reader) {
	if n.cgroup == "/" || len(n.children) < minChildren {
		n.closeParentCounters()
		return
	}
	if n.parentCounters == nil {
		n.parentCounters = &parentCounters{trackedWorkload: newTracked(r, n)}
	}
	if n.parentCounters.readTime == r.now {
		return
	}
	n.parentCounters.readCounters()
	if n.parentCounters.removed {
		n.closeParentCounters()
	}
}

func (s *parentCounters) readCounters() {
	first := s.readTime == 0
	s.readTime = s.reader.now
	s.readAt = [ofMemory + 1]time.Duration{}
	was := s.w
	cpu, io := s.readCPU(), s.readIO()
	s.readEvents()
	s.readPressure()
	now := &s.w
	for of, moved := range [summedGroups]bool{
		ofCPU:         cpu,
		ofIO:          io,
		ofEvents:      now.LimitHits != was.LimitHits || now.OOMKills != was.OOMKills,
		ofCPUStall:    now.Pressure.CPU != was.Pressure.CPU,
		ofMemoryStall: now.Pressure.Memory != was.Pressure.Memory,
		ofIOStall:     now.Pressure.IO != was.Pressure.IO,
	} {
		if first || moved || s.readAt[of] == 0 {
			s.changedAt[of] = s.readTime
		}
	}
	s.begun, s.reader.found = 0, s.reader.found[:0] // the reasons are not used
}

func (n *node) closeParentCounters() {
	if n.parentCounters != nil {
		n.parentCounters.close()
		n.parentCounters = nil
	}
}
