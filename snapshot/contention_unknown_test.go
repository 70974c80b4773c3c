package snapshot

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestUncountedIO is of nodes whose kernel does not count whose requests a disk serves.
func TestUncountedIO(t *testing.T) {
	const why = "blkio inactive"
	disks := []Disk{leafDisk("sda", "8:0", 100, 100<<20)}
	disks[0].WeightedMs = 900
	of := func(node float64, users ...user) *Snapshot {
		n := sharing{source: IOBlkio, disks: disks, users: users, uncounted: why, ioStall: node}
		return n.after(10)
	}
	t.Run("a service that waits is named, and it is no all-clear", func(t *testing.T) {
		c := onDevice(t, of(0.9, user{cgroup: database, ioStall: 0.7}, user{cgroup: backup, ioStall: 0.9}), "sda")
		assert.Equal(t, ContentionUnknown, c.State)
		assert.Equal(t, []string{backup + " 90 %", database + " 70 %"}, sufferers(c))
		assert.True(t, c.Sufferers[1].Share.IsZero(), "its own share is not zero but unknown")
		assert.Equal(t, "pod 11111111-1111-1111-1111-111111111111 waits 70 % of the time, and whether for others or for itself is not counted: blkio inactive", c.Unknown())
		assert.True(t, c.Coverage.IsZero())
		assert.Equal(t, why, c.Absent["culprits"])
	})
	t.Run("where none waits it is busy, as PSI tells", func(t *testing.T) {
		c := onDevice(t, of(0.04, user{cgroup: database, ioStall: 0.03}), "sda")
		assert.Equal(t, ContentionBusy, c.State)
		assert.Empty(t, c.Unknown())
	})
	t.Run("the lowest class may wait", func(t *testing.T) {
		c := onDevice(t, of(0.9, user{cgroup: backup, ioStall: 0.9}), "sda")
		assert.Equal(t, ContentionBusy, c.State)
	})
	t.Run("a service that is counted and waits is contention all the same", func(t *testing.T) {
		n := sharing{source: IOBlkio, disks: disks, ioStall: 0.9, users: []user{
			{cgroup: database, reads: map[string]uint64{"8:0": 30}, bytes: 4096, ioStall: 0.5}, {cgroup: web, ioStall: 0.9},
		}}
		c := onDevice(t, n.after(10), "sda")
		assert.Equal(t, ContentionPresent, c.State)
		assert.Equal(t, []string{web + " 90 %", database + " 46 %"}, sufferers(c), "on v1 the writes of the other are not counted")
	})
	t.Run("a lone writer, of whose requests v1 counts only a few reads", func(t *testing.T) {
		writes := Disk{Name: "sda", Number: "8:0", Layer: LayerLeaf, DiskCounters: DiskCounters{
			Reads: 2, ReadBytes: 2 * 4096, ReadMs: 10, Writes: 400, WrittenBytes: 100 << 20, WriteMs: 4000,
		}}
		n := sharing{source: IOBlkio, disks: []Disk{writes}, ioStall: 0.9, users: []user{{cgroup: database, reads: map[string]uint64{"8:0": 2}, bytes: 4096, ioStall: 0.9}}}
		c := onDevice(t, n.after(10), "sda")
		assert.Equal(t, ContentionUnknown, c.State, "it may wait for its own writes")
		assert.Contains(t, c.Unknown(), "cgroup v1 counts no writes of the page cache")
		assert.Equal(t, []string{database + " 90 %"}, sufferers(c), "who waits is shown")
		n.source = ""
		c = onDevice(t, n.after(10), "sda")
		assert.Equal(t, ContentionUnknown, c.State, "v2 counts them: two reads a second of 5 ms each are not what it waits for")
		assert.Contains(t, c.Unknown(), "its requests on the disk are too few")
		n.users[0].reads["8:0"] = 30
		c = onDevice(t, n.after(10), "sda")
		assert.Equal(t, ContentionPresent, c.State, "30 are")
		assert.Contains(t, sufferers(c)[0], database+" 5", "no longer than they can take, less its own share")
	})
	t.Run("a reader of nearly all does not wait the longest, whoever wrote the rest", func(t *testing.T) {
		most := Disk{Name: "sda", Number: "8:0", Layer: LayerLeaf, DiskCounters: DiskCounters{
			Reads: 94, ReadBytes: 94 << 20, ReadMs: 3000, Writes: 6, WrittenBytes: 6 << 20, WriteMs: 200,
		}}
		n := sharing{source: IOBlkio, disks: []Disk{most}, ioStall: 0.9, users: []user{
			{cgroup: database, reads: map[string]uint64{"8:0": 93}, bytes: 1 << 20, ioStall: 0.9}, {cgroup: web, reads: map[string]uint64{"8:0": 1}, bytes: 1 << 20, ioStall: 0.4},
		}}
		c := onDevice(t, n.after(10), "sda")
		assert.Equal(t, []string{web + " 40 %", database + " 6 %"}, sufferers(c))
		assert.Contains(t, c.Unknown(), "waits 6 % of the time, and whether for others or for itself is not counted")
	})
	t.Run("a short wait that is counted does not hide a long one that is not", func(t *testing.T) {
		n := sharing{source: IOBlkio, disks: disks, ioStall: 0.9, users: []user{
			{cgroup: database, reads: map[string]uint64{"8:0": 10}, bytes: 4096, ioStall: 0.12}, {cgroup: web, ioStall: 0.9},
		}}
		c := onDevice(t, n.after(10), "sda")
		assert.Equal(t, ContentionPresent, c.State)
		assert.Contains(t, c.Unknown(), "waits 90 % of the time")
	})
	t.Run("a stall is split between the disks by their queues", func(t *testing.T) {
		two := append([]Disk{}, disks[0], leafDisk("sdb", "8:16", 100, 100<<20))
		two[1].WeightedMs = 100
		s := sharing{disks: two, users: []user{{cgroup: database, ioStall: 0.5}}, uncounted: why, ioStall: 0.5}.after(10)
		assert.Equal(t, []string{database + " 45 %"}, sufferers(onDevice(t, s, "sda")))
		assert.Equal(t, []string{database + " 5 %"}, sufferers(onDevice(t, s, "sdb")))
	})
}

