// Package filesystemtest makes mounts for tests, also mounts that hang, in a
// mount namespace that other processes do not see and that ends with the test.
//
// # Concurrency
//
// A Space and its Fuses belong to the goroutine of the test.
package filesystemtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Space is a mount namespace, related to the test's as the host's is to a
// container's.
type Space struct {
	testing.TB
	// Dir is the directory of the mountpoints.
	Dir string
	// Proc is a procfs whose pid 1 is in the namespace.
	Proc string

	thread string // its directory in the real procfs
	do     chan func() error
	done   chan error
}

// New makes a namespace on a thread of its own, and skips the test without
// root. It inherits the existing mounts, without changing them outside.
func New(t testing.TB) *Space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	s := &Space{TB: t, Dir: t.TempDir(), Proc: t.TempDir(), do: make(chan func() error), done: make(chan error)}
	tid, ended := make(chan int), make(chan struct{})
	go onThreadOfItsOwn(func() {
		defer close(ended)
		tid <- unix.Gettid()
		for f := range s.do {
			s.done <- f()
		}
	})
	t.Cleanup(func() {
		close(s.do)
		<-ended
	})
	s.makeProc(<-tid)
	s.inside(func() error { return unix.Unshare(unix.CLONE_NEWNS) })
	s.inside(func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") })
	return s
}

// onThreadOfItsOwn runs f on a thread that ends afterwards, and its namespaces
// with it. The process's first thread cannot serve: it never ends, and
// /proc/self shows its namespaces.
func onThreadOfItsOwn(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f() // never unlocked, which ends the thread
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		onThreadOfItsOwn(f) // the first thread is taken, so this is another one
	}()
	<-done
}

// makeProc links to the real procfs, except that pid 1 is the thread.
func (s *Space) makeProc(tid int) {
	s.Helper()
	list, err := os.ReadDir("/proc")
	require.NoError(s, err)
	for _, e := range list {
		if strings.Trim(e.Name(), "0123456789") != "" {
			require.NoError(s, os.Symlink("/proc/"+e.Name(), filepath.Join(s.Proc, e.Name())))
		}
	}
	s.thread = fmt.Sprintf("/proc/%d/task/%d", os.Getpid(), tid)
	require.NoError(s, os.Symlink(s.thread, filepath.Join(s.Proc, "1")))
}

// Enter returns the path by which the test itself reaches a path of the
// namespace. Once the namespace is gone, what is late can make nothing there.
func (s *Space) Enter(path string) string { return filepath.Join(s.thread, "root", path) }

func (s *Space) inside(f func() error) {
	s.Helper()
	s.do <- f
	require.NoError(s, <-s.done)
}

// Mount makes the directory name below Dir and mounts on it.
func (s *Space) Mount(kind, source, name, data string) (point string) {
	s.Helper()
	point = filepath.Join(s.Dir, name)
	require.NoError(s, os.MkdirAll(point, 0o755))
	s.inside(func() error { return unix.Mount(source, point, kind, unix.MS_NOSUID|unix.MS_NODEV, data) })
	return point
}

// Bind makes a bind mount of a directory of the namespace.
func (s *Space) Bind(from, to string) {
	s.Helper()
	require.NoError(s, os.MkdirAll(to, 0o755))
	s.inside(func() error { return unix.Mount(from, to, "", unix.MS_BIND, "") })
}

// Unmount is umount -l: calls that hang go on hanging.
func (s *Space) Unmount(point string) {
	s.Helper()
	s.inside(func() error { return unix.Unmount(point, unix.MNT_DETACH) })
}

// Fuse is a filesystem whose server is the test: until it answers, every call
// into it hangs, as on a network filesystem without its server.
type Fuse struct {
	testing.TB
	Point string
	// FreeBlocks is how many of its 1000 blocks of 4 KiB Answer reports as
	// available.
	FreeBlocks uint64

	fd    int      // not an os.File, which the runtime would poll
	calls [][]byte // IDs of the statfs calls that were read and not answered
}

// Fuse mounts a Fuse that answers nothing.
func (s *Space) Fuse(name string) *Fuse {
	s.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		s.Skipf("needs /dev/fuse: %v", err)
	}
	f := &Fuse{TB: s.TB, fd: fd, FreeBlocks: 250}
	s.Cleanup(f.Abort)
	f.Point = s.Mount("fuse", "dead-server:/export", name, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd))
	return f
}

// Abort fails every waiting call.
func (f *Fuse) Abort() {
	if f.fd >= 0 {
		require.NoError(f, unix.Close(f.fd))
	}
	f.fd = -1
}

// Numbers of the protocol (linux/fuse.h).
const (
	fuseStatfs = 17
	fuseInit   = 26
)

// Take reads the pending requests, and returns how many statfs calls wait for
// an answer. The first Take answers the kernel's init request.
func (f *Fuse) Take() (calls int) {
	f.Helper()
	buf := make([]byte, 1<<17)
	for {
		_, err := unix.Read(f.fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return len(f.calls)
		case errors.Is(err, unix.EINTR):
			continue
		}
		require.NoError(f, err)
		id := slices.Clone(buf[8:16])
		switch code := binary.NativeEndian.Uint32(buf[4:]); code {
		case fuseInit:
			out := make([]byte, 64)
			binary.NativeEndian.PutUint32(out[0:], 7)      // major
			binary.NativeEndian.PutUint32(out[4:], 31)     // minor
			binary.NativeEndian.PutUint32(out[20:], 1<<16) // max_write
			f.reply(id, out)
		case fuseStatfs:
			f.calls = append(f.calls, id)
		default:
			require.Fail(f, "unexpected call", "%d", code)
		}
	}
}

// Answer answers all pending requests.
func (f *Fuse) Answer() {
	f.Helper()
	f.Take()
	for _, id := range f.calls {
		out := make([]byte, 80) // fuse_kstatfs
		for i, v := range []uint64{1000, f.FreeBlocks + 50, f.FreeBlocks, 500, 77} {
			binary.NativeEndian.PutUint64(out[8*i:], v)
		}
		binary.NativeEndian.PutUint32(out[40:], 4096) // bsize
		binary.NativeEndian.PutUint32(out[48:], 4096) // frsize
		f.reply(id, out)
	}
	f.calls = nil
}

func (f *Fuse) reply(id, body []byte) {
	f.Helper()
	head := make([]byte, 16)
	binary.NativeEndian.PutUint32(head, uint32(16+len(body)))
	copy(head[8:], id)
	_, err := unix.Write(f.fd, append(head, body...))
	require.NoError(f, err)
}
