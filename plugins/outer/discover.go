package outer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a walk: whoever may write in a directory could make it endless.
const (
	maxDepth   = 5
	maxEntries = 4096
	maxDirs    = 256
	maxSockets = 4 * maxPlugins
	// batch is how many entries of one branch are read in a turn.
	batch = 64
)

// identity tells a socket from the one that was there before under its name:
// each listener has a file of its own. Its inode may be another's by now, so when
// it was made tells too.
type identity struct {
	dev, inode uint64
	made       time.Time
}

func (i identity) String() string { return fmt.Sprintf("%x:%x:%x", i.dev, i.inode, i.made.UnixNano()) }

// found is what a walk saw: sockets by path, and directories.
type found struct {
	sockets map[string]identity
	dirs    []string
	entries int
	// left is a directory that was not read to its end, because there is too much;
	// empty: all was seen.
	left string
	// branches are read in turn.
	branches []*branch
}

// branch is a directory that configuration names, or one directly below such a
// one with all below it. Each vendor has one, and what it fills is its own.
type branch struct {
	queue []place
	open  *os.File // of the first in the queue; nil: not yet
}

// place is a directory, so many levels below one that configuration names.
type place struct {
	dir   string
	depth int
}

// discover walks the directories for sockets, a batch of each branch in turn, so
// that one that is full hides no other's. What begins with a dot is left alone:
// plugins make their sockets so and rename them. One that cannot be read is
// looked at again at the next walk.
func discover(dirs []string) found {
	f := found{sockets: map[string]identity{}}
	for _, dir := range dirs {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			f.branches = append(f.branches, &branch{queue: []place{{resolved, 0}}})
		}
	}
	for len(f.branches) > 0 {
		b := f.branches[0]
		f.branches = f.branches[1:]
		if f.turn(b) {
			f.branches = append(f.branches, b)
		}
	}
	return f
}

// turn reads a batch of a branch, and says whether there is more of it.
func (f *found) turn(b *branch) (more bool) {
	if len(b.queue) == 0 {
		return false
	}
	at := b.queue[0]
	if f.entries >= maxEntries || len(f.sockets) >= maxSockets || b.open == nil && len(f.dirs) >= maxDirs {
		f.left = at.dir
		b.close()
		return false
	}
	if b.open == nil {
		dir, err := os.Open(at.dir)
		if err != nil {
			b.queue = b.queue[1:]
			return true
		}
		b.open = dir
		f.dirs = append(f.dirs, at.dir)
	}
	entries, err := b.open.ReadDir(batch)
	for _, e := range entries {
		f.see(b, at, e)
	}
	if err != nil { // its end, most of the time
		b.close()
		b.queue = b.queue[1:]
	}
	return true
}

func (b *branch) close() {
	if b.open != nil {
		_ = b.open.Close() // only read
		b.open = nil
	}
}

func (f *found) see(b *branch, at place, e os.DirEntry) {
	f.entries++
	path := filepath.Join(at.dir, e.Name())
	switch {
	case strings.HasPrefix(e.Name(), "."):
	case e.IsDir() && at.depth == 0:
		f.branches = append(f.branches, &branch{queue: []place{{path, 1}}})
	case e.IsDir() && at.depth < maxDepth:
		b.queue = append(b.queue, place{path, at.depth + 1})
	case e.Type()&os.ModeSocket != 0:
		if id, ok := identify(path); ok {
			f.sockets[path] = id
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
