package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// These tests read this machine's own cgroups. They make some of a name of
// their own, and remove them.

func rawNumber(t *testing.T, path string) uint64 {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	require.NoError(t, err)
	return n
}

func readOne(t *testing.T, c *Reader, cgroup string) snapshot.Workload {
	t.Helper()
	workloads := mustRead(t, c)
	i := slices.IndexFunc(workloads, func(w snapshot.Workload) bool { return w.Cgroup == cgroup })
	require.GreaterOrEqual(t, i, 0, "%s is not among %v", cgroup, cgroupPaths(workloads))
	return workloads[i]
}

func must(t *testing.T, o snapshot.Opt[uint64], absent snapshot.Absent) uint64 {
	t.Helper()
	v, ok := o.Get()
	require.True(t, ok, "%v", absent)
	return v
}

func TestCgroupFlavourAsContainerd(t *testing.T) {
	c := hostCgroups(t)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err != nil && !strings.HasPrefix(c.dirs[0], "/sys/fs/cgroup/") {
		t.Skip("the library looks nowhere but below /sys/fs/cgroup")
	}
	want := map[cgroups.CGMode]string{cgroups.Unified: "v2", cgroups.Hybrid: "hybrid", cgroups.Legacy: "v1"}
	assert.Equal(t, want[cgroups.Mode()], c.Flavour())
	assert.Equal(t, c.dirs, mustFind(t, "/sys/fs/cgroup").dirs, "the mounts and the tree say the same")
}

func TestCgroupValuesOfProcess(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	cgroup := makeCgroup(t, c, "/cron.service")
	kerneltest.Delegate(c.dirs, filepath.Dir(cgroup))
	p := startChild(t)
	p.enter(t, c, cgroup)
	require.Equal(t, "done", p.do(t, "allocate"))
	require.Equal(t, "done", p.do(t, "burn"))

	memory, usage := c.dirs[0]+cgroup, "memory.usage_in_bytes"
	if c.Flavour() == "v2" {
		usage = "memory.current"
	}
	if _, err := os.Stat(filepath.Join(memory, usage)); err != nil {
		t.Skipf("needs a memory controller: %v", err)
	}
	var st unix.Stat_t
	require.NoError(t, unix.Stat(memory, &st))

	// The child rests, but its runtime may still give memory back.
	var w snapshot.Workload
	kerneltest.Until(t, func() bool {
		before := rawNumber(t, filepath.Join(memory, usage))
		w = readOne(t, c, cgroup)
		read, _ := w.MemoryBytes.Get()
		return read == before && read == rawNumber(t, filepath.Join(memory, usage))
	})
	assert.GreaterOrEqual(t, must(t, w.MemoryBytes, w.Absent), uint64(32<<20))
	assert.Equal(t, st.Ino, w.Inode)
	assert.Equal(t, snapshot.KindService, w.Kind)
	assert.Equal(t, "cron.service", w.Name)
	assert.True(t, w.MemoryLimitBytes.IsZero())
	assert.Equal(t, u64(0), w.OOMKills)
	assert.NotContains(t, w.Absent, "memoryLimitBytes")
	assert.GreaterOrEqual(t, must(t, w.CPUMicroseconds, w.Absent), uint64(300_000))
	if c.Flavour() != "v1" {
		must(t, w.Pressure.CPU.Some, w.Pressure.Absent)
	}
	comparePressure(t, c, cgroup)
}

// comparePressure holds a reading between two of the raw files.
func comparePressure(t *testing.T, c *Reader, cgroup string) {
	t.Helper()
	i, ok := c.at[unified]
	if !ok {
		return
	}
	raw := func() uint64 {
		b, err := os.ReadFile(c.dirs[i] + cgroup + "/cpu.pressure")
		require.NoError(t, err)
		_, total, _ := strings.Cut(strings.SplitN(string(b), "\n", 2)[0], "total=")
		n, err := strconv.ParseUint(total, 10, 64)
		require.NoError(t, err)
		return n
	}
	before := raw()
	w := readOne(t, c, cgroup)
	read := must(t, w.Pressure.CPU.Some, w.Pressure.Absent)
	assert.LessOrEqual(t, before, read)
	assert.GreaterOrEqual(t, raw(), read)
}

func TestCgroupPartOfHierarchies(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	cgroup := makeCgroup(t, c, "", "memory", unified)
	other := makeCgroup(t, c, "", "memory", "cpuacct")
	p := startChild(t)
	p.enter(t, c, cgroup, unified)
	p.enter(t, c, other, "memory")

	w := readOne(t, c, other)
	must(t, w.MemoryBytes, w.Absent)
	assert.Equal(t, u64(0), w.CPUMicroseconds, "the cgroup is there, and it has done nothing")
	assert.Equal(t, "no cgroup of this path in the unified hierarchy", w.Absent["pressure"])
	assert.Equal(t, "no cgroup of this path in the blkio hierarchy", w.Absent["io"])
	w = readOne(t, c, cgroup)
	must(t, w.Pressure.CPU.Some, w.Pressure.Absent)
	assert.Equal(t, "no cgroup of this path in the cpuacct hierarchy", w.Absent["cpuMicrosecondsTotal"])
}

