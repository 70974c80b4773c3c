package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallest is a run of the smallest kind, whose document is returned.
func smallest(t *testing.T, args ...string) (*bench, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "benchmarks.md")
	b, err := parse(append([]string{"-ticks", "2", "-o", out}, args...))
	require.NoError(t, err)
	require.NoError(t, b.run(t.Context()))
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, r := range b.table {
		assert.Empty(t, r.Goal.why, r.What)
	}
	return b, string(text)
}

func TestBenchPodsAndHost(t *testing.T) {
	b, text := smallest(t, "-sizes", "1,10", "-only", "recorded,host")
	assert.Len(t, b.table, 3*5+1+1, "1 pod, 10 pods busy and idle, five rows each; allocations; the host")
	for _, said := range []string{
		"RECORDED v2 tree", "1 pod, busy", "10 pods, busy", "10 pods, 90 % idle", "bare loop of the same reads", "opening what we open", "StatFiltered", "cgroup2 Stat", "allocations a tick",
		"procfs", "Machine: ", "Linux ",
	} {
		assert.Contains(t, text, said)
	}
}

func TestBenchSecondByStage(t *testing.T) {
	b, _ := smallest(t, "-sizes", "8", "-only", "second")
	var said []string
	for _, r := range b.table {
		said = append(said, r.What)
	}
	const what = "a second of the agent, RECORDED tree, 8 pods, busy: "
	assert.Equal(t, []string{
		what + "all", what + "read the host", what + "read the pods", what + "snapshot", what + "judge", what + "garbage collection",
	}, said)
}

func TestBenchLargeMachines(t *testing.T) {
	b, text := smallest(t, "-sizes", "8", "-only", "large")
	assert.Len(t, b.table, 5, "pods, CPUs, disks, veths; the largest")
	assert.Contains(t, text, "MADE-UP machine, 8 pods, 128 CPUs, 64 disks, 250 veths")
}

func TestLineSlope(t *testing.T) {
	slope, off := line([]int{1, 2, 4}, []time.Duration{15, 25, 45})
	assert.Equal(t, time.Duration(10), slope)
	assert.InDelta(t, 0, off, 1e-9)
	_, off = line([]int{1, 2, 3}, []time.Duration{10, 40, 10})
	assert.InDelta(t, 1, off, 1e-9, "10 of 20 and 20 of 20")
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: pods get real cgroups")
	}
}

func built(t *testing.T, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	c := exec.Command("go", "build", "-buildvcs=false", "-o", out, pkg)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := c.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return out
}

func TestBenchAgentOnRealCgroups(t *testing.T) {
	needsRoot(t)
	if os.Getenv("PLIMSOLL_LONG") == "" {
		t.Skip("its peers take two minutes of a processor to build: make e2e")
	}
	b, text := smallest(t, "-sizes", "1,2", "-only", "native,agent", "-window", "3s", "-load", built(t, "./load"), "-plimsoll", built(t, "../.."))
	assert.Contains(t, text, "this host's cgroups")
	assert.Contains(t, text, "the agent, 2 pods, busy, tick: 1s: memory of its cgroup")
	for _, r := range b.table {
		assert.NotEmpty(t, r.Ours, r.What)
	}
	w, err := newWorld("")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for _, dir := range w.own.Dirs() {
		assert.NoDirExists(t, dir)
	}
}

func TestBenchWorkloadWorksOnDemand(t *testing.T) {
	needsRoot(t)
	w, err := newWorld(built(t, "./load"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	require.NoError(t, w.grow(t.Context(), 2))
	used := func(i int) time.Duration {
		cpu, err := w.pods[i].cpu()
		require.NoError(t, err)
		return cpu
	}
	require.NoError(t, w.work(t.Context(), idle))
	first, other := used(0), used(1)
	require.NoError(t, until(t.Context(), "the first works", func() error {
		if used(0) < first+5*spinOfLoad {
			return assert.AnError
		}
		return nil
	}))
	assert.Less(t, used(1)-other, 5*spinOfLoad, "the second rests")
}

// spinOfLoad is what one piece of a load's work takes at least.
const spinOfLoad = 200 * time.Microsecond

func TestBenchLeftCgroupsRemoved(t *testing.T) {
	needsRoot(t)
	gone := exec.Command("true")
	require.NoError(t, gone.Run())
	w, err := newWorld("")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	top, err := topGroup("/proc/self/mounts")
	require.NoError(t, err)
	left := top.child(ownPrefix + strconv.Itoa(gone.Process.Pid))
	require.NoError(t, left.child("pods").Make())
	require.NoError(t, removeAbandoned(top))
	for _, dir := range left.Dirs() {
		assert.NoDirExists(t, dir)
	}
	for _, dir := range w.own.Dirs() {
		assert.DirExists(t, dir, "whoever runs keeps his")
	}
}

func TestBenchOuterRound(t *testing.T) {
	b, text := smallest(t, "-sizes", "1,20", "-only", "outer", "-load", built(t, "./load"))
	require.Len(t, b.table, 2)
	assert.Contains(t, text, "a round of 10 outer plugins, 20 pods of 1.")
	assert.Contains(t, text, "until all have answered")
	assert.Contains(t, text, "writes of as many bytes to as many sockets")
	assert.Contains(t, text, "as many gRPC calls with as many bytes")
}
