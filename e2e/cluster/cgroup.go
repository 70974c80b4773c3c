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

// Hierarchy is a mounted cgroup hierarchy.
type Hierarchy struct {
	Dir string
	V2  bool
	// Controllers that it has, of those that count; of v2 those that Make switches on.
	Controllers []string
}

// Group is a cgroup: a path in every hierarchy.
type Group struct {
	Path        string
	Hierarchies []Hierarchy
}

// RootGroup is the root of the v2 hierarchy and of those of v1 that have one of the
// controllers. mounts is a file like /proc/self/mounts.
func RootGroup(mounts string, controllers ...string) (Group, error) {
	text, err := os.ReadFile(mounts)
	if err != nil {
		return Group{}, fmt.Errorf("cgroup hierarchies: %w", err)
	}
	root := Group{Path: "/"}
	seen := map[string]bool{} // a hierarchy can be mounted at several places
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // device, mount point, type, options
		if len(f) < 4 || f[2] != "cgroup" && f[2] != "cgroup2" {
			continue
		}
		h := Hierarchy{Dir: f[1], V2: f[2] == "cgroup2", Controllers: controllers}
		if !h.V2 {
			h.Controllers = slices.DeleteFunc(strings.Split(f[3], ","), func(o string) bool { return !slices.Contains(controllers, o) })
		}
		key := f[2] + strings.Join(h.Controllers, ",")
		if len(h.Controllers) > 0 && !seen[key] {
			seen[key] = true
			root.Hierarchies = append(root.Hierarchies, h)
		}
	}
	if len(root.Hierarchies) == 0 {
		return Group{}, errors.New("cgroup hierarchies: none is mounted")
	}
	return root, nil
}

// Child is the cgroup of that path below g.
func (g Group) Child(path string) Group { return Group{filepath.Join(g.Path, path), g.Hierarchies} }

// first is g in its first hierarchy alone.
func (g Group) first() Group { return Group{g.Path, g.Hierarchies[:1]} }

// Dirs are the cgroup's directories.
func (g Group) Dirs() []string {
	var all []string
	for _, h := range g.Hierarchies {
		all = append(all, filepath.Join(h.Dir, g.Path))
	}
	return all
}

// In is the cgroup's directory in the hierarchy of a controller, which is that of v2 where v1
// does not have it.
func (g Group) In(controller string) string {
	v2 := ""
	for _, h := range g.Hierarchies {
		switch {
		case h.V2:
			v2 = filepath.Join(h.Dir, g.Path)
		case slices.Contains(h.Controllers, controller):
			return filepath.Join(h.Dir, g.Path)
		}
	}
	return v2
}

// Make the cgroup, counted at every step.
func (g Group) Make() error {
	for _, h := range g.Hierarchies {
		at := h.Dir
		for step := range strings.SplitSeq(strings.Trim(g.Path, "/"), "/") {
			h.delegate(at)
			at = filepath.Join(at, step)
			if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("cgroup: %w", err)
			}
		}
	}
	return nil
}

// delegate switches the controllers of v2 on for the children of a cgroup, those that can be.
func (h Hierarchy) delegate(dir string) {
	if !h.V2 {
		return
	}
	for _, name := range h.Controllers {
		// Not every kernel has each, and what v1 has v2 has not.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
	}
}

// pids of the processes in the cgroup and in those below it.
func (g Group) pids() ([]int, error) {
	var all []int
	for _, root := range g.Dirs() {
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

// Signal each process in the cgroup and in those below it.
func (g Group) Signal(s syscall.Signal) error {
	pids, err := g.pids()
	for _, pid := range pids {
		if pid > 0 { // 0 is one of another namespace, and to kill our own group
			_ = syscall.Kill(pid, s) // it may be gone
		}
	}
	return err
}

// Remove kills what is in the cgroup and removes it with all below it.
func (g Group) Remove(ctx context.Context) error {
	return until(ctx, "remove cgroup "+g.Path, func(context.Context) error {
		if err := g.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		var all error // those that are still ending keep their cgroup
		for _, dir := range g.Dirs() {
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
