package main

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPauseUntilSignal(t *testing.T) {
	if os.Getenv("PAUSE") != "" {
		main()
		return
	}
	for _, told := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "PAUSE=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "waiting\n", line)
		require.NoError(t, cmd.Process.Signal(told))
		assert.NoError(t, cmd.Wait(), "told %s, it ends, and well", told)
	}
}
