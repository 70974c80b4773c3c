package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// ticks reads at instants that the test chooses.
type ticks struct {
	t  *testing.T
	c  *Reader
	at time.Duration
}

// ticksOf reads one root of a tree; without a name, of this host.
func ticksOf(t *testing.T, tree string, roots ...string) *ticks {
	t.Helper()
	return &ticks{t, mustFind(t, tree, roots...), time.Hour}
}

func (k *ticks) after(d time.Duration) []snapshot.Workload {
	k.t.Helper()
	k.at += d
	k.c.pace = pace{} // of this machine's load
	workloads, err := k.c.Read(k.at)
	require.NoError(k.t, err)
	return workloads
}

func (k *ticks) tick() []snapshot.Workload {
	k.t.Helper()
	return k.after(time.Second)
}

// one is the workload of a path; nil when there is none.
func one(workloads []snapshot.Workload, cgroup string) *snapshot.Workload {
	i := slices.IndexFunc(workloads, func(w snapshot.Workload) bool { return w.Cgroup == cgroup })
	if i < 0 {
		return nil
	}
	return &workloads[i]
}

// newHistory is that of an agent that ticks every second.
func newHistory() *snapshot.History {
	return &snapshot.History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 3 * time.Second}
}

// hostPods makes a parent cgroup for pods of this host's kernel, and a reader
// for it alone.
func hostPods(t *testing.T, hierarchies ...string) (c *Reader, kubepods string, k *ticks) {
	t.Helper()
	c = hostCgroups(t)
	kubepods = makeCgroup(t, c, "/kubepods", hierarchies...)
	k = ticksOf(t, "", filepath.Dir(kubepods))
	k.c.proc = "/proc"
	return c, kubepods, k
}

func mkdirs(t *testing.T, c *Reader, cgroup string, hierarchies ...string) {
	t.Helper()
	for _, dir := range hostDirs(t, c, hierarchies) {
		require.NoError(t, os.MkdirAll(dir+cgroup, 0o755))
	}
}

func rmdirs(t *testing.T, c *Reader, cgroup string, hierarchies ...string) {
	t.Helper()
	for _, dir := range hostDirs(t, c, hierarchies) {
		require.NoError(t, os.Remove(dir+cgroup))
	}
}

func TestPodSeenAndMissedNextRead(t *testing.T) {
	c, kubepods, k := hostPods(t)
	require.Empty(t, k.tick())
	for i := range 5 {
		pod := fmt.Sprintf("%s/pod%d", kubepods, i)
		mkdirs(t, c, pod)
		require.Equal(t, []string{pod}, cgroupPaths(k.tick()))
		rmdirs(t, c, pod)
		require.Empty(t, k.tick())
	}
}

// Removing one cgroup and adding another leaves the number of links unchanged.
func TestPodReplacedBetweenReads(t *testing.T) {
	c, kubepods, k := hostPods(t)
	mkdirs(t, c, kubepods+"/pod0")
	k.tick()
	for i := range 20 {
		rmdirs(t, c, fmt.Sprintf("%s/pod%d", kubepods, i))
		mkdirs(t, c, fmt.Sprintf("%s/pod%d", kubepods, i+1))
		require.Equal(t, []string{fmt.Sprintf("%s/pod%d", kubepods, i+1)}, cgroupPaths(k.after(time.Millisecond)))
	}
}

func TestPodRecreatedHasNoRates(t *testing.T) {
	c, kubepods, k := hostPods(t)
	pod := kubepods + "/pod0"
	h := newHistory()
	add := func() *snapshot.Snapshot {
		s := &snapshot.Sample{Monotonic: k.at + time.Second, Boottime: k.at + time.Second}
		s.Workloads = k.tick()
		require.Len(t, s.Workloads, 1)
		return h.Add(s)
	}
	mkdirs(t, c, pod)
	add()
	before := add()
	require.False(t, before.Workloads[0].Rates.IsZero())

	rmdirs(t, c, pod)
	mkdirs(t, c, pod)
	after := add()
	assert.NotEqual(t, before.Workloads[0].Inode, after.Workloads[0].Inode)
	assert.True(t, after.Workloads[0].Rates.IsZero(), "nothing of the one before is in the rates of this one")
	assert.False(t, add().Workloads[0].Rates.IsZero())
}

