package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

func TestPluginsTable(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	list := web.Plugins{Plugins: []web.Plugin{
		{Name: "memory-stall", Kind: "inner", Up: true, Scope: "node", Condition: "plimsoll.dev/MemoryContention"},
		{Name: "vendor", Kind: "outer", Up: true, Scope: "NUMA 0", Level: plugins.Hard, Condition: "plimsoll.dev/MemoryPressure", Outer: &outer.Status{
			Name: "vendor", Since: now.Add(-time.Minute), LastCall: now.Add(-4 * time.Second), TookSeconds: 0.0125, Breaker: "closed",
		}},
		{Kind: "outer", Absent: "connect: \x1b[2Jrefused", Outer: &outer.Status{Socket: "/run/p.sock"}},
	}, Rivals: []outer.Rival{{Dir: "/p", PID: 812, Command: "katalyst-agent", Cgroup: "/system.slice/katalyst.service"}}, Beside: "report"}
	var b strings.Builder
	require.NoError(t, writePlugins(&b, list, now))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 5)
	assert.Equal(t, "vendor outer yes NUMA 0 hard plimsoll.dev/MemoryPressure 1m0s 4s ago (0.013 s) closed -", strings.Join(strings.Fields(lines[2]), " "))
	assert.Contains(t, lines[3], "/run/p.sock")
	assert.Contains(t, lines[3], "no")
	assert.NotContains(t, b.String(), "\x1b", "what others write commands no terminal")
	assert.Equal(t, "process 812 (katalyst-agent, cgroup /system.slice/katalyst.service) watches the plugin directory /p. Its plugins: report (plugins.beside).", lines[4])
}

func TestPluginsOldSample(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writePlugins(&b, web.Plugins{AgeSeconds: 90, Stale: true}, time.Now()))
	assert.True(t, strings.HasPrefix(b.String(), "No new values for 1 min 30 s: the agent answers, but takes no new sample\nNAME "), b.String())
}
