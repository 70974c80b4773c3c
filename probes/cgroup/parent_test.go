package cgroup

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestIdleSliceSkipsPods(t *testing.T) {
	g := newGateTree(t, minChildren)
	g.settle()
	g.cpu(g.pods[1], 77) // which no kernel does without counting it in the slice
	for range 15 {
		require.NotEqual(t, u64(77), g.tick()[1].CPUMicroseconds)
	}
	assert.Equal(t, u64(77), g.after(fullEvery)[1].CPUMicroseconds, "nothing is believed for longer than that")
}

func TestActiveSliceReadsPods(t *testing.T) {
	for name, move := range map[string]func(g *gateTree){
		"CPU time": func(g *gateTree) { g.cpu(gateSlice, 1001) },
		"a slice without CPU time, which tells nothing": func(g *gateTree) {
			g.set(gateSlice, "cpu.stat", "")
			g.settle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateTree(t, minChildren)
			g.settle()
			move(g)
			g.stall(gateSlice, "memory", 2)
			for i, pod := range g.pods {
				g.cpu(pod, 1000+i)
				g.stall(pod, "memory", 2000+i)
			}
			for i, w := range g.tick() {
				assert.Equal(t, u64(uint64(1000+i)), w.CPUMicroseconds)
				assert.Equal(t, u64(uint64(2000+i)), w.Pressure.Memory.Some)
			}
		})
	}
}

// Each counter of a slice covers the same counter of its pods, and no other.
func TestIdleSliceCounterSkipsItsFile(t *testing.T) {
	stall := func(resource string) func(g *gateTree, cgroup string, n int) {
		return func(g *gateTree, cgroup string, n int) { g.stall(cgroup, resource, n) }
	}
	for name, c := range map[string]struct {
		set  func(g *gateTree, cgroup string, n int)
		seen func(w *snapshot.Workload) snapshot.Opt[uint64]
	}{
		"io.stat":         {(*gateTree).io, func(w *snapshot.Workload) snapshot.Opt[uint64] { return snapshot.Some(w.IO[0].Writes) }},
		"cpu.pressure":    {stall("cpu"), func(w *snapshot.Workload) snapshot.Opt[uint64] { return w.Pressure.CPU.Some }},
		"memory.pressure": {stall("memory"), func(w *snapshot.Workload) snapshot.Opt[uint64] { return w.Pressure.Memory.Some }},
		"io.pressure":     {stall("io"), func(w *snapshot.Workload) snapshot.Opt[uint64] { return w.Pressure.IO.Some }},
		"memory.events": {
			func(g *gateTree, cgroup string, n int) {
				g.set(cgroup, "memory.events", fmt.Sprintf("high %d\nmax 0\noom_kill 0\n", n))
			},
			func(w *snapshot.Workload) snapshot.Opt[uint64] { return w.LimitHits },
		},
		"memory.events ": {
			func(g *gateTree, cgroup string, n int) {
				g.set(cgroup, "memory.events", fmt.Sprintf("high 0\nmax 0\noom_kill %d\n", n))
			},
			func(w *snapshot.Workload) snapshot.Opt[uint64] { return w.OOMKills },
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateTree(t, minChildren)
			cpu := 1000
			busy := func() []snapshot.Workload {
				cpu++
				g.cpu(gateSlice, cpu)
				for _, pod := range g.pods {
					g.cpu(pod, cpu)
				}
				return g.tick()
			}
			busy()
			g.align()
			busy()
			busy()
			c.set(g, g.pods[1], 70) // which no kernel does without counting it in the slice
			for range 15 {
				require.NotEqual(t, u64(70), c.seen(&busy()[1]))
			}
			c.set(g, gateSlice, 71)
			require.Equal(t, u64(70), c.seen(&busy()[1]))
			c.set(g, g.pods[1], 72)
			require.NotEqual(t, u64(72), c.seen(&busy()[1]))
			g.at += fullEvery
			require.Equal(t, u64(72), c.seen(&busy()[1]), "nothing is believed for longer than that")

			require.NoError(t, os.WriteFile(filepath.Join(g.top, gateSlice, strings.TrimSpace(name)), []byte("8:0 rbytes=x total=y\n"), 0o600))
			c.set(g, g.pods[1], 73)
			require.Equal(t, u64(73), c.seen(&busy()[1]), "a slice that cannot be read tells nothing")
			c.set(g, g.pods[1], 74)
			require.Equal(t, u64(74), c.seen(&busy()[1]))
		})
	}
}

