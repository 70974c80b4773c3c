package outer

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fill fills a directory as a user may who owns it.
func fill(t *testing.T, dir string) {
	t.Helper()
	for i := range 10_000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("file-", i)), nil, 0o600))
	}
	for i := range 500 {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint("dir-", i), "below"), 0o700))
	}
}

func TestDiscoverFullDirectory(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	var log bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	require.NoError(t, os.MkdirAll(w.path("vendor/deep"), 0o755))
	require.NoError(t, os.MkdirAll(w.path("a"), 0o755))
	fill(t, w.path("a"))
	newFake("p").serve(t, w.path("vendor/deep/p.sock"))
	f := discover(w.config.Dirs)
	assert.Contains(t, f.sockets, w.path("vendor/deep/p.sock"))
	assert.Equal(t, w.path("a"), f.incompleteDir)
	assert.Less(t, f.entries, maxEntries+batch)
	assert.LessOrEqual(t, len(f.dirs), maxDirs)
	w.run().waitFor("p")
	w.lookAgain()
	w.end()
	require.NoError(t, <-w.ended)
	w.ended <- nil
	assert.Equal(t, 1, strings.Count(log.String(), "exceed the scan limits"), log.String())
}

func TestDiscoverManyDirectories(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	for i := range 2 * maxDirs {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", fmt.Sprint(i)), 0o700))
	}
	deep := filepath.Join(dir, "1/2/3/4/5")
	require.NoError(t, os.MkdirAll(filepath.Join(deep, "6"), 0o700))
	f := discover([]string{dir})
	assert.Len(t, f.dirs, maxDirs)
	assert.NotEmpty(t, f.incompleteDir)
	assert.Contains(t, f.dirs, deep)
	assert.NotContains(t, f.dirs, filepath.Join(deep, "6"))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "a")))
	f = discover([]string{dir})
	assert.Empty(t, f.incompleteDir, "all was seen")
	assert.Equal(t, 6, f.entries)
}

func TestDiscoverManySockets(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	require.NoError(t, os.MkdirAll(w.path("a"), 0o755))
	require.NoError(t, os.MkdirAll(w.path("vendor"), 0o755))
	dead := newFake("dead")
	dead.serve(t, w.path("a/0.sock"))
	dead.kill()
	for i := range 2 * maxSockets {
		require.NoError(t, os.Link(w.path("a/0.sock"), w.path(fmt.Sprint("a/", i+1, ".sock"))))
	}
	f := discover(w.config.Dirs)
	assert.Less(t, len(f.sockets), maxSockets+batch)
	assert.Equal(t, w.path("a"), f.incompleteDir)
	newFake("p").serve(t, w.path("vendor/p.sock"))
	w.run().waitFor("p")
}
