package probes

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// mount is one line of mountinfo (kernel Documentation/filesystems/proc.rst,
// 3.5). All fields together are its identity.
type mount struct {
	ID, Parent int
	Number     string // "major:minor" of the filesystem
	Root       string // the part of the filesystem that is mounted: / is all of it
	Point      string
	Type       string
	Source     string
}

// selection has the mounts to watch, and where they are reached.
type selection struct {
	root    string
	all     []mount           // all reachable ones
	mounts  []mount           // the watched ones, by mountpoint
	missing map[string]string // reason why a mountpoint is not watched
}

// mountTable reads the mounts of pid 1.
type mountTable struct {
	paths Paths
	proc  procfs.FS
}

// survey reads the table and selects the configured mounts, or by default the
// root and those on block devices.
func (t mountTable) survey(config FilesystemConfig) (selection, error) {
	root, all, err := t.read()
	if err != nil {
		return selection{}, err
	}
	if len(config.Mounts) > 0 {
		mounts, missing := named(all, config.Mounts)
		return selection{root, all, mounts, missing}, nil
	}
	block, err := t.blockTypes()
	if err != nil {
		return selection{}, err
	}
	return selection{root: root, all: all, mounts: onBlockDevices(all, block)}, nil
}

// read returns the reachable mounts, and the directory that their mountpoints
// are relative to.
//
// Pid 1's root is preferred: it is the host's, also from inside a container,
// and includes later mounts. Entering it needs CAP_SYS_PTRACE; without that the
// agent's own root serves if it is the same mount. A configured root is in the
// agent's own mount table.
func (t mountTable) read() (root string, all []mount, err error) {
	if named := t.paths.Rootfs; named != "" {
		own, err := uncovered(t.proc.GetMounts())
		return named, below(own, named), err
	}
	root = filepath.Join(t.paths.Procfs, "1/root")
	_, denied := os.Readlink(root) // unlike stat it calls no filesystem
	all, err = uncovered(t.proc.GetProcMounts(1))
	if denied == nil || err != nil {
		return root, all, err
	}
	own, err := uncovered(t.proc.GetMounts())
	if err != nil {
		return "", nil, err
	}
	if rootID(own) != rootID(all) {
		return "", nil, fmt.Errorf("%w: needs CAP_SYS_PTRACE, or paths.rootfs set to where the host's root is mounted", denied)
	}
	return "/", own, nil
}

// rootID is the ID of the mount on /; 0 if there is none.
func rootID(all []mount) int {
	for _, m := range all {
		if m.Point == "/" {
			return m.ID
		}
	}
	return 0
}

// below returns the mounts in a directory, with mountpoints relative to it.
func below(all []mount, dir string) []mount {
	var list []mount
	for _, m := range all {
		if point, ok := strings.CutPrefix(m.Point, strings.TrimSuffix(dir, "/")); ok && (point == "" || point[0] == '/') {
			m.Point = cmp.Or(point, "/")
			list = append(list, m)
		}
	}
	return list
}

// mountPlace is a mountpoint on another mount.
type mountPlace struct {
	on    int
	point string
}

// uncovered leaves out the mounts that others cover, whose mountpoints lead
// elsewhere.
func uncovered(infos []*procfs.MountInfo, err error) ([]mount, error) {
	if err != nil {
		return nil, err
	}
	byPlace, ids := map[mountPlace]mount{}, map[int]bool{}
	var all []mount
	for _, i := range infos {
		m := mount{
			ID: i.MountID, Parent: i.ParentID, Number: i.MajorMinorVer, Root: unescapeMount(i.Root),
			Point: unescapeMount(i.MountPoint), Type: i.FSType, Source: unescapeMount(i.Source),
		}
		all, ids[m.ID] = append(all, m), true
		byPlace[mountPlace{m.Parent, m.Point}] = m
	}
	at := slices.IndexFunc(all, func(m mount) bool { return m.Point == "/" && (m.Parent == m.ID || !ids[m.Parent]) })
	if at < 0 {
		return nil, errNoRoot
	}
	root := all[at]
	return slices.DeleteFunc(all, func(m mount) bool { return resolve(byPlace, root, m.Point).ID != m.ID }), nil
}

// resolve follows a path across mounts as the kernel does.
func resolve(byPlace map[mountPlace]mount, from mount, path string) mount {
	at := from
	cross := func(path string) {
		for {
			over, ok := byPlace[mountPlace{at.ID, path}]
			if !ok || over.ID == at.ID {
				return
			}
			at = over
		}
	}
	cross("/")
	for i := 1; i < len(path); i++ {
		if i+1 == len(path) || path[i+1] == '/' {
			cross(path[:i+1])
		}
	}
	return at
}

// unescapeMount decodes \ooo, which mountinfo prints for spaces, tabs, line
// breaks, backslashes and hashes.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// named returns the mounts that the configuration lists, each once.
func named(all []mount, points []string) (mounts []mount, missing map[string]string) {
	missing = map[string]string{}
	for _, point := range points {
		at := slices.IndexFunc(all, func(m mount) bool { return m.Point == point })
		switch {
		case at < 0:
			missing[point] = whyNotMounted
		case all[at].Type == "autofs": // statfs would mount it
			missing[point] = "not mounted now: automount mounts it on first access"
		case !slices.Contains(mounts, all[at]):
			mounts = append(mounts, all[at])
		}
	}
	slices.SortFunc(mounts, byPoint)
	return mounts, missing
}

// onBlockDevices returns the root, whatever it is on, and one mount of each
// writable filesystem that needs a block device. Read-only images are always
// full.
func onBlockDevices(all []mount, block map[string]bool) []mount {
	best := map[string]mount{}
	for _, m := range all {
		kind, _, _ := strings.Cut(m.Type, ".") // fuseblk.ntfs
		wanted := m.Point == "/" || block[kind] && !isImage(kind) && !ofContainer(m.Point)
		if was, some := best[m.Number]; wanted && (!some || better(m, was)) {
			best[m.Number] = m
		}
	}
	var list []mount
	for _, m := range best {
		list = append(list, m)
	}
	slices.SortFunc(list, byPoint)
	return list
}

func byPoint(a, b mount) int { return cmp.Compare(a.Point, b.Point) }

// better prefers the root, then the whole filesystem to a bind mount of a part,
// then the shorter path.
func better(a, b mount) bool {
	if a.Point == "/" || b.Point == "/" {
		return a.Point == "/"
	}
	if whole := a.Root == "/"; whole != (b.Root == "/") {
		return whole
	}
	return cmp.Or(cmp.Compare(len(a.Point), len(b.Point)), byPoint(a, b)) < 0
}

func isImage(kind string) bool {
	return slices.Contains([]string{"squashfs", "erofs", "iso9660", "udf", "cramfs", "romfs"}, kind)
}

// ofContainer reports whether a mountpoint is the root filesystem of a
// container, which some runtimes keep on block devices of their own.
func ofContainer(point string) bool {
	return slices.ContainsFunc([]string{"/run/containerd/", "/run/docker/", "/var/lib/docker/", "/var/lib/containers/storage/"},
		func(dir string) bool { return strings.HasPrefix(point, dir) })
}

// blockTypes returns the filesystem types that need a block device: those
// without "nodev" in /proc/filesystems.
func (t mountTable) blockTypes() (map[string]bool, error) {
	f, err := os.Open(filepath.Join(t.paths.Procfs, "filesystems"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	types := map[string]bool{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		if kind, ok := strings.CutPrefix(s.Text(), "\t"); ok {
			types[kind] = true
		}
	}
	return types, s.Err()
}
