package throttle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// minShare is the least share of a pressed resource's traffic that a workload, or all
// movers together, must have to be throttled for it: with less there is no relief.
const minShare = 0.2

// Input is what one round decides by.
type Input struct {
	Time time.Time
	// Booted is when the machine booted, by the wall clock of Time; zero: unknown.
	Booted time.Time
	// Workloads that run, by cgroup.
	Workloads map[string]Workload
	// Culprits use what is pressed, considerably. Without a measurement there is none.
	Culprits map[Target]Use
	// Disks by name; CPU, memory, and Mover: what a mover is given less CPU for, memory and
	// the network, because it then reads, buffers and sends less.
	Disks              map[string]Pressure
	CPU, Mover, Memory Pressure
	// DiskKeys identify the disks, by name.
	DiskKeys map[string]string
	// Carried is what each disk carries, by name.
	Carried map[string]Carried
	// CPUs that are online; 0: unknown.
	CPUs int
	// Resizing are the resizes that are not in effect.
	Resizing map[Target]Resizing
	// Unwritten are the throttles without a limit in force: it could not be written, or another
	// one is there.
	Unwritten map[Target]bool
	// Pending are the throttles whose limit in force is an earlier one: the newest could not be
	// written.
	Pending map[Target]bool
	// MemoryUnlimited is why no memory is limited on this node; empty: it may be.
	MemoryUnlimited string
	// missing is the memory that must be released to end the pressure, and available what is
	// available, in bytes.
	missing, available float64
}

// Pressure on one resource.
type Pressure struct {
	Level plugins.Level
	// Named: enough of the traffic is known to name a culprit, by the rule's own measure.
	// Movers are throttled without.
	Named bool
	// Unknown: throttles there stay unchanged until they expire.
	Unknown bool
	// Waited is how long the one that waits most waits for others, as a share of the
	// window; absent where that is not known.
	Waited snapshot.Opt[float64]
}

// Use is what a culprit uses of a pressed resource, and why that is too much.
type Use struct {
	Rates
	Why string
}

// NewInput tells who uses what is pressed. workloads says of each who may be throttled;
// before are the current throttles: after a restart of the agent a workload that is not
// known yet counts as alive as long as its cgroup exists.
func NewInput(s *snapshot.Snapshot, l *plugins.Levels, workloads map[string]Workload, before map[Target]Throttle) Input {
	in := Input{Time: l.Time, Booted: s.Booted(), Workloads: map[string]Workload{}, Culprits: map[Target]Use{}, Disks: map[string]Pressure{}, DiskKeys: map[string]string{}}
	for i := range s.Disks {
		in.DiskKeys[s.Disks[i].Name] = plugins.DiskKey(&s.Disks[i].Disk, "")
	}
	in.CPUs, _ = s.CPU.Online.Get()
	in.setPressure(l)
	in.Carried = carried(s, l)
	for i := range s.Contention {
		in.setWaited(&s.Contention[i])
	}
	at := map[string]*snapshot.WorkloadState{}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		at[w.Cgroup] = w
		bytes, _ := w.MemoryBytes.Get()
		held := float64(bytes)
		if known, there := workloads[w.Cgroup]; there {
			known.holds = held
			in.Workloads[w.Cgroup] = known
		} else if w.Pod == nil && throttled(before, w.Cgroup) {
			in.Workloads[w.Cgroup] = Workload{Unlisted: true, holds: held}
		}
	}
	for i := range s.Contention {
		in.addCulprits(s, &s.Contention[i], at)
	}
	if s.IOSource == snapshot.IOBlkio {
		in.MemoryUnlimited = "cgroup v1 has no memory.high"
	}
	in.setMemory(s, l)
	in.addTakers(s)
	return in
}

func throttled(list map[Target]Throttle, cgroup string) bool {
	for t := range list {
		if t.Cgroup == cgroup {
			return true
		}
	}
	return false
}

