package outer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a scan: a user who may write to a directory could make it endless.
const (
	maxDepth   = 5
	maxEntries = 4096
	maxDirs    = 256
	maxSockets = 4 * maxPlugins
	// batch is how many entries of one branch are read at a time.
	batch = 64
)

// fileIdentity distinguishes a socket from an earlier one of its name: each
// listener has a file of its own. The inode may be reused, so it includes when
// the file was made.
type fileIdentity struct {
	dev, inode uint64
	made       time.Time
}

func (i fileIdentity) String() string {
	return fmt.Sprintf("%x:%x:%x", i.dev, i.inode, i.made.UnixNano())
}

// scanResult is the result of a scan: sockets by path, and directories.
type scanResult struct {
	sockets map[string]fileIdentity
	dirs    []string
	entries int
	// incompleteDir is a directory that was not read completely, because a limit was
	// reached; empty if everything was read.
	incompleteDir string
	// branches are read in turn.
	branches []*branch
}

// hasSocket reports whether a socket was found in a directory.
func (f *scanResult) hasSocket(dir string) bool {
	for path := range f.sockets {
		if filepath.Dir(path) == dir {
			return true
		}
	}
	return false
}

// branch is a configured directory, or a subdirectory of one with all below it.
// Each vendor has one, and fills only its own.
type branch struct {
	queue []scanDir
	open  *os.File // the first of the queue; nil: not opened yet
}

// scanDir is a directory, depth levels below a configured one.
type scanDir struct {
	dir   string
	depth int
}

// discover scans the directories for sockets, a batch of each branch in turn,
// so that a full one does not hide the sockets of others. It ignores names that
// begin with a dot: plugins create their sockets so and rename them. An
// unreadable directory is tried again at the next scan.
func discover(dirs []string) scanResult {
	f := scanResult{sockets: map[string]fileIdentity{}}
	for _, dir := range dirs {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			f.branches = append(f.branches, &branch{queue: []scanDir{{resolved, 0}}})
		}
	}
	for len(f.branches) > 0 {
		b := f.branches[0]
		f.branches = f.branches[1:]
		if f.readBatch(b) {
			f.branches = append(f.branches, b)
		}
	}
	return f
}

// readBatch reads a batch of a branch, and reports whether there is more of it.
func (f *scanResult) readBatch(b *branch) (more bool) {
	if len(b.queue) == 0 {
		return false
	}
	at := b.queue[0]
	if f.entries >= maxEntries || len(f.sockets) >= maxSockets || b.open == nil && len(f.dirs) >= maxDirs {
		f.incompleteDir = at.dir
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
		f.addEntry(b, at, e)
	}
	if err != nil { // mostly io.EOF
		b.close()
		b.queue = b.queue[1:]
	}
	return true
}

func (b *branch) close() {
	if b.open != nil {
		_ = b.open.Close() // opened for reading
		b.open = nil
	}
}

func (f *scanResult) addEntry(b *branch, at scanDir, e os.DirEntry) {
	f.entries++
	path := filepath.Join(at.dir, e.Name())
	switch {
	case strings.HasPrefix(e.Name(), "."):
	case e.IsDir() && at.depth == 0:
		f.branches = append(f.branches, &branch{queue: []scanDir{{path, 1}}})
	case e.IsDir() && at.depth < maxDepth:
		b.queue = append(b.queue, scanDir{path, at.depth + 1})
	case e.Type()&os.ModeSocket != 0:
		if id, ok := identify(path); ok {
			f.sockets[path] = id
		}
	}
}

// identify uses the file's birth time, which nothing can change, or its mtime
// if the filesystem has no birth time.
func identify(path string) (fileIdentity, bool) {
	return identifyAt(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW)
}

// identifyAt takes the arguments of statx(2).
func identifyAt(dir int, path string, flags int) (fileIdentity, bool) {
	var st unix.Statx_t
	err := unix.Statx(dir, path, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fileIdentity{}, false
	}
	made := st.Mtime
	if st.Mask&unix.STATX_BTIME != 0 {
		made = st.Btime
	}
	return fileIdentity{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, time.Unix(made.Sec, int64(made.Nsec))}, true
}
