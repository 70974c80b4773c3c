package cluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAbandonedDirectories(t *testing.T) {
	root := t.TempDir()
	made := func(name string, age time.Duration) string {
		dir := filepath.Join(root, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-age)))
		return dir
	}
	left, inUse := made("x-left", time.Hour), made("x-used", time.Hour)
	made("x-new", 0) // its owner may be about to claim it
	made("y", time.Hour)
	held, err := claim(inUse)
	require.NoError(t, err)
	_, err = claim(inUse)
	require.ErrorContains(t, err, "is in use")
	assert.Equal(t, []string{left}, abandoned(root+"/x-*"))

	require.NoError(t, held.Close())
	assert.Equal(t, []string{left, inUse}, abandoned(root+"/x-*"))
}

func TestClusterStartRemovesLeftovers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := filepath.Join(os.TempDir(), "plimsoll-cluster-1") //nolint:usetesting // where it looks
	require.NoError(t, os.MkdirAll(filepath.Join(left, "etcd"), 0o755))
	require.NoError(t, os.Chtimes(left, time.Time{}, time.Now().Add(-time.Hour)))
	c, err := prepare(t.Context(), Options{})
	require.NoError(t, err)
	assert.NoDirExists(t, left)
	assert.DirExists(t, c.dir)
	assert.Len(t, c.Processes(), 4)
	require.NoError(t, c.Close(), "what was never started")
	assert.NoDirExists(t, c.dir)
}
