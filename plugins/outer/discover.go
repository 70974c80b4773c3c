package outer

import (
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
// each is a new file, and its mtime is when it was made (its ctime changes when
// a plugin sets its mode).
type identity struct {
	dev, inode uint64
	made       time.Time
}

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

func identify(path string) (identity, bool) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return identity{}, false
	}
	//nolint:unconvert // the field's type differs between architectures
	return identity{uint64(st.Dev), st.Ino, time.Unix(int64(st.Mtim.Sec), int64(st.Mtim.Nsec))}, true
}