// TestUnseenStall is of nodes on which some stall of workloads is unknown: no workload
// waits longer than the node.
func TestUnseenStall(t *testing.T) {
	disks := []Disk{leafDisk("sda", "8:0", 100, 100<<20)}
	reads := map[string]uint64{"8:0": 50}
	for what, row := range map[string]struct {
		n    sharing
		want ContentionState
	}{
		"the node does not stall":             {sharing{noPSI: true, ioStall: 0.04, users: []user{{cgroup: web, reads: reads, bytes: 1}}}, ContentionBusy},
		"the node stalls":                     {sharing{noPSI: true, ioStall: 0.06, users: []user{{cgroup: web, reads: reads, bytes: 1}}}, ContentionUnknown},
		"a pod of the lowest class is unseen": {sharing{noPSI: true, ioStall: 0.9, users: []user{{cgroup: backup, reads: reads, bytes: 1}}}, ContentionBusy},
		"the node's stall is unknown too":     {sharing{noPSI: true, ioStall: -1, users: []user{{cgroup: web, reads: reads, bytes: 1}}}, ContentionUnknown},
		"no workload is found":                {sharing{ioStall: 0.5}, ContentionUnknown},
		"no workload is found, and no stall":  {sharing{ioStall: 0.01}, ContentionBusy},
		"all is seen":                         {sharing{ioStall: 0.9, users: []user{{cgroup: web, reads: reads, bytes: 1}}}, ContentionBusy},
	} {
		t.Run(what, func(t *testing.T) {
			row.n.disks = disks
			c := onDevice(t, row.n.after(10), "sda")
			assert.Equal(t, row.want, c.State)
			assert.Equal(t, row.want == ContentionUnknown, c.Unknown() != "", c.Unknown())
		})
	}
}