// A cgroup that is removed after it was listed is detected by its files, with
// all below it: none of their descriptors may be used or closed twice.
func TestCgroupNestedRemovedTogether(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	top := filepath.Dir(kubepods)
	names := []string{top + "/a", top + "/a/b", top + "/a/b/c", top + "/a/d"}
	k.tick()
	free, fds := k.c.fds.left, heldFiles(t, top)
	var children []*child
	for _, cgroup := range names {
		mkdirs(t, c, cgroup)
		p := startChild(t)
		p.enter(t, c, cgroup)
		children = append(children, p)
	}
	require.Equal(t, names, cgroupPaths(k.after(recheck)))

	k.c.now = k.at + time.Millisecond // Read, in its two steps
	k.c.refreshAll()
	for _, p := range children {
		p.end(t)
	}
	for _, dir := range c.dirs {
		kerneltest.RemoveCgroups(t, dir+top+"/a")
	}
	require.True(t, k.c.readTracked())
	require.Empty(t, k.c.workloads())
	require.Empty(t, k.after(2*time.Millisecond))
	assert.Equal(t, free, k.c.fds.left)
	assert.Equal(t, fds, heldFiles(t, top))
}

func TestCgroupWorkloadWhileProcesses(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	cgroup, other := filepath.Dir(kubepods)+"/job", kubepods
	mkdirs(t, c, cgroup)
	require.Empty(t, k.tick())
	p := startChild(t)
	p.enter(t, c, cgroup)
	require.Equal(t, []string{cgroup}, cgroupPaths(k.after(recheck)))
	p.enter(t, c, other)
	require.Equal(t, []string{other}, cgroupPaths(k.after(recheck)), "where it is now")
}

func TestCgroupFirstProcessSeenSoon(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	k.after(time.Minute)
	cgroup := filepath.Dir(kubepods) + "/job"
	mkdirs(t, c, cgroup)
	require.Empty(t, k.tick())
	p := startChild(t)
	p.enter(t, c, cgroup)
	assert.Equal(t, []string{cgroup}, cgroupPaths(k.tick()))
}

// Writing 0 to cgroup.pressure removes open files: reading them fails as for a
// removed cgroup.
func TestCgroupFilesVanish(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	pod := kubepods + "/pod0"
	mkdirs(t, c, pod)
	p := startChild(t)
	p.enter(t, c, pod)
	h := newHistory()
	add := func(after time.Duration) *snapshot.WorkloadState {
		workloads := k.after(after)
		require.Len(t, workloads, 1)
		return &h.Add(&snapshot.Sample{Monotonic: k.at, Boottime: k.at, Workloads: workloads}).Workloads[0]
	}
	add(time.Second)
	w := add(time.Second)
	must(t, w.Pressure.IO.Some, w.Pressure.Absent)

	file := c.dirs[c.at[unified]] + pod + "/cgroup.pressure"
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Skipf("needs cgroup.pressure (kernel 6.1): %v", err)
	}
	require.Equal(t, "done", p.do(t, "burn a little")) // so that it is read at once
	w = add(time.Second)
	assert.Equal(t, snapshot.Absent{"cpu": psi.WhyOffForCgroup, "memory": psi.WhyOffForCgroup, "io": psi.WhyOffForCgroup}, w.Pressure.Absent)
	r, ok := w.Rates.Get()
	require.True(t, ok, "it is the same pod")
	assert.InDelta(t, 2, r.WindowSeconds, 1e-9)
	assert.False(t, r.CPUCores.IsZero())
	assert.True(t, r.Pressure.IO.Some.IsZero())

	require.NoError(t, os.WriteFile(file, []byte("1"), 0o600))
	for range int(recheck/time.Second) + 1 {
		require.Equal(t, "done", p.do(t, "burn a little"))
		w = add(time.Second)
	}
	must(t, w.Pressure.IO.Some, w.Pressure.Absent)
	assert.Empty(t, w.Pressure.Absent)
}

