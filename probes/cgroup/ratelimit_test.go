package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// paced are reads of workloads at a made-up CPU time.
type paced struct {
	pace
	at, cpu time.Duration
}

// read reads, a second after the last time, so many workloads, each of which takes so much
// CPU, and returns how many the pace allowed.
func (p *paced) read(workloads int, each time.Duration) (allowed int) {
	p.at += time.Second
	p.begin(p.at, p.cpu, false)
	for allowed < workloads && p.next(workloads, func() time.Duration { return p.cpu }) {
		p.cpu += each
		allowed++
	}
	p.end(workloads, p.cpu)
	return allowed
}

func TestPaceOneExpensiveRead(t *testing.T) {
	var p paced
	for i := range 60 {
		each := 20 * time.Microsecond
		if i%20 == 0 {
			each = 900 * time.Microsecond
		}
		require.Equal(t, 100, p.read(100, each), "%d", i)
		assert.Empty(t, p.note())
	}
}

func TestPaceReadsInTurn(t *testing.T) {
	for _, row := range []struct {
		each    time.Duration
		allowed int
		note    string
	}{
		{90 * time.Microsecond, 100, ""},
		{500 * time.Microsecond, 20, "workloads are read in turn, each every 5.0 s: reading all takes 50 ms of CPU; the limit is 1 % of a CPU"},
		{10 * time.Millisecond, 10, "workloads are read in turn, each every 10.0 s: reading all takes 1000 ms of CPU; 10s is the longest interval allowed"},
	} {
		var p paced
		for range 30 { // the first has all, and what was saved is used up
			p.read(100, row.each)
		}
		for range 30 {
			assert.Equal(t, row.allowed, p.read(100, row.each), row.each)
			assert.Equal(t, row.note, p.note(), "it stays as long as reads have some")
		}
		for range 12 { // they are cheap again, and what was owed is paid
			p.read(100, time.Microsecond)
		}
		assert.Empty(t, p.note())
	}
}

// However few the workloads are, and however dear: each is read once in maxWait, and no more.
func TestPaceFewDearWorkloads(t *testing.T) {
	for workloads := range 12 {
		var p paced
		p.read(workloads, time.Second)
		read := 0
		for range 100 {
			read += p.read(workloads, time.Second)
		}
		assert.InDelta(t, 10*workloads, read, paceStep)
	}
}

// Ticks are four times as frequent as the cost of reading all on this machine allows.
func TestPaceKeepsCPUShare(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := newGateTree(t, 300)
	g.c.fds.left = 0
	all := func() time.Duration {
		begun := threadTime()
		g.after(time.Second)
		return threadTime() - begun
	}
	all() // the first costs more
	tick := all() * 100 / 4
	g.c.pace = pace{at: g.at}
	const ticks = 60
	read := 0
	for range ticks {
		for _, tr := range g.c.tracked {
			tr.idle = false
		}
		g.at += tick
		workloads, err := g.c.Read(g.at)
		require.NoError(t, err)
		require.Len(t, workloads, len(g.pods))
		for _, w := range workloads {
			require.LessOrEqual(t, g.at-w.At, maxWait+tick, "%s: each has its turn", w.Cgroup)
			if w.At == g.at {
				read++
			}
		}
	}
	t.Logf("%d of %d pods read in a tick of %s", read/ticks, len(g.pods), tick)
	assert.Less(t, read, ticks*len(g.pods)*3/4)
	assert.NotZero(t, read)
}

