package vgdp

import (
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// minMoverShare is the least share of a pressed resource's traffic that movers must have
// together to be throttled for it: with less, throttling gives no relief.
const minMoverShare = 0.2

// Movers are the pods of data movers on this node, by their cgroups. A pod that is
// being prepared counts as well: it will move data at once.
func Movers(s *snapshot.Snapshot) map[string]*snapshot.WorkloadState {
	movers := map[string]*snapshot.WorkloadState{}
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Kind == snapshot.KindPod && w.Pod != nil && w.Pod.Mover {
			movers[w.Cgroup] = w
		}
	}
	return movers
}

// NewUsage is what the movers of a node use, and where there is pressure. before
// are the current throttles: after a restart of the agent a mover whose pod is not
// known yet counts as alive as long as its cgroup exists.
func NewUsage(s *snapshot.Snapshot, l *plugins.Levels, before map[Target]MoverLimit) Usage {
	u := Usage{Time: l.Time, Rates: map[Target]Rates{}, Alive: map[string]bool{}, Disks: map[string]plugins.Level{}, Unknown: map[string]bool{}}
	u.setLevels(l)
	movers := Movers(s)
	for cgroup, w := range movers {
		u.Alive[cgroup] = true
		u.measure(s, w, movers)
	}
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Pod == nil && hasLimit(before, w.Cgroup) {
			u.Alive[w.Cgroup] = true
		}
	}
	return u
}

func hasLimit(list map[Target]MoverLimit, mover string) bool {
	for t := range list {
		if t.Mover == mover {
			return true
		}
	}
	return false
}

// setLevels takes the levels. A resource is observed if one of its rules is.
func (u *Usage) setLevels(l *plugins.Levels) {
	seen := map[string]bool{}
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		if v.PerWorkload {
			continue
		}
		disk := ""
		switch v.Resource {
		case plugins.Disk:
			disk = v.Scope
			u.Disks[disk] = max(u.Disks[disk], v.Level)
		case plugins.Memory, plugins.NetworkIO:
			u.CPU = max(u.CPU, v.Level)
		default:
			continue
		}
		seen[disk] = seen[disk] || unknownReason(v) == ""
	}
	for disk, sees := range seen {
		u.Unknown[disk] = !sees
	}
}

// measure records what a mover uses of pressed resources, only where movers cause a
// considerable part of that pressure.
func (u *Usage) measure(s *snapshot.Snapshot, w *snapshot.WorkloadState, movers map[string]*snapshot.WorkloadState) {
	r, ok := w.Rates.Get()
	if !ok {
		return
	}
	for _, io := range r.IO {
		for i := range s.Disks {
			if d := &s.Disks[i]; d.Number == io.Number && u.Disks[d.Name] > plugins.None && moverShare(s, snapshot.SharedDisk, d.Name, movers) >= minMoverShare {
				u.Rates[Target{w.Cgroup, d.Name}] = Rates{Read: io.ReadBytesPerSecond, Write: io.WrittenBytesPerSecond}
			}
		}
	}
	cores, known := r.CPUCores.Get()
	if known && u.CPU > plugins.None && max(moverShare(s, snapshot.SharedMemory, "", movers), moverShare(s, snapshot.SharedNetwork, "", movers)) >= minMoverShare {
		u.Rates[Target{Mover: w.Cgroup}] = Rates{CPU: cores}
	}
}

// moverShare is the movers' share of the traffic, 0 to 1, as far as it is known: on cgroup v1
// their writes are not.
func moverShare(s *snapshot.Snapshot, resource snapshot.SharedResource, device string, movers map[string]*snapshot.WorkloadState) (sum float64) {
	for _, c := range s.Contention {
		if c.Resource != resource || device != "" && c.Device != device {
			continue
		}
		for _, culprit := range c.Culprits {
			if movers[culprit.Cgroup] != nil {
				sum += culprit.Share
			}
		}
	}
	return sum
}
