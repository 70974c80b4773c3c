package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// budgets of descriptors: none, too few for one workload, too few for all, and
// plenty.
func budgets() []int { return []int{0, 1, 7, 40, maxKept} }

func sameWorkloads() cmp.Options {
	return cmp.Options{cmp.AllowUnexported(snapshot.Opt[uint64]{}, snapshot.Opt[snapshot.WorkloadNetwork]{}), cmpopts.IgnoreFields(snapshot.Workload{}, "series"), cmpopts.EquateEmpty()}
}

func TestCgroupFDBudgetSameValues(t *testing.T) {
	trees := map[string]string{"v1": cgroupTree(t, madeUpV1()), "v2": cgroupTree(t, madeUpV2()), "hybrid": cgroupRecording(t, "hybrid-recorded.txt")}
	for name, top := range trees {
		t.Run(name, func(t *testing.T) {
			var want [][]snapshot.Workload
			for _, budget := range budgets() {
				k := ticksOf(t, top)
				k.c.fds.left = budget
				var got [][]snapshot.Workload
				for range 5 {
					got = append(got, k.after(7*time.Second))
				}
				require.NotEmpty(t, got[0])
				if want == nil {
					want = got
				}
				assert.Empty(t, cmp.Diff(want, got, sameWorkloads()), "budget %d", budget)
				assert.GreaterOrEqual(t, k.c.fds.left, 0)
				k.c.Close()
				assert.Equal(t, budget, k.c.fds.left, "what was taken is given back")
			}
		})
	}
}

// The same with this host's kernel and idle processes.
func TestCgroupFDBudgetOnHost(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, _ := hostPods(t)
	for i := range 3 {
		pod := fmt.Sprintf("%s/pod%d/c0ffee", kubepods, i)
		mkdirs(t, c, pod)
		p := startChild(t, ownNetwork)
		p.enter(t, c, pod)
		p.do(t, "burn a little")
	}
	read := func(budget int) []snapshot.Workload {
		k := ticksOf(t, "", filepath.Dir(kubepods))
		k.c.proc, k.c.fds.left = "/proc", budget
		defer k.c.Close()
		k.tick()
		return k.tick()
	}
	for _, budget := range budgets() {
		// The children rest, but their runtimes may still do a little.
		kerneltest.Until(t, func() bool {
			before, got, after := read(maxKept), read(budget), read(maxKept)
			return len(got) == 3 && cmp.Equal(before, got, sameWorkloads()) && cmp.Equal(got, after, sameWorkloads())
		})
	}
}

func TestCgroupFDsReturned(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	kerneltest.Delegate(c.dirs, kubepods)
	k.c.proc = "/proc"
	p := startChild(t, ownNetwork)
	top := filepath.Dir(kubepods)
	before, budget := heldFiles(t, top), k.c.fds.left
	runtime.GC()
	ofProc := len(heldFiles(t, "/proc/"))
	for range 5 {
		for i := range 8 {
			mkdirs(t, c, fmt.Sprintf("%s/pod%d", kubepods, i))
		}
		p.enter(t, c, kubepods+"/pod3")
		for range 5 {
			require.Len(t, k.after(7*time.Second), 8)
		}
		require.Greater(t, len(heldFiles(t, kubepods+"/pod")), 8*5)
		p.enter(t, c, "")
		for i := range 8 {
			rmdirs(t, c, fmt.Sprintf("%s/pod%d", kubepods, i))
		}
		k.after(time.Millisecond)
		k.after(recheck)
		require.Empty(t, heldFiles(t, kubepods+"/pod"))
		taken := budget - k.c.fds.left // by what is above the pods
		require.Len(t, heldFiles(t, top), len(before)+taken)
		// What other tests left open may be closed by the garbage collector.
		require.LessOrEqual(t, len(heldFiles(t, "/proc/")), ofProc)
		require.Less(t, taken, 30)
	}
	k.c.Close()
	assert.Equal(t, before, heldFiles(t, top))
	assert.Empty(t, k.c.tracked)
	mkdirs(t, c, kubepods+"/pod9")
	assert.Equal(t, []string{kubepods + "/pod9"}, cgroupPaths(k.tick()), "a read after it begins anew")
}

// An open file of a cgroup that was removed keeps the kernel's memory of it.
func TestCgroupFDsClosedAtFirstError(t *testing.T) {
	c, kubepods, k := hostPods(t)
	mkdirs(t, c, kubepods+"/pod0")
	k.tick()
	require.NotEmpty(t, heldFiles(t, kubepods+"/pod0"))
	rmdirs(t, c, kubepods+"/pod0")
	mkdirs(t, c, kubepods+"/pod1") // as many as before: only the files tell
	k.after(time.Millisecond)
	assert.Empty(t, heldFiles(t, kubepods+"/pod0"))
	assert.NotEmpty(t, heldFiles(t, kubepods+"/pod1"))
}

// Without open files, the inode distinguishes one cgroup from the next.
func TestCgroupRecreatedToldByInode(t *testing.T) {
	for _, budget := range budgets() {
		c, kubepods, k := hostPods(t)
		k.c.fds.left = budget
		pod := kubepods + "/pod0"
		mkdirs(t, c, pod)
		before := k.tick()
		require.Len(t, before, 1)
		rmdirs(t, c, pod)
		mkdirs(t, c, pod)
		after := k.after(time.Millisecond)
		require.Len(t, after, 1, "budget %d", budget)
		assert.NotEqual(t, before[0].Inode, after[0].Inode)
		assert.Equal(t, k.at, after[0].DetailAt)
	}
}

