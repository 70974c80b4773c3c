package cgroup

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestPaceOneExpensiveRead(t *testing.T) {
	var p pace
	for i, cost := range []time.Duration{900, 2, 2, 80, 2, 90, 2} {
		at := time.Duration(i) * time.Second
		require.False(t, p.tooEarly(at), "%d", i)
		p.record(at, cost*time.Millisecond)
		assert.Empty(t, p.note())
	}
}

func TestPaceExpensiveReadsSlowDown(t *testing.T) {
	var p pace
	reads, note := 0, ""
	for i := range 100 {
		at := time.Duration(i) * time.Second
		if p.tooEarly(at) {
			continue
		}
		reads++
		p.record(at, 50*time.Millisecond)
		note = p.note()
	}
	assert.InDelta(t, 20, reads, 2, "a hundredth of a CPU")
	assert.Equal(t, "workloads are read every 5.0 s: one read takes 50 ms of CPU; the limit is 1 % of a CPU", note)
	assert.Equal(t, note, p.note(), "the note stays as long as reads are reduced")

	for i := 100; i < 110; i++ { // they are cheap again
		if at := time.Duration(i) * time.Second; !p.tooEarly(at) {
			p.record(at, time.Millisecond)
		}
	}
	assert.Empty(t, p.note())
}

// Ticks are four times as frequent as the cost of reading on this machine
// allows.
func TestPaceKeepsCPUShare(t *testing.T) {
	g := newGateTree(t, 300)
	g.c.fds.left = 0
	reads := map[time.Duration]bool{}
	read := func(after time.Duration) {
		for _, tr := range g.c.tracked {
			tr.idle = false
		}
		g.at += after
		workloads, err := g.c.Read(g.at)
		require.NoError(t, err)
		require.Len(t, workloads, len(g.pods))
		for _, w := range workloads {
			require.Equal(t, workloads[0].At, w.At, "all are as of one instant")
		}
		reads[workloads[0].At] = true
	}
	for range 3 { // the first cost more
		read(maxWait)
	}
	const ticks = 60
	tick := g.c.pace.every() / 4
	clear(reads)
	for range ticks {
		read(tick)
	}
	t.Logf("%d reads in %d ticks of %s", len(reads), ticks, tick)
	assert.Less(t, len(reads), ticks*3/4)
}

// A workload that is read every third second has rates over the time between
// its own readings, and no burst when it is read again.
func TestPaceRatesTrueOrAbsent(t *testing.T) {
	g := newGateTree(t, 1)
	h := &snapshot.History{Window: 5 * time.Second, Keep: time.Minute, MaxGap: 4 * time.Second}
	had := 0
	for i := range 40 {
		g.at += time.Second
		g.cpu(g.pods[0], 500_000*i) // half a core
		g.c.pace = pace{next: g.at}
		if i%3 != 0 {
			g.c.pace.next++
		}
		workloads, err := g.c.Read(g.at)
		require.NoError(t, err)
		require.Equal(t, g.at-time.Duration(i%3)*time.Second, workloads[0].At)
		s := h.Add(&snapshot.Sample{Monotonic: g.at, Boottime: g.at, Workloads: workloads})
		long, _ := s.Over(h.Window)
		short, _ := s.Over(2 * time.Second)
		whole, part := halfACore(t, long, s), halfACore(t, short, s)
		require.True(t, whole || i < 12, "it was read twice in any five seconds")
		require.False(t, part && i%3 == 2, "it was read once in these two seconds")
		if whole {
			had++
		}
	}
	require.Greater(t, had, 30)
}

// halfACore says whether there is a rate; if so it is the true one.
func halfACore(t *testing.T, w snapshot.Window, s *snapshot.Snapshot) bool {
	t.Helper()
	r, rated := w.Workload(&s.Workloads[0].Workload).Get()
	cores, ok := r.CPUCores.Get()
	require.Equal(t, rated, ok)
	if ok {
		require.InDelta(t, 0.5, cores, 1e-9)
		require.Zero(t, int(r.WindowSeconds)%3)
	}
	return ok
}

// readsAllocate counts the allocations of a read in which nothing dear is due.
func readsAllocate(t *testing.T, k *ticks, rest bool) float64 {
	t.Helper()
	for range 5 {
		k.after(time.Millisecond)
	}
	return testing.AllocsPerRun(20, func() {
		for _, tr := range k.c.tracked {
			tr.idle = tr.idle && rest
		}
		k.at += time.Millisecond
		k.c.pace = pace{}
		_, _ = k.c.Read(k.at)
	})
}