// A new workload is read at once, whatever the pace.
func TestPaceNewWorkloadReadAtOnce(t *testing.T) {
	g := newGateTree(t, 10)
	g.settle()
	name := gateSlice + "/kubepods-burstable-pod6f7c1c9e_9999.slice"
	mkdirAll(t, filepath.Join(g.top, name))
	g.set(name, "cgroup.procs", "")
	g.cpu(name, 77)
	g.at += time.Second
	g.c.pace = pace{at: g.at - time.Second, credit: -time.Hour}
	workloads, err := g.c.Read(g.at)
	require.NoError(t, err)
	w := one(workloads, name)
	require.NotNil(t, w)
	assert.Equal(t, u64(77), w.CPUMicroseconds)
	assert.Equal(t, g.at, w.At)
	read := 0
	for _, w := range workloads {
		if w.At == g.at {
			read++
		}
	}
	assert.Equal(t, 2, read, "beside it the tenth that is due in a second")
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
		g.c.pace = pace{}
		if i%3 != 0 {
			g.c.pace = pace{at: g.at - time.Second, credit: -time.Hour}
		}
		workloads, err := g.c.Read(g.at)
		require.NoError(t, err)
		require.Equal(t, g.at-time.Duration(i%3)*time.Second, workloads[0].At)
		s := h.Add(&snapshot.Sample{Monotonic: g.at, Boottime: g.at, Workloads: workloads})
		long, _ := s.Over(h.Window)
		short, _ := s.Over(2 * time.Second)
		whole, part := halfACore(t, long, s), halfACore(t, short, s)
		require.True(t, whole || i < 12, "it was read twice in any five seconds")
		require.True(t, part || i < 3, "it was read once in these two seconds: its rates are those until then")
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

// Files that are not kept open, and the detail, are opened by their names: those take no
// memory either.
func TestOpeningFilesAllocatesConstant(t *testing.T) {
	for _, keptOpen := range []bool{true, false} {
		reads := func(pods int) float64 {
			k := ticksOf(t, podTree(t, pods))
			if !keptOpen {
				k.c.fds.left = 0
			}
			for range 3 {
				k.after(detailEvery)
			}
			return testing.AllocsPerRun(20, func() {
				k.at += detailEvery
				k.c.pace = pace{}
				for _, tr := range k.c.tracked {
					tr.idle = false
				}
				_, _ = k.c.Read(k.at)
			})
		}
		few, many := reads(10), reads(200)
		t.Logf("kept open %t: %.0f and %.0f", keptOpen, few, many)
		// As above: a busy machine makes some reads dear.
		assert.Less(t, many-few, 19.0, "kept open %t: a tenth for each pod more", keptOpen)
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
		require.True(t, read == 0 || g.at-last == detailEvery, "%s, the first interval may be shorter", g.at-last)
		last = g.at
		read++
	}
	assert.GreaterOrEqual(t, read, 9)
	assert.LessOrEqual(t, g.at-last, detailEvery)
}

func TestDetailsEarlyOnMemoryStall(t *testing.T) {
	g := newGateTree(t, maxEarly+16)
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
		assert.Equal(t, maxEarly, detailed)
	}
	g.stall(g.pods[0], "memory", 4*(earlyDetailStall+1)-earlyDetailStall/2)
	g.cpu(g.pods[0], 200)
	g.cpu(gateSlice, 3000)
	g.stall(gateSlice, "memory", 200)
	assert.NotEqual(t, g.at, g.tick()[0].DetailAt, "a little is no shortage")
}

// A pod exists before its containers, and its first container may be the first
// with a quota. The search for the pod's network may find the container first.
func TestDetailsThrottlingOfNewContainer(t *testing.T) {
	for name, searched := range map[string]time.Duration{"its network is searched": 0, "is not searched": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) { throttlingOfNewContainer(t, searched) })
	}
}

// throttlingOfNewContainer searches for the pod's network from that time on.
func throttlingOfNewContainer(t *testing.T, searched time.Duration) {
	t.Helper()
	g := newGateTree(t, 1)
	pod := g.pods[0]
	g.set(pod, "cpu.stat", "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
	require.Equal(t, u64(0), g.tick()[0].ThrottledMicroseconds)
	g.c.tracked[0].networkDue = searched
	g.after(detailEvery)
	for i, name := range []string{"/a.scope", "/b.scope"} {
		mkdirAll(t, filepath.Join(g.top, pod+name))
		g.set(pod+name, "cgroup.procs", "")
		g.set(pod+name, "cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 700\n")
		g.set(pod, "cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n", 10+i))
		assert.Equal(t, u64(uint64(700*(i+1))), g.after(detailEvery)[0].ThrottledMicroseconds, name)
	}
	again := func(what string) snapshot.Opt[uint64] {
		g.cpu(pod, 100+len(what))
		return g.after(detailEvery)[0].ThrottledMicroseconds
	}
	require.NoError(t, os.RemoveAll(filepath.Join(g.top, pod, "b.scope")))
	assert.Equal(t, u64(1400), again("gone"), "what a container had when it was removed counts on")
	mkdirAll(t, filepath.Join(g.top, pod, "b.scope"))
	g.set(pod+"/b.scope", "cpu.stat", "nr_periods 1\nthrottled_usec 30\n")
	assert.Equal(t, u64(1430), again("it starts from 0"))
	g.set(pod+"/a.scope", "cpu.stat", "nr_periods 1\nthrottled_usec 5\n")
	assert.Equal(t, u64(1435), again("another of this name, within one interval"))
}