// A file may grow between two reads, to more than was ever read at once.
func TestCgroupFileGrows(t *testing.T) {
	for _, budget := range []int{0, maxKept} {
		g := newGateTree(t, 1)
		g.c.fds.left = budget
		g.tick()
		var lines strings.Builder
		for i := range 3000 {
			fmt.Fprintf(&lines, "8:%d rbytes=1 wbytes=2 rios=3 wios=%d dbytes=0 dios=0\n", i, i)
		}
		g.set(g.pods[0], "io.stat", lines.String())
		w := g.tick()[0]
		require.Len(t, w.IO, 3000)
		assert.Equal(t, snapshot.WorkloadIO{Number: "8:2999", Reads: 3, Writes: 2999, ReadBytes: 1, WrittenBytes: 2}, w.IO[2999])
		g.set(g.pods[0], "io.stat", "")
		assert.Empty(t, g.tick()[0].IO)
	}
}

// An error of one file neither drops the others nor repeats its last value.
func TestCgroupFileErrorPasses(t *testing.T) {
	g := newGateTree(t, 1)
	file := filepath.Join(g.top, g.pods[0], "memory.current")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Symlink("/proc/self/mem", file)) // reading its start is an IO error
	for range 3 {
		w := g.tick()[0]
		assert.True(t, w.MemoryBytes.IsZero())
		assert.Equal(t, "memory.current: input/output error", w.Absent[nameMemoryBytes])
		assert.Equal(t, u64(5), w.CPUMicroseconds)
		assert.Equal(t, u64(1), w.Pressure.Memory.Some)
	}
	require.GreaterOrEqual(t, g.c.tracked[0].files[fileMemory].fd, 0, "it is kept open")
	require.NoError(t, os.Remove(file))
	g.set(g.pods[0], "memory.current", "4096\n")
	g.c.tracked[0].closeFile(&g.c.tracked[0].files[fileMemory])
	w := g.tick()[0]
	assert.Equal(t, u64(4096), w.MemoryBytes)
	assert.NotContains(t, w.Absent, nameMemoryBytes)
}

// On v1 unchanged bytes prove that the operations are unchanged, but not that
// an earlier error of their file persists.
func TestBlkioErrorPasses(t *testing.T) {
	files := madeUpV1()
	const operations = "blkio/a/blkio.throttle.io_serviced_recursive"
	files[operations] = "8:0 Read many\n"
	files["blkio/a/blkio.throttle.io_service_bytes_recursive"] = "8:0 Read 4096\n8:0 Write 8192\nTotal 12288\n"
	top := cgroupTree(t, files)
	k := ticksOf(t, top)
	w := one(k.tick(), "/a")
	assert.Empty(t, w.IO)
	assert.Contains(t, w.Absent[nameIO], "not a decimal number")
	require.NoError(t, writeInPlace(filepath.Join(top, operations), "8:0 Read 1\n8:0 Write 2\n"))
	want := []snapshot.WorkloadIO{{Number: "8:0", Reads: 1, Writes: 2, ReadBytes: 4096, WrittenBytes: 8192}}
	for range 3 {
		w = one(k.tick(), "/a")
		assert.Equal(t, want, w.IO)
		assert.NotContains(t, w.Absent, nameIO)
	}
}

// A whole hierarchy may be unmounted while the others stay.
func TestCgroupHierarchyUnmounted(t *testing.T) {
	files := madeUpV1()
	for _, h := range []string{"memory", "cpu,cpuacct", "blkio"} {
		files[h+"/kubepods/cgroup.procs"] = ""
		files[h+"/kubepods/pod1/cgroup.procs"] = ""
	}
	files["memory/kubepods/pod1/memory.usage_in_bytes"] = "4096\n"
	files["cpu,cpuacct/kubepods/pod1/cpuacct.usage"] = "5000\n"
	for _, budget := range []int{0, maxKept} {
		top := cgroupTree(t, files)
		k := ticksOf(t, top)
		k.c.fds.left = budget
		w := one(k.tick(), "/kubepods/pod1")
		require.NotNil(t, w)
		require.Equal(t, u64(4096), w.MemoryBytes)
		require.NoError(t, os.RemoveAll(filepath.Join(top, "memory")))
		w = one(k.after(recheck), "/kubepods/pod1")
		require.NotNil(t, w, "budget %d", budget)
		assert.True(t, w.MemoryBytes.IsZero())
		assert.Equal(t, u64(5), w.CPUMicroseconds)
		assert.Contains(t, w.Absent[nameMemory], "no cgroup of this path in the memory hierarchy")
	}
}

func TestCgroupFDBudgetHalfOfLimit(t *testing.T) {
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()
	for limit, want := range map[uint64]int{0: 0, 1: 0, 1024: 512, 2 * maxKept: maxKept, was.Max: int(min(was.Max/2, maxKept))} {
		if limit > was.Max {
			continue
		}
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: was.Max}))
		assert.Equal(t, want, newFDBudget().left)
	}
}

func TestIsOutOfResources(t *testing.T) {
	for _, err := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		assert.True(t, isOutOfResources(fmt.Errorf("cpu.stat: %w", err)))
		assert.False(t, isRemoved(err))
	}
	for _, err := range []error{unix.ENOENT, unix.ENODEV, unix.EACCES, errors.New("else"), nil} {
		assert.False(t, isOutOfResources(err))
	}
}
