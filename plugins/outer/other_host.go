package outer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// otherHostName is the process name of Katalyst's agent.
const otherHostName = "katalyst-agent"

// Limits of one search: any user may start processes of that name.
const (
	otherHostTime     = 100 * time.Millisecond
	maxOtherHostFds   = 4096
	maxOtherHostBytes = 1 << 20 // of each file below /proc/PID
)

// FindOtherHost finds another host of the plugins in these directories. With two hosts
// each would get a part of the answers, some of which are given once only. It
// is a process named katalyst-agent that has one of the directories among its
// mounts, and an inotify watch on it, as its /proc/PID/mountinfo and fdinfo
// show (proc_pid_fdinfo(5)); empty if there is none. A pod has only those
// directories of the host that it mounts, so a process in it cannot pretend to
// be a host of the others. If the host's processes are hidden, no host is
// found.
func FindOtherHost(procfs string, dirs []string) string { return findOtherHost(procfs, dirs, "") }

// updateOtherHost examines the process found before first, then the others in
// random order until the time limit, so that many processes of that name cannot
// hide one for ever.
func findOtherHost(procfs string, dirs []string, before string) string {
	places := locationsOf(dirs)
	if len(places) == 0 {
		return ""
	}
	pids := processesNamed(procfs, otherHostName)
	rand.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	if i := slices.IndexFunc(pids, func(pid string) bool { return strings.HasPrefix(before, otherHostPrefix(pid)) }); i > 0 {
		pids[0], pids[i] = pids[i], pids[0]
	}
	for until := time.Now().Add(otherHostTime); len(pids) > 0 && time.Now().Before(until); pids = pids[1:] {
		process := filepath.Join(procfs, pids[0])
		for _, p := range watchedBy(filepath.Join(process, "fdinfo"), mountedIn(process, places), until) {
			return otherHostPrefix(pids[0]) + "watches the plugin directory " + p.dir
		}
	}
	return ""
}

func otherHostPrefix(pid string) string { return fmt.Sprintf("%s (pid %s) ", otherHostName, pid) }

// processesNamed returns the processes of a name.
func processesNamed(procfs, name string) (pids []string) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(procfs, e.Name(), "comm"))
		if err == nil && strings.TrimSpace(string(comm)) == name {
			pids = append(pids, e.Name())
		}
	}
	return pids
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

// readLimited reads the first maxOtherHostBytes of a file.
func readLimited(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxOtherHostBytes))
	if err != nil {
		return nil
	}
	return text
}

// watchedBy returns the directories that a process watches, until the time limit.
func watchedBy(fdinfo string, places []location, until time.Time) (list []location) {
	if len(places) == 0 {
		return nil
	}
	dir, err := os.Open(fdinfo)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxOtherHostFds)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if time.Now().After(until) {
			break
		}
		text := readLimited(filepath.Join(fdinfo, name))
		for _, p := range places {
			if hasWatch(text, p) {
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