// While tasks wait for a CPU the throttling is as of each tick, also when a quota holds
// them back for the first time, or after a rest.
func TestThrottlingOfWhoWaitsForCPU(t *testing.T) {
	for name, rest := range map[string]struct {
		periods int
		last    time.Duration
	}{
		"no quota was met before": {0, 25 * time.Second},
		"after a rest":            {9, 25 * time.Second},
		"at once":                 {0, 0},
	} {
		g, h := newGateTree(t, 1), newHistory()
		pod, last := g.pods[0], &snapshot.WorkloadState{}
		step := func(usage, periods, waited, held int) {
			g.set(pod, "cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods %d\nthrottled_usec %d\n", usage, periods, 7+held))
			g.set(pod, "cpu.pressure", fmt.Sprintf("some total=%d\nfull total=%d\n", 3+waited, 2+waited))
			workloads := g.tick()
			last = &h.Add(&snapshot.Sample{Monotonic: g.at, Boottime: g.at, Workloads: workloads}).Workloads[0]
		}
		for at := g.at; g.at <= at+rest.last; {
			step(5, rest.periods, 0, 0)
			g.align()
		}
		if rest.periods == 0 {
			step(6, 1, 90_000, 80_000)
			require.Equal(t, u64(7), last.ThrottledMicroseconds, "%s: hardly any wait", name)
			require.Equal(t, g.at, last.ThrottledAt, name)
		}
		for i := range 30 {
			step(10+i, 10+i, (i+1)*750_000, (i+1)*700_000)
			require.Equal(t, u64(uint64(7+(i+1)*700_000)), last.ThrottledMicroseconds, name)
			rates, _ := last.Rates.Get()
			ratio, known := rates.ThrottledRatio.Get()
			require.True(t, known, name)
			require.InDelta(t, 0.7*float64(i+1)/max(rates.WindowSeconds, float64(i+1)), ratio, 1e-9, "%s, after %d s", name, i)
		}
	}
}

func TestThrottlingEarlyOfSome(t *testing.T) {
	g := newGateTree(t, maxEarly+16)
	g.settle()
	for i := range 12 {
		now := 0
		for _, pod := range g.pods {
			g.set(pod, "cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods 1\nthrottled_usec %d\n", 10+i, i+1))
			g.stall(pod, "cpu", (i+1)*600_000)
		}
		g.set(gateSlice, "cpu.stat", fmt.Sprintf("usage_usec %d\n", 2000+i))
		g.stall(gateSlice, "cpu", 100+i)
		for _, w := range g.tick() {
			if w.ThrottledAt == g.at {
				now++
				require.Equal(t, u64(uint64(i+1)), w.ThrottledMicroseconds)
			}
			require.Greater(t, w.ThrottledAt+detailEvery, g.at, "the others with the detail")
		}
		require.GreaterOrEqual(t, now, maxEarly)
		require.True(t, i > 0 || now == maxEarly)
	}
}

