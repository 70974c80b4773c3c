package outer

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rivalName is the process name of Katalyst's agent.
const rivalName = "katalyst-agent"

// Rival says who else asks the plugins in these directories: some of their
// answers come once only, and two coordinators would each get a half. It is a
// process named katalyst-agent with an inotify watch on one of the directories,
// as its /proc/PID/fdinfo shows (proc_pid_fdinfo(5)); empty for none. Where the
// host's processes cannot be seen there is no sign of it.
func Rival(procfs string, dirs []string) string {
	inodes := map[uint64]string{}
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil {
			inodes[st.Ino] = dir
		}
	}
	entries, err := os.ReadDir(procfs)
	if err != nil || len(inodes) == 0 {
		return ""
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(procfs, e.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != rivalName {
			continue
		}
		if dir := watches(filepath.Join(procfs, e.Name(), "fdinfo"), inodes); dir != "" {
			return fmt.Sprintf("%s (pid %s) asks the plugins in %s", rivalName, e.Name(), dir)
		}
	}
	return ""
}

// watches is one of the directories that a process watches, by inode. A line of
// an inotify descriptor is "inotify wd:1 ino:9e7e sdev:800013 …", in hexadecimal.
func watches(fdinfo string, inodes map[uint64]string) string {
	entries, err := os.ReadDir(fdinfo)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(fdinfo, e.Name()))
		if err != nil {
			continue
		}
		dir := watchedDir(f, inodes)
		_ = f.Close() // only read
		if dir != "" {
			return dir
		}
	}
	return ""
}

func watchedDir(f *os.File, inodes map[uint64]string) string {
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "inotify ") {
			continue
		}
		for field := range strings.FieldsSeq(lines.Text()) {
			hex, is := strings.CutPrefix(field, "ino:")
			if ino, err := strconv.ParseUint(hex, 16, 64); is && err == nil && inodes[ino] != "" {
				return inodes[ino]
			}
		}
	}
	return ""
}
