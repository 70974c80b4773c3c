package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// treeOf writes files below a new directory.
func treeOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return root
}

func TestMembers(t *testing.T) {
	v2 := treeOf(t, map[string]string{
		"cgroup.controllers": "memory", "cgroup.procs": "1\n",
		"pod/cgroup.procs": "", "pod/a/cgroup.procs": "12\n7\n", "pod/b/c/cgroup.procs": "9\n0\n0\n7\n", "other/cgroup.procs": "99\n", "broken/cgroup.procs": "x\n4\n",
	})
	members := func(root, cgroup string) ([]int, int, error) { return Members(t.Context(), "/proc", root, cgroup) }
	t.Run("those of all cgroups below, each once", func(t *testing.T) {
		pids, foreign, err := members(v2, "/pod")
		require.NoError(t, err)
		assert.Equal(t, []int{7, 9, 12}, pids)
		assert.Equal(t, 2, foreign, "of another PID namespace")
	})
	t.Run("a cgroup that was removed has none", func(t *testing.T) {
		pids, foreign, err := members(v2, "/gone")
		require.NoError(t, err)
		assert.Empty(t, pids)
		assert.Zero(t, foreign)
	})
	t.Run("what is no number is told, the others are read", func(t *testing.T) {
		pids, _, err := members(v2, "/broken")
		require.ErrorContains(t, err, "cgroup.procs")
		assert.Equal(t, []int{4}, pids)
	})
	t.Run("of v1 the first hierarchy with any", func(t *testing.T) {
		v1 := treeOf(t, map[string]string{"memory/cgroup.procs": "", "blkio/cgroup.procs": "", "memory/a/cgroup.procs": "", "blkio/a/cgroup.procs": "5\n"})
		pids, _, err := members(v1, "/a")
		require.NoError(t, err)
		assert.Equal(t, []int{5}, pids)
	})
	t.Run("a tree of any size is bounded, and that is told", func(t *testing.T) {
		files := map[string]string{"cgroup.controllers": "", "cgroup.procs": ""}
		for i := range 2 * maxMemberDirs {
			files["pod/"+strings.Repeat("x", 1+i%200)+string(rune('a'+i/200))+"/cgroup.procs"] = "5\n"
		}
		_, _, err := members(treeOf(t, files), "/pod")
		require.ErrorContains(t, err, "more than 256 cgroups")
	})
	t.Run("a long list is cut at a line", func(t *testing.T) {
		root := treeOf(t, map[string]string{"cgroup.controllers": "", "cgroup.procs": "", "a/cgroup.procs": strings.Repeat("123456\n", maxMemberBytes/7+1000)})
		pids, _, err := members(root, "/a")
		require.ErrorContains(t, err, "is longer than")
		assert.Equal(t, []int{123456}, pids)
	})
	t.Run("it ends with its time", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		pids, _, err := Members(ctx, "/proc", v2, "/pod")
		require.Error(t, err)
		assert.Empty(t, pids)
	})
}
