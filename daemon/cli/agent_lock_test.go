package cli

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/agent"
	"github.com/plimsoll-dev/plimsoll/state"
)

func TestAgentStateLockRefusesSecond(t *testing.T) {
	dir := t.TempDir()
	other, err := state.Acquire(dir, time.Now(), state.BySystemd)
	require.NoError(t, err)
	f := agentFlags{standalone: true, state: dir, socket: filepath.Join(t.TempDir(), "s"), addresses: []string{"127.0.0.1:0"}}
	err = f.run(t.Context(), io.Discard, io.Discard)
	require.ErrorIs(t, err, agent.ErrOtherAgent)
	require.ErrorContains(t, err, "in use by another agent (pid ")
	require.ErrorContains(t, err, "started by systemd")

	other.Release()
	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, f.run(ended, io.Discard, io.Discard))
	_, locked, err := state.Peek(dir)
	require.NoError(t, err)
	assert.False(t, locked, "it is freed at the end")
}
