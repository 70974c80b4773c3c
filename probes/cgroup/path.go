package cgroup

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pathBuffer builds paths in one reused buffer and hands that to the kernel. As
// strings they would be copied twice: for hundreds of pods, whose files are
// opened again at each read, most of the garbage of a read.
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
func (p *pathBuffer) open(parts ...string) (fd int, err error) {
	name, here := p.join(parts...), unix.AT_FDCWD
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(here), uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
		switch {
		case errno == 0:
			return int(fd), nil
		case !errors.Is(errno, unix.EINTR):
			return -1, errno
		}
	}
}

// links returns a directory's number of links, or 0 if it does not exist.
func (p *pathBuffer) links(parts ...string) uint64 {
	var st unix.Statx_t
	name, here := p.join(parts...), unix.AT_FDCWD
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(here), uintptr(unsafe.Pointer(name)), 0, unix.STATX_NLINK, uintptr(unsafe.Pointer(&st)), 0)
	if errno != 0 {
		return 0
	}
	return uint64(st.Nlink)
}