func TestReadAllocatesConstant(t *testing.T) {
	v2 := func(pods int) string { return newGateTree(t, pods).top }
	v1 := func(pods int) string {
		files := map[string]string{}
		for _, h := range []string{"memory", "cpuacct", "blkio"} {
			files[h+"/cgroup.procs"], files[h+"/kubepods/cgroup.procs"] = "", ""
			for i := range pods {
				files[fmt.Sprintf("%s/kubepods/pod%03d/cgroup.procs", h, i)] = ""
			}
		}
		for i := range pods {
			files[fmt.Sprintf("memory/kubepods/pod%03d/memory.usage_in_bytes", i)] = "4096\n"
			files[fmt.Sprintf("cpuacct/kubepods/pod%03d/cpuacct.usage", i)] = "4096\n"
			files[fmt.Sprintf("blkio/kubepods/pod%03d/blkio.throttle.io_serviced_recursive", i)] = "8:0 Read 1\n8:0 Write 2\nTotal 3\n"
			files[fmt.Sprintf("blkio/kubepods/pod%03d/blkio.throttle.io_service_bytes_recursive", i)] = "8:0 Read 1\n8:0 Write 2\nTotal 3\n"
		}
		return cgroupTree(t, files)
	}
	bare := func(pods int) string { // v2 that hands down no controller, without PSI
		files := map[string]string{"cgroup.controllers": "", "cgroup.procs": "", "kubepods/cgroup.procs": ""}
		for i := range pods {
			files[fmt.Sprintf("kubepods/pod%03d/cgroup.procs", i)] = ""
			files[fmt.Sprintf("kubepods/pod%03d/cpu.stat", i)] = "usage_usec 5\n"
		}
		return cgroupTree(t, files)
	}
	for name, tree := range map[string]func(int) string{"v2": v2, "v2, bare": bare, "v1": v1} {
		for _, rest := range []bool{true, false} {
			few, many := readsAllocate(t, ticksOf(t, tree(10)), rest), readsAllocate(t, ticksOf(t, tree(200)), rest)
			t.Logf("%s, at rest %t: %.0f and %.0f", name, rest, few, many)
			// A read that a busy machine makes dear says so, with as few of them again.
			assert.Less(t, many-few, 19.0, "%s, at rest %t: a tenth for each pod more", name, rest)
		}
	}
}

func TestSnapshotAllocatesConstant(t *testing.T) {
	adds := func(pods int) float64 {
		h := &snapshot.History{Window: 5 * time.Second, Keep: 10 * time.Second, MaxGap: time.Minute}
		s := &snapshot.Sample{}
		for i := range pods {
			s.Workloads = append(s.Workloads, snapshot.Workload{Cgroup: fmt.Sprintf("/%04d", i), CPUMicroseconds: u64(1), IO: []snapshot.WorkloadIO{{Number: "8:0"}}})
		}
		add := func() {
			s.Monotonic += time.Second
			s.Boottime += time.Second
			for i := range s.Workloads {
				s.Workloads[i].At = s.Monotonic
			}
			h.Add(s)
		}
		for range 20 {
			add()
		}
		return testing.AllocsPerRun(20, add)
	}
	few, many := adds(10), adds(200)
	t.Logf("%.0f and %.0f", few, many)
	assert.InDelta(t, few, many, 1)
}

func TestDetailsEveryTenSeconds(t *testing.T) {
	g := newGateTree(t, 1)
	require.Equal(t, u64(0), g.tick()[0].InactiveFileBytes)
	read := 0
	last := g.at
	for i := range 100 {
		g.cpu(g.pods[0], 1000+i)
		g.set(g.pods[0], "memory.stat", fmt.Sprintf("anon 0\ninactive_file %d\npgsteal 0\n", i))
		w := g.tick()[0]
		if w.DetailAt != g.at {
			continue
		}
		require.Equal(t, u64(uint64(i)), w.InactiveFileBytes)
		require.LessOrEqual(t, g.at-last, detailEvery)
		require.GreaterOrEqual(t, g.at-last, detailEvery/2)
		last = g.at
		read++
	}
	assert.GreaterOrEqual(t, read, 9)
	assert.LessOrEqual(t, g.at-last, detailEvery)
}

