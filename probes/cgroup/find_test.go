package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// procWithMounts is a made-up procfs whose pid 1 has these mounts: a mount
// point, the part of the file system that is mounted, its type and options.
func procWithMounts(t *testing.T, mounts ...[4]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("22 1 254:0 / / rw - ext4 /dev/vda rw\n")
	for i, m := range mounts {
		fmt.Fprintf(&b, "%d 22 0:%d %s %s rw,relatime - %s cgroup %s\n", 31+i, 28+i, m[1], m[0], m[2], m[3])
	}
	return cgroupTree(t, map[string]string{"1/mountinfo": b.String(), "self/mountinfo": ""})
}

func TestCgroupFlavour(t *testing.T) {
	for name, c := range map[string]struct {
		files   []string
		flavour string
	}{
		"v2":                         {[]string{"cgroup.controllers", "cgroup.procs"}, "v2"},
		"v1":                         {[]string{"memory/cgroup.procs", "cpu,cpuacct/cgroup.procs", "systemd/cgroup.procs"}, "v1"},
		"hybrid":                     {[]string{"memory/cgroup.procs", "unified/cgroup.controllers", "unified/cgroup.procs"}, "hybrid"},
		"v2 beside systemd's own v1": {[]string{"systemd/cgroup.procs", "unified/cgroup.controllers", "unified/cgroup.procs"}, "v2"},
	} {
		files := map[string]string{}
		for _, f := range c.files {
			files[f] = ""
		}
		assert.Equal(t, c.flavour, mustFind(t, cgroupTree(t, files)).Flavour(), name)
	}
}

func TestCgroupsNone(t *testing.T) {
	top := cgroupTree(t, map[string]string{"cpuset/cgroup.procs": "", "memory/readme": "an unmounted directory"})
	_, err := Find("/proc", top, nil)
	require.EqualError(t, err, "find cgroups: neither cgroup v2 nor a memory, cpuacct or blkio hierarchy of v1 in "+top)

	_, err = Find("/proc", top+"/missing", nil)
	require.EqualError(t, err, "find cgroups: open "+top+"/missing: no such file or directory")

	proc := procWithMounts(t)
	_, err = Find(proc, "", nil)
	require.EqualError(t, err, "find cgroups: neither cgroup v2 nor a memory, cpuacct or blkio hierarchy of v1 in "+proc)

	empty := t.TempDir()
	_, err = Find(empty, "", nil)
	require.ErrorContains(t, err, "find cgroups: ")
	assert.NotContains(t, err.Error(), "\n")
}

func TestCgroupMountsOfPID1(t *testing.T) {
	v2 := procWithMounts(t, [4]string{"/sys/fs/cgroup", "/", "cgroup2", "rw,nsdelegate"})
	c, err := Find(v2, "", nil)
	require.NoError(t, err)
	assert.Equal(t, "v2", c.Flavour())
	assert.Equal(t, []string{"/sys/fs/cgroup"}, c.dirs)

	hybrid := procWithMounts(t,
		[4]string{"/part/of/a/container", "/docker/c0ffee", "cgroup", "rw,memory"},
		[4]string{"/cg/memory", "/", "cgroup", "rw,memory"},
		[4]string{"/cg/cpu", "/", "cgroup", "rw,cpu,cpuacct"},
		[4]string{"/cg/systemd", "/", "cgroup", "rw,xattr,name=systemd"},
		[4]string{"/elsewhere/memory", "/", "cgroup", "rw,memory"},
		[4]string{"/cg/v2", "/", "cgroup2", "rw"},
		[4]string{"/elsewhere/v2", "/", "cgroup2", "rw"},
	)
	c, err = Find(hybrid, "", nil)
	require.NoError(t, err)
	assert.Equal(t, "hybrid", c.Flavour())
	assert.Equal(t, []string{"/cg/memory", "/cg/cpu", "/cg/v2"}, c.dirs)
	assert.Equal(t, map[string]int{"memory": 0, "cpu": 1, "cpuacct": 1, unified: 2}, c.at)
}

func TestCgroupMountsOfSelf(t *testing.T) {
	proc := procWithMounts(t)
	require.NoError(t, os.RemoveAll(filepath.Join(proc, "1")))
	own := "31 22 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	require.NoError(t, os.WriteFile(filepath.Join(proc, "self/mountinfo"), []byte(own), 0o600))
	c, err := Find(proc, "", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"/sys/fs/cgroup"}, c.dirs)
}

