package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/vm/rungs"
)

// TestSeries: what has not ended counts for as long as it has lasted.
func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeries()
		begun := time.Now()
		end := make(chan struct{})
		go s.observe(func() (map[string]float64, bool) { <-end; return nil, true })
		s.observe(func() (map[string]float64, bool) {
			time.Sleep(time.Second)
			return map[string]float64{"cpu": 3}, true
		})
		synctest.Wait()
		all := s.between(begun, begun.Add(time.Millisecond))
		require.Len(t, all, 2)
		assert.Equal(t, time.Second, all[0].took)
		assert.True(t, all[0].ok)
		assert.Equal(t, map[string]float64{"cpu": 3}, all[0].parts)
		assert.Equal(t, time.Second, all[1].took)
		assert.False(t, all[1].ok, "it has no outcome yet")
		late, _ := s.late()
		assert.Equal(t, time.Second, late)
		assert.Empty(t, s.between(begun.Add(time.Millisecond), begun.Add(time.Hour)))
		assert.Equal(t, 200*time.Millisecond, s.longest(begun.Add(100*time.Millisecond), begun.Add(300*time.Millisecond)), "the part between")
		assert.Zero(t, s.longest(begun.Add(2*time.Second), begun.Add(3*time.Second)))
		close(end)
		synctest.Wait()
		late, _ = s.late()
		assert.Zero(t, late)
	})
}

func TestServiceWork(t *testing.T) {
	dir := t.TempDir()
	for name, mib := range map[string]int64{"pages": pagesMiB, "served": dataMiB} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		require.NoError(t, os.Truncate(filepath.Join(dir, name), mib<<20))
	}
	s, err := newService(dir, 1)
	require.NoError(t, err)
	parts, err := s.work()
	require.NoError(t, err)
	assert.Len(t, parts, 4)
	info, err := s.log.Stat()
	require.NoError(t, err)
	assert.EqualValues(t, 512, info.Size())

	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	go func() { _ = serve(t.Context(), dir, address, 1) }()
	client := &http.Client{Timeout: 10 * time.Second}
	deadline.Within(t, 10*time.Second, "it answers", func() error {
		_, err := get(client, "http://"+address+"/live")
		return err
	})
	got, ok := requests(client, "http://"+address+"/work")()
	assert.True(t, ok)
	assert.Len(t, got, 4)
	_, ok = probe("http://" + address + "/none")()
	assert.False(t, ok, "no such page")
}

// TestSettings: the rungs of each cell are files of its cgroup version.
func TestSettings(t *testing.T) {
	u := used{disk: 50 << 20, cpu: 2, request: 3}
	for version, rung := range map[string]map[string][]setting{
		"v2": {
			rungs.IOMax:     {{"/c/n/culprit/io.max", "8:0 rbps=10485760 wbps=10485760", "8:0 rbps=max wbps=max"}},
			rungs.CPUMax:    {{"/c/n/culprit/cpu.max", "40000 100000", "max 100000"}},
			rungs.IOLatency: {{"/c/n/sufferer/io.latency", "8:0 target=6000", "8:0 target=max"}},
			rungs.Freeze:    {{"/c/n/culprit/cgroup.freeze", "1", "0"}},
		},
		"v1": {
			rungs.Quota: {{"/c/cpu/n/culprit/cpu.cfs_quota_us", "40000", "-1"}},
			rungs.BlkioInner: {
				{"/c/blkio/n/culprit/container/blkio.throttle.read_bps_device", "8:0 10485760", "8:0 0"},
				{"/c/blkio/n/culprit/container/blkio.throttle.write_bps_device", "8:0 10485760", "8:0 0"},
			},
			rungs.FreezerState: {{"/c/freezer/n/culprit/freezer.state", "FROZEN", "THAWED"}},
		},
	} {
		for name, want := range rung {
			tree := newTree(rungs.Spec{Cell: rungs.Cell{Cgroup: version, Rung: name}, Root: "/c", Name: "n", Device: "8:0"})
			got, err := tree.settings(u)
			require.NoError(t, err)
			assert.Equal(t, want, got, "%s %s", version, name)
		}
	}
	_, err := newTree(rungs.Spec{Cell: rungs.Cell{Rung: "none such"}}).settings(u)
	require.ErrorContains(t, err, "no such rung")
}

func TestStackFrames(t *testing.T) {
	assert.True(t, idle("futex_wait_queue"))
	assert.False(t, idle("flock_lock_inode_wait"))
	assert.True(t, dull("__schedule"))
	assert.False(t, dull("jbd2_log_wait_commit"))
}
