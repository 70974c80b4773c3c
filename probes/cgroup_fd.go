package probes

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// maxKept is how many files of cgroups are kept open at most. An open one
// costs the kernel some 5 KiB once it was read (a page of seq_file's), and a
// read of it one system call instead of seven.
const maxKept = 8192

// fdBudget is how many more descriptors may be kept open. What is not kept is
// opened, read and closed each time.
type fdBudget struct{ left int }

// newFDBudget takes half of what this process may open: the other half is for
// everything else.
func newFDBudget() fdBudget {
	limit := unix.Rlimit{Cur: 2 * maxKept}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // without it the constant alone counts
	return fdBudget{int(min(maxKept, limit.Cur/2))}
}

func (b *fdBudget) take() bool {
	if b.left <= 0 {
		return false
	}
	b.left--
	return true
}

// cgroupDir is an open directory of one cgroup in one hierarchy. All files are
// opened relative to it: should another cgroup take its path meanwhile, what
// is read is still of the one that was opened, or not there.
type cgroupDir int

const noDir = cgroupDir(-1)

func openDir(path string) (cgroupDir, error) {
	for {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return cgroupDir(fd), err
		}
	}
}

func (d cgroupDir) close() {
	if d != noDir {
		closeFD(int(d))
	}
}

// closeFD closes what was only read: there is nothing to lose.
func closeFD(fd int) { _ = unix.Close(fd) }

// inode of the directory, and how many links it has: cgroupfs counts the
// directories directly below in them, and two.
func (d cgroupDir) inode() (inode, links uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(int(d), &st)
	return st.Ino, uint64(st.Nlink), err //nolint:unconvert // on arm64 it is 32 bits
}

// alive says whether the cgroup has not been removed since it was opened:
// every cgroup has this file, and a removed one has none.
func (d cgroupDir) alive() bool {
	return !isGone(unix.Faccessat(int(d), "cgroup.procs", unix.F_OK, 0))
}

func (d cgroupDir) openFile(name string) (int, error) {
	for {
		fd, err := unix.Openat(int(d), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// read returns a whole file in buf, which grows as needed.
func (d cgroupDir) read(name string, buf []byte) ([]byte, error) {
	fd, err := d.openFile(name)
	if err != nil {
		return buf[:0], fmt.Errorf("%s: %w", name, err)
	}
	defer closeFD(fd)
	return readList(fd, name, buf)
}

// readShown reads an open file that the kernel shows as one piece: all of them
// but lists of processes. With room to spare it is whole after one system call.
func readShown(fd int, name string, buf []byte) ([]byte, error) {
	return readFrom(fd, name, buf, func(n, room int) bool { return n < room })
}

// readList reads an open file that comes in pieces of any size.
func readList(fd int, name string, buf []byte) ([]byte, error) {
	return readFrom(fd, name, buf, func(n, _ int) bool { return n == 0 })
}

func readFrom(fd int, name string, buf []byte, ended func(n, room int) bool) ([]byte, error) {
	buf = buf[:0]
	for {
		room := cap(buf) - len(buf)
		if room == 0 {
			buf = append(buf, make([]byte, max(4096, len(buf)))...)[:len(buf)]
			continue
		}
		n, err := unix.Pread(fd, buf[len(buf):cap(buf)], int64(len(buf)))
		if err == unix.EINTR { // a system call's own error: nothing wraps it
			continue
		}
		if err != nil {
			return buf[:0], fmt.Errorf("%s: %w", name, err)
		}
		buf = buf[:len(buf)+n]
		if ended(n, room) {
			return buf, nil
		}
	}
}

// isGone tells errors of a cgroup that was removed: its files cannot be opened
// any more (ENOENT), and those that are open cannot be read (ENODEV).
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// isScarce tells errors of a process or a machine that has no room for one more
// open file: no news of what was to be opened.
func isScarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}