// pressureOn is the pressure on what a target uses.
func (in *Input) pressureOn(t Target) Pressure {
	w := in.Workloads[t.Cgroup]
	switch {
	case w.Unlisted:
		return Pressure{Unknown: true}
	case t.Memory:
		return in.Memory
	case t.Disk != "":
		p, known := in.Disks[t.Disk]
		p.Unknown = p.Unknown && known
		return p
	case w.Mover && in.Mover.Level > in.CPU.Level, w.Mover && in.CPU.Unknown:
		return in.Mover
	}
	return in.CPU
}

// pressureFor a workload that is throttled. One that is exempt at soft is released in steps
// there: at once, the pressure would be hard again, and what was measured before it was
// limited forgotten. Memory is held until the pressure is over: see hold.
func (in *Input) pressureFor(t Target, w *Workload) Pressure {
	p := in.pressureOn(t)
	if p.Level == plugins.Soft && w.ExemptAtSoft != "" && !t.Memory {
		p.Level = plugins.None
	}
	return p
}

// exemption is why a culprit is not throttled; empty: it is.
func (in *Input) exemption(t Target) string {
	w := in.Workloads[t.Cgroup]
	if w.Unlisted {
		return "whether its namespace forbids it is not known yet: may the agent list namespaces?"
	}
	if why := w.Exemption(in.pressureOn(t).Level); why != "" {
		return why
	}
	if t.Memory {
		return in.memoryExemption(t, &w)
	}
	return in.Culprits[t].tooLittle(w.RequestCores)
}

// tooLittle is why a limit on a disk or the CPU would limit nothing, also at the floor; empty:
// it would.
func (r Rates) tooLittle(request float64) string {
	bytes := max(r.Read, r.Write)
	switch {
	case r.CPU > 0 && r.CPU <= request:
		return fmt.Sprintf("it uses %.2g cores, no more than the %.2g that it requests", r.CPU, request)
	case r.CPU > 0 && r.CPU <= minCPU:
		return fmt.Sprintf("it uses %.2g cores, no more than the least limit of %.2g", r.CPU, minCPU)
	case bytes > 0 && bytes <= minBytes:
		return fmt.Sprintf("it uses %.2g MB/s, no more than the least limit of %.2g MB/s", bytes/1e6, minBytes/1e6)
	}
	return ""
}

// setPressure takes the levels of rules about the node. A resource is judged if one of its
// rules can judge.
func (in *Input) setPressure(l *plugins.Levels) {
	in.CPU.Unknown, in.Mover.Unknown, in.Memory.Unknown = true, true, true
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		if v.PerWorkload || v.ReportOnly {
			continue
		}
		switch v.Resource {
		case plugins.Disk:
			p, there := in.Disks[v.Scope]
			p.Unknown = p.Unknown || !there
			p.add(v)
			in.Disks[v.Scope] = p
		case plugins.CPU:
			in.CPU.add(v)
		case plugins.Memory:
			in.Memory.add(v)
			in.Mover.add(v)
		case plugins.NetworkIO:
			in.Mover.add(v)
		case plugins.Filesystem: // space does not come back by throttling
		}
	}
}

func (p *Pressure) add(v *plugins.Verdict) {
	p.Level = max(p.Level, v.Level)
	p.Named = p.Named || v.Level > plugins.None && v.Absent == ""
	p.Unknown = p.Unknown && v.NotJudged() != ""
}

// setWaited takes who waits for what.
func (in *Input) setWaited(c *snapshot.Contention) {
	longest := 0.0
	for _, s := range c.Sufferers {
		if s.Significant(c.Resource.WaitedThreshold()) {
			longest = max(longest, s.Waited)
		}
	}
	if c.State == snapshot.ContentionUnknown {
		return
	}
	switch c.Resource {
	case snapshot.SharedDisk:
		if p, judged := in.Disks[c.Device]; judged {
			p.Waited = snapshot.Some(longest)
			in.Disks[c.Device] = p
		}
	case snapshot.SharedCPU:
		in.CPU.Waited = snapshot.Some(longest)
	case snapshot.SharedMemory, snapshot.SharedNetwork: // who waits decides nothing there
	}
}

