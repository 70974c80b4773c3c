package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// counters are the controllers that measure or limit what a pod uses.
func counters() []string { return []string{"cpu", "cpuacct", "memory", "io", "blkio", "pids"} }

// group is a cgroup: its directory in every hierarchy that counts something.
type group []string

// trees are the mount points of those hierarchies: the v2 one, and those of v1
// that have a counter. mounts is a file like /proc/self/mounts.
func trees(mounts string) (group, error) {
	text, err := os.ReadFile(mounts)
	if err != nil {
		return nil, fmt.Errorf("cgroup hierarchies: %w", err)
	}
	var all group
	seen := map[string]bool{} // a hierarchy can be mounted at several places
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // device, mount point, type, options
		if len(f) < 4 {
			continue
		}
		at, kind := f[1], f[2]
		counts := slices.DeleteFunc(strings.Split(f[3], ","), func(o string) bool { return !slices.Contains(counters(), o) })
		if kind == "cgroup2" {
			counts = []string{kind}
		}
		if (kind == "cgroup" || kind == "cgroup2") && len(counts) > 0 && !seen[counts[0]] {
			seen[counts[0]] = true
			all = append(all, at)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("cgroup hierarchies: none is mounted")
	}
	return all, nil
}

// child is the cgroup of that path below g.
func (g group) child(path string) group {
	all := make(group, 0, len(g))
	for _, dir := range g {
		all = append(all, filepath.Join(dir, path))
	}
	return all
}

// make the cgroup of that path below g, counted at every step.
func (g group) make(path string) (group, error) {
	at := g
	for step := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		at.delegate()
		at = at.child(step)
		for _, dir := range at {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
		}
	}
	return at, nil
}

// delegate switches the v2 controllers on for the children, those that can be.
func (g group) delegate() {
	for _, dir := range g {
		for _, name := range counters() {
			// Not every kernel has each, and what v1 has v2 has not.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
		}
	}
}

// pids of the processes in the cgroup and in those below it.
func (g group) pids() ([]int, error) {
	var all []int
	for _, root := range g {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return ignoreGone(err)
			}
			text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for line := range strings.FieldsSeq(string(text)) {
				pid, err := strconv.Atoi(line)
				if err != nil {
					return err
				}
				all = append(all, pid)
			}
			return ignoreGone(err)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// remove kills what is in the cgroup and removes it with all below it.
func (g group) remove(ctx context.Context) error {
	return until(ctx, "remove cgroup "+g[0], func(context.Context) error {
		pids, err := g.pids()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		}
		var all error // those that are still ending keep their cgroup
		for _, dir := range g {
			all = errors.Join(all, removeTree(dir))
		}
		return all
	})
}

// removeTree removes a cgroup and those below it: their files go with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreGone(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return ignoreGone(syscall.Rmdir(dir))
}

// ignoreGone: a cgroup can go at any time; reading one that does is ENODEV.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}
