package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// gateTree is a made-up tree of v2: pods below one slice that counts for all
// of them, read second by second.
type gateTree struct {
	t    *testing.T
	top  string
	pods []string
	c    *Reader
	at   time.Duration
}

const gateSlice = "/kubepods.slice/kubepods-burstable.slice"

func newGateTree(t *testing.T, pods int) *gateTree {
	t.Helper()
	g := &gateTree{t: t, at: time.Hour}
	files := map[string]string{
		"cgroup.controllers": "", "cgroup.procs": "", "kubepods.slice/cgroup.procs": "",
		gateSlice[1:] + "/cgroup.procs":   "",
		gateSlice[1:] + "/cpu.stat":       "usage_usec 1000\n",
		gateSlice[1:] + "/memory.current": "4096\n",
		gateSlice[1:] + "/io.stat":        "",
	}
	for _, name := range []string{"memory.events", "cpu.pressure", "memory.pressure", "io.pressure"} {
		files[gateSlice[1:]+"/"+name] = restingPod()[name]
	}
	for i := range pods {
		pod := fmt.Sprintf("%s/kubepods-burstable-pod6f7c1c9e_%04d.slice", gateSlice, i)
		g.pods = append(g.pods, pod)
		for name, content := range restingPod() {
			files[pod[1:]+"/"+name] = content
		}
	}
	g.top = cgroupTree(t, files)
	g.c = mustFind(t, g.top)
	return g
}

func restingPod() map[string]string {
	const stall = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
	return map[string]string{
		"cgroup.procs": "", "cpu.stat": "usage_usec 5\nthrottled_usec 0\n",
		"memory.current": "4096\n", "memory.max": "max\n", "memory.swap.current": "0\n", "memory.stat": "anon 0\ninactive_file 0\npgsteal 0\n",
		"memory.events": "high 0\nmax 0\noom_kill 0\n", "io.stat": "8:0 rbytes=0 wbytes=0 rios=0 wios=1 dbytes=0 dios=0\n",
		"cpu.pressure": stall, "memory.pressure": stall, "io.pressure": stall,
	}
}

// set writes a file in place: what is kept open sees it.
func (g *gateTree) set(cgroup, file, content string) {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(filepath.Join(g.top, cgroup, file), []byte(content), 0o600))
}

func (g *gateTree) cpu(cgroup string, microseconds int) {
	g.t.Helper()
	g.set(cgroup, "cpu.stat", fmt.Sprintf("usage_usec %d\nthrottled_usec 0\n", microseconds))
}

func (g *gateTree) io(cgroup string, writes int) {
	g.t.Helper()
	g.set(cgroup, "io.stat", fmt.Sprintf("8:0 rbytes=0 wbytes=0 rios=0 wios=%d dbytes=0 dios=0\n", writes))
}

