package e2e_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// A command that waits for the kernel, for another program or for the next tick ends
// at SIGINT as a shell expects it.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"replay", "advise"} {
		t.Run(command+" of a pipe into which nothing is written", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pipe")
			require.NoError(t, unix.Mkfifo(path, 0o600))
			interrupted(t, nil, func(*live.Output) error { // it opens only while it is opened for reading
				f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
				if err == nil {
					t.Cleanup(func() { _ = f.Close() })
				}
				return err
			}, command, path)
		})
	}
	t.Run("config check of a standard input without an end", func(t *testing.T) {
		in, out, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = in.Close(), out.Close() })
		interrupted(t, in, func(*live.Output) error {
			// More than a pipe holds: the rest waits for the command to read.
			_, err := out.Write(make([]byte, 65<<10))
			return err
		}, "config", "check", "-")
	})
	t.Run("top", func(t *testing.T) {
		interrupted(t, nil, func(stdout *live.Output) error {
			if stdout.String() == "" {
				return errors.New("nothing is printed")
			}
			return nil
		}, "top", "--api.socket", filepath.Join(t.TempDir(), "socket"))
	})
}

// interrupted runs a command, sends SIGINT once it is ready, and looks how it ends.
func interrupted(t *testing.T, stdin *os.File, ready func(stdout *live.Output) error, args ...string) {
	t.Helper()
	t.Parallel()
	var stdout, stderr live.Output
	cmd := exec.CommandContext(t.Context(), binary, args...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, "it runs", func() error { return ready(&stdout) })
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-ended: //nolint:errcheck // its status is looked at below
	case <-deadline.After(patience):
		t.Fatal("it did not end")
	}
	assert.Equal(t, 130, cmd.ProcessState.ExitCode(), stderr.String())
	assert.NotContains(t, stderr.String(), "context canceled")
}
