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

// Delegate enables the controllers that a cgroup has for those below it, and in the cgroups
// above it, as a kubelet does: after that a cgroup of v2 takes no process itself. v1 has
// nothing to enable, and v2 beside it not each controller: what a test misses then it says
// itself.
func Delegate(dirs []string, cgroup string) {
	for _, dir := range dirs {
		at := dir
		for step := range strings.SplitSeq(cgroup, "/") {
			at = filepath.Join(at, step)
			for _, controller := range []string{"cpu", "io", "memory"} {
				if f, err := os.OpenFile(filepath.Join(at, "cgroup.subtree_control"), os.O_WRONLY, 0); err == nil {
					_, _ = f.WriteString("+" + controller)
					_ = f.Close()
				}
			}
		}
	}
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
