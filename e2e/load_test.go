package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// limitedCgroup makes cgroups of one name, with a memory limit, in whatever
// hierarchies this machine has, and returns their directories.
func limitedCgroup(t *testing.T, limit int) (path string, dirs []string) {
	t.Helper()
	needsRoot(t)
	path = fmt.Sprintf("/plimsoll-e2e-%d", os.Getpid())
	v1, v2 := "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	limitFile := "memory.limit_in_bytes"
	switch {
	case exists(v1) && exists(filepath.Join(unified, "cgroup.procs")):
		dirs = []string{v1 + path, unified + path}
		if cpu := "/sys/fs/cgroup/cpuacct"; exists(cpu) {
			dirs = append(dirs, cpu+path)
		}
	case exists(filepath.Join(v2, "cgroup.controllers")):
		controllers, err := os.ReadFile(filepath.Join(v2, "cgroup.subtree_control"))
		require.NoError(t, err)
		if !strings.Contains(string(controllers), "memory") {
			t.Skip("no memory controller below the root cgroup")
		}
		dirs, limitFile = []string{v2 + path}, "memory.max"
	default:
		t.Skip("no cgroups with memory limits and pressure here")
	}
	for _, d := range dirs {
		require.NoError(t, os.Mkdir(d, 0o755))
		t.Cleanup(func() {
			within(t, patience, "the cgroup is removed", func() error { return os.Remove(d) })
		})
	}
	require.NoError(t, os.WriteFile(filepath.Join(dirs[0], limitFile), []byte(strconv.Itoa(limit)), 0o644))
	return path, dirs
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// startLoad runs a load until the test ends; it is called after what it uses
// was made, so that it ends before that is removed.
func startLoad(t *testing.T, name string, args ...string) {
	t.Helper()
	var out live.Output
	c := exec.Command(loadBinary, append([]string{name}, args...)...)
	c.Stdout, c.Stderr = &out, &out
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	})
	eventually(t, "the load is on", func() error {
		if !strings.Contains(out.String(), "ready") {
			return errors.New(out.String())
		}
		return nil
	})
}

// startThrash reads a file of that many bytes again and again in a cgroup in which it does
// not fit. It is below /var/tmp: where /tmp is memory, nothing could be reclaimed.
func startThrash(t *testing.T, bytes int, cgroup []string) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "plimsoll-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	startLoad(t, "thrash", append([]string{filepath.Join(dir, "file"), strconv.Itoa(bytes)}, cgroup...)...)
}

// A cgroup that thrashes at its own limit on a machine with plenty: the stall
// is shown as its pressure, and nothing is said of the node.
func TestOwnLimitIsNotNodePressure(t *testing.T) {
	const limit, file = 48 << 20, 160 << 20
	path, dirs := limitedCgroup(t, limit)
	a := startAgent(t, "--config", configFile(t, "plugins: {warmUp: 0s}\n")).ticked(2)
	startThrash(t, file, dirs)

	var seen snapshot.WorkloadRates
	took := within(t, patience, "its own stall and limit are shown", func() error {
		s := a.snapshot()
		for _, w := range s.Workloads {
			r, ok := w.Rates.Get()
			full, stalls := r.Pressure.Memory.Full.Get()
			hits, _ := r.LimitHits.Get()
			if w.Cgroup == path && ok && stalls && full > 0.01 && hits > 0 {
				seen = r
				return nil
			}
		}
		return fmt.Errorf("%+v", s.Workloads)
	})
	full, _ := seen.Pressure.Memory.Full.Get()
	hits, _ := seen.LimitHits.Get()
	t.Logf("seen after %s: memory stall %.1f %% of the window, limit met %d times", took, 100*full, hits)

	until := a.snapshot().Sequence + 8
	for a.snapshot().Sequence < until {
		v := a.pressure().memory(t)
		require.Equal(t, plugins.None, v.Level, v.Reason)
		a.ticked(a.snapshot().Sequence + 1)
	}
	var last struct {
		Decisions []any
	}
	decode(t, a.mustGet("/api/v1/decisions"), &last)
	assert.Empty(t, last.Decisions)
	assert.Contains(t, a.mustGet("/"), "at its cgroup&#39;s memory limit")
}
