package main

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const cgroupfs = "sys/fs/cgroup"

// cgroupNames are the files of a cgroup that probes read, of v2 and of v1.
func cgroupNames() []string {
	return []string{
		"cgroup.controllers", "cgroup.procs", "cgroup.events", "cgroup.pressure", "cgroup.type",
		"cpu.stat", "io.stat", "cpu.pressure", "memory.pressure", "io.pressure",
		"memory.current", "memory.max", "memory.high", "memory.events", "memory.stat", "memory.swap.current", "memory.numa_stat",

		"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.failcnt", "memory.oom_control",
		"cpuacct.usage", "blkio.throttle.io_serviced_recursive", "blkio.throttle.io_service_bytes_recursive",
	}
}

// cgroupFiles are the files of the requested cgroups and of those below and
// above them, in each hierarchy, and the network files of those with processes.
// Without a request there are none.
func (r recorder) cgroupFiles() ([]string, error) {
	if len(r.cgroups) == 0 {
		return nil, nil
	}
	tops, err := r.hierarchies()
	if err != nil {
		return nil, err
	}
	var files []string
	for _, top := range tops {
		for _, dir := range r.directories(top) {
			for _, name := range cgroupNames() {
				if f := path.Join(dir, name); r.has(f) {
					files = append(files, f)
				}
			}
			if dir != top { // the top's processes are not those requested
				files = append(files, r.networkFiles(dir)...)
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// hierarchies are the top directories below the root: one with v2, one per
// controller with v1.
func (r recorder) hierarchies() ([]string, error) {
	if r.has(path.Join(cgroupfs, "cgroup.controllers")) {
		return []string{cgroupfs}, nil
	}
	entries, err := os.ReadDir(filepath.Join(r.root, cgroupfs))
	if err != nil {
		return nil, err
	}
	var tops []string
	for _, e := range entries {
		// If cpu and cpuacct are one hierarchy, each is a link to it.
		if top := path.Join(cgroupfs, e.Name()); e.IsDir() && r.has(path.Join(top, "cgroup.procs")) {
			tops = append(tops, top)
		}
	}
	return tops, nil
}

// directories are the cgroups of one hierarchy, its top first.
func (r recorder) directories(top string) []string {
	dirs := []string{top}
	for _, cgroup := range r.cgroups {
		above := top
		for part := range strings.SplitSeq(path.Dir(path.Clean("/"+cgroup)), "/") {
			above = path.Join(above, part)
			dirs = append(dirs, above)
		}
		_ = filepath.WalkDir(filepath.Join(r.root, top, cgroup), func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil //nolint:nilerr // a removed cgroup is not recorded
			}
			if rel, err := filepath.Rel(r.root, dir); err == nil {
				dirs = append(dirs, rel)
			}
			return nil
		})
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// networkFiles are the network counters and the network namespace of the first
// process of a cgroup.
func (r recorder) networkFiles(dir string) []string {
	b, err := os.ReadFile(filepath.Join(r.root, dir, "cgroup.procs"))
	pid, _, some := strings.Cut(string(b), "\n")
	if err != nil || !some {
		return nil
	}
	var files []string
	for _, name := range []string{"net/dev", "ns/net"} {
		if f := path.Join("proc", pid, name); r.has(f) {
			files = append(files, f)
		}
	}
	return files
}

func (r recorder) has(file string) bool {
	_, err := os.Lstat(filepath.Join(r.root, file))
	return !errors.Is(err, fs.ErrNotExist)
}
