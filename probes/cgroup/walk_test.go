package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// madeUpV1 is a made-up host of v1 on which the same path is not everywhere.
func madeUpV1() map[string]string {
	return map[string]string{
		"memory/cgroup.procs":                      "1\n",
		"cpu,cpuacct/cgroup.procs":                 "1\n",
		"blkio/cgroup.procs":                       "1\n",
		"systemd/cgroup.procs":                     "1\n",
		"cpuset/cgroup.procs":                      "1\n",
		"memory/only-memory/cgroup.procs":          "10\n",
		"memory/only-memory/memory.usage_in_bytes": "4096\n",
		"cpu,cpuacct/only-cpu/cgroup.procs":        "11\n",
		"cpu,cpuacct/only-cpu/cpuacct.usage":       "5000999\n",
		"cpu,cpuacct/only-cpu/cpu.stat":            "nr_throttled 1\nthrottled_time 7000\n",
		"blkio/only-blkio/cgroup.procs":            "12\n",
		"systemd/only-systemd/cgroup.procs":        "13\n",
		"memory/a/b/cgroup.procs":                  "14\n",
		"memory/a/cgroup.procs":                    "",
		"blkio/a/cgroup.procs":                     "15\n",
	}
}

func TestCgroupV1FoundInAnyHierarchy(t *testing.T) {
	top := cgroupTree(t, madeUpV1())
	require.NoError(t, os.Symlink("cpu,cpuacct", filepath.Join(top, "cpu")))
	require.NoError(t, os.Symlink("cpu,cpuacct", filepath.Join(top, "cpuacct")))
	c := mustFind(t, top)
	assert.Equal(t, "v1", c.Flavour())
	assert.Len(t, c.dirs, 3, "cpu and cpuacct are one hierarchy")
	got := mustRead(t, c)
	require.Equal(t, []string{"/a", "/a/b", "/only-blkio", "/only-cpu", "/only-memory"}, cgroupPaths(got))

	assert.Empty(t, diffWorkload(snapshot.Workload{
		Cgroup: "/only-cpu", Kind: snapshot.KindOther, Name: "/only-cpu", CPUMicroseconds: u64(5000), ThrottledMicroseconds: u64(7),
		Absent: snapshot.Absent{
			"memory":   "no cgroup of this path in the memory hierarchy",
			"io":       "no cgroup of this path in the blkio hierarchy",
			"pressure": "no unified hierarchy is mounted",
		},
	}, got[3]))
	memory := got[4]
	assert.Equal(t, u64(4096), memory.MemoryBytes)
	assert.Equal(t, "no cgroup of this path in the cpuacct hierarchy", memory.Absent["cpuMicrosecondsTotal"])
	assert.Equal(t, "no cgroup of this path in the cpu hierarchy", memory.Absent["throttledMicrosecondsTotal"])
}

func TestCgroupV1InodeOfMemory(t *testing.T) {
	top := cgroupTree(t, madeUpV1())
	inode := func(path string) uint64 {
		d, err := new(pathBuffer).openDir(filepath.Join(top, path))
		require.NoError(t, err)
		defer d.close()
		n, _, err := d.inode()
		require.NoError(t, err)
		return n
	}
	got := mustRead(t, mustFind(t, top))
	assert.Equal(t, inode("memory/a"), got[0].Inode)
	assert.Equal(t, inode("blkio/only-blkio"), got[2].Inode)
}

