package throttle

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/cgroup"
)

// made is a tree with the files of one cgroup, /pod.
func made(t *testing.T, v1 bool, files map[string]string) (Tree, string) {
	t.Helper()
	top := t.TempDir()
	for name, text := range files {
		path := filepath.Join(top, "pod", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return Tree{IO: Hierarchy{top, v1}, CPU: Hierarchy{top, v1}, Memory: Hierarchy{top, v1}}, filepath.Join(top, "pod")
}

func TestKnobFiles(t *testing.T) {
	read, write, cpu, memory := Knob{Cgroup: "/pod", Name: Read, Device: "8:0"}, Knob{Cgroup: "/pod", Name: Write, Device: "8:0"}, Knob{Cgroup: "/pod", Name: CPU}, Knob{Cgroup: "/pod", Name: Memory}
	for _, row := range []struct {
		v1         bool
		k          Knob
		file, text string
		is         uint64
		set, none  string
	}{
		{false, read, "io.max", "259:0 rbps=7 wbps=8 riops=max wiops=max\n8:0 rbps=1000 wbps=max riops=5 wiops=max\n", 1000, "8:0 rbps=42", "8:0 rbps=max"},
		{false, write, "io.max", "8:0 rbps=1000 wbps=max riops=5 wiops=max\n", 0, "8:0 wbps=42", "8:0 wbps=max"},
		{false, write, "io.max", "18:0 wbps=7\n", 0, "8:0 wbps=42", "8:0 wbps=max"},
		{false, cpu, "cpu.max", "20000 100000\n", 20000, "42", "max"},
		{false, cpu, "cpu.max", "max 100000\n", 0, "42", "max"},
		{true, read, "blkio.throttle.read_bps_device", "259:0 7\n8:0 1000\n", 1000, "8:0 42", "8:0 0"},
		{true, write, "blkio.throttle.write_bps_device", "", 0, "8:0 42", "8:0 0"},
		{true, cpu, "cpu.cfs_quota_us", "-1\n", 0, "42", "-1"},
		{true, cpu, "cpu.cfs_quota_us", "20000\n", 20000, "42", "-1"},
		{false, memory, "memory.high", "max\n", 0, "42", "max"},
		{false, memory, "memory.high", "1048576\n", 1 << 20, "42", "max"},
	} {
		tree, dir := made(t, row.v1, map[string]string{row.file: row.text})
		is, err := tree.Get(row.k)
		require.NoError(t, err, row.file)
		assert.Equal(t, row.is, is, "%s %q", row.file, row.text)
		for limit, want := range map[uint64]string{42: row.set, 0: row.none} {
			require.NoError(t, tree.Set(row.k, limit))
			got, err := os.ReadFile(filepath.Join(dir, row.file))
			require.NoError(t, err)
			assert.Equal(t, want, string(got), row.file)
		}
	}
}

func TestKnobCoresOfPeriod(t *testing.T) {
	cpu := Knob{Cgroup: "/pod", Name: CPU}
	v2, _ := made(t, false, map[string]string{"cpu.max": "max 50000\n"})
	v1, _ := made(t, true, map[string]string{"cpu.cfs_period_us": "200000\n"})
	for tree, want := range map[Tree]uint64{v2: 25_000, v1: 100_000} {
		got, err := tree.Effective(cpu, 0.5)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		got, err = tree.Effective(cpu, 0.000001)
		require.NoError(t, err)
		assert.EqualValues(t, leastQuota, got, "the kernel takes no less")
	}
	got, err := v2.Effective(Knob{Cgroup: "/pod", Name: Read, Device: "8:0"}, 0.2)
	require.NoError(t, err)
	assert.EqualValues(t, 2, got, "io.max of cgroup v2 takes no less")
}

// A limit of memory is never below what is held: the kernel would make the cgroup wait with
// its locks.
func TestKnobMemoryHeld(t *testing.T) {
	memory := Knob{Cgroup: "/pod", Name: Memory}
	v2, dir := made(t, false, map[string]string{"memory.current": "1048577\n"})
	for wanted, want := range map[float64]uint64{1: 1<<20 + 4096, 1 << 20: 1<<20 + 4096, 2 << 20: 2 << 20} {
		got, err := v2.Effective(memory, wanted)
		require.NoError(t, err)
		assert.Equal(t, want, got, "in whole pages, as the kernel keeps it")
	}
	require.NoError(t, os.RemoveAll(dir))
	_, err := v2.Effective(memory, 1)
	require.ErrorIs(t, err, ErrGone)
	v1, _ := made(t, true, nil)
	_, err = v1.Get(memory)
	assert.ErrorContains(t, err, "invalid cgroup limit")
}

func TestKnobGone(t *testing.T) {
	tree, _ := made(t, false, map[string]string{"cpu.max": "much 100000\n"})
	_, err := tree.Get(Knob{Cgroup: "/gone", Name: Read, Device: "8:0"})
	require.ErrorIs(t, err, ErrGone)
	require.ErrorIs(t, tree.Set(Knob{Cgroup: "/gone", Name: Read, Device: "8:0"}, 1), ErrGone)
	_, err = tree.Get(Knob{Cgroup: "/pod", Name: Read, Device: "8:0"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, ErrGone)
	require.ErrorContains(t, err, "the cgroup controller is not enabled there")
	require.ErrorIs(t, tree.Set(Knob{Cgroup: "/pod", Name: Read, Device: "8:0"}, 1), fs.ErrNotExist)
	assert.NoFileExists(t, filepath.Join(tree.IO.Dir, "pod/io.max"), "nothing is made")
	_, err = tree.Get(Knob{Cgroup: "/pod", Name: CPU})
	require.ErrorContains(t, err, `limit "much" is not a number`)
	_, err = Tree{}.Get(Knob{Cgroup: "/pod", Name: Read, Device: "8:0"})
	require.ErrorContains(t, err, "no cgroup hierarchy")
	for _, k := range []Knob{{Cgroup: "/../pod", Name: Read, Device: "8:0"}, {Cgroup: "/pod", Name: "weight"}, {Name: CPU}, {Cgroup: "/pod", Name: Resize}} {
		_, err = tree.Get(k)
		require.ErrorContains(t, err, "invalid cgroup limit", "%v", k)
	}
}

// What an agent before wrote down may be anything: no file outside of the
// cgroups is ever touched.
func FuzzKnobStaysInTree(f *testing.F) {
	f.Add("/pod", Read, "8:0", uint64(7))
	f.Add("/../outside", Write, "8:0", uint64(7))
	f.Add("//pod/../../outside", CPU, "", uint64(0))
	f.Fuzz(func(t *testing.T, cgroup, name, device string, limit uint64) {
		top := t.TempDir()
		outside := filepath.Join(top, "outside")
		require.NoError(t, os.MkdirAll(filepath.Join(top, "tree/pod"), 0o755))
		require.NoError(t, os.Mkdir(outside, 0o755))
		var files []string
		for _, dir := range []string{outside, top} {
			for _, file := range []string{"io.max", "cpu.max"} {
				files = append(files, filepath.Join(dir, file))
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte("8:0 rbps=1"), 0o644))
			}
		}
		h := Hierarchy{Dir: filepath.Join(top, "tree")}
		b := Journal{Files: Tree{h, h, h}, Save: func([]Limit) error { return nil }, Limits: []Limit{{Knob: Knob{Cgroup: cgroup, Name: name, Device: device}, Value: limit, Written: true}}}
		_ = b.Set(map[Knob]float64{{Cgroup: cgroup, Name: name, Device: device}: float64(limit)})
		_ = b.Set(nil)
		_ = b.Files.Set(Knob{Cgroup: cgroup, Name: name, Device: device}, limit)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, "8:0 rbps=1", string(text), file)
		}
	})
}

