package main

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func fileOf(t *testing.T, mib int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pages")
	content := make([]byte, mib<<20)
	for i := range content {
		content[i] = 1
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestHogMapsWindow(t *testing.T) {
	pages, err := load{file: fileOf(t, 3), window: 2}.mapFile()
	require.NoError(t, err)
	assert.Len(t, pages, 2<<20)
	var sum atomic.Int64
	go wander(pages, &sum) // ends with the process, as the hog does
	deadline.Eventually(t, func() bool { return sum.Load() > 1000 }, 10*time.Second, time.Millisecond)
}

func TestHogFileTooSmall(t *testing.T) {
	_, err := load{file: fileOf(t, 1), window: 2}.mapFile()
	require.ErrorContains(t, err, "smaller than 2 MiB")
	_, err = load{file: filepath.Join(t.TempDir(), "none"), window: 2}.mapFile()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestHogFillStops(t *testing.T) {
	taken, err := load{fill: 8, available: 0, numa: -1}.occupy()
	require.NoError(t, err)
	assert.Equal(t, 8, taken)

	left, err := availableMiB(-1)
	require.NoError(t, err)
	taken, err = load{fill: 8, available: 2 * left, numa: -1}.occupy()
	require.NoError(t, err)
	assert.Zero(t, taken, "less than twice of what is left is left already")
}

func TestHogFillStopsOnNUMANode(t *testing.T) {
	left, err := availableMiB(0)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("a kernel without NUMA nodes")
	}
	require.NoError(t, err)
	taken, err := load{fill: 8, available: 2 * left, numa: 0}.occupy()
	require.NoError(t, err)
	assert.Zero(t, taken)
	taken, err = load{fill: 8, numa: 0}.occupy()
	require.NoError(t, err)
	assert.Equal(t, 8, taken)
}

func TestHogLeakPace(t *testing.T) {
	start := time.Now()
	filled, err := load{fill: 4, pace: 20, numa: -1}.occupy()
	require.NoError(t, err)
	assert.Equal(t, 4, filled)
	assert.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond, "the fourth comes after three twentieths of a second")
}
