package cgroup

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// unified is the name of the cgroup v2 hierarchy among the controllers of v1.
const unified = "unified"

// walkedHierarchies are searched for workloads, and the first of them that has
// a cgroup gives its inode. cpu is read but not searched: a process in no other
// hierarchy has no value but its throttling.
func walkedHierarchies() []string { return []string{"memory", "cpuacct", "blkio", unified} }

// Find finds the layout of the cgroup mounts: v2 (cgroup.controllers at
// the top), v1 (a directory per controller, or per several as cpu,cpuacct) or
// hybrid (v1 and a directory unified, which is v2 and has the pressure files).
// It searches the tree below root, normally /sys/fs/cgroup; without a root it
// takes the mounts of pid 1 from procRoot, normally /proc. Workloads are
// searched below the cgroups roots, everywhere if empty. The error is one line.
func Find(procRoot, root string, roots []string) (*Reader, error) {
	where := cmp.Or(root, procRoot)
	mounts, err := mountsOf(procRoot)
	var found map[string]string
	if root == "" {
		found = mountedHierarchies(procRoot, mounts)
	} else {
		found, err = hierarchiesBelow(root)
	}
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	isWalked := func(name string) bool { return found[name] != "" }
	if !slices.ContainsFunc(walkedHierarchies(), isWalked) {
		return nil, fmt.Errorf("find cgroups: neither cgroup v2 nor a memory, cpuacct or blkio hierarchy of v1 in %s", where)
	}
	r := newReader(found, roots)
	r.proc = procRoot
	r.localEvents = slices.ContainsFunc(mounts, countsLocally)
	return r, nil
}