// The kernel of this machine keeps each limit as it was set, so that it is known
// again, and takes it away.
func TestKnobsOnThisKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make cgroups")
	}
	c, err := cgroup.Find("/proc", "", nil)
	require.NoError(t, err)
	var tree Tree
	tree.IO.Dir, tree.IO.V1 = c.Hierarchy("blkio")
	tree.CPU.Dir, tree.CPU.V1 = c.Hierarchy("cpu")
	name := "/plimsoll-curb-" + strconv.Itoa(os.Getpid())
	for controller, dir := range map[string]string{"io": tree.IO.Dir, "cpu": tree.CPU.Dir} {
		// v1 has no such file, and a v2 that is mounted beside it not each controller.
		if f, err := os.OpenFile(filepath.Join(dir, "cgroup.subtree_control"), os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString("+" + controller)
			require.NoError(t, f.Close())
		}
	}
	device := disk(t)
	for _, k := range []Knob{{Cgroup: name, Name: Read, Device: device}, {Cgroup: name, Name: Write, Device: device}, {Cgroup: name, Name: CPU}} {
		dir := filepath.Join(tree.IO.Dir, name)
		if k.Name == CPU {
			dir = filepath.Join(tree.CPU.Dir, name)
		}
		if err := os.Mkdir(dir, 0o755); err == nil {
			t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
		}
		before, err := tree.Get(k)
		require.NoError(t, err)
		require.Zero(t, before)
		for _, per := range []float64{1 << 30, 1234567.8, 0.37} {
			if k.Name == CPU {
				per /= 1 << 30
			}
			want, err := tree.Effective(k, per)
			require.NoError(t, err)
			require.NoError(t, tree.Set(k, want), "%s %d", k, want)
			got, err := tree.Get(k)
			require.NoError(t, err)
			assert.Equal(t, want, got, "%s", k)
		}
		require.NoError(t, tree.Set(k, 0))
		got, err := tree.Get(k)
		require.NoError(t, err)
		assert.Zero(t, got, "%s", k)
	}
	err = tree.Set(Knob{Cgroup: name, Name: Read, Device: "511:511"}, 1)
	assert.ErrorIs(t, err, ErrGone, "a device that is not there")
}

// disk is the number of a disk of this machine.
func disk(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/sys/block/*/dev")
	require.NoError(t, errors.Join(err))
	for _, path := range found {
		if number, err := os.ReadFile(path); err == nil && !strings.Contains(path, "/ram") {
			return strings.TrimSpace(string(number))
		}
	}
	t.Fatal("no disk")
	return ""
}
