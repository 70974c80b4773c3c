package vm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// inEmptyCache gives the test a cache of its own, and counts the builds of a
// script that writes a line to $RUNS.
func inEmptyCache(t *testing.T) (runs func() int) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "runs")
	t.Setenv("RUNS", file)
	return func() int {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		return strings.Count(string(b), "\n")
	}
}

func TestVMImageBuiltOnce(t *testing.T) {
	runs := inEmptyCache(t)
	script := []byte(`mkdir "$1" && echo run >>"$RUNS" && sleep 0.2 && echo whole >"$1/root.ext4"`)
	var wanting sync.WaitGroup
	for range 4 {
		wanting.Go(func() {
			i, err := cachedImage(t.Context(), script)
			if !assert.NoError(t, err) {
				return
			}
			b, err := os.ReadFile(i.file("root.ext4"))
			assert.NoError(t, err)
			assert.Equal(t, "whole\n", string(b))
		})
	}
	wanting.Wait()
	assert.Equal(t, 1, runs())

	_, err := cachedImage(t.Context(), append(script, '\n'))
	require.NoError(t, err)
	assert.Equal(t, 2, runs(), "another script makes another image")
}

func TestVMImageBuildFails(t *testing.T) {
	runs := inEmptyCache(t)
	script := []byte(`mkdir "$1" && echo run >>"$RUNS" && [ "$(wc -l <"$RUNS")" = 2 ]`)
	_, err := cachedImage(t.Context(), script)
	require.ErrorContains(t, err, "build")
	i, err := cachedImage(t.Context(), script)
	require.NoError(t, err, "the next one builds it, over what is left of the first")
	assert.DirExists(t, string(i))
	assert.Equal(t, 2, runs())
}

func TestVMImageBuildCancelled(t *testing.T) {
	inEmptyCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var child string
	go func() {
		defer cancel()
		deadline.Eventually(t, func() bool {
			b, _ := os.ReadFile(os.Getenv("RUNS"))
			child = strings.TrimSpace(string(b))
			return strings.HasSuffix(string(b), "\n")
		}, 10*time.Second, 10*time.Millisecond)
	}()
	_, err := cachedImage(ctx, []byte(`sleep 60 & echo $! >"$RUNS"; wait`))
	require.Error(t, err)
	deadline.Eventually(t, func() bool {
		state, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	}, 10*time.Second, 10*time.Millisecond, "process %s outlives the build", child)
}
