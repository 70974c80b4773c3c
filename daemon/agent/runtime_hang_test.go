package agent

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// A container runtime that takes connections and never answers stops no tick, and the
// rule that needs it says so.
func TestRuntimeHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "r")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	_, a := runAgent(t, "workloads: {roots: [/plimsoll-none]}\npaths: {rootfs: /}\ntick: 100ms\nhistory: 1m\n"+
		"containerRuntime: {socket: "+socket+", every: 1s, timeout: 1s}\nplugins: {rootfsOveruse: {enabled: true}}\n")
	verdict := func() (v plugins.Verdict) {
		s := a.state.Load()
		if s == nil {
			return v
		}
		i := slices.IndexFunc(s.Levels.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == "rootfs-overuse" })
		require.GreaterOrEqual(t, i, 0)
		return s.Levels.Verdicts[i]
	}
	const why = "what the container runtime reports is too old: "
	deadline.Eventually(t, func() bool { return verdict().Absent == why+"the container runtime has not answered yet" }, 10*time.Second, 10*time.Millisecond, "nothing is known yet")
	deadline.Eventually(t, func() bool {
		return strings.HasPrefix(verdict().Absent, why+socket+": ListContainerStats: DeadlineExceeded: ")
	}, 20*time.Second, 10*time.Millisecond, "it says that the runtime hangs")
	at := a.state.Load().Snapshot.Sequence
	deadline.Eventually(t, func() bool { return a.state.Load().Snapshot.Sequence >= at+20 }, 10*time.Second, 10*time.Millisecond, "the agent ticks")
	assert.Equal(t, plugins.None, verdict().Level)
}
