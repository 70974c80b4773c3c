// Package scenes makes the states of a node for the tests of the status page and
// of the terminal view. Each goes through a real History, so that its rates,
// windows and trends are those of real samples.
package scenes

import (
	"fmt"
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Pressure is the pressure on a made-up node: shares of the time, 0 to 1.
type Pressure struct {
	CPU, MemorySome, MemoryFull, IO float64
	// Available memory of 16 GiB, in bytes.
	Available uint64
	// Scans by global reclaim, pages per second.
	Scans uint64
	// Hits of its own limit per second by the workload cache.service, and its
	// own memory stall.
	Hits  uint64
	Stall float64
}

// Start of every scene.
func Start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// Agent of every scene.
func Agent() view.Agent {
	return view.Agent{
		Node: "node-a", Version: "v1.2.3", Started: Start().Add(-3 * time.Hour), Mode: "standalone", CgroupFlavour: "v2",
		TickSeconds: 1, TickDurationSeconds: 0.0021,
	}
}

// FirstTick is a node at its first sample: there is no rate yet.
func FirstTick() *view.State {
	h := history()
	s := h.Add(sample(0, CalmPressure(), &totals{}))
	v := memoryStall(plugins.None, 0, s.Time)
	v.Observed, v.Absent, v.Reason = snapshot.Opt[float64]{}, "a ratio needs two samples", "incomplete data: a ratio needs two samples"
	v.Evidence[0].Observed, v.Evidence[0].Absent = snapshot.Opt[float64]{}, "a ratio needs two samples"
	return state(s, v)
}

// CalmPressure is the load of a busy node without pressure.
func CalmPressure() Pressure {
	return Pressure{CPU: 0.31, MemorySome: 0.0004, IO: 0.012, Available: 9 << 30}
}

// Calm is that node.
func Calm() *view.State {
	s := run(CalmPressure())
	return state(s, memoryStall(plugins.None, 0.0002, s.Time.Add(-9*time.Minute)))
}

// MemoryHard is a node that is short of memory, with candidates.
func MemoryHard() *view.State {
	s := run(Pressure{CPU: 0.5, MemorySome: 0.62, MemoryFull: 0.41, IO: 0.35, Available: 300 << 20, Scans: 48000})
	// A server of a network filesystem has not answered for five minutes.
	s.Filesystems = append(s.Filesystems, snapshot.Filesystem{
		Mountpoint: "/mnt/backup", Type: "nfs4", Device: "nas:/backup", AgeSeconds: snapshot.Some(312.0), Absent: snapshot.Absent{"statfs": "statfs hangs"},
		SizeBytes: snapshot.Some[uint64](20 << 40), AvailableBytes: snapshot.Some[uint64](4 << 40), Files: snapshot.Some[uint64](1 << 32), FilesFree: snapshot.Some[uint64](1 << 31),
	})
	s.Exhaustion = []snapshot.Exhaustion{
		{Kind: snapshot.ExhaustsMemory, Seconds: 41, EarliestSeconds: 31, LatestSeconds: 66, ShrinksPerSecond: 7.3 * (1 << 20), OverSeconds: 13},
		{Kind: snapshot.ExhaustsSpace, Mountpoint: "/data", Seconds: 5520, EarliestSeconds: 4100, LatestSeconds: 7900, ShrinksPerSecond: 87e6, OverSeconds: 3450},
	}
	v := memoryStall(plugins.Hard, 0.41, s.Time.Add(-12*time.Second))
	v.Reason = "memory stall, full, over 5s 41.0 % (>= 25 %); memory available 1.8 % (< 4 %); global reclaim, pages scanned per second 48000 (> 0); " + s.Exhaustion[0].String()
	for _, w := range s.Workloads[:3] {
		set, _ := w.WorkingSetBytes.Get() // every made-up workload has one
		v.Candidates = append(v.Candidates, plugins.Candidate{
			Cgroup: w.Cgroup, Name: w.Name, PodUID: w.PodUID, Relief: float64(set), Unit: "bytes", Why: "working set " + view.Bytes(float64(set)),
		})
	}
	return state(s, v)
}

// OwnLimit is a calm node with a workload that thrashes at its own limit.
func OwnLimit() *view.State {
	l := CalmPressure()
	l.Hits, l.Stall = 120, 0.83
	s := run(l)
	return state(s, memoryStall(plugins.None, 0.0002, s.Time.Add(-9*time.Minute)))
}

// EverythingAbsent is a node on which nothing could be read.
func EverythingAbsent() *view.State {
	h := history()
	raw := &snapshot.Sample{Time: Start(), Monotonic: time.Second, Boottime: time.Second}
	for _, name := range []string{"cpu", "memory", "pressure", "disks", "nics", "workloads"} {
		raw.Probes = append(raw.Probes, snapshot.Probe{Name: name, Error: "open /proc/" + name + ": permission denied"})
	}
	raw.Memory.Absent.Because("meminfo", "open /proc/meminfo: permission denied")
	raw.Memory.Absent.Because("vmstat", "open /proc/vmstat: permission denied")
	for _, r := range []string{"cpu", "memory", "io"} {
		raw.Pressure.Absent.Because(r, "the kernel was started without psi=1")
	}
	raw.Disks = []snapshot.Disk{{Name: "sda", Number: "8:0", Absent: snapshot.Absent{"sizeBytes": "size: no such file or directory"}}}
	raw.NICs = []snapshot.NIC{{Name: "eth0", Physical: true, Absent: snapshot.Absent{"speedBytesPerSecond": "speed: invalid argument"}}}
	raw.Filesystems = []snapshot.Filesystem{
		{Mountpoint: "/mnt/backup", Type: "nfs4", Device: "nas:/backup", Absent: snapshot.Absent{"statfs": "statfs hangs"}},
		{Mountpoint: "/mnt/old", Absent: snapshot.Absent{"statfs": "not mounted"}},
	}
	for i := range 12 {
		raw.Workloads = append(raw.Workloads, snapshot.Workload{
			Cgroup: fmt.Sprintf("/system.slice/s%02d.service", i), Kind: snapshot.KindService, Name: fmt.Sprintf("s%02d.service", i),
			Absent: snapshot.Absent{"memoryBytes": "the memory controller is not enabled here"},
		})
	}
	s := h.Add(raw)
	v := plugins.Verdict{
		Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Condition: "MemoryContention", Since: s.Time, Operator: ">=", Unit: "ratio",
		Threshold: snapshot.Some(0.1), Absent: "the kernel was started without psi=1", Reason: "incomplete data: the kernel was started without psi=1",
	}
	st := state(s, v)
	st.Agent.CgroupFlavour, st.Agent.Restrictions = "", []string{"not root: values that this user may not read are absent, with the reason"}
	st.Agent.ConfigFile, st.Agent.ConfigError = "/etc/plimsoll/agent.yaml", `/etc/plimsoll/agent.yaml:7: plugins.memoryStal: unknown key`
	return st
}

// Hostile is a calm node with malicious names.
func Hostile() *view.State {
	const evil = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>\u202egnp.exe\r\n\xff"
	s := run(CalmPressure())
	s.Disks[0].Name, s.NICs[0].Name = evil, evil
	s.Workloads[0].Name, s.Workloads[0].Cgroup = evil, "/"+evil
	f := &s.Filesystems[0]
	f.Mountpoint, f.Type, f.Device, f.Absent = "/"+evil, evil, evil, snapshot.Absent{"statfs": evil}
	s.Probes = append(s.Probes, snapshot.Probe{Name: evil, Error: evil}, snapshot.Probe{Name: "workloads" + evil, Note: evil})
	s.Absent = snapshot.Absent{evil: evil}
	v := memoryStall(plugins.Soft, 0.15, s.Time.Add(-time.Minute))
	v.Scope, v.Reason, v.Condition, v.Unit = evil, evil, evil, evil
	v.Evidence[0].What = evil
	v.Candidates = []plugins.Candidate{{Name: evil, Cgroup: evil, Why: evil, Unit: evil}}
	st := state(s, v)
	st.Agent.Node, st.Agent.Mode, st.Agent.ConfigError, st.Agent.Restrictions = evil, evil, evil, []string{evil}
	return st
}

func state(s *snapshot.Snapshot, v plugins.Verdict) *view.State {
	list := append([]plugins.Verdict{v}, calm(s)...)
	return &view.State{Agent: Agent(), Snapshot: s, Levels: &plugins.Levels{Time: s.Time, Verdicts: list}}
}

// calm are the verdicts about the disks and the CPUs, as far as they were measured.
func calm(s *snapshot.Snapshot) []plugins.Verdict {
	stall, known := s.Pressure.CPU.Some.Get()
	if !known {
		return nil
	}
	var list []plugins.Verdict
	for i := range s.Disks {
		d := &s.Disks[i]
		r, _ := d.Rates.Get()
		if await, some := r.WriteAwaitSeconds.Get(); some && d.Layer == snapshot.LayerLeaf {
			list = append(list, plugins.Verdict{
				Plugin: "disk-contention", Resource: plugins.Disk, Scope: d.Name, Since: s.Time.Add(-9 * time.Minute), Condition: "DiskContention",
				Observed: snapshot.Some(await), Operator: ">=", Threshold: snapshot.Some(0.02), Unit: "seconds",
				Reason: fmt.Sprintf("await of writes %.1f ms (needs ≥ 20 ms)", 1000*await),
			})
		}
	}
	return append(list, plugins.Verdict{
		Plugin: "cpu-contention", Resource: plugins.CPU, Scope: "node", Since: s.Time.Add(-9 * time.Minute), ReportOnly: true,
		Observed: snapshot.Some(stall), Operator: ">=", Threshold: snapshot.Some(0.5), Unit: "ratio",
		Reason: fmt.Sprintf("a workload waits because of others over 10s %.1f %% (needs ≥ 50 %%)", 100*stall),
	})
}

func memoryStall(l plugins.Level, stall float64, since time.Time) plugins.Verdict {
	threshold, over := 0.10, "30s"
	if l == plugins.Hard {
		threshold, over = 0.25, "5s"
	}
	e := plugins.Evidence{
		Rule: max(l, plugins.Soft), What: "memory stall, full, over " + over, Observed: snapshot.Some(stall), Operator: ">=", Threshold: threshold,
		Unit: "ratio", Met: stall >= threshold,
	}
	scans := plugins.Evidence{
		Rule: max(l, plugins.Soft), What: "global reclaim, pages scanned per second", Operator: ">", Unit: "pages", Observed: snapshot.Some(0.0),
	}
	return plugins.Verdict{
		Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Level: l, MetLevel: l, Since: since, Condition: "MemoryContention",
		Observed: snapshot.Some(stall), Operator: ">=", Threshold: snapshot.Some(threshold), Unit: "ratio",
		Reason:   fmt.Sprintf("memory stall, full, over %s %.1f %% (threshold >= %.0f %%)", over, 100*stall, 100*threshold),
		Evidence: []plugins.Evidence{e, scans},
	}
}

func history() *snapshot.History {
	return &snapshot.History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 3 * time.Second}
}

// run is two minutes in which the load grows to l.
func run(l Pressure) *snapshot.Snapshot { return runWith(l, func(uint64, *snapshot.Sample) {}) }

// runWith is the same with changed samples.
func runWith(l Pressure, change func(second uint64, s *snapshot.Sample)) *snapshot.Snapshot {
	const seconds = 125
	h := history()
	var t totals
	var s *snapshot.Snapshot
	for i := range seconds {
		raw := sample(i, l.at(i, seconds), &t)
		change(uint64(i), raw)
		s = h.Add(raw)
	}
	return s
}

// at is the load at second i of n: it grows over the middle of the time and
// is never quite steady.
func (l Pressure) at(i, n int) Pressure {
	grown := min(1, max(0.05, 2*float64(i)/float64(n)-0.5))
	wave := grown * (1 + 0.25*math.Sin(float64(i)/3))
	if i > n-15 {
		wave = grown
	}
	l.CPU, l.MemorySome, l.MemoryFull, l.IO, l.Stall = min(1, l.CPU*wave), l.MemorySome*wave, l.MemoryFull*wave, l.IO*wave, l.Stall*grown
	return l
}
