package probes

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	end := time.Now().Add(20 * time.Second)
	for {
		list, err := filesystemsOf(s, h)
		if is(list) {
			return list
		}
		if time.Now().After(end) {
			require.Fail(s, "never: "+what, "%v %+v", err, list)
		}
		time.Sleep(5 * time.Millisecond) // the ticks of this test
	}
}

// at finds one mount.
func at(list []snapshot.Filesystem, point string) snapshot.Filesystem {
	i := slices.IndexFunc(list, func(f snapshot.Filesystem) bool { return f.Mountpoint == point })
	if i < 0 {
		return snapshot.Filesystem{}
	}
	return list[i]
}
