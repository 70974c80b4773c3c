package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// The agent dies before each of its first rounds: what the one before it left ends all the same,
// once that has expired, and where it cannot begin at all.
func TestLimitsExpireWithoutRound(t *testing.T) {
	for _, set := range []time.Duration{0, time.Hour} { // of the clock, while no agent runs
		h := newThrottleFixture(t)
		h.round(0, plugins.Hard)
		limit := h.read()
		h.start()
		h.throttles.expire(h.now.Add(set+throttle.Lifetime-time.Second), booted.Add(set))
		assert.Equal(t, limit, h.read())
		assert.NotEmpty(t, *h.throttles.cgroups.Load())
		h.throttles.expire(h.now.Add(set+throttle.Lifetime), booted.Add(set))
		assert.Equal(t, free, h.read())
		assert.Empty(t, *h.throttles.cgroups.Load())
		assert.Contains(t, h.log.String(), "removed limits of throttled pods, which an earlier agent left and did not renew")
		h.start()
		assert.Empty(t, h.throttles.journal.Limits)
	}
	h := newThrottleFixture(t)
	h.round(0, plugins.Hard)
	clear(h.throttles.list)
	file, _ := configured(t, "api: {socket: /dev/null/s}\n")
	a := &Agent{Config: file, Log: slog.New(slog.DiscardHandler), throttles: h.throttles, past: newHistory(t.TempDir())}
	require.Error(t, a.Open(t.Context()))
	assert.Equal(t, free, h.read())
}

// Another program has changed one of two limits: it is left as it is, and said to be.
func TestLimitsOfOthersLeftByRelease(t *testing.T) {
	h := newThrottleFixture(t)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "cgroup.controllers"), []byte("cpu io memory\n"), 0o644))
	h.round(0, plugins.Soft)
	h.write(strings.Replace(h.read(), "rbps=838860800", "rbps=1000", 1))
	c := h.config
	c.State.Dir, c.Paths.Cgroupfs = h.state, h.dir
	var out bytes.Buffer
	require.NoError(t, RemoveLimits(&c, &out, slog.New(slog.DiscardHandler)))
	assert.Equal(t, moverPod+" write 8:0: limit removed, which an agent that no longer runs had left\n"+moverPod+" read 8:0: left: another program changed it\n", out.String())
	assert.Equal(t, "8:0 wbps=max", h.read(), "which the kernel merges")
}

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
	assert.Contains(t, out.String(), moverPod+" read 8:0: limit removed, which an agent that no longer runs had left\n")
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

// While the disk does not tell what an earlier agent has limited, none of it is removed, and an
// agent that ends says so. Standalone it is removed once the disk answers.
func TestLimitsUnread(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	kept := h.throttles.saved
	late := h.startsUnread()
	a := &Agent{throttles: h.throttles, Log: slog.New(slog.NewTextHandler(&h.log, nil))}
	a.Config, _ = configured(t, "kubernetes: {standalone: true}\nstate: {dir: "+h.state+"}\n")
	a.state.Store(h.seen(plugins.None, false))
	a.throttle(true)
	h.throttles.expire(h.now.Add(throttle.Lifetime), booted)
	a.endThrottles()
	assert.Equal(t, fourOf, h.read())
	assert.Contains(t, h.log.String(), "the disk of the state directory hangs; the next agent removes them")
	assert.Contains(t, h.log.String(), "plimsoll release --config FILE")
	saved, err := h.throttles.file.Load()
	require.NoError(t, err)
	assert.NotEmpty(t, saved.Limits)

	late <- state.Answer[savedThrottles]{Value: kept}
	a.throttlingEnded = false
	a.throttle(true)
	assert.Equal(t, free, h.read())
	h.log.Reset()
	a.endThrottles()
	assert.Empty(t, h.log.String())
}

// They expire while the disk hangs.
func TestLimitsExpiredUnread(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	kept := h.throttles.saved
	h.startsUnread() <- state.Answer[savedThrottles]{Value: kept}
	h.throttles.expire(h.now.Add(throttle.Lifetime), booted)
	assert.Equal(t, free, h.read())
}