func (g *gateTree) stall(cgroup, resource string, microseconds int) {
	g.t.Helper()
	g.set(cgroup, resource+".pressure", fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", microseconds))
}

// after advances the time and reads; the first pod is first.
func (g *gateTree) after(d time.Duration) []snapshot.Workload {
	g.t.Helper()
	g.at += d
	g.c.pace = pace{} // of this machine's load
	workloads, err := g.c.Read(g.at)
	require.NoError(g.t, err)
	require.Len(g.t, workloads, len(g.pods))
	for _, w := range workloads {
		require.Equal(g.t, g.at, w.At, "%s", w.Cgroup)
	}
	return workloads
}

func (g *gateTree) tick() []snapshot.Workload {
	g.t.Helper()
	return g.after(time.Second)
}

// settle reads until the pods are known to be idle.
func (g *gateTree) settle() {
	g.t.Helper()
	g.tick()
	g.align()
	g.tick()
	g.tick()
}

// align lets the intervals of all pods begin at multiples of their length.
func (g *gateTree) align() {
	for _, tr := range g.c.tracked {
		tr.phase = 0
		tr.fullDue = tr.nextDue(g.at, fullEvery)
	}
}

func TestIdlePodReadSeldom(t *testing.T) {
	g := newGateTree(t, 1)
	g.settle()
	g.stall(g.pods[0], "io", 999)
	for range 20 {
		require.NotEqual(t, u64(999), g.tick()[0].Pressure.IO.Some, "only its pressure file changed, and it was not read: %s", g.at)
	}
	assert.Equal(t, u64(999), g.after(fullEvery)[0].Pressure.IO.Some, "nothing is believed for longer than that")
}

func TestIdlePodFilesClosed(t *testing.T) {
	g := newGateTree(t, 2)
	held := func(pod int) (names []string) {
		for _, file := range heldFiles(t, g.pods[pod]) {
			names = append(names, filepath.Base(file))
		}
		return names
	}
	all, seldomLess := []string{"cpu.pressure", "cpu.stat", "io.pressure", "io.stat", "memory.current", "memory.events", "memory.pressure"}, []string{"cpu.stat", "io.stat", "memory.current"}
	g.settle()
	assert.Equal(t, all, held(0), "few files are open")
	g.c.fds.left = 9 // many are
	g.after(fullEvery)
	assert.Equal(t, seldomLess, held(0))
	assert.Equal(t, seldomLess, held(1))
	assert.Equal(t, 9+8, g.c.fds.left)

	g.cpu(g.pods[0], 77)
	g.stall(g.pods[0], "cpu", 7)
	g.cpu(gateSlice, 1077)
	g.stall(gateSlice, "cpu", 7)
	assert.Equal(t, u64(7), g.tick()[0].Pressure.CPU.Some)
	assert.Contains(t, held(0), "cpu.pressure")
	assert.Equal(t, seldomLess, held(1))
}

func TestIdlePodActivitySeenNextRead(t *testing.T) {
	for name, c := range map[string]struct {
		move func(g *gateTree, pod string)
		seen func(w *snapshot.Workload) bool
	}{
		"CPU time, and everything with it": {
			func(g *gateTree, pod string) {
				g.cpu(pod, 77)
				g.stall(pod, "cpu", 7)
				g.set(pod, "memory.events", "high 3\nmax 0\noom_kill 0\n")
			},
			func(w *snapshot.Workload) bool {
				return w.CPUMicroseconds == u64(77) && w.Pressure.CPU.Some == u64(7) && w.LimitHits == u64(3)
			},
		},
		"pages that are written back after the pod has done its work": {
			func(g *gateTree, pod string) {
				g.io(pod, 5)
				g.stall(pod, "io", 6)
			},
			func(w *snapshot.Workload) bool { return w.IO[0].Writes == 5 && w.Pressure.IO.Some == u64(6) },
		},
		"memory that it takes": {
			func(g *gateTree, pod string) {
				g.cpu(pod, 77)
				g.set(pod, "memory.current", "8192\n")
				g.stall(pod, "memory", 8)
			},
			func(w *snapshot.Workload) bool { return w.MemoryBytes == u64(8192) && w.Pressure.Memory.Some == u64(8) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateTree(t, 1)
			g.settle()
			c := c
			require.False(t, c.seen(&g.tick()[0]))
			c.move(g, g.pods[0])
			assert.True(t, c.seen(&g.tick()[0]))
		})
	}
}

func TestIdlePodReclaimedMemorySeenSoon(t *testing.T) {
	for _, pods := range []int{1, minChildren} {
		g := newGateTree(t, pods)
		g.settle()
		g.set(g.pods[0], "memory.current", "2048\n")
		after := time.Duration(0)
		for g.tick()[0].MemoryBytes != u64(2048) {
			after += time.Second
			require.Less(t, after, memoryEvery)
		}
	}
}

func TestIdlePodStallKeepsReading(t *testing.T) {
	for _, resource := range []string{"cpu", "memory", "io"} {
		g := newGateTree(t, 1)
		g.settle()
		g.cpu(g.pods[0], 77) // the last it did before it waited
		g.stall(g.pods[0], resource, 10)
		for i := range 15 {
			p := g.tick()[0].Pressure
			require.Equal(t, u64(uint64(10+i)), map[string]snapshot.Stall{"cpu": p.CPU, "memory": p.Memory, "io": p.IO}[resource].Some, resource)
			g.stall(g.pods[0], resource, 11+i)
		}
	}
}

func TestIdleNeedsCPUCounter(t *testing.T) {
	g := newGateTree(t, 1)
	require.NoError(t, os.Remove(filepath.Join(g.top, g.pods[0], "cpu.stat")))
	g.settle()
	g.stall(g.pods[0], "io", 999)
	assert.Equal(t, u64(999), g.tick()[0].Pressure.IO.Some)
}

// What is read at long intervals is spread over all ticks, also where two ticks are an
// interval.
func TestReadsSpreadOverTicks(t *testing.T) {
	for _, tick := range []time.Duration{time.Second, 5 * time.Second} {
		t.Run(fmt.Sprintf("%s, busy", tick), func(t *testing.T) {
			readsSpread(t, tick, detailEvery, true, func(tr *trackedWorkload) time.Duration { return tr.w.DetailAt })
		})
		t.Run(fmt.Sprintf("%s, idle", tick), func(t *testing.T) {
			readsSpread(t, tick, fullEvery, false, func(tr *trackedWorkload) time.Duration { return tr.readAt[ofCPUStall] })
		})
	}
}

func TestIdlePodDetailSeldom(t *testing.T) {
	g := newGateTree(t, 1)
	g.settle()
	read := 0
	for range 4 * int(idleDetailEvery/time.Second) {
		if g.tick()[0].DetailAt == g.at {
			read++
		}
	}
	assert.GreaterOrEqual(t, read, 4)
	assert.LessOrEqual(t, read, 5, "the first after it was seen to be idle")
}

func readsSpread(t *testing.T, tick, every time.Duration, busy bool, last func(*trackedWorkload) time.Duration) {
	g := newGateTree(t, 64)
	ticks, mean := int(every/tick), 64*int(tick)/int(every)
	for i := range 3 * ticks {
		if busy {
			for _, cgroup := range append(g.pods, gateSlice) {
				g.cpu(cgroup, 2000+i)
			}
		}
		g.after(tick)
		read := 0
		for _, tr := range g.c.tracked {
			if last(tr) == g.at {
				read++
			}
		}
		if i > ticks { // each was read at its own point
			assert.Less(t, read, 2*mean+16, "tick %d", i)
			assert.Greater(t, read, mean/4-4, "tick %d", i)
		}
	}
}