func TestIdleFewPodsReadThemselves(t *testing.T) {
	g := newGateTree(t, minChildren-1)
	g.settle()
	g.cpu(g.pods[1], 77)
	assert.Equal(t, u64(77), g.tick()[1].CPUMicroseconds)
}

func TestIdleSliceStalledPodRead(t *testing.T) {
	g := newGateTree(t, minChildren)
	g.settle()
	g.cpu(g.pods[0], 50)
	g.cpu(gateSlice, 1050)
	g.stall(g.pods[0], "io", 2)
	g.stall(gateSlice, "io", 2)
	g.tick()
	g.stall(g.pods[0], "io", 3) // and no CPU in the slice
	g.stall(gateSlice, "io", 3)
	assert.Equal(t, u64(3), g.tick()[0].Pressure.IO.Some)
	g.stall(g.pods[0], "io", 4)
	g.stall(gateSlice, "io", 4)
	assert.Equal(t, u64(4), g.tick()[0].Pressure.IO.Some)
}

// A nested slice is not skipped because of its parent's earlier values.
func TestIdleNestedSlice(t *testing.T) {
	g := newGateTree(t, minChildren)
	above := filepath.Dir(gateSlice)
	g.cpu(above, 5000)
	for i := range minChildren {
		pod := fmt.Sprintf("%s/kubepods-pod6f7c1c9e_%04d.slice", above, i)
		mkdirAll(t, filepath.Join(g.top, pod))
		for name, content := range restingPod() {
			g.set(pod, name, content)
		}
		g.pods = append(g.pods, pod)
	}
	g.settle()
	for i := range 3 {
		for _, cgroup := range []string{above, gateSlice, g.pods[2]} {
			g.cpu(cgroup, 6000+i)
		}
		require.Equal(t, u64(uint64(6000+i)), g.tick()[2].CPUMicroseconds)
		g.tick()
	}
}

// Activity of a pod after its read must not be in its slice's counters already,
// or it would be missed. So the slice is read before any of its pods.
func TestSliceReadBeforePods(t *testing.T) {
	g := newGateTree(t, minChildren)
	g.settle()
	accessed := watchAccesses(t, g, gateSlice, g.pods[1])
	for i := range 3 {
		g.cpu(gateSlice, 2000+i)
		g.cpu(g.pods[1], 70+i)
		assert.Equal(t, u64(uint64(70+i)), g.tick()[1].CPUMicroseconds)
		assert.Equal(t, []string{gateSlice, g.pods[1]}, accessed())
	}
}

// watchAccesses returns a function that lists the order in which cpu.stat of
// cgroups was read since its last call.
func watchAccesses(t *testing.T, g *gateTree, cgroups ...string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { closeFD(fd) })
	of := map[int32]string{}
	for _, cgroup := range cgroups {
		wd, err := unix.InotifyAddWatch(fd, filepath.Join(g.top, cgroup, "cpu.stat"), unix.IN_ACCESS)
		require.NoError(t, err)
		of[int32(wd)] = cgroup
	}
	return func() (order []string) {
		t.Helper()
		events := make([]byte, 4096) // of files, which have no names in them
		n, err := unix.Read(fd, events)
		require.NoError(t, err)
		for at := 0; at < n; at += unix.SizeofInotifyEvent {
			order = append(order, of[int32(binary.NativeEndian.Uint32(events[at:]))])
		}
		return order
	}
}

// The root of v2 samples CPU time at clock ticks, and counts no memory: it may
// seem idle while a child was active.
func TestIdleRootNotTrusted(t *testing.T) {
	files := map[string]string{"cgroup.controllers": "", "cgroup.procs": "1\n", "cpu.stat": "usage_usec 5\n", "io.stat": ""}
	for i := range 2 * minChildren {
		files[fmt.Sprintf("w%d/cgroup.procs", i)] = "9\n"
		files[fmt.Sprintf("w%d/cpu.stat", i)] = "usage_usec 9\n"
	}
	top := cgroupTree(t, files)
	c := mustFind(t, top)
	at := time.Hour
	read := func() []snapshot.Workload {
		at += time.Second
		c.pace = pace{}
		workloads, err := c.Read(at)
		require.NoError(t, err)
		return workloads
	}
	for range 3 {
		read()
	}
	require.NoError(t, os.WriteFile(filepath.Join(top, "w3/cpu.stat"), []byte("usage_usec 10\n"), 0o600))
	assert.Equal(t, u64(10), read()[3].CPUMicroseconds)
}
