package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func mounts(t *testing.T, text string) group {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mounts")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	top, err := topGroup(file)
	require.NoError(t, err)
	return top.child("/kubepods/pod1")
}

func TestCgroupHierarchies(t *testing.T) {
	g := mounts(t, `proc /proc proc rw 0 0
cgroup /cg/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /cg/memory cgroup rw,memory 0 0
cgroup /again/memory cgroup rw,memory 0 0
cgroup /cg/systemd cgroup rw,name=systemd 0 0
cgroup2 /cg/unified cgroup2 rw 0 0
`)
	assert.Equal(t, []string{"/cg/cpu,cpuacct/kubepods/pod1", "/cg/memory/kubepods/pod1", "/cg/unified/kubepods/pod1"}, g.Dirs())
	assert.Equal(t, "/cg/memory/kubepods/pod1", g.In("memory"))
	assert.Equal(t, "/cg/unified/kubepods/pod1", g.In("blkio"), "what v1 does not have is v2's")
	assert.Equal(t, []string{
		"/cg/cpu,cpuacct/kubepods/pod1/cpuacct.usage", "/cg/memory/kubepods/pod1/memory.usage_in_bytes",
		"/cg/unified/kubepods/pod1/blkio.throttle.io_service_bytes_recursive",
		"/cg/unified/kubepods/pod1/memory.pressure", "/cg/unified/kubepods/pod1/io.pressure",
	}, g.five())
	v2 := mounts(t, "cgroup2 /cg cgroup2 rw,nsdelegate 0 0\n")
	assert.Equal(t, []string{
		"/cg/kubepods/pod1/cpu.stat", "/cg/kubepods/pod1/memory.current", "/cg/kubepods/pod1/memory.pressure",
		"/cg/kubepods/pod1/io.stat", "/cg/kubepods/pod1/io.pressure",
	}, v2.five())
	_, err := topGroup(filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestCgroupUsageV2(t *testing.T) {
	dir := t.TempDir()
	g := group{cluster.Group{Path: "/", Hierarchies: []cluster.Hierarchy{{Dir: dir, V2: true}}}}
	for name, text := range map[string]string{
		"cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "memory.current": "41943040\n", "memory.stat": "anon 1048576\nfile 2097152\nanon_thp 1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cpu, err := g.cpu()
	require.NoError(t, err)
	assert.Equal(t, 1500*time.Microsecond, cpu)
	memory, err := g.memory()
	require.NoError(t, err)
	assert.Equal(t, "40.0 MiB", mebibytes(memory))
	assert.Equal(t, "anon 1.00 MiB, file 2.00 MiB", g.parts())
}

func TestBenchGoalsByPods(t *testing.T) {
	assert.EqualValues(t, 40<<20, memoryLimit(250))
	assert.EqualValues(t, 64<<20, memoryLimit(1000))
	assert.Zero(t, memoryLimit(2))
	assert.InDelta(t, 2, loopLimit(1), 0)
	assert.InDelta(t, 1.3, loopLimit(1000), 0)
}

func TestCPUPerSecondOfRealTime(t *testing.T) {
	assert.Equal(t, 3*ms, window{cpu: 90 * ms, real: 30 * time.Second}.perSecond())
}

func TestBenchReadsTickMetric(t *testing.T) {
	body := []byte("# TYPE plimsoll_tick_duration_seconds gauge\nplimsoll_tick_duration_seconds 0.0025\n")
	seconds, err := metric(body, "plimsoll_tick_duration_seconds")
	require.NoError(t, err)
	assert.InDelta(t, 0.0025, seconds, 1e-12)
	_, err = metric(body, "plimsoll_ticks")
	assert.ErrorContains(t, err, "no plimsoll_ticks")
}

const benchmarkOutput = `goos: linux
BenchmarkMetrics/pods/text-2  600  0 ns/op  500000 ours-cpu-ns  10.0 peer/ours  5000000 peer-cpu-ns
BenchmarkMetrics/pods/gzip-2  600  0 ns/op  2400000 ours-cpu-ns  4.00 peer/ours  10400000 peer-cpu-ns
BenchmarkMetrics/pods/gzip-2  600  0 ns/op  2600000 ours-cpu-ns  5.00 peer/ours  12000000 peer-cpu-ns
BenchmarkMetrics/pods/gzip-2  600  0 ns/op  9900000 ours-cpu-ns  1.00 peer/ours  9900000 peer-cpu-ns
PASS
`

func TestBenchTextRowsMedian(t *testing.T) {
	rows, err := textRows(benchmarkOutput)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, Row{
		What: "5,000 series scraped: pods/text", Ours: "500 µs", Peer: "client_golang: 5.00 ms", Ratio: "10.0 × cheaper",
	}, rows[0])
	assert.Equal(t, "2.60 ms", rows[1].Ours)
	assert.Equal(t, "client_golang: 10.4 ms", rows[1].Peer)
	assert.Equal(t, NotMet, rows[1].Goal.Verdict(), "the goal is of a scrape with gzip")
	_, err = textRows("PASS\n")
	assert.Error(t, err, "no numbers are no result")
}

func TestBenchDecisionRowsMedian(t *testing.T) {
	rows, err := loadRows(`goos: linux
BenchmarkDecide/5000_nodes,_50000_loads,_limit_400-2   10  300000 ns/op  40.0 cpu-ms/op  12184594 B/op  4681 allocs/op
BenchmarkDecide/5000_nodes,_50000_loads,_limit_400-2   10  900000 ns/op  60.5 cpu-ms/op  12184594 B/op  4683 allocs/op
BenchmarkDecide/5000_nodes,_50000_loads,_limit_400-2   10  400000 ns/op  50.5 cpu-ms/op  12184594 B/op  4682 allocs/op
BenchmarkModel                                         10  836024 ns/op  0.5 cpu-ms/op  200 model-cpu-ms/op
PASS
`)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, "who of 50,000 loads on 5,000 nodes goes on, limit 400", rows[0].What)
	assert.Equal(t, "50.5 ms, 4682 allocations", rows[0].Ours)
	assert.Equal(t, NotMet, rows[0].Goal.Verdict())
	assert.Equal(t, "400 × cheaper", rows[1].Ratio)
	_, err = loadRows("PASS\n")
	assert.Error(t, err, "no numbers are no result")
}

func TestBenchControllerRow(t *testing.T) {
	row, err := controllerRow("    agents_many_test.go:140: 5000 agents, 498 renewals/s: 5.2 % of a core, 97000 kB resident at most; a bare watch of their Leases: 2.6 %\n")
	require.NoError(t, err)
	assert.Equal(t, "the controller, 5000 simulated agents, which renew 498 times a second in all", row.What)
	assert.Equal(t, "5.2 % of a CPU; 97000 kB resident at most", row.Ours)
	assert.Equal(t, "client-go's watch of the same Leases, which keeps nothing: 2.6 %", row.Peer)
	assert.Equal(t, "2.00 ×", row.Ratio)
	assert.Equal(t, NotMet, row.Goal.Verdict())
	_, err = controllerRow("ok\n")
	assert.Error(t, err, "no numbers are no result")
}

func TestBenchArguments(t *testing.T) {
	for _, args := range [][]string{{"-sizes", "0"}, {"-sizes", "a"}, {"-sizes", "250,1"}, {"-only", "everything"}} {
		_, err := parse(args)
		assert.Error(t, err, args)
	}
	b, err := parse([]string{"-only", "pods,host"})
	require.NoError(t, err)
	assert.Equal(t, []int{1, 250, 1000}, b.sizes)
	assert.True(t, b.wants(secRecorded) && b.wants(secNative) && b.wants(secHost))
	assert.False(t, b.wants(secAgent) || b.wants(secCluster) || b.wants(secText))
	b, err = parse(nil)
	require.NoError(t, err)
	for _, name := range sectionNames() {
		assert.True(t, b.wants(name), name)
	}
}

func TestPeerRecipeFollowsPins(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "cadvisor"), 0o700))
	for _, name := range []string{"go.mod", "go.sum", "cadvisor/main.go"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	first, err := recipe(dir)
	require.NoError(t, err)
	again, err := recipe(dir)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("another"), 0o600))
	other, err := recipe(dir)
	require.NoError(t, err)
	assert.NotEqual(t, first, other)
}
