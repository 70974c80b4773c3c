package outer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth and maxEntries bound a walk: whoever may write there could make
	// it endless.
	maxDepth   = 5
	maxEntries = 10_000
)

// identity tells a socket from the one that was there before under its name:
// each listener has a file of its own. Its inode may be another's by now, so when
// it was made tells too.
type identity struct {
	dev, inode uint64
	made       time.Time
}

func (i identity) String() string { return fmt.Sprintf("%x:%x:%x", i.dev, i.inode, i.made.UnixNano()) }

// found is what a walk saw: sockets by path, and all directories.
type found struct {
	sockets map[string]identity
	dirs    []string
	entries int
}

// discover walks the directories for sockets. What begins with a dot is left
// alone: plugins make their sockets so and rename them. One that cannot be read
// is looked at again at the next walk.
func discover(dirs []string) found {
	f := found{sockets: map[string]identity{}}
	for _, dir := range dirs {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			f.walk(resolved, 0)
		}
	}
	return f
}

func (f *found) walk(dir string, depth int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	f.dirs = append(f.dirs, dir)
	for _, e := range entries {
		if f.entries++; f.entries > maxEntries {
			return
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir() && depth < maxDepth:
			f.walk(path, depth+1)
		case e.Type()&os.ModeSocket != 0:
			if id, ok := identify(path); ok {
				f.sockets[path] = id
			}
		}
	}
}

// identify a socket by when its file was born, which nobody can set, or where
// the filesystem does not know by its mtime.
func identify(path string) (identity, bool) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return identity{}, false
	}
	made := st.Mtime
	if st.Mask&unix.STATX_BTIME != 0 {
		made = st.Btime
	}
	return identity{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, time.Unix(made.Sec, int64(made.Nsec))}, true
}
