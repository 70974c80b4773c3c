package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ownPrefix is what the names of this program's cgroups begin with; the
// process id follows.
const ownPrefix = "plimsoll-bench-"

// hierarchy is a mounted cgroup hierarchy that counts something.
type hierarchy struct {
	dir string
	// controllers of v1; none of v2.
	controllers []string
}

// group is one path in every hierarchy.
type group struct {
	path        string
	hierarchies []hierarchy
}

// hierarchies reads them from a file like /proc/self/mounts.
func hierarchies(mounts string) ([]hierarchy, error) {
	text, err := os.ReadFile(mounts)
	if err != nil {
		return nil, err
	}
	counts := []string{"cpu", "cpuacct", "memory", "blkio"}
	var all []hierarchy
	seen := map[string]bool{} // a hierarchy can be mounted at several places
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // device, mount point, type, options
		if len(f) < 4 {
			continue
		}
		h := hierarchy{dir: f[1]}
		h.controllers = slices.DeleteFunc(strings.Split(f[3], ","), func(o string) bool { return !slices.Contains(counts, o) })
		key := strings.Join(h.controllers, ",")
		if f[2] == "cgroup2" {
			h.controllers, key = nil, "v2"
		}
		if (f[2] == "cgroup2" || f[2] == "cgroup" && key != "") && !seen[key] {
			seen[key] = true
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return all, nil
}

// dirs are the group's directories.
func (g group) dirs() []string {
	var all []string
	for _, h := range g.hierarchies {
		all = append(all, filepath.Join(h.dir, g.path))
	}
	return all
}

// in is the group's directory in the hierarchy of a controller, which is that
// of v2 where v1 does not have it.
func (g group) in(controller string) string {
	v2 := ""
	for _, h := range g.hierarchies {
		if slices.Contains(h.controllers, controller) {
			return filepath.Join(h.dir, g.path)
		}
		if len(h.controllers) == 0 {
			v2 = filepath.Join(h.dir, g.path)
		}
	}
	return v2
}

// child is the group of that path below g.
func (g group) child(path string) group {
	return group{filepath.Join(g.path, path), g.hierarchies}
}

// make the group, with the controllers of v2 switched on above it.
func (g group) make() error {
	for _, h := range g.hierarchies {
		at := h.dir
		for step := range strings.SplitSeq(strings.Trim(g.path, "/"), "/") {
			if len(h.controllers) == 0 {
				for _, c := range []string{"+cpu", "+memory", "+io"} {
					// What v1 has v2 has not.
					_ = os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte(c), 0o644)
				}
			}
			at = filepath.Join(at, step)
			if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("cgroup: %w", err)
			}
		}
	}
	return nil
}

// number reads a file of one number, such as memory.current.
func (g group) number(controller, file string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(g.in(controller), file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// cpu is what the group's processes used so far.
func (g group) cpu() (time.Duration, error) {
	if n, err := g.number("cpuacct", "cpuacct.usage"); !errors.Is(err, fs.ErrNotExist) {
		return time.Duration(n), err
	}
	text, err := os.ReadFile(filepath.Join(g.in("cpu"), "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if us, is := strings.CutPrefix(line, "usage_usec "); is {
			n, err := strconv.ParseInt(strings.TrimSpace(us), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s: no usage_usec in cpu.stat", g.path)
}

// memory of the group, that of the kernel for it included, in bytes.
func (g group) memory() (uint64, error) {
	n, err := g.number("memory", "memory.usage_in_bytes")
	if errors.Is(err, fs.ErrNotExist) {
		return g.number("memory", "memory.current")
	}
	return n, err
}

// parts of the group's memory in a few words: what the processes wrote, and
// files. The rest is the kernel's for them.
func (g group) parts() string {
	text, err := os.ReadFile(filepath.Join(g.in("memory"), "memory.stat"))
	if err != nil {
		return ""
	}
	var all []string
	for _, key := range []string{"total_rss", "anon", "total_cache", "file"} {
		m := regexp.MustCompile(`(?m)^` + key + ` (\d+)$`).FindSubmatch(text)
		if m == nil {
			continue
		}
		if n, err := strconv.ParseUint(string(m[1]), 10, 64); err == nil {
			all = append(all, strings.TrimPrefix(key, "total_")+" "+mebibytes(n))
		}
	}
	return strings.Join(all, ", ")
}

// remove kills what is in the group and removes it with all below it.
func (g group) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return until(ctx, "remove cgroup "+g.path, func() error {
		var errs []error // those that are still ending keep their cgroup
		for _, dir := range g.dirs() {
			below := dirsBelow(dir)
			for _, d := range slices.Backward(below) {
				signalAll(d, syscall.SIGKILL)
				if err := syscall.Rmdir(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, fmt.Errorf("%s: %w", d, err))
				}
			}
		}
		return errors.Join(errs[:min(len(errs), 3)]...)
	})
}

// signalAll sends a signal to each process of a cgroup.
func signalAll(dir string, s syscall.Signal) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return // it is gone
	}
	for pid := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(pid); err == nil && n > 0 {
			_ = syscall.Kill(n, s) // it may be gone
		}
	}
}

// dirsBelow are a directory and all below it, those above before those below.
func dirsBelow(dir string) []string {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil // what is gone meanwhile is not there
	})
	return all
}

// until tries again until there is no error.
func until(ctx context.Context, what string, try func() error) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
		}
	}
}
