// Command openfiles is an outer plugin: it reports when the node runs out of
// open files (fs.file-max), which every process then sees as ENFILE, and names
// the pods that hold most of them.
//
// If systemd has set fs.file-max to 2⁶³−1 the node never runs out, and the
// threshold is never met. It reads /proc/PID/fd of all processes, as root and
// in the host's PID namespace.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

func main() {
	o := &openFiles{}
	flag.StringVar(&o.procfs, "path.procfs", "/proc", "mountpoint of the host's procfs")
	flag.Float64Var(&o.soft, "soft", 0.80, "share of file-max in use from which the node is tainted")
	flag.Float64Var(&o.hard, "hard", 0.95, "share of file-max in use from which pods are evicted")
	kit.Main("open-files", o)
}

// minShare is the share of all open files from which a pod is named: evicting a
// smaller one helps little.
const minShare = 0.20

type openFiles struct {
	procfs     string
	soft, hard float64
	last       kit.Level
}

// Threshold reads one file. A level is latched until the share is below 0.9 of
// its threshold (hysteresis).
func (o *openFiles) Threshold(context.Context, []*corev1.Pod) (kit.Threshold, error) {
	open, limit, err := o.count()
	if err != nil {
		return kit.Threshold{}, err
	}
	t := kit.Threshold{Observed: open / limit, Limit: o.soft, Condition: &kit.Condition{Name: "OpenFilesPressure"}}
	over := func(level kit.Level, threshold float64) bool {
		return t.Observed >= threshold || o.last >= level && t.Observed >= 0.9*threshold
	}
	switch {
	case over(kit.Hard, o.hard):
		t.Level, t.Limit = kit.Hard, o.hard
	case over(kit.Soft, o.soft):
		t.Level = kit.Soft
	}
	o.last = t.Level
	return t, nil
}

// count returns how many files are open and how many can be (proc_sys_fs(5)).
func (o *openFiles) count() (open, limit float64, err error) {
	b, err := os.ReadFile(filepath.Join(o.procfs, "sys/fs/file-nr"))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) != 3 {
		return 0, 0, fmt.Errorf("file-nr: want three numbers, have %q", b)
	}
	var n [3]uint64
	for i, f := range fields {
		if n[i], err = strconv.ParseUint(f, 10, 64); err != nil {
			return 0, 0, fmt.Errorf("file-nr: %w", err)
		}
	}
	if n[2] == 0 {
		return 0, 0, errors.New("file-nr: the limit is 0")
	}
	return float64(n[0] - min(n[0], n[1])), float64(n[2]), nil
}

// Top counts the file descriptors of each pod, which takes a walk over all
// processes. Descriptors shared with child processes count for each, so the
// result orders the pods but is not the number of files that an eviction would
// close.
func (o *openFiles) Top(ctx context.Context, ask kit.Ask) (kit.Named, error) {
	if ask.N == 0 {
		return kit.Named{}, nil
	}
	open, _, err := o.count()
	if err != nil {
		return kit.Named{}, err
	}
	held, err := o.held(ctx, ask.Pods)
	if err != nil {
		return kit.Named{}, err
	}
	var list []*corev1.Pod
	for p, n := range held {
		if float64(n) >= minShare*open {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(a.UID, b.UID))
	})
	return kit.Named{Pods: list[:min(ask.N, len(list))]}, nil
}

// held returns how many descriptors the processes of each pod have. A process
// that ends meanwhile has none.
func (o *openFiles) held(ctx context.Context, pods []*corev1.Pod) (map[*corev1.Pod]int, error) {
	processes, err := filepath.Glob(filepath.Join(o.procfs, "[0-9]*"))
	if err != nil {
		return nil, err
	}
	held := map[*corev1.Pod]int{}
	for _, dir := range processes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			continue
		}
		if p := owner(string(group), pods); p != nil {
			files, err := os.ReadDir(filepath.Join(dir, "fd"))
			if errors.Is(err, os.ErrPermission) {
				return nil, err
			}
			held[p] += len(files)
		}
	}
	return held, nil
}

// owner returns the pod of a cgroup: both cgroup drivers of the kubelet put the
// pod's UID in its name. The first name counts: a container may give cgroups below
// its own any name.
func owner(cgroup string, pods []*corev1.Pod) (of *corev1.Pod) {
	if !strings.Contains(cgroup, "pod") {
		return nil
	}
	first := len(cgroup)
	for _, p := range pods {
		uid := string(p.UID)
		for _, name := range []string{"pod" + uid, "pod" + strings.ReplaceAll(uid, "-", "_")} {
			if i := strings.Index(cgroup, name); i >= 0 && i < first {
				first, of = i, p
			}
		}
	}
	return of
}
