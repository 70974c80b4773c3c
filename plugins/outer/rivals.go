package outer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/katalyst"
)

// Limits of a search, by processor time and memory.
const (
	rivalTime      = 100 * time.Millisecond // of one look, and of one process
	firstRivalTime = 3 * time.Second        // of the first look, for which registrations wait
	maxRivalFds    = 4096
	maxRivalBytes  = 1 << 20 // of each file below /proc/PID
	maxRivals      = 8       // of a directory
)

// Rival is another process that watches a plugin directory by inotify, as the hosts
// of plugins do. Two hosts would each get a part of the answers, some of which are
// given once only.
type Rival struct {
	Dir string `json:"dir"`
	PID int    `json:"pid"`
	// Command is its comm, for people only: any process may have any.
	Command string `json:"command"`
	// Cgroup is its cgroup's path, of cgroup v2 if it has one.
	Cgroup string `json:"cgroup"`
}

func (r Rival) String() string {
	return fmt.Sprintf("process %d (%s, cgroup %s) watches the plugin directory %s", r.PID, katalyst.Clip(r.Command), katalyst.Clip(r.Cgroup), r.Dir)
}

// FindRivals finds the rivals of the host of plugins below these directories, by
// directory, without the processes that are skipped, within firstRivalTime. A directory
// is known by its filesystem's device and its inode: a rival has it among its mounts and
// watches it, as its /proc/PID/mountinfo and fdinfo show (proc_pid_fdinfo(5)). A pod has
// only those directories of the host that it mounts, so that a process in it cannot
// pretend to be a rival in the others. If the host's processes are hidden, none is
// found.
func FindRivals(procfs string, dirs []string, skip func(process string) bool) map[string][]Rival {
	s := rivalSearch{procfs: procfs, skip: skip}
	s.look(context.Background(), discover(dirs).dirs, firstRivalTime)
	return s.found
}

// rivalSearch searches the processes for rivals, in passes: each examines all processes
// that there were at its beginning, in as many looks as that takes, so that however many
// processes cannot hide one.
type rivalSearch struct {
	procfs string
	skip   func(process string) bool
	// found are the rivals by directory.
	found map[string][]Rival
	// searched are the directories for which a pass has examined all processes.
	searched []location

	left   []int      // the processes that the current pass has not examined yet
	places []location // its directories
}

// look examines the rivals known first, whatever the time, since a node under pressure
// must forget none, and then processes of the current pass until the time limit.
func (s *rivalSearch) look(ctx context.Context, dirs []string, limit time.Duration) {
	places := locationsOf(dirs)
	moved := func(p location) bool { return !slices.Contains(places, p) }
	known := s.found
	s.found, s.searched = map[string][]Rival{}, slices.DeleteFunc(s.searched, moved)
	if len(places) == 0 {
		s.left = nil
		return
	}
	if len(s.left) == 0 {
		s.left, s.places = processes(s.procfs), places
	}
	mounted := mountedBy{places: places, spaces: map[string][]location{}}
	examined := map[int]bool{}
	for _, list := range known {
		for _, r := range list {
			s.examine(r.PID, examined, mounted)
		}
	}
	for until := time.Now().Add(limit); len(s.left) > 0 && ctx.Err() == nil && time.Now().Before(until); s.left = s.left[1:] {
		s.examine(s.left[0], examined, mounted)
	}
	if len(s.left) == 0 {
		s.searched = slices.DeleteFunc(slices.Clone(s.places), moved)
	}
	for _, list := range s.found {
		slices.SortFunc(list, func(a, b Rival) int { return cmp.Compare(a.PID, b.PID) })
	}
}

// examine adds a process to those found, once, if it is a rival. It may take rivalTime.
func (s *rivalSearch) examine(pid int, examined map[int]bool, mounted mountedBy) {
	process := filepath.Join(s.procfs, strconv.Itoa(pid))
	if examined[pid] || s.skip(process) {
		return
	}
	examined[pid] = true
	for _, p := range watchedBy(process, mounted.of(process), time.Now().Add(rivalTime)) {
		if len(s.found[p.dir]) < maxRivals {
			s.found[p.dir] = append(s.found[p.dir], Rival{p.dir, pid, readLine(process, "comm"), cgroupOf(process)})
		}
	}
}

