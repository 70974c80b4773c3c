package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

func TestRecordCgroupsAskedFor(t *testing.T) {
	const top = "sys/fs/cgroup"
	root := tree(t, map[string]string{
		top + "/cgroup.controllers": "cpu\n", top + "/cpu.stat": "top\n", top + "/cgroup.procs": "1\n7\n",
		top + "/a/cpu.stat": "above\n", top + "/a/b/cpu.stat": "asked\n", top + "/a/b/c/d/cpu.stat": "below\n",
		top + "/a/b/unasked": "x\n", top + "/a/other/cpu.stat": "x\n", top + "/private/cpu.stat": "x\n",
		top + "/a/b/cgroup.procs": "12\n34\n", "proc/12/net/dev": "of the pod\n", "proc/7/net/dev": "x\n", "proc/34/net/dev": "x\n",
	})
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/12/ns"), 0o755))
	require.NoError(t, os.Symlink("net:[4026532000]", filepath.Join(root, "proc/12/ns/net")))
	var out bytes.Buffer
	require.NoError(t, recorder{root: root, cgroups: []string{"/a/b"}, samples: 1}.record(&out))
	a := txtar.Parse(out.Bytes())
	assert.Equal(t, []string{
		"0/monotonic", "0/proc/12/net/dev", "0/proc/12/ns/net@",
		"0/sys/fs/cgroup/a/b/c/d/cpu.stat", "0/sys/fs/cgroup/a/b/cgroup.procs", "0/sys/fs/cgroup/a/b/cpu.stat",
		"0/sys/fs/cgroup/a/cpu.stat",
		"0/sys/fs/cgroup/cgroup.controllers", "0/sys/fs/cgroup/cgroup.procs", "0/sys/fs/cgroup/cpu.stat",
	}, names(a))
	assert.Equal(t, "net:[4026532000]\n", string(a.Files[2].Data))
	assert.Contains(t, string(a.Comment), `-cgroups "/a/b"`)
}

func TestRecordV1HierarchyOnce(t *testing.T) {
	const top = "sys/fs/cgroup"
	root := tree(t, map[string]string{
		top + "/cpu,cpuacct/cgroup.procs": "", top + "/cpu,cpuacct/pod/cpuacct.usage": "5\n",
		top + "/memory/cgroup.procs": "", top + "/memory/pod/memory.failcnt": "0\n",
		top + "/unified/cgroup.procs": "", top + "/unified/cgroup.controllers": "\n", top + "/unified/pod/cpu.pressure": "some\n",
		top + "/none/pod/cpu.stat": "x\n",
	})
	require.NoError(t, os.Symlink("cpu,cpuacct", filepath.Join(root, top, "cpu")))
	var out bytes.Buffer
	require.NoError(t, recorder{root: root, cgroups: []string{"/pod"}, samples: 1}.record(&out))
	assert.Equal(t, []string{
		"0/monotonic",
		"0/sys/fs/cgroup/cpu,cpuacct/cgroup.procs", "0/sys/fs/cgroup/cpu,cpuacct/pod/cpuacct.usage",
		"0/sys/fs/cgroup/memory/cgroup.procs", "0/sys/fs/cgroup/memory/pod/memory.failcnt",
		"0/sys/fs/cgroup/unified/cgroup.controllers", "0/sys/fs/cgroup/unified/cgroup.procs", "0/sys/fs/cgroup/unified/pod/cpu.pressure",
	}, names(txtar.Parse(out.Bytes())))
}

func TestRecordNamesRemovedFiles(t *testing.T) {
	root := tree(t, map[string]string{"proc/stat": "0\n", "sys/block/sdb/size": "1\n", "sys/class/net/eth0/ifindex": "2\n"})
	require.NoError(t, os.Symlink("../bond0", filepath.Join(root, "sys/class/net/eth0/master")))
	take := func() map[string]string {
		files, unreadable, err := recorder{root: root}.sample()
		require.NoError(t, err)
		require.Empty(t, unreadable)
		return files
	}
	first := take()
	assert.Equal(t, "../bond0\n", first["sys/class/net/eth0/master@"])
	require.NoError(t, os.RemoveAll(filepath.Join(root, "sys/block/sdb")))
	require.NoError(t, os.Remove(filepath.Join(root, "sys/class/net/eth0/master")))
	files := changes(4, 5, first, take())
	assert.Equal(t, []txtar.File{
		{Name: "4/monotonic", Data: []byte("5\n")},
		{Name: "4/removed", Data: []byte("sys/block/sdb/size\nsys/class/net/eth0/master@\n")},
	}, files)
}

// Zones are large, and probes read them only where there are several NUMA nodes.
func TestRecordNUMA(t *testing.T) {
	const nodes = "sys/devices/system/node"
	files := map[string]string{"proc/stat": "0\n", "proc/zoneinfo": "z\n", nodes + "/has_memory": "0\n", nodes + "/node0/meminfo": "0\n", nodes + "/node0/vmstat": "x\n"}
	record := func() []string {
		var out bytes.Buffer
		require.NoError(t, recorder{root: tree(t, files), samples: 1}.record(&out))
		return names(txtar.Parse(out.Bytes()))
	}
	assert.Equal(t, []string{"0/monotonic", "0/proc/stat"}, record())
	files[nodes+"/node1/meminfo"] = "1\n"
	assert.Equal(t, []string{
		"0/monotonic", "0/proc/stat", "0/proc/zoneinfo", "0/" + nodes + "/has_memory", "0/" + nodes + "/node0/meminfo", "0/" + nodes + "/node1/meminfo",
	}, record())
}

func TestRecordWithoutCgroups(t *testing.T) {
	root := tree(t, map[string]string{"proc/stat": "0\n", "sys/fs/cgroup/cgroup.controllers": "cpu\n", "sys/fs/cgroup/cpu.stat": "x\n"})
	var out bytes.Buffer
	require.NoError(t, recorder{root: root, samples: 1}.record(&out))
	assert.NotContains(t, strings.Join(names(txtar.Parse(out.Bytes())), " "), "cgroup")
}
