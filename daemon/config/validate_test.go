package config

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

func TestTheDefaultsAreWhatIsDocumentedAndGood(t *testing.T) {
	a := Default()
	require.Empty(t, a.Validate())
	assert.Equal(t, 1*time.Second, a.Tick)
	assert.Equal(t, 60*time.Second, a.Watchdog)
	assert.Equal(t, []string{"127.0.0.1:9773"}, a.Web.ListenAddresses)
	assert.False(t, a.Web.Open)
	assert.Equal(t, plugins.StallRule{StallFull: 0.10, Over: 30 * time.Second, Available: 0.10}, a.Plugins.MemoryStall.Soft)
	assert.Equal(t, plugins.StallRule{StallFull: 0.25, Over: 5 * time.Second, Available: 0.04}, a.Plugins.MemoryStall.Hard)

	a.Web.ListenAddresses[0] = "changed"
	assert.Equal(t, []string{"127.0.0.1:9773"}, Default().Web.ListenAddresses, "each caller has its own")
}

func TestValuesThatContradictEachOtherAreRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*Agent)
		keys   []string
		why    string
	}{
		"tick too short": {
			func(a *Agent) { a.Tick = 99 * time.Millisecond },
			[]string{"tick"},
			"99ms is not between 100ms and 1m",
		},
		"tick of nothing": {
			func(a *Agent) { a.Tick = 0 },
			[]string{"tick"},
			"0s is not between 100ms and 1m",
		},
		"window shorter than two ticks": {
			func(a *Agent) { a.Window = 1999 * time.Millisecond },
			[]string{"window", "tick"},
			"window (1.999s) must be at least 2 × tick (1s)",
		},
		"watchdog shorter than ten ticks": {
			func(a *Agent) { a.Watchdog = 9999 * time.Millisecond },
			[]string{"watchdog", "tick"},
			"watchdog (9.999s) must be at least 10 × tick (1s)",
		},
		"rounds too often": {
			func(a *Agent) { a.Tick, a.Eviction.Round = 100*time.Millisecond, 999*time.Millisecond },
			[]string{"eviction.round"},
			"999ms is not between 1s and 24h",
		},
		"rounds more often than ticks": {
			func(a *Agent) { a.Tick, a.Eviction.Round = 2*time.Second, time.Second },
			[]string{"eviction.round", "tick"},
			"eviction.round (1s) must be at least tick (2s)",
		},
		"history shorter than the rules look back": {
			func(a *Agent) { a.History = 39 * time.Second },
			[]string{"history", "plugins.memoryStall.soft.over", "window"},
			"history (39s) must reach back over plugins.memoryStall.soft.over (30s) and window (10s) together",
		},
		"a rule looks back further than history": {
			func(a *Agent) { a.Plugins.MemoryStall.Hard.Over = 111 * time.Second },
			[]string{"history", "plugins.memoryStall.hard.over", "window"},
			"history (2m) must reach back over plugins.memoryStall.hard.over (1m51s) and window (10s) together",
		},
		"history that fills the memory": {
			func(a *Agent) { a.Tick, a.History = 100*time.Millisecond, time.Hour },
			[]string{"history", "tick"},
			"history (1h) must not hold more than 7200 ticks (100ms)",
		},
		"a rule shorter than a tick": {
			func(a *Agent) { a.Plugins.MemoryStall.Hard.Over = 0 },
			[]string{"plugins.memoryStall.hard.over", "tick"},
			"plugins.memoryStall.hard.over (0s) must be at least tick (1s)",
		},
		"negative warm-up": {
			func(a *Agent) { a.Plugins.WarmUp = -time.Second },
			[]string{"plugins.warmUp"},
			"-1s is not between 0s and 24h",
		},
		"longer to be over than history reaches": {
			func(a *Agent) { a.Plugins.MemoryStall.Cleared = 2 * time.Minute },
			[]string{"history", "plugins.memoryStall.cleared", "window"},
			"history (2m) must reach back over plugins.memoryStall.cleared (2m) and window (10s) together",
		},
		"a rule over at once": {
			func(a *Agent) { a.Plugins.MemoryStall.Cleared = 0 },
			[]string{"plugins.memoryStall.cleared", "tick"},
			"plugins.memoryStall.cleared (0s) must be at least tick (1s)",
		},
		"always met": {
			func(a *Agent) { a.Plugins.MemoryStall.Soft.StallFull = 0 },
			[]string{"plugins.memoryStall.soft.stallFull"},
			"0 would always be met: turn the rule off by enabled: false",
		},
		"hard easier by stall": {
			func(a *Agent) { a.Plugins.MemoryStall.Hard.StallFull = 0.09 },
			[]string{"plugins.memoryStall.hard.stallFull", "plugins.memoryStall.soft.stallFull"},
			"hard must not be easier to reach than soft: stallFull 0.09 is less than 0.1",
		},
		"hard easier by available memory": {
			func(a *Agent) { a.Plugins.MemoryStall.Hard.Available = 0.11 },
			[]string{"plugins.memoryStall.hard.available", "plugins.memoryStall.soft.available"},
			"hard must not be easier to reach than soft: available 0.11 is more than 0.1",
		},
		"floors beyond any memory": {
			func(a *Agent) { a.Plugins.MemoryStall.KubeletEvictionHard = math.MaxUint64 },
			[]string{"plugins.memoryStall.kubeletEvictionHard"},
			"more than 1Pi of memory",
		},
		"recording too small": {
			func(a *Agent) { a.Recording.MaxSize = 1<<20 - 1 },
			[]string{"recording.maxSize"},
			"1048575 is less than 1Mi: too small to hold a recording",
		},
		"level": {
			func(a *Agent) { a.Log.Level = "" },
			[]string{"log.level"},
			`want one of debug, info, warn, error, got ""`,
		},
		"format": {
			func(a *Agent) { a.Log.Format = "xml" },
			[]string{"log.format"},
			`want one of text, json, got "xml"`,
		},
		"second address": {
			func(a *Agent) { a.Web.ListenAddresses = []string{":0", "localhost"} },
			[]string{"web.listenAddresses[1]"},
			`want host:port (IPv6 as [::1]:9773), got "localhost"`,
		},
		"second root": {
			func(a *Agent) { a.Workloads.Roots = []string{"/", "kubepods"} },
			[]string{"workloads.roots[1]"},
			`want an absolute path without .., // or a slash at its end, got "kubepods"`,
		},
		"socket path too long": {
			func(a *Agent) { a.API.Socket = "/" + strings.Repeat("x", 107) },
			[]string{"api.socket"},
			"longer than the 107 bytes a Unix socket's path can have",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent := Default()
			tt.change(&agent)
			assert.Equal(t, []Problem{{Keys: tt.keys, Why: tt.why}}, agent.Validate())
		})
	}
}

