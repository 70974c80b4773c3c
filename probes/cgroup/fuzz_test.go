package cgroup

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// FuzzCgroupFiles reads pods of v1 and v2 with files of any content, three
// times while they change: there is no panic, no value of one pod is another's,
// and the result does not depend on open files or caches.
func FuzzCgroupFiles(f *testing.F) {
	v2 := restingPod()
	f.Add(v2["cpu.stat"], v2["memory.current"], v2["memory.events"], v2["io.stat"], v2["io.pressure"], v2["memory.stat"], "12\n")
	f.Add("usage_usec 1\nusage_usec 2\n", "max", "high x", "8:0 rbytes=1", "some total=", "inactive_file 18446744073709551616", "0\n\n-1\n")
	f.Add("", "", "", "8:0 Read 1\n8:0 Write 2\n", "full avg10=0 total=1\n", "total_inactive_file 7\ntotal_swap 8\n", "")
	f.Fuzz(func(t *testing.T, cpu, memory, events, io, pressure, stat, procs string) {
		first := fuzzedFiles(v2["cpu.stat"], v2["memory.current"], v2["memory.events"], v2["io.stat"], v2["io.pressure"], v2["memory.stat"], "")
		second := fuzzedFiles(cpu, memory, events, io, pressure, stat, procs)
		var want [][]snapshot.Workload
		top := cgroupTree(t, first)
		for _, budget := range []int{maxKept, 0, 9} {
			got := readThrice(t, top, budget, first, second)
			if want == nil {
				want = got
			}
			if diff := cmp.Diff(want, got, sameWorkloads()); diff != "" {
				t.Fatalf("with a budget of %d: %s", budget, diff)
			}
		}
	})
}

// fuzzedFiles is a hybrid host's pod, and another that stays as it is.
func fuzzedFiles(cpu, memory, events, io, pressure, stat, procs string) map[string]string {
	files := map[string]string{
		"memory/cgroup.procs": "", "cpuacct/cgroup.procs": "", "blkio/cgroup.procs": "", "cpu/cgroup.procs": "",
		"unified/cgroup.procs": "", "unified/cgroup.controllers": "",
	}
	for _, h := range []string{"memory", "cpuacct", "cpu", "blkio", "unified"} {
		files[h+"/kubepods/cgroup.procs"] = ""
		files[h+"/kubepods/podf/cgroup.procs"] = procs
		files[h+"/kubepods/podf/c/cgroup.procs"] = procs
	}
	maps.Copy(files, map[string]string{
		"memory/kubepods/podf/memory.usage_in_bytes": memory, "memory/kubepods/podf/memory.stat": stat, "memory/kubepods/podf/memory.failcnt": memory,
		"memory/kubepods/podf/c/memory.failcnt": memory, "memory/kubepods/podf/memory.oom_control": events, "memory/kubepods/podf/memory.limit_in_bytes": memory,
		"cpuacct/kubepods/podf/cpuacct.usage": memory, "cpu/kubepods/podf/cpu.stat": cpu, "cpu/kubepods/podf/c/cpu.stat": cpu,
		"blkio/kubepods/podf/blkio.throttle.io_serviced_recursive": io, "blkio/kubepods/podf/blkio.throttle.io_service_bytes_recursive": io,
		"unified/kubepods/podf/cpu.pressure": pressure, "unified/kubepods/podf/memory.pressure": pressure, "unified/kubepods/podf/io.pressure": pressure,
	})
	// The same as a tree of v2.
	files["v2/cgroup.controllers"], files["v2/cgroup.procs"], files["v2/kubepods/cgroup.procs"] = "", "", ""
	for name, content := range map[string]string{
		"cgroup.procs": procs, "memory.current": memory, "memory.stat": stat, "memory.events": events, "memory.max": memory, "memory.swap.current": memory,
		"cpu.stat": cpu, "io.stat": io, "cpu.pressure": pressure, "memory.pressure": pressure, "io.pressure": pressure, "c/cpu.stat": cpu, "c/cgroup.procs": procs,
	} {
		files["v2/kubepods/podf/"+name] = content
	}
	for name, content := range restingPod() {
		files["v2/kubepods/podg/"+name] = content
	}
	return files
}

func readThrice(t *testing.T, top string, budget int, first, second map[string]string) [][]snapshot.Workload {
	t.Helper()
	v1, v2 := ticksOf(t, top), ticksOf(t, top+"/v2")
	v1.c.fds.left, v2.c.fds.left = budget, budget
	defer v1.c.Close()
	defer v2.c.Close()
	var all [][]snapshot.Workload
	for _, files := range []map[string]string{first, second, first} {
		for name, content := range files {
			if err := writeInPlace(top+"/"+name, content); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, readBoth(t, v1, v2), readBoth(t, v1, v2))
	}
	if other := all[2][2]; other.CPUMicroseconds != u64(5) || other.MemoryBytes != u64(4096) || len(other.IO) != 1 {
		t.Fatalf("what is beside it changed: %+v", other)
	}
	return all
}

// readBoth leaves out the inodes, which differ from tree to tree.
func readBoth(t *testing.T, v1, v2 *ticks) []snapshot.Workload {
	t.Helper()
	a, b := v1.after(time.Minute), v2.after(time.Minute)
	if len(a) != 1 || len(b) != 2 {
		t.Fatalf("%v and %v", cgroupPaths(a), cgroupPaths(b))
	}
	a = append(a, b...)
	for i := range a {
		a[i].Inode = 0
	}
	return a
}
