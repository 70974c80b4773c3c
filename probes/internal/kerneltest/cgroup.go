package kerneltest

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// Cgroup makes a cgroup of a new name, and those of the path below in it (empty:
// none), in each of the directories of hierarchies. It removes them at the end
// and returns the path.
func Cgroup(t testing.TB, dirs []string, below string) string {
	t.Helper()
	top := "/plimsoll-test-" + strings.ToLower(rand.Text())
	for _, dir := range dirs {
		t.Cleanup(func() { RemoveCgroups(t, dir+top) })
		require.NoError(t, os.MkdirAll(dir+top+below, 0o755))
	}
	return top + below
}

// RemoveCgroups removes the directory of a cgroup and those below: the deepest
// first, and again while the kernel still lets go of the processes that were
// there.
func RemoveCgroups(t testing.TB, top string) {
	t.Helper()
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	deadline.Eventually(t, func() bool {
		for _, d := range dirs {
			_ = os.Remove(d)
		}
		_, err := os.Stat(top)
		return errors.Is(err, os.ErrNotExist)
	}, Patience, 10*time.Millisecond, "remove %s", top)
}
