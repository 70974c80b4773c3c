package probes

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// openSysfs opens a file or directory below dir, an open directory or
// unix.AT_FDCWD. os.Open would add a stat, os.ReadFile two more calls.
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
	defer func() { _ = unix.Close(fd) }() // opened for reading: nothing can be lost
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

// eachEntry calls visit with the name and inode of each entry of an open
// directory (the inode of a link itself, not of its target); name is valid
// until visit returns. buf must hold the longest entry.
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

// visitEntries parses the buffer of getdents64(2).
func visitEntries(b []byte, visit func(name []byte, inode uint64)) {
	for len(b) > 0 {
		inode := parse.DirentInode(b)
		var name []byte
		name, _, b = parse.Dirent(b)
		if string(name) != "." && string(name) != ".." {
			visit(name, inode)
		}
	}
}

// deviceDir reads the facts of one device from its open directory in sysfs.
type deviceDir struct {
	fd     int
	err    error // why the directory could not be opened
	buf    []byte
	absent snapshot.Absent
}

// openDeviceDir opens a device's directory. If it does not exist, every fact is absent
// for that reason.
func openDeviceDir(dir string, buf []byte) *deviceDir {
	fd, err := openSysfs(unix.AT_FDCWD, dir, unix.O_DIRECTORY)
	return &deviceDir{fd: fd, err: err, buf: buf}
}

func (l *deviceDir) close() {
	if l.err == nil {
		_ = unix.Close(l.fd)
	}
}

// text returns a small file's content without surrounding space.
func (l *deviceDir) text(name string) (string, error) {
	if l.err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(l.err)}
	}
	var err error
	l.buf, err = readWhole(l.fd, name, l.buf)
	return strings.TrimSpace(string(l.buf)), err
}

// readable reports whether a small file can be read, whatever it says.
func (l *deviceDir) readable(name string) bool {
	_, err := l.text(name)
	return err == nil
}

// has reports whether a path below the directory exists.
func (l *deviceDir) has(name string) bool {
	return l.err == nil && unix.Faccessat(l.fd, name, unix.F_OK, 0) == nil
}

// link returns the target of a link as it is stored; empty if there is none.
func (l *deviceDir) link(name string) string {
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

// entries returns the names in a subdirectory, or in the device's own (".").
func (l *deviceDir) entries(name string) []string {
	if l.err != nil {
		return nil
	}
	fd, err := openSysfs(l.fd, name, unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	var names []string
	// An entry that is removed meanwhile ends the list early; the next look
	// sees the rest.
	_ = eachEntry(fd, l.buf[:cap(l.buf)], func(name []byte, _ uint64) { names = append(names, string(name)) })
	slices.Sort(names)
	return names
}

// fact reads a file with one value. On failure the value is absent and the
// error is the reason.
func fact[T any](l *deviceDir, name, file string, parse func(string) (T, error)) snapshot.Opt[T] {
	text, err := l.text(file)
	if err != nil {
		l.absent.Because(name, reason(err))
		return snapshot.Opt[T]{}
	}
	v, err := parse(text)
	if err != nil {
		l.absent.Because(name, path.Base(file)+": "+err.Error())
		return snapshot.Opt[T]{}
	}
	return snapshot.Some(v)
}

// reason returns a file error without the directory, which differs per device.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return filepath.Base(pe.Path) + ": " + pe.Err.Error()
	}
	return err.Error()
}
