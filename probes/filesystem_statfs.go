package probes

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// usage has the size and the available space of a filesystem (statfs(2)).
type usage struct {
	size, available, files, filesFree snapshot.Opt[uint64]
	absent                            snapshot.Absent
}

var (
	errNoRoot = errors.New("no root mount in mountinfo")
	errGone   = errors.New("no longer mounted")
)

// statfs reads m, which is below root. It blocks while the filesystem hangs,
// and no signal ends that.
func statfs(root string, m mount) (usage, error) {
	fd, err := retryEINTR(func() (int, error) {
		return unix.Open(strings.TrimSuffix(root, "/")+m.Point, unix.O_PATH|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return usage{}, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	// An unmounted filesystem leaves its directory, which would report the
	// filesystem below.
	if id, err := mountID(fd); err != nil || id != m.ID {
		return usage{}, errors.Join(err, errGone)
	}
	var s unix.Statfs_t
	if _, err := retryEINTR(func() (int, error) { return 0, unix.Fstatfs(fd, &s) }); err != nil {
		return usage{}, err
	}
	return newUsage(&s), nil
}

// retryEINTR repeats a call that a signal to the Go runtime interrupted.
func retryEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// mountID returns the mount of a descriptor, in the numbering of mountinfo
// (proc_pid_fdinfo(5)).
func mountID(fd int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, errors.New("fdinfo has no mnt_id")
}

// Statfs adds the size and the available space of the filesystem of a descriptor to
// f, or why they are unknown. It blocks while the filesystem hangs.
func Statfs(fd int, f *snapshot.Rootfs) error {
	var s unix.Statfs_t
	if _, err := retryEINTR(func() (int, error) { return 0, unix.Fstatfs(fd, &s) }); err != nil {
		return err
	}
	u := newUsage(&s)
	f.SizeBytes, f.AvailableBytes, f.Files, f.FilesFree = u.size, u.available, u.files, u.filesFree
	for what, why := range u.absent {
		f.Absent.Because(what, why)
	}
	return nil
}

func newUsage(s *unix.Statfs_t) usage {
	var u usage
	unit := uint64(s.Frsize)
	if s.Frsize <= 0 {
		unit = uint64(max(0, s.Bsize))
	}
	u.size, u.available = blocksToBytes(&u.absent, unit, s.Blocks, s.Bavail)
	switch {
	case s.Files == 0:
		u.absent.Because("files", "this filesystem has no inode count")
	case s.Ffree > s.Files:
		u.absent.Because("files", "statfs reports more free files than files")
	default:
		u.files, u.filesFree = snapshot.Some(s.Files), snapshot.Some(s.Ffree)
	}
	return u
}

// blocksToBytes converts blocks to bytes.
func blocksToBytes(absent *snapshot.Absent, unit, blocks, available uint64) (size, avail snapshot.Opt[uint64]) {
	over, bytes := bits.Mul64(unit, blocks)
	switch {
	case bytes == 0 && over == 0:
		absent.Because("sizeBytes", "statfs reports no size: the filesystem has none, or hides it from this user")
	case over != 0 || available > blocks:
		absent.Because("sizeBytes", fmt.Sprintf("statfs reports an impossible size: %d of %d blocks of %d bytes available", available, blocks, unit))
	default:
		return snapshot.Some(bytes), snapshot.Some(unit * available)
	}
	return size, avail
}
