package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// ownPrefix is what the names of this program's cgroups begin with; the
// process id follows.
const ownPrefix = "plimsoll-bench-"

// group is a cgroup that is measured.
type group struct{ cluster.Group }

// topGroup is the root of all hierarchies that have a number of a pod.
func topGroup(mounts string) (group, error) {
	root, err := cluster.RootGroup(mounts, "cpu", "cpuacct", "memory", "io", "blkio")
	return group{root}, err
}

// child is the group of that path below g.
func (g group) child(path string) group { return group{g.Child(path)} }

// number reads a file of one number, such as memory.current.
func (g group) number(controller, file string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(g.In(controller), file))
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
	text, err := os.ReadFile(filepath.Join(g.In("cpu"), "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if us, is := strings.CutPrefix(line, "usage_usec "); is {
			n, err := strconv.ParseInt(strings.TrimSpace(us), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s: no usage_usec in cpu.stat", g.Path)
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
	text, err := os.ReadFile(filepath.Join(g.In("memory"), "memory.stat"))
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
	return g.Remove(ctx)
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