// hierarchiesBelow returns the directory of each hierarchy in a tree.
func hierarchiesBelow(root string) (map[string]string, error) {
	if exists(root, "cgroup.controllers") {
		return map[string]string{unified: root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, e := range entries {
		// cpu is a link to cpu,cpuacct if the two are one hierarchy.
		dir, err := filepath.EvalSymlinks(filepath.Join(root, e.Name()))
		if err != nil {
			continue // a broken link is no hierarchy
		}
		if e.Name() == unified && exists(dir, "cgroup.controllers") {
			found[unified] = dir
			continue
		}
		if exists(dir, "cgroup.procs") {
			addControllers(found, strings.Split(e.Name(), ","), dir)
		}
	}
	return found, nil
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// addControllers adds the controllers that are read; the first directory of
// each stays.
func addControllers(found map[string]string, names []string, dir string) {
	for _, name := range names {
		switch name {
		case "memory", "cpu", "cpuacct", "blkio":
			if found[name] == "" {
				found[name] = dir
			}
		}
	}
}

// countsLocally reports whether memory.events counts only what happens in a cgroup itself.
// The option is the same for all mounts of cgroup2.
func countsLocally(m *procfs.MountInfo) bool {
	_, local := m.SuperOptions["memory_localevents"]
	return m.FSType == "cgroup2" && local
}

// mountsOf returns the mounts of pid 1, or of this process if pid 1 may not be read. The
// first whole mount is the system's: mounts of a part of a tree, such as those in
// containers, come after it.
func mountsOf(procRoot string) ([]*procfs.MountInfo, error) {
	fs, err := procfs.NewFS(procRoot)
	if err != nil {
		return nil, err
	}
	mounts, err := fs.GetProcMounts(1)
	if err != nil {
		var ownErr error
		if mounts, ownErr = fs.GetMounts(); ownErr != nil {
			return nil, fmt.Errorf("%w; %w", err, ownErr)
		}
	}
	slices.SortStableFunc(mounts, func(a, b *procfs.MountInfo) int { return mountRank(a) - mountRank(b) })
	return mounts, nil
}

// mountedHierarchies returns the directory of each hierarchy that is mounted.
func mountedHierarchies(procRoot string, mounts []*procfs.MountInfo) map[string]string {
	found := map[string]string{}
	for _, m := range mounts {
		switch m.FSType {
		case "cgroup":
			addControllers(found, slices.Sorted(maps.Keys(m.SuperOptions)), reachable(procRoot, m.MountPoint))
		case "cgroup2":
			if found[unified] == "" {
				found[unified] = reachable(procRoot, m.MountPoint)
			}
		}
	}
	return found
}

func mountRank(m *procfs.MountInfo) int {
	if m.Root == "/" {
		return 0
	}
	return 1
}

// reachable returns this process's path for a mountpoint of pid 1. In a
// container the same path shows the container's part of the tree, or nothing.
func reachable(procRoot, mountPoint string) string {
	theirs := filepath.Join(procRoot, "1/root", mountPoint)
	a, err := os.Stat(theirs)
	if err != nil {
		return mountPoint
	}
	if b, err := os.Stat(mountPoint); err == nil && os.SameFile(a, b) {
		return mountPoint
	}
	return theirs
}

func newReader(found map[string]string, roots []string) *Reader {
	r := &Reader{at: map[string]int{}, roots: outermost(roots), fds: newFDBudget(), devices: interner{}, names: interner{}, reasons: interner{}}
	r.trees = make([]*node, len(r.roots))
	for _, name := range append(walkedHierarchies(), "cpu") {
		dir := found[name]
		if dir == "" {
			continue
		}
		i := slices.Index(r.dirs, dir)
		if i < 0 {
			i = len(r.dirs)
			r.dirs = append(r.dirs, dir)
		}
		r.at[name] = i
		if name != "cpu" && i == r.walked {
			r.walked++
		}
	}
	r.from = sourcesOf(r.at)
	return r
}

// source is the hierarchy that a value is read from. dir is its index in
// Reader.dirs, -1 if it is not mounted.
type source struct {
	hierarchy string
	dir       int
	v1        bool
}

// sources are the hierarchies of the controllers: one of v1 hides that of v2.
type sources struct{ cpu, throttling, memory, io, pressure source }

// sourcesOf chooses them; at is Reader.at.
func sourcesOf(at map[string]int) sources {
	of := func(hierarchy string) source {
		dir, mounted := at[hierarchy]
		if !mounted {
			dir = -1
		}
		return source{hierarchy, dir, hierarchy != unified}
	}
	s := sources{of(unified), of(unified), of(unified), of(unified), of(unified)}
	_, cpu := at["cpu"]
	_, cpuacct := at["cpuacct"]
	if cpu || cpuacct {
		s.cpu, s.throttling = of("cpuacct"), of("cpu")
	}
	if _, memory := at["memory"]; memory {
		s.memory = of("memory")
	}
	if _, blkio := at["blkio"]; blkio {
		s.io = of("blkio")
	}
	return s
}

// outermost cleans the paths and drops those below another one, so that no
// workload is found twice. An empty list is the whole tree.
func outermost(roots []string) []string {
	var clean []string
	for _, r := range roots {
		clean = append(clean, path.Clean("/"+r))
	}
	slices.Sort(clean)
	var kept []string
	for _, r := range clean {
		if !slices.ContainsFunc(kept, func(k string) bool { return r == k || k == "/" || strings.HasPrefix(r, k+"/") }) {
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 {
		return []string{"/"}
	}
	return kept
}

// PodParents returns the paths of existing cgroups that pods are in: that of all
// pods, and those of the QoS classes burstable and besteffort. dir is the
// directory of a hierarchy, roots are as for Find (empty: the kubelet's). Both
// cgroup drivers of the kubelet are known: systemd
// (kubepods.slice/kubepods-burstable.slice) and cgroupfs (kubepods/burstable).
// The root cgroup is left out: it is the host.
func PodParents(dir string, roots []string) []string {
	if len(roots) == 0 {
		roots = []string{"/kubepods.slice", "/kubepods"}
	}
	var list []string
	for _, root := range outermost(roots) {
		if root == "/" {
			continue
		}
		prefix := root + "/"
		slice, systemd := strings.CutSuffix(path.Base(root), ".slice")
		suffix := ""
		if systemd {
			prefix, suffix = prefix+slice+"-", ".slice"
		}
		for _, cgroup := range []string{root, prefix + "burstable" + suffix, prefix + "besteffort" + suffix} {
			if exists(dir, cgroup) {
				list = append(list, cgroup)
			}
		}
	}
	return list
}