func TestCgroupV1ContainersSummed(t *testing.T) {
	const pod = "memory/kubepods/pod6f7c/"
	files := map[string]string{
		"memory/cgroup.procs":                                   "1\n",
		pod + "cgroup.procs":                                    "",
		pod + "memory.failcnt":                                  "1\n",
		pod + "memory.limit_in_bytes":                           "9223372036854771712\n",
		pod + "memory.oom_control":                              "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
		pod + "c0/memory.failcnt":                               "20\n",
		pod + "c0/memory.oom_control":                           "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		pod + "c1/memory.failcnt":                               "300\n",
		pod + "c1/memory.oom_control":                           "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
		"memory/kubepods/burstable/podab/cgroup.procs":          "",
		"memory/kubepods/burstable/podab/memory.oom_control":    "oom_kill_disable 0\nunder_oom 0\n",
		"memory/kubepods/burstable/podab/memory.failcnt":        "1\n",
		"memory/kubepods/burstable/podab/c/memory.failcnt":      "18446744073709551615\n",
		"memory/kubepods/burstable/podab/memory.limit_in_bytes": "4096\n",
	}
	files["memory/kubepods/podff/cgroup.procs"], files["memory/kubepods/podff/memory.failcnt"] = "", "5\n"
	for i := range maxBelow + 100 {
		files[fmt.Sprintf("memory/kubepods/podff/%d/memory.failcnt", i)] = "1\n"
	}
	got := mustRead(t, mustFind(t, cgroupTree(t, files)))
	require.Equal(t, []string{"/kubepods/burstable/podab", "/kubepods/pod6f7c", "/kubepods/podff"}, cgroupPaths(got))
	assert.Equal(t, u64(5+maxBelow), got[2].LimitHits, "of more cgroups than are read")
	assert.Equal(t, u64(321), got[1].LimitHits)
	assert.Equal(t, u64(7), got[1].OOMKills)
	assert.True(t, got[1].MemoryLimitBytes.IsZero())
	assert.NotContains(t, got[1].Absent, "memoryLimitBytes", "no limit is no fault")

	assert.True(t, got[0].OOMKills.IsZero())
	assert.Equal(t, "no oom_kill in memory.oom_control (kernel before 4.13)", got[0].Absent["oomKillsTotal"])
	assert.True(t, got[0].LimitHits.IsZero())
	assert.Equal(t, "number above 2^64-1", got[0].Absent["limitHitsTotal"])
	assert.Equal(t, u64(4096), got[0].MemoryLimitBytes)
}

func TestCgroupRootsConfigured(t *testing.T) {
	files := map[string]string{"cgroup.controllers": "", "cgroup.procs": "1\n"}
	for _, dir := range []string{"a", "a/b", "a/b/c", "ab", "kubepods/pod1", "kubepods/pod1/c0", "z"} {
		files[dir+"/cgroup.procs"] = "9\n"
	}
	top := cgroupTree(t, files)
	for want, roots := range map[string][]string{
		"/a /a/b /a/b/c /ab /kubepods/pod1 /z":  nil,
		"/a/b /a/b/c":                           {"/a/b"},
		"/a /a/b /a/b/c /ab":                    {"a/b/", "/a", "ab", "/a", "/not-yet"},
		"/kubepods/pod1":                        {"/kubepods"},
		"/a /a/b /a/b/c /ab /kubepods/pod1 /z ": {"/z", "/"},
	} {
		assert.Equal(t, strings.Fields(want), cgroupPaths(mustRead(t, mustFind(t, top, roots...))), roots)
	}
}

func TestCgroupUnmountedIsError(t *testing.T) {
	top := cgroupTree(t, madeUpV2())
	c := mustFind(t, top)
	require.NoError(t, os.RemoveAll(top))
	require.NoError(t, os.Mkdir(top, 0o755))
	workloads, err := c.Read(c.now + time.Hour)
	require.EqualError(t, err, "read cgroups: no cgroup file system: "+top+"/cgroup.procs: no such file or directory")
	assert.Empty(t, workloads)

	v1 := cgroupTree(t, madeUpV1())
	c = mustFind(t, v1)
	require.NoError(t, os.RemoveAll(filepath.Join(v1, "memory")))
	assert.Equal(t, []string{"/a", "/only-blkio", "/only-cpu"}, cgroupPaths(mustRead(t, c)), "one hierarchy less is no reason to see nothing")
}

func TestCgroupUnlistableIsWorkload(t *testing.T) {
	files := madeUpV2()
	delete(files, "cron/cgroup.procs")
	top := cgroupTree(t, files)
	require.NoError(t, os.Symlink("/proc/self/mem", filepath.Join(top, "cron/cgroup.procs")))
	got := mustRead(t, mustFind(t, top))
	require.Equal(t, []string{"/cron", madeUpPod}, cgroupPaths(got))
	assert.Equal(t, "cgroup.procs: input/output error", got[0].Absent["processes"])
	assert.Equal(t, u64(9), got[0].CPUMicroseconds)
}