func TestDetailsEarlyOnMemoryStall(t *testing.T) {
	g := newGateTree(t, maxEarlyDetails+16)
	g.settle()
	for i := range 3 {
		detailed := 0
		for _, pod := range g.pods {
			g.stall(pod, "memory", (i+1)*(earlyDetailStall+1)+1)
			g.cpu(pod, 100+i)
			g.set(pod, "memory.stat", fmt.Sprintf("anon 0\ninactive_file %d\npgsteal 0\n", 7+i))
		}
		g.cpu(gateSlice, 2000+i)
		g.stall(gateSlice, "memory", 100+i)
		for _, w := range g.tick() {
			if w.DetailAt == g.at {
				detailed++
				require.Equal(t, u64(uint64(7+i)), w.InactiveFileBytes)
			}
		}
		assert.Equal(t, maxEarlyDetails, detailed)
	}
	g.stall(g.pods[0], "memory", 4*(earlyDetailStall+1)-earlyDetailStall/2)
	g.cpu(g.pods[0], 200)
	g.cpu(gateSlice, 3000)
	g.stall(gateSlice, "memory", 200)
	assert.NotEqual(t, g.at, g.tick()[0].DetailAt, "a little is no shortage")
}

// A pod exists before its containers, and its first container may be the first
// with a quota.
func TestDetailsThrottlingOfNewContainer(t *testing.T) {
	g := newGateTree(t, 1)
	pod := g.pods[0]
	g.set(pod, "cpu.stat", "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
	require.Equal(t, u64(0), g.tick()[0].ThrottledMicroseconds)
	g.after(detailEvery)
	for i, name := range []string{"/a.scope", "/b.scope"} {
		mkdirAll(t, filepath.Join(g.top, pod+name))
		g.set(pod+name, "cgroup.procs", "")
		g.set(pod+name, "cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 700\n")
		g.set(pod, "cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n", 10+i))
		assert.Equal(t, u64(uint64(700*(i+1))), g.after(detailEvery)[0].ThrottledMicroseconds, name)
	}
}

// A container is read before its quota holds it back for the first time.
func TestDetailsThrottlingOfWhoWaitsForCPU(t *testing.T) {
	g := newGateTree(t, 1)
	pod := g.pods[0]
	stat := func(usage, periods, throttled int) {
		g.set(pod, "cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", usage, periods, periods, throttled))
	}
	stat(5, 0, 0)
	g.stall(pod, "cpu", 7)
	require.Equal(t, u64(0), g.tick()[0].ThrottledMicroseconds)

	g.stall(pod, "cpu", 7+90_000)
	stat(10, 3, 400)
	assert.Equal(t, u64(0), g.after(detailEvery)[0].ThrottledMicroseconds, "it waited for less than a hundredth of the time: not read again")
	g.stall(pod, "cpu", 7+500_000)
	stat(15, 9, 700)
	assert.Equal(t, u64(700), g.after(detailEvery)[0].ThrottledMicroseconds)
}

func TestDetailsV1LimitHitsOfContainer(t *testing.T) {
	const pod = "memory/kubepods/pod1"
	files := map[string]string{"memory/cgroup.procs": "1\n", "memory/kubepods/cgroup.procs": ""}
	for dir, failcnt := range map[string]string{pod: "1\n", pod + "/a": "20\n", pod + "/a/b": "300\n"} {
		files[dir+"/cgroup.procs"], files[dir+"/memory.failcnt"] = "", failcnt
		files[dir+"/memory.usage_in_bytes"], files[dir+"/memory.oom_control"] = "1\n", "oom_kill 2\n"
	}
	top := cgroupTree(t, files)
	k := ticksOf(t, top)
	w := k.tick()[0]
	assert.Equal(t, u64(321), w.LimitHits)
	assert.Equal(t, u64(6), w.OOMKills)
	require.NoError(t, writeInPlace(filepath.Join(top, pod, "a/b/memory.failcnt"), "301\n"))
	require.NoError(t, writeInPlace(filepath.Join(top, pod, "a/memory.oom_control"), "oom_kill 3\n"))
	w = k.after(detailEvery)[0]
	assert.Equal(t, u64(322), w.LimitHits, "read anew and not added to what was")
	assert.Equal(t, u64(7), w.OOMKills)
}

// In a hurry all are read once, however much reading costs.
func TestPaceHurry(t *testing.T) {
	g := newGateTree(t, 3)
	age := func() time.Duration {
		g.at += time.Second
		g.c.pace.next = g.at + maxWait
		workloads, err := g.c.Read(g.at)
		require.NoError(t, err)
		return g.at - workloads[0].At
	}
	g.after(time.Second)
	assert.Equal(t, time.Second, age())
	g.c.Hurry()
	assert.Zero(t, age())
	assert.Equal(t, time.Second, age(), "not the time after it")
}
