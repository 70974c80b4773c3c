package probes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// openSysfs opens a file or directory; dir is an open directory or
// unix.AT_FDCWD. os.Open would add a stat, and os.ReadFile two calls more.
func openSysfs(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// readWhole reads a file into buf[:0], which grows as needed.
func readWhole(dir int, name string, buf []byte) ([]byte, error) {
	buf = buf[:0]
	fd, err := openSysfs(dir, name, 0)
	if err != nil {
		return buf, err
	}
	defer func() { _ = unix.Close(fd) }() // only read: nothing can be lost
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return buf[:0], &fs.PathError{Op: "read", Path: name, Err: err}
		case n <= 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
		}
	}
}

// eachEntry calls visit with the name of each entry of an open directory and
// the inode behind it, of a link the link's own; name is only good until visit
// returns. buf must hold the longest entry.
func eachEntry(dir int, buf []byte, visit func(name []byte, inode uint64)) error {
	for {
		n, err := unix.Getdents(dir, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		visitEntries(buf[:n], visit)
	}
}

// visitEntries goes through what getdents64(2) wrote.
func visitEntries(b []byte, visit func(name []byte, inode uint64)) {
	const inode, length, name = 0, 16, 19 // where they stand in struct linux_dirent64
	for len(b) > name {
		size := int(binary.NativeEndian.Uint16(b[length:]))
		entry, _, _ := bytes.Cut(b[name:size], []byte{0})
		if string(entry) != "." && string(entry) != ".." {
			visit(entry, binary.NativeEndian.Uint64(b[inode:]))
		}
		b = b[size:]
	}
}

// look reads the facts of one device from its open directory in sysfs.
type look struct {
	fd     int
	err    error // why the directory could not be opened
	buf    []byte
	absent Absent
}

// lookAt opens a device's directory. One that is not there makes every fact
// absent with that reason.
func lookAt(dir string, buf []byte) *look {
	fd, err := openSysfs(unix.AT_FDCWD, dir, unix.O_DIRECTORY)
	return &look{fd: fd, err: err, buf: buf}
}

func (l *look) close() {
	if l.err == nil {
		_ = unix.Close(l.fd)
	}
}

// text is a small file's content without the space around it.
func (l *look) text(name string) (string, error) {
	if l.err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(l.err)}
	}
	var err error
	l.buf, err = readWhole(l.fd, name, l.buf)
	return strings.TrimSpace(string(l.buf)), err
}

// has says whether there is a file of that name, however deep.
func (l *look) has(name string) bool {
	return l.err == nil && unix.Faccessat(l.fd, name, unix.F_OK, 0) == nil
}

// link is where a link leads, as it is written; empty when there is none.
func (l *look) link(name string) string {
	if l.err != nil {
		return ""
	}
	var to [unix.PathMax]byte
	n, err := unix.Readlinkat(l.fd, name, to[:])
	if err != nil {
		return ""
	}
	return string(to[:n])
}

// entries are the names in a directory below, or in the device's own (".").
func (l *look) entries(name string) []string {
	if l.err != nil {
		return nil
	}
	fd, err := openSysfs(l.fd, name, unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	var names []string
	// What goes meanwhile ends the list early; the next look has all of it.
	_ = eachEntry(fd, l.buf[:cap(l.buf)], func(name []byte, _ uint64) { names = append(names, string(name)) })
	slices.Sort(names)
	return names
}

// fact reads a file of one value; a failure is kept as the reason of its
// absence.
func fact[T any](l *look, name, file string, parse func(string) (T, error)) Opt[T] {
	text, err := l.text(file)
	if err != nil {
		l.absent.Because(name, reason(err))
		return Opt[T]{}
	}
	v, err := parse(text)
	if err != nil {
		l.absent.Because(name, path.Base(file)+": "+err.Error())
		return Opt[T]{}
	}
	return Some(v)
}

// reason is a file error without the path of it, which would differ per device.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return filepath.Base(pe.Path) + ": " + pe.Err.Error()
	}
	return err.Error()
}
