package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

func TestConntrackFull(t *testing.T) {
	c := recorded(t, "0\n", "262144\n")
	said, err := c.Threshold(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(kit.Threshold{Limit: 0.8, Condition: &kit.Condition{Name: "ConntrackFull"}}, said))

	c.fill(t, "209716\n") // 80.0003 %
	said, err = c.Threshold(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, kit.Soft, said.Level)
	assert.InDelta(t, 0.800003, said.Observed, 1e-6)
	_, names := any(c).(kit.Topper)
	assert.False(t, names)
}

func TestConntrackLatched(t *testing.T) {
	c := recorded(t, "70\n", "100\n")
	for _, step := range []struct {
		count string
		want  kit.Level
	}{{"73\n", kit.None}, {"79\n", kit.None}, {"80\n", kit.Soft}, {"73\n", kit.Soft}, {"71\n", kit.None}, {"79\n", kit.None}} {
		c.fill(t, step.count)
		said, err := c.Threshold(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, step.want, said.Level, step.count)
	}
}

func TestConntrackWithoutTable(t *testing.T) {
	c := conntrack{procfs: t.TempDir(), full: 0.8}
	_, err := c.Threshold(t.Context(), nil)
	require.ErrorContains(t, err, "conntrack is inactive in this network namespace")
	require.ErrorIs(t, err, os.ErrNotExist)

	_, err = recorded(t, "1\n", "0\n").Threshold(t.Context(), nil)
	require.ErrorContains(t, err, "nf_conntrack_max is 0")
	_, err = recorded(t, "many\n", "100\n").Threshold(t.Context(), nil)
	require.ErrorContains(t, err, "nf_conntrack_count: ")
}

func TestOnRunningKernel(t *testing.T) {
	c := conntrack{procfs: "/proc", full: 0.8}
	said, err := c.Threshold(t.Context(), nil)
	if _, none := os.Stat("/proc/sys/net/netfilter/nf_conntrack_max"); none != nil {
		require.ErrorContains(t, err, "no connections are tracked")
		return
	}
	require.NoError(t, err)
	assert.GreaterOrEqual(t, said.Observed, 0.0)
	assert.Less(t, said.Observed, 1.5) // the kernel may go a little above
}

// recorded is the plugin on the two files of a host.
func recorded(t *testing.T, count, limit string) *conntrack {
	t.Helper()
	c := &conntrack{procfs: t.TempDir(), full: 0.8}
	require.NoError(t, os.MkdirAll(filepath.Join(c.procfs, "sys/net/netfilter"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(c.procfs, "sys/net/netfilter/nf_conntrack_max"), []byte(limit), 0o644))
	c.fill(t, count)
	return c
}

func (c *conntrack) fill(t *testing.T, count string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.procfs, "sys/net/netfilter/nf_conntrack_count"), []byte(count), 0o644))
}
