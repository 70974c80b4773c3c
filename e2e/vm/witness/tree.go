package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/e2e/vm/rungs"
)

// tree are the cgroups of a cell: one for all pods, below it the two pods, and in each
// of them that of a container, as a kubelet makes them.
type tree struct {
	rungs.Spec
	v1 bool
}

const (
	sufferer = "sufferer"
	culprit  = "culprit"
	inner    = "container"
)

func newTree(s rungs.Spec) tree { return tree{Spec: s, v1: s.Cgroup == "v1"} }

// controllers whose files are used.
func (t tree) controllers() []string {
	if t.v1 {
		return []string{"cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "freezer"}
	}
	return []string{"cpu", "memory", "io", "pids"}
}

// top is the cgroup of all pods.
func (t tree) top(controller string) string {
	if t.v1 {
		return filepath.Join(t.Root, controller, t.Name)
	}
	return filepath.Join(t.Root, t.Name)
}

// file of a pod's cgroup.
func (t tree) file(controller, pod, name string) string {
	return filepath.Join(t.top(controller), pod, name)
}

// each is every directory of a controller from the top.
func (t tree) each(controller string) []string {
	dirs := []string{t.top(controller)}
	for _, pod := range []string{sufferer, culprit} {
		dirs = append(dirs, t.file(controller, pod, ""), t.file(controller, pod, inner))
	}
	return dirs
}

func (t tree) make() error {
	if !t.v1 {
		return t.makeV2()
	}
	for _, c := range t.controllers() {
		for _, dir := range t.each(c) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			if c != "cpuset" {
				continue
			}
			if err := errors.Join(write(filepath.Join(dir, "cpuset.cpus"), t.CPUs), write(filepath.Join(dir, "cpuset.mems"), "0")); err != nil {
				return err
			}
		}
	}
	if t.LimitMiB == 0 {
		return nil
	}
	return write(filepath.Join(t.top("memory"), "memory.limit_in_bytes"), strconv.Itoa(t.LimitMiB<<20))
}

func (t tree) makeV2() error {
	enable := "+" + strings.Join(t.controllers(), " +")
	if err := write(filepath.Join(t.Root, "cgroup.subtree_control"), enable); err != nil {
		return err
	}
	for _, dir := range t.each("") {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if filepath.Base(dir) == inner {
			continue
		}
		if err := write(filepath.Join(dir, "cgroup.subtree_control"), enable); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the cgroups, the innermost first, once nothing runs in them.
func (t tree) remove() error {
	var failed error
	for _, c := range t.controllers() {
		for _, dir := range slices.Backward(t.each(c)) {
			failed = errors.Join(failed, removed(dir))
		}
	}
	return failed
}

// removed removes a cgroup; one whose processes have just ended is busy for a moment.
func removed(dir string) (err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// start starts a program in a pod. The shell moves itself there and becomes it.
func (t tree) start(pod string, oomScore int, program string, args ...string) (*exec.Cmd, error) {
	const script = `echo "$1" >/proc/$$/oom_score_adj; shift; while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 9; shift; done; shift; exec "$@"`
	words := []string{"-c", script, "sh", strconv.Itoa(oomScore)}
	for _, c := range t.controllers() {
		if dir := t.file(c, pod, inner); len(words) < 5 || words[len(words)-1] != dir {
			words = append(words, dir)
		}
	}
	cmd := exec.Command("/bin/sh", append(append(words, "--", program), args...)...) //nolint:noctx // its life is the cell's
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return cmd, nil
}

// processes of a pod.
func (t tree) processes(pod string) []int {
	b, err := os.ReadFile(t.file(t.controllers()[0], pod, filepath.Join(inner, "cgroup.procs")))
	if err != nil {
		return nil
	}
	var all []int
	for line := range strings.Lines(string(b)) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// cpuUsed is what a pod has used of CPUs.
func (t tree) cpuUsed(pod string) (time.Duration, error) {
	if t.v1 {
		ns, err := number(t.file("cpuacct", pod, "cpuacct.usage"))
		return time.Duration(ns), err
	}
	us, err := field(t.file("cpu", pod, "cpu.stat"), "usage_usec")
	return time.Duration(us) * time.Microsecond, err
}

// availableMiB is what the pods can still have of memory.
func (t tree) availableMiB() int {
	if t.LimitMiB == 0 {
		kib, err := field("/proc/meminfo", "MemAvailable:")
		if err != nil {
			return 0
		}
		return kib >> 10
	}
	used, err := number(filepath.Join(t.top("memory"), "memory.usage_in_bytes"))
	if err != nil {
		return 0
	}
	file, err := field(filepath.Join(t.top("memory"), "memory.stat"), "total_inactive_file")
	if err != nil {
		return 0
	}
	return t.LimitMiB - (used-file)>>20
}

func (t tree) totalMiB() int {
	if t.LimitMiB > 0 {
		return t.LimitMiB
	}
	kib, err := field("/proc/meminfo", "MemTotal:")
	if err != nil {
		return 0
	}
	return kib >> 10
}

// field is the number behind a word at the beginning of a line.
func field(path, word string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == word {
			return strconv.Atoi(words[1])
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, word)
}

func number(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// write writes to a kernel's file, which must be there.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %q to %s: %w", text, path, err)
	}
	return nil
}
