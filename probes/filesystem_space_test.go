package probes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// mountSpace is a host whose mounts are the test's.
type mountSpace struct{ *filesystemtest.Space }

func newMountSpace(t *testing.T) *mountSpace {
	t.Helper()
	return &mountSpace{filesystemtest.New(t)}
}

// host reads the namespace as the host's; its mounts are read at every Read at
// least 10 ms after the previous one.
func (s *mountSpace) host(mounts ...string) *Host {
	s.Helper()
	h, err := NewHost(Paths{Procfs: s.Proc, Sysfs: "/sys"}, nil)
	require.NoError(s, err)
	h.FollowFilesystems(FilesystemConfig{Mounts: mounts, Every: 10 * time.Millisecond, Timeout: 100 * time.Millisecond})
	s.Cleanup(h.Close)
	return h
}

// filesystemsOf reads once.
func filesystemsOf(t testing.TB, h *Host) ([]snapshot.Filesystem, error) {
	t.Helper()
	var s snapshot.Sample
	err := h.readFilesystems(&s)
	return s.Filesystems, err
}

// eventually reads until all mounts are as they should be.
func (s *mountSpace) eventually(h *Host, what string, is func([]snapshot.Filesystem) bool) []snapshot.Filesystem {
	s.Helper()
	var list []snapshot.Filesystem
	deadline.Within(s, 20*time.Second, what, func() error {
		var err error
		if list, err = filesystemsOf(s, h); !is(list) {
			return fmt.Errorf("%w: %+v", cmp.Or(err, errors.New("not so yet")), list)
		}
		return nil
	})
	return list
}

// says reads until the error is that one: where the machine is busy a table of mounts, or
// another mount, may be late too.
func (s *mountSpace) says(h *Host, why string) (list []snapshot.Filesystem) {
	s.Helper()
	deadline.Within(s, 20*time.Second, why, func() (err error) {
		if list, err = filesystemsOf(s, h); err == nil || err.Error() != why {
			return fmt.Errorf("it says %w", cmp.Or(err, errors.New("nothing")))
		}
		return nil
	})
	return list
}

// at finds one mount.
func at(list []snapshot.Filesystem, point string) snapshot.Filesystem {
	i := slices.IndexFunc(list, func(f snapshot.Filesystem) bool { return f.Mountpoint == point })
	if i < 0 {
		return snapshot.Filesystem{}
	}
	return list[i]
}