func TestValuesAtTheirBoundsAreGood(t *testing.T) {
	a := Default()
	a.Tick, a.Window, a.Watchdog, a.Eviction.Round = 2*time.Second, 4*time.Second, 20*time.Second, 2*time.Second
	a.History = 34 * time.Second
	a.Plugins.MemoryStall.Hard = a.Plugins.MemoryStall.Soft
	a.Plugins.MemoryStall.KubeletEvictionHard = 1 << 50
	a.Plugins.WarmUp, a.Plugins.MemoryStall.Cleared = 0, 2*time.Second
	a.Recording.MaxSize = 1 << 20
	a.API.Socket = "/" + strings.Repeat("x", 106)
	assert.Empty(t, a.Validate())
}

func TestPeriodsNearTheEndOfTimeDoNotWrapAround(t *testing.T) {
	a := Default()
	a.Tick = math.MaxInt64
	var keys []string
	for _, p := range a.Validate() {
		keys = append(keys, p.Keys[0])
	}
	assert.Subset(t, keys, []string{"tick", "window", "watchdog", "eviction.round"})
}

func TestAnAddressIsAHostAndAPort(t *testing.T) {
	for _, good := range []string{":0", ":9773", "127.0.0.1:9773", "[::1]:65535", "localhost:1", "[fe80::1%eth0]:1"} {
		assert.Empty(t, wrongAddress(good), good)
	}
	for _, bad := range []string{"", "9773", "localhost", "::1:9773", "a:b", ":65536", ":-1", ":+1", ":", ":http", "http://a:1", "a b:1", "[::1]"} {
		assert.NotEmpty(t, wrongAddress(bad), bad)
	}
}

func TestAPlaceIsAnAbsoluteCleanPath(t *testing.T) {
	for _, bad := range []string{"proc", "/proc/", "//proc", "/a/../proc", "/a/.", "."} {
		a := Default()
		a.Paths = Paths{bad, bad, bad}
		a.API.Socket, a.Recording.File, a.Workloads.Roots = bad, bad, []string{bad}
		var keys []string
		for _, p := range a.Validate() {
			keys = append(keys, p.Keys...)
		}
		assert.Equal(t, []string{
			"paths.procfs", "paths.sysfs", "paths.cgroupfs", "api.socket", "workloads.roots[0]", "recording.file",
		}, keys, bad)
	}
	a := Default()
	a.Paths = Paths{}
	assert.Len(t, a.Validate(), 2, "procfs and sysfs are not searched for")
}