func TestCgroupReadStaysWithOpened(t *testing.T) {
	top := cgroupTree(t, map[string]string{"x/cgroup.procs": "1\n", "x/memory.current": "1\n"})
	d, err := new(pathBuffer).openDir(filepath.Join(top, "x"))
	require.NoError(t, err)
	defer d.close()
	require.True(t, d.alive(new(pathBuffer)))

	require.NoError(t, os.RemoveAll(filepath.Join(top, "x")))
	require.NoError(t, os.Mkdir(filepath.Join(top, "x"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(top, "x/memory.current"), []byte("2\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(top, "x/cgroup.procs"), []byte("2\n"), 0o600))
	_, err = d.read(new(pathBuffer), "memory.current", nil)
	assert.True(t, isRemoved(err), "%v", err)
	assert.False(t, d.alive(new(pathBuffer)))
}

// Each user of the machine may give a cgroup below its session the name of a pod's.
func TestCgroupOfPodIsRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a file to another user")
	}
	const pod, fake = "/kubepods.slice/kubepods-podaa.slice", "/user.slice/user@1000.service/kubepods.slice/kubepods-podaa.slice"
	top := cgroupTree(t, map[string]string{
		"cgroup.controllers": "", "cgroup.procs": "1\n", pod[1:] + "/cgroup.procs": "2\n", fake[1:] + "/cgroup.procs": "3\n", fake[1:] + "/memory.current": "9\n",
	})
	require.NoError(t, os.Chown(filepath.Join(top, fake), 1000, 1000))
	got := mustRead(t, mustFind(t, top))
	require.Equal(t, []string{pod, fake}, cgroupPaths(got))
	assert.Equal(t, "aa", got[0].PodUID)
	assert.Equal(t, snapshot.KindOther, got[1].Kind)
	assert.Empty(t, got[1].PodUID)
	assert.Equal(t, fake, got[1].Name)
	assert.Equal(t, u64(9), got[1].MemoryBytes)
}

func TestCgroupListingForbidden(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to read as another user")
	}
	top := cgroupTree(t, madeUpV2())
	require.NoError(t, filepath.WalkDir(filepath.Dir(top), func(path string, _ os.DirEntry, _ error) error { return os.Chmod(path, 0o755) }))
	require.NoError(t, os.Chmod(filepath.Join(top, "system.slice"), 0o711))
	c := mustFind(t, top)
	var got []snapshot.Workload
	kerneltest.Unprivileged(t, func() { got = mustRead(t, c) })
	require.Equal(t, []string{"/cron", madeUpPod, "/system.slice"}, cgroupPaths(got))
	assert.Contains(t, got[2].Absent["processes"], "list child cgroups: ")
	assert.Contains(t, got[2].Absent["processes"], "permission denied")
	assert.NotContains(t, got[1].Absent, "processes")
}

func TestCgroupV1MalformedBlkioLine(t *testing.T) {
	files := madeUpV1()
	files["blkio/a/blkio.throttle.io_serviced_recursive"] = "(unknown) Read 1\n(unknown) Write 1\n8:0 Read 1\n8:0 Write 2\nTotal 4\n"
	files["blkio/a/blkio.throttle.io_service_bytes_recursive"] = "8:0 Read 4096\n8:0 Write 8192\nTotal 12288\n"
	got := mustRead(t, mustFind(t, cgroupTree(t, files)))
	assert.Equal(t, []snapshot.WorkloadIO{{Number: "8:0", Reads: 1, Writes: 2, ReadBytes: 4096, WrittenBytes: 8192}}, got[0].IO)
	assert.NotContains(t, got[0].Absent, "io", "a path of NVMe multipath is no fault")

	files["blkio/a/blkio.throttle.io_serviced_recursive"] = "sda Read 1\n8:0 Read 1\n8:0 Write 2\nTotal 4\n"
	got = mustRead(t, mustFind(t, cgroupTree(t, files)))
	assert.Equal(t, []snapshot.WorkloadIO{{Number: "8:0", Reads: 1, Writes: 2, ReadBytes: 4096, WrittenBytes: 8192}}, got[0].IO)
	assert.Equal(t, `blkio.throttle.io_serviced_recursive: line "sda Read 1": counters without a device number`, got[0].Absent["io"])

	delete(files, "blkio/a/blkio.throttle.io_serviced_recursive")
	got = mustRead(t, mustFind(t, cgroupTree(t, files)))
	assert.Empty(t, got[0].IO, "bytes without operations are not zero operations")
	assert.Contains(t, got[0].Absent["io"], "blkio.throttle.io_serviced_recursive: no such file")

	files["blkio/a/blkio.throttle.io_serviced_recursive"] = "8:0 Read 1\n8:0 Write 2\n"
	delete(files, "blkio/a/blkio.throttle.io_service_bytes_recursive")
	got = mustRead(t, mustFind(t, cgroupTree(t, files)))
	assert.Empty(t, got[0].IO)
	assert.Contains(t, got[0].Absent["io"], "blkio.throttle.io_service_bytes_recursive: no such file")
}
