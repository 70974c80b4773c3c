package probes

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// loopDevice is a loop device of the test's own, of a number too high for other
// users.
type loopDevice struct {
	*testing.T
	control *os.File
	number  int
	node    string
}

func newLoop(t *testing.T) *loopDevice {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs root and loop devices: %v", err)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(500_000))
	require.NoError(t, err)
	l := &loopDevice{T: t, control: control, number: 1000 + int(n.Int64())}
	l.add()
	t.Cleanup(func() {
		l.remove()
		require.NoError(t, control.Close())
	})
	return l
}

func (l *loopDevice) name() string { return fmt.Sprintf("loop%d", l.number) }

func (l *loopDevice) add() {
	l.Helper()
	require.NoError(l, unix.IoctlSetInt(int(l.control.Fd()), unix.LOOP_CTL_ADD, l.number))
	number, err := os.ReadFile("/sys/block/" + l.name() + "/dev")
	require.NoError(l, err)
	var major, minor uint32
	_, err = fmt.Sscanf(string(number), "%d:%d", &major, &minor)
	require.NoError(l, err)
	l.node = filepath.Join(l.TempDir(), "loop")
	require.NoError(l, unix.Mknod(l.node, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))))
}

// remove waits for processes that still hold it, such as udev.
func (l *loopDevice) remove() {
	l.Helper()
	pollUntil(l.T, func() bool { return unix.IoctlSetInt(int(l.control.Fd()), unix.LOOP_CTL_REMOVE, l.number) == nil })
}

// use sets the device up for a file of its own, reads so many blocks past the
// page cache, does what is to be done meanwhile and takes the file away again.
func (l *loopDevice) use(blocks int) func(meanwhile func()) {
	return func(meanwhile func()) { l.useFor(blocks, meanwhile) }
}

func (l *loopDevice) useFor(blocks int, meanwhile func()) {
	l.Helper()
	backing, err := os.Create(filepath.Join(l.TempDir(), "backing"))
	require.NoError(l, err)
	defer backing.Close()
	require.NoError(l, backing.Truncate(1<<20))
	f, err := os.OpenFile(l.node, os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(l, err)
	defer f.Close()
	require.NoError(l, unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_FD, int(backing.Fd())))
	defer func() { assert.NoError(l, unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)) }()
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(l, err)
	defer func() { assert.NoError(l, unix.Munmap(page)) }()
	for range blocks {
		_, err := f.ReadAt(page, 0)
		require.NoError(l, err)
	}
	meanwhile()
}

// here is this machine without its cgroups.
func (l *loopDevice) here() *Host {
	l.Helper()
	h, err := NewHost(Paths{Procfs: "/proc", Sysfs: "/sys", Cgroupfs: l.TempDir()}, nil)
	require.NoError(l, err)
	return h
}

func TestALoopDeviceOfThisKernelComesAndGoes(t *testing.T) {
	l := newLoop(t)
	h := l.here()
	assert.Nil(t, diskOf(mustSample(t, h), l.name()), "it is not used yet")
	var sequence snapshot.Opt[uint64]
	l.use(3)(func() {
		d := diskOf(mustSample(t, h), l.name())
		require.NotNil(t, d)
		assert.GreaterOrEqual(t, d.Reads, uint64(3))
		assert.Equal(t, graphNode{"loop", nil, snapshot.LayerStacked}, graphNode{d.Kind, d.Slaves, d.Layer})
		assert.Equal(t, u64(1<<20), d.SizeBytes)
		sequence = d.Sequence
	})
	// The same device, another file: it is not the same medium.
	l.use(3)(func() {
		d := diskOf(mustSample(t, h), l.name())
		require.NotNil(t, d)
		assert.NotEqual(t, sequence, d.Sequence, "read at once and not when its turn comes")
	})
	l.remove()
	s := mustSample(t, h)
	assert.Nil(t, diskOf(s, l.name()))
	assert.NotContains(t, h.disks.devices, l.name())
	assert.Empty(t, probeError(t, s, "disks"))
	l.add()
}

// On the real kernel, between two reads: the device is removed, made anew under
// its name and number, and did more than the old one.
func TestALoopDeviceMadeAnewInTheKernelHasNoRateAcross(t *testing.T) {
	l := newLoop(t)
	h, history := l.here(), testHistory()
	find := func(s *snapshot.Snapshot) *snapshot.DiskState {
		for i := range s.Disks {
			if s.Disks[i].Name == l.name() {
				return &s.Disks[i]
			}
		}
		return nil
	}
	var old snapshot.DiskState
	l.use(2)(func() {
		history.Add(mustSample(t, h))
		d := find(history.Add(mustSample(t, h)))
		require.NotNil(t, d)
		old = *d
		require.False(t, old.Rates.IsZero())
	})
	l.remove()
	l.add()
	l.use(100)(func() {
		d := find(history.Add(mustSample(t, h)))
		require.NotNil(t, d)
		assert.Greater(t, d.Reads, old.Reads, "else this test shows nothing")
		assert.Equal(t, old.Number, d.Number)
		assert.True(t, d.Rates.IsZero(), "a rate across two devices: %+v", d.Rates)
		d = find(history.Add(mustSample(t, h)))
		assert.False(t, d.Rates.IsZero(), "it goes on as itself")
	})
}

// This machine's disks: a disk that some other stands on is never a second
// leaf beside it.
func TestTheDisksOfThisMachineHaveALayerEach(t *testing.T) {
	h, err := NewHost(Paths{Procfs: "/proc", Sysfs: "/sys", Cgroupfs: t.TempDir()}, nil)
	require.NoError(t, err)
	s := mustSample(t, h)
	leaves := 0
	for _, d := range s.Disks {
		assert.NotEmpty(t, d.Kind, d.Name)
		assert.NotEmpty(t, d.Layer, d.Name)
		if d.Layer == snapshot.LayerLeaf {
			leaves++
		}
	}
	if len(s.Disks) > 0 {
		assert.Positive(t, leaves)
	}
}
