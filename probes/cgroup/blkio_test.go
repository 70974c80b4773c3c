package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// TestBlkioCountedAfterRule enables the kernel's counting as an
// operator would: by a rule that limits nothing. The device is a new one, since
// counting stays enabled until a device is removed.
func TestBlkioCountedAfterRule(t *testing.T) {
	c := hostCgroups(t)
	container := makeCgroup(t, c, "/kubepods/pod6f7c1c9e-3f0a/c0ffee", "blkio", "memory")
	pod := filepath.Dir(container)
	top := c.dirs[c.at["blkio"]]
	l := kerneltest.NewLoop(t)
	number, err := os.ReadFile("/sys/block/" + l.Name + "/dev")
	require.NoError(t, err)
	device := strings.TrimSpace(string(number))

	own := fmt.Sprint(os.Getpid())
	require.NoError(t, os.WriteFile(top+container+"/cgroup.procs", []byte(own), 0o600))
	t.Cleanup(func() { // before the cgroup is removed
		assert.NoError(t, os.WriteFile(top+"/cgroup.procs", []byte(own), 0o600))
	})
	read := func(blocks int) (io snapshot.WorkloadIO, w snapshot.Workload) {
		l.Use(blocks, func() { w = readOne(t, c, pod) })
		if i := slices.IndexFunc(w.IO, func(io snapshot.WorkloadIO) bool { return io.Number == device }); i >= 0 {
			io = w.IO[i]
		}
		return io, w
	}
	io, w := read(500)
	assert.Zero(t, io, "500 blocks were read, and the kernel counted none")
	if len(w.IO) == 0 { // no device of this host had a rule yet
		assert.Equal(t, whyBlkioInactive, w.Absent["io"], "that is not 0")
	}

	rule := top + container + "/blkio.throttle.read_bps_device"
	require.NoError(t, os.WriteFile(rule, []byte(device+" 1000000000000"), 0o600))
	io, w = read(20)
	assert.NotContains(t, w.Absent, "io")
	assert.GreaterOrEqual(t, io.Reads, uint64(20))
	assert.Less(t, io.Reads, uint64(500), "what was read before the rule is not in it")
	assert.GreaterOrEqual(t, io.ReadBytes, uint64(20*4096))
	more, _ := read(100)
	assert.InDelta(t, 100, more.Reads-io.Reads, 50)
}