// The kubelet makes a pod's cgroup in one hierarchy after another.
func TestCgroupHierarchyLater(t *testing.T) {
	order := []string{"cpuacct", unified, "blkio", "memory", "cpu"}
	c, kubepods, k := hostPods(t)
	pod := kubepods + "/pod0"
	mkdirs(t, c, pod, order[0])
	require.Equal(t, []string{pod}, cgroupPaths(k.tick()))
	inode := k.tick()[0].Inode
	for range 3 {
		k.tick() // it comes to rest
	}
	for _, h := range order[1:] {
		mkdirs(t, c, pod, h)
		w := k.after(recheck)
		require.Len(t, w, 1)
		switch h {
		case unified:
			must(t, w[0].Pressure.IO.Some, w[0].Absent)
		case "memory":
			must(t, w[0].MemoryBytes, w[0].Absent)
		case "blkio":
			assert.Equal(t, whyBlkioInactive, w[0].Absent["io"])
		}
		assert.Equal(t, inode, w[0].Inode, "it is the same one")
	}
	w := k.after(detailEvery)[0]
	for name, why := range w.Absent {
		assert.NotContains(t, why, "hierarchy", name)
	}
}

func TestCgroupRootLater(t *testing.T) {
	c := hostCgroups(t)
	top := makeCgroup(t, c, "")
	k := ticksOf(t, "", top+"/kubepods", top+"/podless/kubepods")
	require.Empty(t, k.tick())
	mkdirs(t, c, top+"/kubepods/pod0")
	require.Equal(t, []string{top + "/kubepods/pod0"}, cgroupPaths(k.tick()))
	rmdirs(t, c, top+"/kubepods/pod0")
	rmdirs(t, c, top+"/kubepods")
	require.Empty(t, k.tick())
	mkdirs(t, c, top+"/podless/kubepods/pod1")
	mkdirs(t, c, top+"/kubepods/pod0")
	require.Equal(t, []string{top + "/kubepods/pod0", top + "/podless/kubepods/pod1"}, cgroupPaths(k.tick()))
}

func TestCgroupThousandsEmpty(t *testing.T) {
	const many = 2000
	c, kubepods, k := hostPods(t)
	top := filepath.Dir(kubepods)
	for i := range many {
		mkdirs(t, c, fmt.Sprintf("%s/%04d", top, i), unified)
	}
	mkdirs(t, c, kubepods+"/pod0")
	for range 30 {
		require.Equal(t, []string{kubepods + "/pod0"}, cgroupPaths(k.tick()))
	}
	root := k.c.trees[0]
	require.Len(t, root.children, many+1)
	for _, n := range root.children {
		require.Equal(t, recheck, n.backoff, n.cgroup)
	}
	for i := range many {
		rmdirs(t, c, fmt.Sprintf("%s/%04d", top, i), unified)
	}
	require.Equal(t, []string{kubepods + "/pod0"}, cgroupPaths(k.tick()))
	assert.Len(t, root.children, 1)
}

// A cgroup that cannot be opened for want of descriptors still exists.
func TestCgroupNoDescriptorsKeepsPods(t *testing.T) {
	for _, budget := range []int{0, 1000} {
		g := newGateTree(t, 3)
		g.c.fds.left = budget
		before := g.tick()
		g.tick()
		without(t, func() {
			for i, w := range g.after(recheck) {
				require.Equal(t, before[i].Inode, w.Inode)
				if budget == 0 {
					assert.True(t, w.CPUMicroseconds.IsZero())
					assert.Contains(t, w.Absent[nameCPU], "too many open files")
				} else {
					assert.Equal(t, before[i].CPUMicroseconds, w.CPUMicroseconds)
				}
			}
		})
		for i, w := range g.tick() {
			assert.Equal(t, before[i].CPUMicroseconds, w.CPUMicroseconds)
			assert.Equal(t, before[i].Pressure, w.Pressure)
			assert.Empty(t, w.Absent[nameCPU])
		}
	}
}

// without runs something while this process cannot open another file.
func without(t *testing.T, do func()) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	now := was
	now.Cur = 0
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &now))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()
	do()
}

// heldFiles are this process's open files with part in their path. For cgroups
// it is the test's own: other tests' readers may keep others open meanwhile.
func heldFiles(t *testing.T, part string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	var open []string
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && strings.Contains(to, part) {
			open = append(open, to)
		}
	}
	slices.Sort(open)
	return open
}

// end has a child end by itself and waits for it.
func (c *child) end(t *testing.T) {
	t.Helper()
	require.NoError(t, c.in.Close())
	err := c.cmd.Wait()
	require.True(t, err == nil || errors.Is(err, os.ErrProcessDone), "%v", err)
}

func mkdirAll(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
}

// writeInPlace writes a file that may be kept open.
func writeInPlace(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }
