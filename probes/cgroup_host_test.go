package probes

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
)

// These tests read this machine's own cgroups. They make some of a name of
// their own, and remove them.

const patience = 20 * time.Second

func hostCgroups(t *testing.T) *Cgroups {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	c, err := FindCgroups("/proc", "", nil)
	if err != nil {
		t.Skipf("needs a cgroup file system: %v", err)
	}
	return c
}

// makeCgroup makes one in the hierarchies named (all that are read when none
// is), removes it at the end and returns its path.
func makeCgroup(t *testing.T, c *Cgroups, below string, hierarchies ...string) string {
	t.Helper()
	cgroup := "/plimsoll-test-" + strings.ToLower(rand.Text()) + below
	for _, dir := range hostDirs(t, c, hierarchies) {
		top := dir + "/" + strings.Split(cgroup, "/")[1]
		t.Cleanup(func() { removeCgroups(t, top) })
		require.NoError(t, os.MkdirAll(dir+cgroup, 0o755))
	}
	return cgroup
}

func hostDirs(t *testing.T, c *Cgroups, hierarchies []string) []string {
	t.Helper()
	if len(hierarchies) == 0 {
		return c.dirs
	}
	var dirs []string
	for _, h := range hierarchies {
		i, ok := c.at[h]
		if !ok {
			t.Skipf("needs a mounted %s hierarchy", h)
		}
		dirs = append(dirs, c.dirs[i])
	}
	return dirs
}

// removeCgroups removes a cgroup and those below: the deepest first, and again
// while the kernel still lets go of the processes that were there.
func removeCgroups(t *testing.T, top string) {
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	assert.Eventually(t, func() bool {
		for _, d := range dirs {
			_ = os.Remove(d)
		}
		_, err := os.Stat(top)
		return errors.Is(err, os.ErrNotExist)
	}, patience, 10*time.Millisecond, "remove %s", top)
}

// child is this test binary again, doing as it is told, one word a line; it
// answers each with a line.
type child struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

const childEnv = "PLIMSOLL_CGROUP_CHILD"

// startChild runs the same test in a new process; see actAsChild.
func startChild(t *testing.T) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), childEnv+"=1", "GOMAXPROCS=1", "GOCOVERDIR="+t.TempDir())
	r, in, err := os.Pipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stdin = r
	require.NoError(t, cmd.Start())
	require.NoError(t, r.Close())
	c := &child{cmd, in, bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Equal(t, "done", c.do(t, "start"))
	return c
}

func (c *child) do(t *testing.T, word string) string {
	t.Helper()
	_, err := fmt.Fprintln(c.in, word)
	require.NoError(t, err)
	if !c.out.Scan() {
		return ""
	}
	return c.out.Text()
}

// enter moves the child into a cgroup of some hierarchies.
func (c *child) enter(t *testing.T, cgroups *Cgroups, cgroup string, hierarchies ...string) {
	t.Helper()
	for _, dir := range hostDirs(t, cgroups, hierarchies) {
		require.NoError(t, os.WriteFile(dir+cgroup+"/cgroup.procs", []byte(strconv.Itoa(c.cmd.Process.Pid)), 0o600))
	}
}

// actAsChild says whether this process is a child; it then has done its work.
func actAsChild() bool {
	if os.Getenv(childEnv) == "" {
		return false
	}
	var kept [][]byte
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "allocate":
			b := make([]byte, 32<<20)
			for i := 0; i < len(b); i += os.Getpagesize() {
				b[i] = 1
			}
			kept = append(kept, b)
		case "burn":
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			}
		}
		fmt.Println("done")
	}
	runtime.KeepAlive(kept)
	os.Exit(0)
	return true
}

func rawNumber(t *testing.T, path string) uint64 {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	require.NoError(t, err)
	return n
}

func readOne(t *testing.T, c *Cgroups, cgroup string) Workload {
	t.Helper()
	workloads := mustRead(t, c)
	i := slices.IndexFunc(workloads, func(w Workload) bool { return w.Cgroup == cgroup })
	require.GreaterOrEqual(t, i, 0, "%s is not among %v", cgroup, cgroupPaths(workloads))
	return workloads[i]
}

func must(t *testing.T, o Opt[uint64], absent Absent) uint64 {
	t.Helper()
	v, ok := o.Get()
	require.True(t, ok, "%v", absent)
	return v
}

func TestTheHostsLayoutIsTheOneContainerdSees(t *testing.T) {
	c := hostCgroups(t)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err != nil && !strings.HasPrefix(c.dirs[0], "/sys/fs/cgroup/") {
		t.Skip("the library looks nowhere but below /sys/fs/cgroup")
	}
	want := map[cgroups.CGMode]string{cgroups.Unified: "v2", cgroups.Hybrid: "hybrid", cgroups.Legacy: "v1"}
	assert.Equal(t, want[cgroups.Mode()], c.Flavour())
	assert.Equal(t, c.dirs, mustFind(t, "/sys/fs/cgroup").dirs, "the mounts and the tree say the same")
}

