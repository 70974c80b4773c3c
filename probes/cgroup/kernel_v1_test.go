package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestCgroupV1OOMKillOfContainer(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	container := makeCgroup(t, c, "/kubepods/pod6f7c1c9e-3f0a/c0ffee", "memory")
	pod := filepath.Dir(container)
	dir := c.dirs[c.at["memory"]]
	limit := []byte(strconv.Itoa(16 << 20))
	require.NoError(t, os.WriteFile(dir+container+"/memory.limit_in_bytes", limit, 0o600))
	_ = os.WriteFile(dir+container+"/memory.memsw.limit_in_bytes", limit, 0o600) // only where swap is accounted
	p := startChild(t)
	p.enter(t, c, container, "memory")
	require.Empty(t, p.do(t, "allocate"), "32 MiB do not fit into 16 MiB")

	kerneltest.Until(t, func() bool { return readOne(t, c, pod).OOMKills == u64(1) })
	own, err := os.ReadFile(dir + pod + "/memory.oom_control")
	require.NoError(t, err)
	assert.Contains(t, string(own), "oom_kill 0\n", "the kernel counts it in the container alone")
	assert.Equal(t, u64(rawNumber(t, dir+container+"/memory.failcnt")), readOne(t, c, pod).LimitHits)
}

// What a container waits for memory at its limit is in the pressure of its pod, so that the
// hits are summed again, long before they would be in any case.
func TestCgroupV1LimitHitSeenByItsStall(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	if hostDirs(t, c, []string{"memory", unified}); !c.from.memory.v1 {
		t.Skip("needs cgroup v1 for memory")
	}
	container := makeCgroup(t, c, "/kubepods/pod6f7c1c9e-3f0a/c0ffee")
	memory := c.dirs[c.at["memory"]] + container
	require.NoError(t, os.WriteFile(memory+"/memory.limit_in_bytes", []byte(strconv.Itoa(16<<20)), 0o600))
	p := startChild(t)
	p.enter(t, c, container)
	at := time.Hour
	read := func(later time.Duration) snapshot.Workload {
		at += later
		workloads, err := c.Read(at)
		require.NoError(t, err)
		i := slices.IndexFunc(workloads, func(w snapshot.Workload) bool { return w.Cgroup == filepath.Dir(container) })
		require.GreaterOrEqual(t, i, 0, cgroupPaths(workloads))
		return workloads[i]
	}
	kerneltest.Until(t, func() bool {
		require.Equal(t, "done", p.do(t, "burn a little"))
		w := read(time.Millisecond)
		waited, known := w.Pressure.CPU.Some.Get()
		if !known {
			t.Skipf("needs the pressure of cgroups: %v", w.Pressure.Absent)
		}
		return waited > 0
	})
	before := read(detailEvery)
	p.do(t, "allocate") // more than fits: it is killed, or swaps
	after := read(detailEvery)
	assert.Greater(t, must(t, after.Pressure.Memory.Some, after.Absent), must(t, before.Pressure.Memory.Some, before.Absent))
	assert.Greater(t, rawNumber(t, memory+"/memory.failcnt"), must(t, before.LimitHits, before.Absent))
	assert.Equal(t, u64(rawNumber(t, memory+"/memory.failcnt")), after.LimitHits)
}

func TestCgroupV1ThrottlingOfContainer(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	container := makeCgroup(t, c, "/kubepods/pod6f7c1c9e-3f0a/c0ffee", "cpu", "cpuacct")
	pod := filepath.Dir(container)
	quota := c.dirs[c.at["cpu"]] + container + "/cpu.cfs_quota_us"
	if err := os.WriteFile(quota, []byte("2000"), 0o600); err != nil {
		t.Skipf("needs CPU quotas (CONFIG_CFS_BANDWIDTH): %v", err)
	}
	p := startChild(t)
	p.enter(t, c, container, "cpu", "cpuacct")
	var w snapshot.Workload
	// A quota is met only in a period in which the CPU was there to be used up.
	kerneltest.Until(t, func() bool {
		require.Equal(t, "done", p.do(t, "burn a little"))
		w = readOne(t, c, pod)
		return must(t, w.ThrottledMicroseconds, w.Absent) > 1000
	})
	assert.Greater(t, must(t, w.CPUMicroseconds, w.Absent), uint64(1000))
}