// addCulprits of one resource.
func (in *Input) addCulprits(s *snapshot.Snapshot, c *snapshot.Contention, at map[string]*snapshot.WorkloadState) {
	movers := 0.0
	for _, culprit := range c.Culprits {
		if in.Workloads[culprit.Cgroup].Mover {
			movers += culprit.Share
		}
	}
	for i := range c.Culprits {
		culprit := &c.Culprits[i]
		w, known := in.Workloads[culprit.Cgroup]
		if known && at[culprit.Cgroup] != nil && (w.Mover && movers >= minShare || !w.Mover && in.named(c, culprit)) {
			in.addCulprit(s, c, culprit, at[culprit.Cgroup])
		}
	}
}

// addCulprit with what it uses, if that was measured.
func (in *Input) addCulprit(s *snapshot.Snapshot, c *snapshot.Contention, culprit *snapshot.Culprit, w *snapshot.WorkloadState) {
	rates, measured := w.Rates.Get()
	if !measured {
		return
	}
	why := reason(c, culprit)
	lately, _ := s.Within(justNow).Workload(&w.Workload).Get()
	cores, known := rates.CPUCores.Get()
	used, _ := lately.CPUCores.Get()
	cpu := Use{Rates{CPU: max(cores, used)}, why}
	switch c.Resource {
	case snapshot.SharedDisk:
		in.addDisk(s, Target{Cgroup: culprit.Cgroup, Disk: c.Device}, [][]snapshot.WorkloadIORates{rates.IO, lately.IO}, why)
	case snapshot.SharedCPU:
		if known && in.CPU.Level > plugins.None {
			in.Culprits[Target{Cgroup: culprit.Cgroup}] = cpu
		}
	case snapshot.SharedMemory, snapshot.SharedNetwork:
		if known && in.Mover.Level > plugins.None && in.Workloads[culprit.Cgroup].Mover {
			in.Culprits[Target{Cgroup: culprit.Cgroup}] = cpu
		}
	}
}

// named tells whether a workload that is no mover is a culprit for sure: others wait, enough
// of the traffic is known, and it has a considerable share.
func (in *Input) named(c *snapshot.Contention, culprit *snapshot.Culprit) bool {
	p := in.CPU
	if c.Resource == snapshot.SharedDisk {
		p = in.Disks[c.Device]
	}
	return c.State == snapshot.ContentionPresent && p.Named && culprit.Share >= minShare && !culprit.Waits(c.Resource.WaitedThreshold())
}

// reason is who waits, and what the culprit uses.
func reason(c *snapshot.Contention, culprit *snapshot.Culprit) string {
	of := map[snapshot.SharedResource]string{snapshot.SharedCPU: "CPU time in use", snapshot.SharedMemory: "memory growth"}
	text := fmt.Sprintf("%s has %.0f %% of the %s", culprit.Name, culprit.Share*100, cmp.Or(of[c.Resource], "traffic"))
	if waits := longestWait(c); waits != "" {
		return waits + "; " + text
	}
	return text
}

// longestWait names the sufferer that waits most; empty: none is known.
func longestWait(c *snapshot.Contention) string {
	for _, s := range c.Sufferers { // in that order
		if s.Significant(c.Resource.WaitedThreshold()) {
			return fmt.Sprintf("%s waits %.0f %% of the time", s.Name, s.Waited*100)
		}
	}
	return ""
}

// addDisk takes the larger of what a culprit did over the window and just now: it may have begun
// to press when most of the window was over.
func (in *Input) addDisk(s *snapshot.Snapshot, t Target, windows [][]snapshot.WorkloadIORates, why string) {
	i := slices.IndexFunc(s.Disks, func(d snapshot.DiskState) bool { return d.Name == t.Disk })
	if i < 0 || in.Disks[t.Disk].Level == plugins.None {
		return
	}
	used, counted := Rates{}, false
	for _, io := range windows {
		for _, r := range io {
			if r.Number == s.Disks[i].Number {
				used.Read, used.Write, counted = max(used.Read, r.ReadBytesPerSecond), max(used.Write, r.WrittenBytesPerSecond), true
			}
		}
	}
	if counted {
		in.Culprits[t] = Use{used, why}
	}
}