func TestCgroupPSIDisabledForOne(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	cgroup := makeCgroup(t, c, "/sub", unified)
	parent := filepath.Dir(cgroup)
	p, q := startChild(t), startChild(t)
	p.enter(t, c, cgroup, unified)
	q.enter(t, c, parent, unified)
	dir := c.dirs[c.at[unified]]
	if err := os.WriteFile(dir+cgroup+"/cgroup.pressure", []byte("0"), 0o600); err != nil {
		t.Skipf("needs cgroup.pressure (kernel 6.1): %v", err)
	}
	w := readOne(t, c, cgroup)
	assert.Equal(t, snapshot.Absent{"cpu": psi.WhyOffForCgroup, "memory": psi.WhyOffForCgroup, "io": psi.WhyOffForCgroup}, w.Pressure.Absent)
	assert.Zero(t, w.Pressure.CPU)
	w = readOne(t, c, parent)
	must(t, w.Pressure.CPU.Some, w.Pressure.Absent)

	require.NoError(t, os.WriteFile(dir+cgroup+"/cgroup.pressure", []byte("1"), 0o600))
	w = readOne(t, c, cgroup)
	must(t, w.Pressure.IO.Full, w.Pressure.Absent)
}

func TestCgroupThreaded(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	cgroup := makeCgroup(t, c, "/threads", unified)
	root := filepath.Dir(cgroup)
	dir := c.dirs[c.at[unified]]
	p := startChild(t)
	p.enter(t, c, root, unified)
	require.NoError(t, os.WriteFile(dir+cgroup+"/cgroup.type", []byte("threaded"), 0o600))
	require.NoError(t, os.WriteFile(dir+cgroup+"/cgroup.threads", []byte(strconv.Itoa(p.cmd.Process.Pid)), 0o600))
	_, err := os.ReadFile(dir + cgroup + "/cgroup.procs")
	require.ErrorIs(t, err, unix.EOPNOTSUPP)

	workloads := mustRead(t, c)
	assert.NotContains(t, cgroupPaths(workloads), cgroup)
	assert.Contains(t, cgroupPaths(workloads), root)
	assert.NotContains(t, readOne(t, c, root).Absent, "processes")
}

func TestCgroupRemovedErrors(t *testing.T) {
	c := hostCgroups(t)
	dir := c.dirs[0] + makeCgroup(t, c, "")
	open, err := os.Open(dir + "/cgroup.procs")
	require.NoError(t, err)
	defer open.Close()
	d, err := new(pathBuffer).openDir(dir)
	require.NoError(t, err)
	defer d.close()
	require.True(t, d.alive(new(pathBuffer)))

	require.NoError(t, os.Remove(dir))
	_, err = open.Read(make([]byte, 8))
	require.ErrorIs(t, err, unix.ENODEV)
	assert.True(t, isRemoved(err), "read of a file that was open")
	_, err = d.read(new(pathBuffer), "cgroup.procs", nil)
	require.ErrorIs(t, err, unix.ENOENT)
	assert.True(t, isRemoved(err), "open in a directory that was open")
	assert.False(t, d.alive(new(pathBuffer)))
}

func TestCgroupFileForbiddenIsAbsent(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	cgroup := makeCgroup(t, c, "", unified)
	p := startChild(t)
	p.enter(t, c, cgroup, unified)
	file := c.dirs[c.at[unified]] + cgroup + "/memory.pressure"
	require.NoError(t, os.Chmod(file, 0))

	var w snapshot.Workload
	kerneltest.Unprivileged(t, func() { w = readOne(t, c, cgroup) })
	assert.Equal(t, snapshot.Absent{"memory": "no permission to read PSI: memory.pressure: permission denied"}, w.Pressure.Absent)
	assert.Zero(t, w.Pressure.Memory)
	must(t, w.Pressure.CPU.Some, w.Pressure.Absent)
}

func TestCgroupComeAndGoDuringRead(t *testing.T) {
	c := hostCgroups(t)
	top := makeCgroup(t, c, "/kubepods")

	var done atomic.Bool
	result := make(chan error, 1)
	go func() {
		defer done.Store(true)
		result <- comeAndGo(c.dirs, top, 200)
	}()
	reads, seen := 0, 0
	for !done.Load() {
		workloads, err := c.Read(c.now + time.Hour)
		require.NoError(t, err)
		reads++
		for _, w := range workloads {
			if strings.HasPrefix(w.Cgroup, top) {
				seen++
				assert.Equal(t, snapshot.KindPod, w.Kind)
				assert.NotZero(t, w.Inode)
			}
		}
	}
	require.NoError(t, <-result)
	for _, w := range mustRead(t, c) {
		assert.False(t, strings.HasPrefix(w.Cgroup, top), "%s is gone", w.Cgroup)
	}
	assert.Positive(t, reads)
	t.Logf("%d reads met %d of the pods", reads, seen)
}

// comeAndGo makes and removes n pods with a container each, one after another.
func comeAndGo(dirs []string, top string, n int) error {
	for i := range n {
		pod := fmt.Sprintf("%s/pod%d", top, i)
		for _, dir := range dirs {
			if err := os.MkdirAll(dir+pod+"/c0ffee", 0o755); err != nil {
				return err
			}
		}
		for _, dir := range dirs {
			if err := errors.Join(os.Remove(dir+pod+"/c0ffee"), os.Remove(dir+pod)); err != nil {
				return err
			}
		}
	}
	return nil
}

// A cgroup that is removed between opening and reading one of its files is
// reported as removed, not as one without the value.
func TestCgroupRemovedWhileFileOpen(t *testing.T) {
	c := hostCgroups(t)
	dir := c.dirs[0] + makeCgroup(t, c, "/kubepods")
	f, err := os.Open(dir + "/cgroup.procs")
	require.NoError(t, err)
	defer f.Close()
	of := &trackedWorkload{node: &node{}, reader: c}
	_, err = of.readOpen(int(f.Fd()), "cgroup.procs")
	require.NoError(t, err)
	assert.False(t, of.removed)
	require.NoError(t, unix.Rmdir(dir))
	_, err = of.readOpen(int(f.Fd()), "cgroup.procs")
	require.ErrorIs(t, err, unix.ENODEV)
	assert.True(t, of.removed)
}
