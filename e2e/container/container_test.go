package container_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/container"
)

// The host must be as before, whatever happens in a container.
func TestContainerIsolatedAndRemoved(t *testing.T) {
	mounts := func() string {
		b, err := os.ReadFile("/proc/self/mountinfo")
		require.NoError(t, err)
		return string(b)
	}
	before := mounts()
	t.Run("up", func(t *testing.T) {
		share := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(share, "in"), []byte("from the host"), 0o644))
		c := container.Start(t, container.Options{Share: share})
		out, err := c.Run(t.Context(), "cat /proc/1/comm /share/in; echo from within >/share/out; touch /etc/written; systemd-run -q --wait --pipe cat /proc/self/cgroup")
		require.NoError(t, err)
		assert.Regexp(t, `^systemd\nfrom the host(\d+:\S+\n)*0::/system.slice/`, out)
		said, err := os.ReadFile(filepath.Join(share, "out"))
		require.NoError(t, err)
		assert.Equal(t, "from within\n", string(said))
		assert.NoFileExists(t, "/etc/written")
		assert.Equal(t, before, mounts())

		l, err := c.Listen(t.Context(), "127.0.0.1:7")
		require.NoError(t, err)
		defer l.Close()
		heard := make(chan string, 1)
		go func() {
			in, err := l.Accept()
			if err == nil {
				b, _ := io.ReadAll(in)
				heard <- string(b)
			}
			close(heard)
		}()
		_, err = c.Run(t.Context(), "echo from its network >/dev/tcp/127.0.0.1/7")
		require.NoError(t, err)
		assert.Equal(t, "from its network\n", <-heard)

		out, err = c.Run(t.Context(), "echo half; echo why >&2; exit 3")
		assert.Equal(t, "half\n", out)
		assert.ErrorContains(t, err, "why")
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 3, exit.ExitCode())
		_, err = c.Run(t.Context(), "echo 1 >/proc/sys/kernel/panic")
		assert.ErrorContains(t, err, "Read-only", "the host's settings are not to be changed")
	})
	assert.Equal(t, before, mounts())
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		left, err := filepath.Glob(fmt.Sprintf("%s/plimsoll-container-%d-*", hierarchy, os.Getpid()))
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}