// TestCPUContention is of a node whose kernel counts for whom a workload waits: while
// tasks of it wait and none runs (full), others have the CPUs.
func TestCPUContention(t *testing.T) {
	cpu := func(n sharing) Contention { return onDevice(t, n.after(20), "") }
	node := func(change ...func(*sharing)) sharing {
		n := sharing{cpus: 2, cpuStall: 0.9, users: []user{
			{cgroup: backup, cores: 1.5, cpuStall: 0.99, itself: 0.78},
			{cgroup: database, cores: 0.4, cpuStall: 0.8, itself: 0.16},
			{cgroup: web, cores: 0.05, cpuStall: 0.5, held: 0.6},
		}}
		for _, f := range change {
			f(&n)
		}
		return n
	}
	c := cpu(node())
	assert.Equal(t, SharedCPU, c.Resource)
	assert.Equal(t, ContentionPresent, c.State)
	assert.Equal(t, []string{backup + " 77 %", database + " 21 %", web + " 3 %"}, culprits(c))
	assert.InDelta(t, 1.5, c.Culprits[0].Cores, 1e-6)
	assert.Equal(t, []string{database + " 64 %", backup + " 21 %"}, sufferers(c), "a pod that its own quota holds back waits for nothing else")

	t.Run("what a quota held back is unknown", func(t *testing.T) {
		c := cpu(node(func(n *sharing) { n.users[2].held, n.users[1].cpuStall = -1, 0.2 }))
		assert.Equal(t, ContentionUnknown, c.State)
		assert.Contains(t, c.Unknown(), "waits 50 % of the time")
		assert.Contains(t, c.Unknown(), "no cpu.stat")
	})
	t.Run("that one waits does not hide what is unknown of another", func(t *testing.T) {
		c := cpu(node(func(n *sharing) { n.users[2].held = -1 }))
		assert.Equal(t, ContentionPresent, c.State)
		assert.Contains(t, c.Unknown(), "waits 50 % of the time")
	})
	t.Run("a cgroup without the controller has no quota", func(t *testing.T) {
		c := cpu(node(func(n *sharing) { n.users[2].held = -2 }))
		assert.Equal(t, ContentionPresent, c.State)
		assert.Empty(t, c.Unknown())
		assert.Contains(t, sufferers(c), web+" 50 %")
	})
	t.Run("a kernel that does not count for whom", func(t *testing.T) {
		c := cpu(node(func(n *sharing) { n.users[1].itself = -1 }))
		assert.Equal(t, ContentionUnknown, c.State)
		assert.Contains(t, c.Unknown(), "waits 80 % of the time")
		assert.Contains(t, c.Unknown(), "before 5.13")
	})
	t.Run("a node that does little has none", func(t *testing.T) {
		assert.Empty(t, sharing{cpus: 2, cpuStall: 0.04, users: []user{{cgroup: web, cores: 0.8, cpuStall: 0.04}}}.after(10).Contention)
	})
	t.Run("a busy node on which nothing waits", func(t *testing.T) {
		c := cpu(sharing{cpus: 2, cpuStall: 0.99, users: []user{{cgroup: web, cores: 1.99, cpuStall: 0.99, itself: 0.98}}})
		assert.Equal(t, ContentionBusy, c.State)
		assert.NotContains(t, strings.Join(sufferers(c), ""), web+" 9", "it waits for itself")
	})
}

// TestCPUPool is of a made-up node of 64 CPUs: 40 of them compute, each for one task,
// and two are all that two pods may use, as a kubelet's static CPU manager leaves it.
func TestCPUPool(t *testing.T) {
	pool := sharing{cpus: 64, others: 20, cpuStall: 0.03, users: []user{
		{cgroup: database, cores: 0.5, cpuStall: 0.9, itself: 0.2}, {cgroup: web, cores: 1.5, cpuStall: 0.95, itself: 0.7},
	}}
	t.Run("who waits there is seen, however small the node's stall", func(t *testing.T) {
		s := pool.after(20)
		c := onDevice(t, s, "")
		assert.Equal(t, ContentionPresent, c.State)
		assert.Equal(t, []string{database + " 70 %", web + " 25 %"}, sufferers(c))
		w, _ := s.Over(10 * time.Second)
		longest, atMost := CPUWait(s.Workloads, w)
		assert.InDelta(t, 0.7, longest, 0.01)
		assert.InDelta(t, 0.7, atMost, 0.01)
	})
	t.Run("where the pods' own stall is unknown the node's does not clear them", func(t *testing.T) {
		unseen := pool
		unseen.noPSI, unseen.others = true, 40
		c := onDevice(t, unseen.after(20), "")
		assert.Equal(t, ContentionUnknown, c.State, "3 % of 64 CPUs are nearly two of them")
	})
	t.Run("a stall of the node so small that no CPU waited much", func(t *testing.T) {
		unseen := pool
		unseen.noPSI, unseen.others, unseen.cpuStall = true, 40, 0.003
		assert.Equal(t, ContentionBusy, onDevice(t, unseen.after(20), "").State)
	})
}

// TestHeldByQuota has what the kernel reported of pods with a quota. It counts the time
// in which a quota held a pod back on each CPU, and their pressure is a mean over CPUs.
func TestHeldByQuota(t *testing.T) {
	for what, row := range map[string]struct {
		cores, full, throttled float64
		cpus                   int
		want                   float64
	}{
		"recorded: four tasks, half of a CPU, on two":      {0.50, 0.75, 1.45, 2, 0.73},
		"made up: one task, a twentieth of a CPU":          {0.05, 0.95, 0.95, 8, 0.95},
		"made up: four tasks, two CPUs, on eight":          {2, 0.5, 2, 8, 0.5},
		"made up: the same, and others have half the rest": {1, 0.75, 2, 8, 0.5},
		"made up: a pod that hardly runs":                  {0.01, 0.995, 0.99, 8, 0.99},
		"made up: the number of CPUs is unknown":           {2, 0.5, 2, 0, 2},
	} {
		t.Run(what, func(t *testing.T) {
			r := WorkloadRates{CPUCores: Some(row.cores), ThrottledRatio: Some(row.throttled)}
			r.Pressure.CPU.Full = Some(row.full)
			held, known := heldByQuota(&Workload{}, &r, row.cpus)
			assert.True(t, known)
			assert.InDelta(t, row.want, held, 0.01)
		})
	}
}