func TestCgroupTreeThroughPID1(t *testing.T) {
	host := cgroupTree(t, madeUpV2())
	proc := procWithMounts(t, [4]string{"/sys/fs/cgroup", "/", "cgroup2", "rw"})
	theirs := filepath.Join(proc, "1/root/sys/fs/cgroup")
	require.NoError(t, os.MkdirAll(filepath.Dir(theirs), 0o755))
	require.NoError(t, os.Symlink(host, theirs))
	c, err := Find(proc, "", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{theirs}, c.dirs, "our own /sys/fs/cgroup is another directory")
	assert.Equal(t, []string{"/cron", madeUpPod}, cgroupPaths(mustRead(t, c)))

	// Where both lead to the same directory the short path is kept.
	proc = procWithMounts(t, [4]string{host, "/", "cgroup2", "rw"})
	require.NoError(t, os.Symlink("/", filepath.Join(proc, "1/root")))
	c, err = Find(proc, "", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{host}, c.dirs)
}

// A cgroup2 mounted with memory_localevents counts hits and kills where they happen.
func TestCgroupLocalEvents(t *testing.T) {
	files := madeUpV2()
	const container = madeUpPod + "/a.scope/memory.events"
	files[container[1:]], files["kubepods.slice/kubepods-burstable.slice/cgroup.procs"] = "high 10\nmax 20\noom_kill 30\n", ""
	host := cgroupTree(t, files)
	for options, want := range map[string][2]uint64{"rw,nsdelegate": {7, 1}, "rw,nsdelegate,memory_localevents": {37, 31}} {
		proc := procWithMounts(t, [4]string{host, "/", "cgroup2", options})
		require.NoError(t, os.Symlink("/", filepath.Join(proc, "1/root")))
		for _, root := range []string{"", host} {
			c, err := Find(proc, root, nil)
			require.NoError(t, err)
			for i := range 2 { // at the second read the detail is not due
				require.NoError(t, writeInPlace(filepath.Join(host, madeUpPod, "cpu.stat"), fmt.Sprintf("usage_usec %d\n", i)))
				workloads, err := c.Read(time.Hour + time.Duration(i)*time.Second)
				require.NoError(t, err)
				w := workloads[1]
				assert.Equal(t, want, [2]uint64{must(t, w.LimitHits, w.Absent), must(t, w.OOMKills, w.Absent)}, options)
			}
			c.Close()
		}
	}
}

func TestCgroupControllerOnV2OfHybrid(t *testing.T) {
	files := map[string]string{"blkio/cgroup.procs": "1\n"}
	for name, content := range madeUpV2() {
		files["unified/"+name] = content
	}
	got := mustRead(t, mustFind(t, cgroupTree(t, files)))
	require.Equal(t, []string{"/cron", madeUpPod}, cgroupPaths(got))
	want := wantMadeUpPod()
	want.IO, want.Absent = nil, snapshot.Absent{"io": "no cgroup of this path in the blkio hierarchy"}
	assert.Empty(t, diffWorkload(want, got[1]))
}

func TestTriggerCgroupsOfBothDrivers(t *testing.T) {
	for _, c := range []struct{ there, roots, want []string }{
		{
			[]string{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice", "/system.slice"},
			nil,
			[]string{"/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice"},
		},
		{[]string{"/kubepods/besteffort/pod1", "/kubepods/burstable", "/kubepods/pod2"}, nil, []string{"/kubepods", "/kubepods/burstable", "/kubepods/besteffort"}},
		{
			[]string{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice", "/kubepods"},
			[]string{"/kubelet.slice/kubelet-kubepods.slice/"},
			[]string{"/kubelet.slice/kubelet-kubepods.slice", "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"},
		},
		{[]string{"/kubepods"}, []string{"/"}, nil},
		{[]string{"/docker/burstable"}, nil, nil},
	} {
		dir := t.TempDir()
		for _, d := range c.there {
			require.NoError(t, os.MkdirAll(dir+d, 0o755))
		}
		assert.Equal(t, c.want, PodParents(dir, c.roots), "%v", c.there)
	}
}
