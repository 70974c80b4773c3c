package cgroup

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A cgroup that is removed between opening and reading one of its files is
// reported as removed, not as one without the value.
func TestACgroupThatIsRemovedWhileAFileOfItIsOpenIsGone(t *testing.T) {
	c := hostCgroups(t)
	dir := c.dirs[0] + makeCgroup(t, c, "/kubepods")
	f, err := os.Open(dir + "/cgroup.procs")
	require.NoError(t, err)
	defer f.Close()
	of := &trackedWorkload{node: &node{}, c: c}
	_, err = of.readOpen(int(f.Fd()), "cgroup.procs")
	require.NoError(t, err)
	assert.False(t, of.removed)
	require.NoError(t, unix.Rmdir(dir))
	_, err = of.readOpen(int(f.Fd()), "cgroup.procs")
	require.ErrorIs(t, err, unix.ENODEV)
	assert.True(t, of.removed)
}
