package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxKept is how many files of cgroups are kept open at most. An open one costs
// the kernel some 5 KiB once it was read (a page of seq_file), and reading it
// one system call instead of seven.
const maxKept = 8192

// idleKept is how many may still be kept open while idle workloads keep those that are not read
// before fullEvery has passed.
const idleKept = maxKept / 2

// fdBudget is the number of descriptors that may still be kept open. Beyond it,
// files are opened, read and closed each time.
type fdBudget struct{ left int }

// newFDBudget returns half of this process's limit: the other half is for
// everything else.
func newFDBudget() fdBudget {
	limit := unix.Rlimit{Cur: 2 * maxKept}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // on failure the constant is the limit
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
// opened relative to it: if another cgroup takes its path meanwhile, reads are
// still of the opened one, or fail.
type cgroupDir int

const noDir = cgroupDir(-1)

// anywhere is what an absolute path is below.
const anywhere = cgroupDir(unix.AT_FDCWD)

func (d cgroupDir) close() {
	if d != noDir {
		closeFD(int(d))
	}
}

// closeFD closes a descriptor that was opened for reading: nothing can be lost.
func closeFD(fd int) { _ = unix.Close(fd) }

// inode returns the directory's inode and its number of links: in cgroupfs that
// is the number of its subdirectories plus two.
func (d cgroupDir) inode() (inode, links uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(int(d), &st)
	return st.Ino, uint64(st.Nlink), err //nolint:unconvert // on arm64 it is 32 bits
}

// madeByHost reports whether the cgroup belongs to root or to the agent's own user, as those
// that a kubelet makes for pods do. Any user may make cgroups below its own session, and give
// them the name of any pod's.
func (d cgroupDir) madeByHost() bool {
	var st unix.Stat_t
	return unix.Fstat(int(d), &st) == nil && (st.Uid == 0 || int(st.Uid) == unix.Geteuid())
}

// alive reports whether the cgroup exists since it was opened: every cgroup has
// this file, a removed one has no files.
func (d cgroupDir) alive(p *pathBuffer) bool {
	_, _, err := p.stat(d, "cgroup.procs")
	return !isRemoved(err)
}

// read reads a whole file into buf, which grows as needed.
func (d cgroupDir) read(p *pathBuffer, name string, buf []byte) ([]byte, error) {
	fd, err := p.open(d, name)
	if err != nil {
		return buf[:0], fmt.Errorf("%s: %w", name, err)
	}
	defer closeFD(fd)
	return readList(fd, name, buf)
}

// readShown reads an open file that the kernel prints as one piece: all but
// lists of processes. If the buffer has space left, one system call is enough.
func readShown(fd int, name string, buf []byte) ([]byte, error) {
	return readFrom(fd, name, buf, func(n, space int) bool { return n < space })
}

// readList reads an open file that comes in pieces of any size.
func readList(fd int, name string, buf []byte) ([]byte, error) {
	return readFrom(fd, name, buf, func(n, _ int) bool { return n == 0 })
}

// maxText bounds a file that is read. No kernel file of a cgroup comes near it, and the
// devices of a pod's network namespace are as many as the pod makes.
const maxText = 8 << 20

var errTooLong = fmt.Errorf("longer than %d bytes", maxText)

func readFrom(fd int, name string, buf []byte, ended func(n, space int) bool) ([]byte, error) {
	buf = buf[:0]
	for {
		space := cap(buf) - len(buf)
		if space == 0 && len(buf) >= maxText {
			return buf[:0], fmt.Errorf("%s: %w", name, errTooLong)
		}
		if space == 0 {
			buf = append(buf, make([]byte, max(4096, len(buf)))...)[:len(buf)]
			continue
		}
		n, err := unix.Pread(fd, buf[len(buf):cap(buf)], int64(len(buf)))
		if err == unix.EINTR { // a plain Errno: nothing wraps it
			continue
		}
		if err != nil {
			return buf[:0], fmt.Errorf("%s: %w", name, err)
		}
		buf = buf[:len(buf)+n]
		if ended(n, space) {
			return buf, nil
		}
	}
}

// isRemoved reports whether an error is that of a removed cgroup: its files cannot
// be opened any more (ENOENT), and open ones cannot be read (ENODEV).
func isRemoved(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// isOutOfResources reports whether an error is that of a process or machine out of file
// descriptors or memory, which says nothing about the file itself.
func isOutOfResources(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// pathBuffer builds paths in one reused buffer and hands that to the kernel. As
// strings they would be copied twice: for hundreds of pods, whose files are
// opened again at each read, most of the garbage of a read. A path that is not
// absolute is below the directory.
type pathBuffer struct{ buf []byte }

func (p *pathBuffer) join(parts ...string) *byte {
	p.buf = p.buf[:0]
	for _, part := range parts {
		p.buf = append(p.buf, part...)
	}
	p.buf = append(p.buf, 0)
	return &p.buf[0]
}

// open opens a file for reading.
func (p *pathBuffer) open(below cgroupDir, parts ...string) (fd int, err error) {
	return openAt(below, p.join(parts...), unix.O_RDONLY)
}

func (p *pathBuffer) openDir(parts ...string) (cgroupDir, error) {
	fd, err := openAt(anywhere, p.join(parts...), unix.O_PATH|unix.O_DIRECTORY)
	return cgroupDir(fd), err
}

func openAt(below cgroupDir, name *byte, flags uintptr) (fd int, err error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(below), uintptr(unsafe.Pointer(name)), flags|unix.O_CLOEXEC, 0, 0, 0)
		switch {
		case errno == 0:
			return int(fd), nil
		case !errors.Is(errno, unix.EINTR):
			return -1, errno
		}
	}
}

// stat returns a file's inode and its number of links.
func (p *pathBuffer) stat(below cgroupDir, parts ...string) (inode, links uint64, err error) {
	var st unix.Statx_t
	name := p.join(parts...)
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(below), uintptr(unsafe.Pointer(name)), 0, unix.STATX_INO|unix.STATX_NLINK, uintptr(unsafe.Pointer(&st)), 0)
	if errno != 0 {
		return 0, 0, errno
	}
	return st.Ino, uint64(st.Nlink), nil
}

// links returns a directory's number of links, or 0 if it does not exist.
func (p *pathBuffer) links(path string) uint64 {
	_, links, _ := p.stat(anywhere, path)
	return links
}
