package kerneltest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Loop is a loop device of the test's own, of a number too high for other
// users.
type Loop struct {
	// Name is that of the disk, such as loop1234.
	Name string

	t       testing.TB
	control *os.File
	number  int
	node    string
}

// NewLoop adds the device and removes it at the end. It skips the test without
// root.
func NewLoop(t testing.TB) *Loop {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs root and loop devices: %v", err)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(500_000))
	require.NoError(t, err)
	l := &Loop{t: t, control: control, number: 1000 + int(n.Int64())}
	l.Name = fmt.Sprintf("loop%d", l.number)
	l.Add()
	t.Cleanup(func() {
		l.Remove()
		require.NoError(t, control.Close())
	})
	return l
}

// Add adds the device again after Remove, under the same name.
func (l *Loop) Add() {
	l.t.Helper()
	require.NoError(l.t, unix.IoctlSetInt(int(l.control.Fd()), unix.LOOP_CTL_ADD, l.number))
	number, err := os.ReadFile("/sys/block/" + l.Name + "/dev")
	require.NoError(l.t, err)
	var major, minor uint32
	_, err = fmt.Sscanf(string(number), "%d:%d", &major, &minor)
	require.NoError(l.t, err)
	l.node = "/dev/plimsoll-test-" + l.Name // below /tmp a device may not be opened (nodev)
	require.NoError(l.t, unix.Mknod(l.node, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))))
}

// Remove removes the device. It waits for processes that still hold it, such as udev.
func (l *Loop) Remove() {
	l.t.Helper()
	assert.NoError(l.t, os.RemoveAll(l.node))
	Until(l.t, func() bool { return unix.IoctlSetInt(int(l.control.Fd()), unix.LOOP_CTL_REMOVE, l.number) == nil })
}

// Use sets the device up for a file of its own, reads so many blocks past the
// page cache, calls meanwhile and takes the file away again.
func (l *Loop) Use(blocks int, meanwhile func()) {
	l.t.Helper()
	backing, err := os.Create(filepath.Join(l.t.TempDir(), "backing"))
	require.NoError(l.t, err)
	defer backing.Close()
	require.NoError(l.t, backing.Truncate(1<<20))
	var f *os.File
	Until(l.t, func() bool { // udev may hold it for what was there a moment ago
		if f, err = os.OpenFile(l.node, os.O_RDWR|unix.O_DIRECT, 0); err == nil {
			if err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
				_ = f.Close()
			}
		}
		return !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO)
	})
	require.NoError(l.t, err)
	defer f.Close()
	defer func() { assert.NoError(l.t, unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)) }()
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(l.t, err)
	defer func() { assert.NoError(l.t, unix.Munmap(page)) }()
	for range blocks {
		_, err := f.ReadAt(page, 0)
		require.NoError(l.t, err)
	}
	meanwhile()
}
