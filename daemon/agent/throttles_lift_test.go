package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/state"
)

func TestMoverLimitsRemovedByRelease(t *testing.T) {
	h := newThrottleFixture(t)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "cgroup.controllers"), []byte("cpu io memory\n"), 0o644))
	c := h.config
	c.State.Dir, c.Paths.Cgroupfs = h.state, h.dir
	var out bytes.Buffer
	release := func() error { return RemoveLimits(&c, &out, slog.New(slog.DiscardHandler)) }
	require.NoError(t, release())
	assert.Empty(t, out.String(), "nothing was slowed down")

	h.round(1, plugins.None)
	h.round(1, plugins.Hard)
	require.NotEmpty(t, h.throttles.journal.Limits)
	require.NoError(t, release())
	assert.Contains(t, out.String(), moverPod+" read 8:0: limit removed\n")
	assert.Equal(t, "8:0 wbps=max", h.read(), "the last of two writes, which the kernel merges")
	kept, err := state.File[savedThrottles]{Path: filepath.Join(h.state, "throttles.json")}.Load()
	require.NoError(t, err)
	assert.Empty(t, kept.Limits)
	out.Reset()
	require.NoError(t, release())
	assert.Empty(t, out.String(), "once")

	h.round(2, plugins.Hard)
	file := state.File[savedThrottles]{Path: filepath.Join(h.state, "throttles.json"), UntilBoot: true}
	saved, err := file.Load()
	require.NoError(t, err)
	require.NotEmpty(t, saved.Limits)
	saved.Boot = "of an earlier boot"
	require.NoError(t, file.Save(saved))
	require.NoError(t, release())
	assert.Empty(t, out.String(), "they ended with that boot")

	require.NoError(t, os.WriteFile(filepath.Join(h.state, "throttles.json"), []byte("{"), 0o600))
	require.ErrorContains(t, release(), "cannot read the limits of throttled pods, which stay until their pods end")
}
