package snapshot

import (
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
			{cgroup: database, reads: map[string]uint64{"8:0": 10}, bytes: 4096, ioStall: 0.5}, {cgroup: web, ioStall: 0.9},
		}}
		c := onDevice(t, n.after(10), "sda")
		assert.Equal(t, ContentionPresent, c.State)
		assert.Equal(t, []string{web + " 90 %", database + " 49 %"}, sufferers(c), "on v1 the writes of the other are not counted")
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

func TestCPUContention(t *testing.T) {
	cpu := func(n sharing) Contention { return onDevice(t, n.after(20), "") }
	n := sharing{cpus: 2, cpuStall: 0.9, users: []user{
		{cgroup: backup, cores: 1.5, cpuStall: 0.9}, {cgroup: database, cores: 0.4, cpuStall: 0.8}, {cgroup: web, cores: 0.05, cpuStall: 0.5, held: 0.6},
	}}
	c := cpu(n)
	assert.Equal(t, SharedCPU, c.Resource)
	assert.Equal(t, ContentionPresent, c.State)
	assert.Equal(t, []string{backup + " 77 %", database + " 21 %", web + " 3 %"}, culprits(c))
	assert.InDelta(t, 1.5, c.Culprits[0].Cores, 1e-6)
	assert.Equal(t, []string{database + " 64 %", backup + " 21 %"}, sufferers(c), "a pod that its own quota holds back waits for nothing else")

	t.Run("what a quota held back is unknown", func(t *testing.T) {
		n.users[2].held = -1
		n.users[1].cpuStall = 0.1
		c := cpu(n)
		assert.Equal(t, ContentionUnknown, c.State)
		assert.Contains(t, c.Unknown(), "waits 50 % of the time")
		assert.Contains(t, c.Unknown(), "no cpu.stat")
	})
	t.Run("a cgroup without the controller has no quota", func(t *testing.T) {
		n.users[2].held = -2
		assert.Equal(t, ContentionPresent, cpu(n).State)
	})
	t.Run("a node that does little has none", func(t *testing.T) {
		assert.Empty(t, sharing{cpus: 2, cpuStall: 0.04, users: []user{{cgroup: web, cores: 0.8}}}.after(10).Contention)
	})
	t.Run("a busy node on which nothing waits", func(t *testing.T) {
		c := cpu(sharing{cpus: 2, cpuStall: 0.3, users: []user{{cgroup: web, cores: 1.99, cpuStall: 0.3}}})
		assert.Equal(t, ContentionBusy, c.State)
		assert.Empty(t, c.Sufferers)
	})
}

func TestRunnable(t *testing.T) {
	n := sharing{cpus: 2, cpuStall: 0.9, users: []user{{cgroup: web, cores: 1}}, runnable: 5}
	w, _ := n.after(10).Over(10 * time.Second)
	got, _ := w.Runnable().Get()
	assert.InDelta(t, 2.5, got, 1e-9)
	n.runnable = 0
	w, _ = n.after(10).Over(10 * time.Second)
	assert.True(t, w.Runnable().IsZero(), "a sample of an older recording has none")
}