// With more workloads under pressure than may be read ahead of schedule all have their turn,
// also those that are last in path order.
func TestEarlyReadsInTurn(t *testing.T) {
	for name, row := range map[string]struct {
		press func(g *gateTree, cgroup string, i int)
		read  func(w snapshot.Workload) time.Duration
	}{
		"memory.stat": {
			func(g *gateTree, cgroup string, i int) { g.stall(cgroup, "memory", 2*i*earlyDetailStall) },
			func(w snapshot.Workload) time.Duration { return w.StatAt },
		},
		"throttling": {
			func(g *gateTree, cgroup string, i int) { g.stall(cgroup, "cpu", i*500_000) },
			func(w snapshot.Workload) time.Duration { return w.ThrottledAt },
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateTree(t, 100)
			g.settle()
			for i := 1; i <= 8; i++ {
				for _, cgroup := range append(g.pods, gateSlice) {
					g.cpu(cgroup, 1000+i)
					row.press(g, cgroup, i)
				}
				for _, w := range g.tick() {
					require.True(t, i < 3 || row.read(w) >= g.at-2*time.Second, "%s: tick %d, %s old", w.Cgroup, i, g.at-row.read(w))
				}
			}
		})
	}
}

// Ticks are a little early, or now before and now after the workload's own point. A
// window of 10 s then has a detail, whatever the phase, and not many have two.
func TestDetailsInEachWindow(t *testing.T) {
	early := func(int) time.Duration { return 999_900 * time.Microsecond }
	off := func(i int) time.Duration { return time.Duration(i%3-1) * 2 * time.Millisecond }
	uneven := func(i int) time.Duration { return time.Second + off(i) - off(i-1) }
	for i, phase := range []float64{0, 0.004, 0.005, 0.006, 0.1, 0.25, 0.5, 0.77, 0.995, 0.999} {
		for name, tick := range map[string]func(int) time.Duration{"early": early, "uneven": uneven} {
			t.Run(fmt.Sprintf("%v, %s", phase, name), func(t *testing.T) { detailInEachWindow(t, phase, i%2 == 0, tick) })
		}
	}
}

func detailInEachWindow(t *testing.T, phase float64, psi bool, tick func(i int) time.Duration) {
	g, h := newGateTree(t, 1), newHistory()
	g.at += time.Millisecond
	if !psi {
		require.NoError(t, os.Remove(filepath.Join(g.top, g.pods[0], "cpu.pressure")))
	}
	details, last := 0, g.at
	for i := range 60 {
		g.set(g.pods[0], "cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods 9\nthrottled_usec %d\n", 10+i, 9*i))
		s := h.Add(&snapshot.Sample{Workloads: g.after(tick(i + 1)), Monotonic: g.at, Boottime: g.at})
		g.c.tracked[0].phase = phase
		w := s.Workloads[0]
		if w.DetailAt == g.at {
			details, last = details+1, g.at
		}
		require.Less(t, g.at-last, detailEvery-jitter, "%s", g.at)
		rates, _ := w.Rates.Get()
		require.True(t, details < 2 || !rates.ThrottledRatio.IsZero(), "%s", g.at)
	}
	assert.GreaterOrEqual(t, details, 6)
	assert.LessOrEqual(t, details, 8)
}

// memory.stat that is dear to read pauses only while nothing depends on it, and rates
// go by when it was read.
func TestDetailsMemoryStatPauses(t *testing.T) {
	g, h := newGateTree(t, 1), newHistory()
	pod, i := g.pods[0], 0
	step := func() *snapshot.WorkloadState {
		i++
		g.cpu(pod, 100+i)
		g.set(pod, "memory.stat", fmt.Sprintf("anon %d\ninactive_file %d\npgsteal %d\n", i, i, 1000*i))
		workloads := g.tick()
		return &h.Add(&snapshot.Sample{Monotonic: g.at, Boottime: g.at, Workloads: workloads}).Workloads[0]
	}
	fresh := func(w *snapshot.WorkloadState) bool {
		isNow := w.StatAt == g.at
		require.Equal(t, isNow, w.InactiveFileBytes == u64(uint64(i)))
		require.Equal(t, isNow, w.RSSBytes == u64(uint64(i)))
		return isNow
	}
	require.True(t, fresh(step()))
	until := g.at + 40*time.Second
	known, details := 0, 0
	for g.at < until+20*time.Second {
		g.c.tracked[0].statAgain = until
		w := step()
		require.False(t, fresh(w) && g.at < until)
		if w.DetailAt == g.at {
			details++
		}
		rates, _ := w.Rates.Get()
		if taken, ok := rates.MemoryTakenPerSecond.Get(); ok {
			known++
			require.InDelta(t, 1000*os.Getpagesize(), taken, 1e-6, "no 0 while it is not read, no burst when it is again")
		}
	}
	require.Greater(t, known, 10)
	require.GreaterOrEqual(t, details, 6, "what else is detail goes on")

	g.c.tracked[0].statAgain = g.at + time.Hour
	g.stall(pod, "memory", 2*earlyDetailStall)
	require.True(t, fresh(step()), "at once when it stalls on memory")
	g.set(pod, "memory.current", "8192\n")
	for range 10 {
		if fresh(step()) {
			return
		}
	}
	t.Error("its memory doubled, and what is inactive of it was not read")
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
	require.NoError(t, os.RemoveAll(filepath.Join(top, pod, "a/b")))
	require.NoError(t, writeInPlace(filepath.Join(top, pod, "memory.failcnt"), "2\n"))
	w = k.after(detailEvery)[0]
	assert.Equal(t, u64(323), w.LimitHits, "what a container had when it was removed counts on")
	assert.Equal(t, u64(7), w.OOMKills)
}

