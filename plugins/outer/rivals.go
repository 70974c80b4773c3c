package outer

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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
	rivalTime      = 100 * time.Millisecond // of one look, and of the first try of a process
	firstRivalTime = 3 * time.Second        // of the first look, for which registrations wait
	maxRivalTries  = 4                      // of a process; each may take twice the time of the one before
	rivalFdBatch   = 4096
	maxRivalBytes  = 1 << 20 // of a line, or of comm or cgroup, below /proc/PID
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
	// Ended is the first look that did not find it any more, zero while it watches. It
	// counts as there until Until, and until all processes were examined that there were
	// then.
	Ended time.Time `json:"ended,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

func (r Rival) String() string {
	process := fmt.Sprintf("process %d (%s, cgroup %s)", r.PID, katalyst.Clip(r.Command), katalyst.Clip(r.Cgroup))
	if r.Ended.IsZero() {
		return process + " watches the plugin directory " + r.Dir
	}
	return fmt.Sprintf("%s does not watch the plugin directory %s any more; it may be starting anew, so it counts as there until %s at least",
		process, r.Dir, r.Until.UTC().Format("15:04:05 UTC"))
}

// listens reports whether it, or another process of its program, is this listener.
func (r Rival) listens(by listener) bool { return by.same(listener{r.PID, r.Cgroup}) }

// ownsAll reports whether it is, or was, a listener of each of these sockets, of which there
// is one at least.
func (r Rival) ownsAll(sockets map[string][]listener) bool {
	for _, listeners := range sockets {
		if !slices.ContainsFunc(listeners, r.listens) {
			return false
		}
	}
	return len(sockets) > 0
}

// FindRivals finds the rivals of the host of plugins below these directories, in order,
// without the processes that are skipped, and those that are the plugins there
// themselves, within about firstRivalTime. A directory
// is known by its filesystem's device and its inode: a rival has it among its mounts and
// watches it, as its /proc/PID/mountinfo and fdinfo show (proc_pid_fdinfo(5)). A pod has
// only those directories of the host that it mounts, so that a process in it cannot
// pretend to be a rival in the others. If the host's processes are hidden, none is
// found.
func FindRivals(procfs string, dirs []string, skip func(process string) bool) []Rival {
	s := rivalSearch{procfs: procfs, skip: skip}
	at := discover(dirs)
	s.look(context.Background(), at.dirs, firstRivalTime)
	ctx, cancel := context.WithTimeout(context.Background(), firstRivalTime)
	defer cancel()
	var listeners heard
	for path := range at.sockets {
		if len(s.found[filepath.Dir(path)]) == 0 {
			continue
		}
		if l, err := connect(ctx, path); err == nil { // it is told nothing
			listeners.add(path, listenerOf(procfs, l), time.Now())
			_ = l.Close()
		}
	}
	return knownRivals{byDir: s.found, heard: &listeners}.list()
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
	// complete is when the last pass that has ended began.
	complete time.Time

	began  time.Time  // when the current pass began
	left   []int      // the processes that it has not examined yet
	places []location // its directories
	// failed are the processes that could not be examined completely. After
	// maxRivalTries of them a pass ends without it: one that nothing can examine must
	// not hold back the plugins for ever, and one that wants to be no rival need not
	// watch by inotify.
	failed map[int]failedTries
	// unread is why the last look could not list the mounts or the processes.
	unread error
}

// failedTries is how often a process could not be examined, and why the last time.
type failedTries struct {
	times int
	why   error
}

// look examines the rivals known first, whatever the time, since a node under pressure
// must forget none, and then processes of the current pass until the time limit.
func (s *rivalSearch) look(ctx context.Context, dirs []string, limit time.Duration) {
	places, err := locationsOf(dirs)
	if s.unread = err; err != nil {
		return
	}
	moved := func(p location) bool { return !slices.Contains(places, p) }
	known := s.found
	s.found, s.searched = map[string][]Rival{}, slices.DeleteFunc(s.searched, moved)
	if len(places) == 0 {
		s.left, s.complete = nil, time.Now()
		return
	}
	if len(s.left) == 0 {
		s.begin(places)
	}
	mounted := mountedBy{places: places, spaces: map[string][]location{}}
	examined := map[int]error{}
	for dir, list := range known {
		for _, r := range list {
			there := slices.ContainsFunc(places, func(p location) bool { return p.dir == dir })
			if s.examine(r.PID, examined, mounted) != nil && there {
				s.add(dir, r) // it has not been seen to watch no more
			}
		}
	}
	s.pass(ctx, examined, mounted, time.Now().Add(limit))
	if len(s.left) == 0 && s.unread == nil {
		s.searched, s.complete = slices.DeleteFunc(slices.Clone(s.places), moved), s.began
	}
	for _, list := range s.found {
		slices.SortFunc(list, func(a, b Rival) int { return cmp.Compare(a.PID, b.PID) })
	}
}

// pass goes on with the pass, and leaves the processes that could not be examined.
func (s *rivalSearch) pass(ctx context.Context, examined map[int]error, mounted mountedBy, until time.Time) {
	for n := len(s.left); n > 0 && ctx.Err() == nil && time.Now().Before(until); n-- {
		pid := s.left[0]
		s.left = s.left[1:]
		err := s.examine(pid, examined, mounted)
		if err == nil || s.failed[pid].times >= maxRivalTries {
			continue
		}
		s.left = append(s.left, pid)
		if errors.Is(err, errRivalTime) { // it may have more in this look, after the others
			delete(examined, pid)
			n++
		}
	}
}

// unfinished is why the pass has not ended.
func (s *rivalSearch) unfinished() string {
	if s.unread != nil {
		return s.unread.Error()
	}
	if len(s.left) == 0 {
		return ""
	}
	for _, pid := range s.left {
		if f, is := s.failed[pid]; is {
			return fmt.Sprintf("process %d: %v", pid, f.why)
		}
	}
	return "there are more processes than one look can examine"
}

// unexamined is a process that the passes end without, and why.
func (s *rivalSearch) unexamined() (pid int, why error) {
	for _, pid := range slices.Sorted(maps.Keys(s.failed)) {
		if f := s.failed[pid]; f.times >= maxRivalTries {
			return pid, f.why
		}
	}
	return 0, nil
}

// begin begins a pass.
func (s *rivalSearch) begin(places []location) {
	s.began = time.Now()
	s.left, s.unread = processes(s.procfs)
	s.places = places
	maps.DeleteFunc(s.failed, func(pid int, _ failedTries) bool { return !slices.Contains(s.left, pid) })
}

// examine adds a process to those found, once in a look, if it is a rival. It returns
// why that is not known, if the process still exists. A process whose examination takes
// long has more time at the next try.
func (s *rivalSearch) examine(pid int, examined map[int]error, mounted mountedBy) error {
	process := filepath.Join(s.procfs, strconv.Itoa(pid))
	if err, is := examined[pid]; is {
		return err
	}
	if s.skip(process) {
		return nil
	}
	tried := s.failed[pid].times
	until := time.Now().Add(rivalTime << (tried % maxRivalTries))
	places, err := mounted.of(process, until)
	if err == nil {
		places, err = watchedBy(process, places, until)
		for _, p := range places {
			s.add(p.dir, Rival{Dir: p.dir, PID: pid, Command: readLine(process, "comm"), Cgroup: cgroupOf(process)})
		}
	}
	if _, gone := os.Lstat(process); errors.Is(gone, os.ErrNotExist) {
		err = nil
	}
	examined[pid] = err
	delete(s.failed, pid)
	if err != nil {
		if s.failed == nil {
			s.failed = map[int]failedTries{}
		}
		if tried++; errors.Is(err, os.ErrPermission) {
			tried = maxRivalTries // the next try would be refused, too
		}
		s.failed[pid] = failedTries{min(tried, maxRivalTries), err}
	}
	return err
}

// add adds a rival to those found, once.
func (s *rivalSearch) add(dir string, r Rival) {
	same := func(o Rival) bool { return o.PID == r.PID }
	if list := s.found[dir]; len(list) < maxRivals && !slices.ContainsFunc(list, same) {
		s.found[dir] = append(list, r)
	}
}

// mountedBy is what the processes of each mount namespace have among their mounts.
type mountedBy struct {
	places []location
	spaces map[string][]location
}

// of returns what a process has among its mounts. An empty list of mounts says nothing
// about the others of the namespace: the process may see none below its root (chroot(2)).
func (m mountedBy) of(process string, until time.Time) ([]location, error) {
	space, err := os.Readlink(filepath.Join(process, "ns/mnt"))
	if mounted, known := m.spaces[space]; err == nil && known {
		return mounted, nil
	}
	mounts, unread := mountsOf(process, until)
	if unread != nil {
		return nil, unread
	}
	mounted := mountedIn(mounts, m.places)
	if err == nil && len(mounts) > 0 {
		m.spaces[space] = mounted
	}
	return mounted, nil
}

// processes returns the processes of procfs, of which there is one at least.
func processes(procfs string) (pids []int, err error) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no process in %s", procfs)
	}
	return pids, nil
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

// watch is how fdinfo writes a watch on it.
func (p location) watch() (ino, sdev string) {
	major, minor, _ := strings.Cut(p.device, ":")
	ma, _ := strconv.ParseUint(major, 10, 32) // of the kernel
	mi, _ := strconv.ParseUint(minor, 10, 32)
	return fmt.Sprintf("ino:%x", p.inode), fmt.Sprintf("sdev:%x", ma<<20|mi)
}

// locationsOf returns the locations of the existing directories, by this process's
// mounts.
func locationsOf(dirs []string) (list []location, err error) {
	mounts, err := mountsOf("/proc/self", time.Now().Add(firstRivalTime))
	if err != nil {
		return nil, err
	}
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
	return list, nil
}

// mountedIn returns the directories that are among these mounts.
func mountedIn(mounts []mount, places []location) (list []location) {
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

// mountsOf returns the mounts of a process (proc_pid_mountinfo(5)), all of them unless
// there is an error. One that has ended and is not yet waited for has none (EINVAL).
func mountsOf(process string, until time.Time) (list []mount, err error) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	err = eachLine(filepath.Join(process, "mountinfo"), until, func(f []string) {
		if len(f) > 4 {
			list = append(list, mount{f[2], unescape.Replace(f[3]), unescape.Replace(f[4])})
		}
	})
	if errors.Is(err, unix.EINVAL) {
		err = nil
	}
	return list, err
}

var errRivalTime = errors.New("it takes too long")

// eachLine reads the fields of each line of a file, until the time limit.
func eachLine(path string, until time.Time, do func(fields []string)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxRivalBytes)
	for lines.Scan() {
		if time.Now().After(until) {
			return fmt.Errorf("%s: %w", path, errRivalTime)
		}
		do(strings.Fields(lines.Text()))
	}
	return lines.Err()
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

// watchedBy returns the directories that a process watches: all of them unless there is
// an error. It reads until the time limit.
func watchedBy(process string, places []location, until time.Time) (list []location, err error) {
	if len(places) == 0 {
		return nil, nil
	}
	dir, err := os.Open(filepath.Join(process, "fd"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(rivalFdBatch)
		for _, name := range names {
			if time.Now().After(until) {
				return list, fmt.Errorf("%s: %w", dir.Name(), errRivalTime)
			}
			if err := watchesOf(process, name, places, until, &list); err != nil {
				return list, err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrNotExist):
			return list, nil
		case err != nil:
			return list, err
		}
	}
}

// watchesOf adds the directories that a descriptor watches. One that was closed
// meanwhile watches none.
func watchesOf(process, fd string, places []location, until time.Time, list *[]location) error {
	to, err := os.Readlink(filepath.Join(process, "fd", fd))
	if err == nil && to == "anon_inode:inotify" {
		err = watches(filepath.Join(process, "fdinfo", fd), places, until, list)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// watches adds the directories that an inotify descriptor watches, once. Its lines are
// "inotify wd:1 ino:9e7e sdev:800013 …", in hexadecimal, the device with 20 bits of
// minor.
func watches(path string, places []location, until time.Time, list *[]location) error {
	inodes, devices := make([]string, len(places)), make([]string, len(places))
	for i, p := range places {
		inodes[i], devices[i] = p.watch()
	}
	return eachLine(path, until, func(f []string) {
		if len(f) == 0 || f[0] != "inotify" {
			return
		}
		for i, p := range places {
			if slices.Contains(f, inodes[i]) && slices.Contains(f, devices[i]) && !slices.Contains(*list, p) {
				*list = append(*list, p)
			}
		}
	})
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