func TestAProcessOnThisHostIsReadAsTheKernelsFilesSay(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	cgroup := makeCgroup(t, c, "/cron.service")
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
	var w Workload
	require.Eventually(t, func() bool {
		before := rawNumber(t, filepath.Join(memory, usage))
		w = readOne(t, c, cgroup)
		read, _ := w.MemoryBytes.Get()
		return read == before && read == rawNumber(t, filepath.Join(memory, usage))
	}, patience, 10*time.Millisecond)
	assert.GreaterOrEqual(t, must(t, w.MemoryBytes, w.Absent), uint64(32<<20))
	assert.Equal(t, st.Ino, w.Inode)
	assert.Equal(t, KindService, w.Kind)
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
func comparePressure(t *testing.T, c *Cgroups, cgroup string) {
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

func TestAProcessThatIsElsewhereInSomeHierarchiesHasPartOfTheMeasurements(t *testing.T) {
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

func TestPSISwitchedOffForOneCgroupIsSaidAndLeavesTheOthers(t *testing.T) {
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
	assert.Equal(t, Absent{"cpu": whyPSICgroupOff, "memory": whyPSICgroupOff, "io": whyPSICgroupOff}, w.Pressure.Absent)
	assert.Zero(t, w.Pressure.CPU)
	w = readOne(t, c, parent)
	must(t, w.Pressure.CPU.Some, w.Pressure.Absent)

	require.NoError(t, os.WriteFile(dir+cgroup+"/cgroup.pressure", []byte("1"), 0o600))
	w = readOne(t, c, cgroup)
	must(t, w.Pressure.IO.Full, w.Pressure.Absent)
}

func TestAThreadedCgroupIsPartOfWhereItsThreadsAreRooted(t *testing.T) {
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

func TestOnV1AnOOMKillInAContainerCountsForItsPod(t *testing.T) {
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

	require.Eventually(t, func() bool { return readOne(t, c, pod).OOMKills == u64(1) }, patience, 10*time.Millisecond)
	own, err := os.ReadFile(dir + pod + "/memory.oom_control")
	require.NoError(t, err)
	assert.Contains(t, string(own), "oom_kill 0\n", "the kernel counts it in the container alone")
	assert.Equal(t, u64(rawNumber(t, dir+container+"/memory.failcnt")), readOne(t, c, pod).LimitHits)
}

func TestOnV1ThrottlingOfAContainerCountsForItsPod(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	container := makeCgroup(t, c, "/kubepods/pod6f7c1c9e-3f0a/c0ffee", "cpu", "cpuacct")
	pod := filepath.Dir(container)
	quota := c.dirs[c.at["cpu"]] + container + "/cpu.cfs_quota_us"
	if err := os.WriteFile(quota, []byte("10000"), 0o600); err != nil {
		t.Skipf("needs CPU quotas (CONFIG_CFS_BANDWIDTH): %v", err)
	}
	p := startChild(t)
	p.enter(t, c, container, "cpu", "cpuacct")
	require.Equal(t, "done", p.do(t, "burn"))
	w := readOne(t, c, pod)
	assert.Greater(t, must(t, w.ThrottledMicroseconds, w.Absent), uint64(1000))
	assert.Greater(t, must(t, w.CPUMicroseconds, w.Absent), uint64(1000))
}

func TestAFileThatMayNotBeReadIsAbsentAndNotZero(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	cgroup := makeCgroup(t, c, "", unified)
	p := startChild(t)
	p.enter(t, c, cgroup, unified)
	file := c.dirs[c.at[unified]] + cgroup + "/memory.pressure"
	require.NoError(t, os.Chmod(file, 0))

	// Root may read what nobody may; nobody may not. Of this thread alone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Setfsuid(65534))
	defer func() { require.NoError(t, unix.Setfsuid(0)) }()
	w := readOne(t, c, cgroup)
	assert.Equal(t, Absent{"memory": "PSI may not be read: memory.pressure: permission denied"}, w.Pressure.Absent)
	assert.Zero(t, w.Pressure.Memory)
	must(t, w.Pressure.CPU.Some, w.Pressure.Absent)
}

func TestCgroupsThatComeAndGoWhileTheyAreReadCostNothing(t *testing.T) {
	if actAsChild() {
		return
	}
	c := hostCgroups(t)
	top := makeCgroup(t, c, "/kubepods")
	p := startChild(t)
	p.enter(t, c, filepath.Dir(top), "memory")

	var done atomic.Bool
	result := make(chan error, 1)
	go func() {
		defer done.Store(true)
		result <- comeAndGo(c.dirs, top, 200)
	}()
	reads, seen := 0, 0
	for !done.Load() {
		workloads, err := c.Read()
		require.NoError(t, err)
		reads++
		for _, w := range workloads {
			if strings.HasPrefix(w.Cgroup, top) {
				seen++
				assert.Equal(t, KindPod, w.Kind)
				assert.NotZero(t, w.Inode)
			}
		}
	}
	require.NoError(t, <-result)
	for _, w := range mustRead(t, c) {
		assert.False(t, strings.HasPrefix(w.Cgroup, top), "%s is gone", w.Cgroup)
	}
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