// Who reaches its limit waits for memory, so the hits are summed again after a stall on
// memory; each time where the pressure is not that of these tasks, and seldom in any case.
func TestDetailsV1LimitHitsAfterStall(t *testing.T) {
	const pod, pressure = "memory/kubepods/pod1", "unified/kubepods/pod1"
	stall := func(n int) string {
		if n < 0 {
			return "not known\n"
		}
		return fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", n)
	}
	for name, row := range map[string]struct {
		cpu, memory int // stalls of the second sample, in µs, 0 in the first; -1: unknown in both
		wait        time.Duration
		want        uint64
	}{
		"no stall":                {9, 0, detailEvery, 1},
		"a stall":                 {9, 1, detailEvery, 2},
		"no stall for long":       {9, 0, idleDetailEvery, 2},
		"its tasks are elsewhere": {0, 0, detailEvery, 2},
		"an unknown stall":        {9, -1, detailEvery, 2},
	} {
		t.Run(name, func(t *testing.T) {
			top := cgroupTree(t, map[string]string{
				"memory/cgroup.procs": "1\n", "memory/kubepods/cgroup.procs": "", pod + "/cgroup.procs": "", pod + "/memory.failcnt": "1\n",
				pod + "/memory.usage_in_bytes": "1\n", pod + "/memory.oom_control": "oom_kill 2\n", "unified/cgroup.controllers": "", "unified/cgroup.procs": "1\n",
				"unified/kubepods/cgroup.procs": "", pressure + "/cgroup.procs": "", pressure + "/cpu.pressure": stall(0), pressure + "/memory.pressure": stall(min(0, row.memory)),
			})
			k := ticksOf(t, top)
			require.Equal(t, u64(1), k.tick()[0].LimitHits)
			for _, tr := range k.c.tracked {
				tr.phase = 0 // of two minutes hardly any is over
			}
			for file, content := range map[string]string{
				pod + "/memory.failcnt": "2\n", pod + "/memory.usage_in_bytes": "5\n",
				pressure + "/cpu.pressure": stall(row.cpu), pressure + "/memory.pressure": stall(row.memory),
			} {
				require.NoError(t, writeInPlace(filepath.Join(top, file), content))
			}
			w := k.after(row.wait)[0]
			assert.Equal(t, u64(row.want), w.LimitHits)
			assert.NotContains(t, w.Absent, nameLimitHits)
		})
	}
}

// In a hurry all are read once, however much reading costs.
func TestPaceHurry(t *testing.T) {
	g := newGateTree(t, 3)
	age := func() time.Duration {
		g.at += time.Second
		g.c.pace.credit = -time.Hour
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

// One slow read of memory.stat may be another process's doing, two in a row are its own.
func TestSlowStatTwiceInRowPauses(t *testing.T) {
	w := &trackedWorkload{reader: &Reader{now: time.Hour}}
	for i, row := range []struct {
		took   time.Duration
		paused bool
	}{{slowStat, false}, {slowStat - 1, false}, {slowStat, false}, {slowStat, true}} {
		w.paceStat(row.took)
		assert.Equal(t, row.paused, w.statAgain > w.reader.now, i)
	}
}
