package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCgroupTreesUsed(t *testing.T) {
	for name, c := range map[string]struct {
		mounts string
		want   []string
	}{
		"hybrid": {"tmpfs /sys/fs/cgroup tmpfs rw 0 0\n" +
			"cgroup /c/cpu cgroup rw,relatime,cpu 0 0\ncgroup /c/cpuset cgroup rw,cpuset 0 0\n" +
			"cgroup /c/memory cgroup rw,memory 0 0\ncgroup /c/systemd cgroup rw,name=systemd 0 0\n" +
			"cgroup2 /c/unified cgroup2 rw 0 0\n", []string{"/c/cpu", "/c/memory", "/c/unified"}},
		"v2":                    {"cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n", []string{"/sys/fs/cgroup"}},
		"together":              {"cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n", []string{"/c/cpu,cpuacct"}},
		"mounted at two places": {"c /a cgroup rw,memory 0 0\nc /b cgroup rw,memory 0 0\n", []string{"/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "mounts")
			require.NoError(t, os.WriteFile(file, []byte(c.mounts), 0o600))
			got, err := RootGroup(file, counters()...)
			require.NoError(t, err)
			assert.Equal(t, c.want, got.Dirs())
		})
	}
	_, err := RootGroup("/dev/null", counters()...)
	require.ErrorContains(t, err, "none is mounted")
}

func TestCgroupRemovedWhole(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	all, err := RootGroup("/proc/self/mounts", counters()...)
	require.NoError(t, err)
	root := all.Child(fmt.Sprintf("/plimsoll-e2e-%d-tree", os.Getpid()))
	deep := root.Child("a/b")
	require.NoError(t, deep.Make())
	sleeper, err := startChild(exec.Command("sleep", "600"), syscall.SIGKILL)
	require.NoError(t, err)
	for _, dir := range deep.Dirs() {
		require.NoError(t, os.WriteFile(dir+"/cgroup.procs", fmt.Append(nil, sleeper.cmd.Process.Pid), 0o644))
	}
	pids, err := root.pids()
	require.NoError(t, err)
	assert.Equal(t, []int{sleeper.cmd.Process.Pid}, pids)

	require.NoError(t, root.Remove(t.Context()))
	<-sleeper.ended
	for _, dir := range root.Dirs() {
		assert.NoDirExists(t, dir)
	}
	require.NoError(t, root.Remove(t.Context()), "what is not there is removed")
}