// mountedBy is what the processes of each mount namespace have among their mounts.
type mountedBy struct {
	places []location
	spaces map[string][]location
}

func (m mountedBy) of(process string) []location {
	space, err := os.Readlink(filepath.Join(process, "ns/mnt"))
	mounted, known := m.spaces[space]
	if err != nil || !known {
		mounted = mountedIn(process, m.places)
		m.spaces[space] = mounted
	}
	return mounted
}

// processes returns the processes of procfs.
func processes(procfs string) (pids []int) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func readLine(process, name string) string {
	line, _, _ := strings.Cut(string(readLimited(filepath.Join(process, name))), "\n")
	return line
}

// cgroupOf is the path of a process's cgroup: that of cgroup v2 (0::/path), else the
// first one (cgroups(7)).
func cgroupOf(process string) (path string) {
	for line := range strings.Lines(string(readLimited(filepath.Join(process, "cgroup")))) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 && (path == "" || f[0] == "0") {
			path = f[2]
		}
	}
	return path
}

// location identifies a directory as the kernel does: by its filesystem's
// device, its inode, and its path in that filesystem.
type location struct {
	dir    string
	device string // "major:minor", of the filesystem
	inode  uint64
	within string
}

// locationsOf returns the locations of the existing directories, by this process's
// mounts.
func locationsOf(dirs []string) (list []location) {
	mounts := mountsOf("/proc/self")
	for _, dir := range dirs {
		resolved, err := filepath.EvalSymlinks(dir)
		var st unix.Stat_t
		if err != nil || unix.Stat(resolved, &st) != nil {
			continue
		}
		var at mount
		for _, m := range mounts { // a later one covers those before
			if below(m.point, resolved) {
				at = m
			}
		}
		if rel, err := filepath.Rel(at.point, resolved); err == nil {
			list = append(list, location{dir, at.device, st.Ino, filepath.Join(at.root, rel)})
		}
	}
	return list
}

// mountedIn returns the directories that a process has among its mounts.
func mountedIn(process string, places []location) (list []location) {
	mounts := mountsOf(process)
	for _, p := range places {
		if slices.ContainsFunc(mounts, func(m mount) bool { return m.device == p.device && below(m.root, p.within) }) {
			list = append(list, p)
		}
	}
	return list
}

func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// mount is a line of mountinfo: which part of which filesystem is mounted
// where.
type mount struct{ device, root, point string }

// mountsOf returns the mounts of a process (proc_pid_mountinfo(5)); none if
// they cannot be read.
func mountsOf(process string) (list []mount) {
	text := readLimited(filepath.Join(process, "mountinfo"))
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 4 {
			list = append(list, mount{f[2], unescape.Replace(f[3]), unescape.Replace(f[4])})
		}
	}
	return list
}

// readLimited reads the first maxRivalBytes of a file.
func readLimited(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRivalBytes))
	if err != nil {
		return nil
	}
	return text
}

// watchedBy returns the directories that a process watches, until the time limit.
func watchedBy(process string, places []location, until time.Time) (list []location) {
	if len(places) == 0 {
		return nil
	}
	dir, err := os.Open(filepath.Join(process, "fd"))
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxRivalFds)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if time.Now().After(until) {
			break
		}
		if to, err := os.Readlink(filepath.Join(process, "fd", name)); err != nil || to != "anon_inode:inotify" {
			continue
		}
		text := readLimited(filepath.Join(process, "fdinfo", name))
		for _, p := range places {
			if hasWatch(text, p) && !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list
}

// hasWatch reports whether an inotify descriptor watches a directory. Its lines
// are "inotify wd:1 ino:9e7e sdev:800013 …", in hexadecimal, the device with 20
// bits of minor.
func hasWatch(text []byte, p location) bool {
	var major, minor uint64
	if _, err := fmt.Sscanf(p.device, "%d:%d", &major, &minor); err != nil {
		return false
	}
	ino, sdev := fmt.Sprintf("ino:%x", p.inode), fmt.Sprintf("sdev:%x", major<<20|minor)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) > 0 && f[0] == "inotify" && slices.Contains(f, ino) && slices.Contains(f, sdev) {
			return true
		}
	}
	return false
}

// selfIn is this process in a /proc, which may be that of the host; 0: not in it.
func selfIn(procfs string) int {
	self, err := os.Readlink(filepath.Join(procfs, "self"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(self)
	return pid
}
