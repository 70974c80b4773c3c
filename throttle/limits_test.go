package throttle

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestLimitsInContainers(t *testing.T) {
	top := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(top, "pod/app/inner"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(top, "pod/sidecar"), 0o755))
	list := map[Target]Throttle{
		{Cgroup: "/pod", Disk: "sda"}:   {Base: Rates{Read: 100 * mib}, Percent: 20, Began: noon},
		{Cgroup: "/pod", Disk: "gone"}:  {Base: Rates{Read: 100 * mib}, Percent: 20, Began: noon},
		{Cgroup: "/pod"}:                {Base: Rates{CPU: 2}, Percent: 50, Began: noon},
		{Cgroup: "/pod", Memory: true}:  {Base: Rates{Memory: 512 * mib}, Percent: unthrottled, Began: noon},
		{Cgroup: "/free", Disk: "sda"}:  {Base: Rates{Read: 100 * mib}, Percent: unthrottled},
		{Cgroup: "/free", Memory: true}: {Base: Rates{Memory: 512 * mib}, Percent: unthrottled},
	}
	of := func(v1 bool) (cgroups []string) {
		want := Limits(list, map[string]string{"sda": "8:0"}, Tree{IO: Hierarchy{top, v1}}.IOCgroups)
		for k, limit := range want {
			switch k.Resource() {
			case snapshot.SharedCPU:
				assert.Equal(t, "/pod 1", fmt.Sprintf("%s %g", k.Cgroup, limit), "cpu.max and cfs_quota_us hold for all below")
			case snapshot.SharedMemory:
				assert.Equal(t, "/pod 5.36870912e+08", fmt.Sprintf("%s %g", k.Cgroup, limit), "memory.high, too")
			default:
				assert.InDelta(t, 20*mib, limit, 1)
				cgroups = append(cgroups, k.Cgroup+" "+k.Name)
			}
		}
		return cgroups
	}
	assert.ElementsMatch(t, []string{"/pod read", "/pod write"}, of(false))
	assert.ElementsMatch(t, []string{
		"/pod read", "/pod write", "/pod/app read", "/pod/app write", "/pod/app/inner read", "/pod/app/inner write", "/pod/sidecar read", "/pod/sidecar write",
	}, of(true), "blk-throttle of v1 is flat")
	assert.Equal(t, []string{"/ended"}, Tree{IO: Hierarchy{top, true}}.IOCgroups("/ended"))
}
