package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	tick   = time.Second
	window = time.Second
)

// sampled runs a loop at the rhythm of tick, whose samples take as long as
// given, and returns when each began, in ms; a woken one is negative.
func sampled(t *testing.T, runs, takes time.Duration, stall func(wake func())) (began []int64) {
	t.Helper()
	return sampledUntilShort(t, runs, takes, stall, nil)
}

// sampledUntilShort is the same where memory is short from a time on until the next sample;
// nil: it is not looked at.
func sampledUntilShort(t *testing.T, runs, takes time.Duration, stall func(wake func()), isShort func(now time.Duration) bool) (began []int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), runs)
		defer cancel()
		p := pace{woken: make(chan struct{}, 1)}
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		go stall(func() { wake(p.woken) })
		start := time.Now()
		var look func() bool
		if isShort != nil {
			look = func() bool { return isShort(time.Since(start)) }
		}
		for p.next(ctx, ticker.C, window, look) {
			at := time.Since(start).Milliseconds()
			assert.Equal(t, p.short, p.early && !p.woke)
			if p.woke {
				at = -at
			}
			began = append(began, at)
			time.Sleep(takes)
		}
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		woken := uint64(0)
		for _, at := range began {
			if at < 0 {
				woken++
			}
		}
		assert.Equal(t, woken, p.count)
		cancel()
		synctest.Wait()
	})
	return began
}

// at wakes at these milliseconds.
func at(ms ...time.Duration) func(func()) {
	return func(wake func()) {
		for i, m := range ms {
			before := time.Duration(0)
			if i > 0 {
				before = ms[i-1]
			}
			time.Sleep((m - before) * time.Millisecond)
			wake()
		}
	}
}

func TestSampleWokenByTriggerKeepsTicks(t *testing.T) {
	assert.Equal(t, []int64{1000, -1500, 2000, 3000}, sampled(t, 3500*time.Millisecond, 0, at(1500)))
}

func TestSampleMinimumGap(t *testing.T) {
	assert.Equal(t, []int64{1000, -1230, 2000}, sampled(t, 2500*time.Millisecond, 30*time.Millisecond, at(1010)),
		"fired while a sample was taken: looked at again 200 ms after its end")
	assert.Equal(t, []int64{-500, 1000, 2000}, sampled(t, 2950*time.Millisecond, 0, at(500, 700)), "the tick came before and serves it")
}

func TestSampleServesTickRightAfter(t *testing.T) {
	assert.Equal(t, []int64{1000, -1990, 3000}, sampled(t, 3500*time.Millisecond, 0, at(1990)))
	assert.Equal(t, []int64{1000, -1700, 2000, 3000}, sampled(t, 3500*time.Millisecond, 0, at(1700)))
	assert.Equal(t, []int64{1000, -1900, 3000}, sampled(t, 3500*time.Millisecond, 150*time.Millisecond, at(1900)),
		"also when the tick came while it was taken: a tick is no reason to sample without a pause")
}

// Between two ticks, when memory has become short; no sooner than the least gap, and the ticks
// stay.
func TestSampleWhenMemoryIsShort(t *testing.T) {
	for shortAt, want := range map[time.Duration][]int64{
		0:                       {200, 1000, 2000}, // that long after the start
		1050 * time.Millisecond: {1000, 1200, 2000},
		1450 * time.Millisecond: {1000, 1500, 2000}, // when it is looked at next
		1850 * time.Millisecond: {1000, 1900},       // which serves the tick right after it
		3 * time.Second:         {1000, 2000},
	} {
		short := true
		assert.Equal(t, want, sampledUntilShort(t, 2500*time.Millisecond, 0, at(), func(now time.Duration) bool {
			if now < shortAt || !short {
				return false
			}
			short = false
			return true
		}), "%s", shortAt)
	}
}

func TestSampleLongStallOnePerWindow(t *testing.T) {
	began := sampled(t, 60*time.Second, 20*time.Millisecond, func(wake func()) {
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			wake()
		}
	})
	woken, ticks := 0, 0
	for i, at := range began {
		if at < 0 {
			woken++
		} else {
			ticks++
			assert.Zero(t, at%1000, "the ticker keeps its rhythm")
		}
		if i > 0 {
			assert.GreaterOrEqual(t, max(at, -at)-max(began[i-1], -began[i-1]), minSampleGap.Milliseconds())
		}
	}
	assert.InDelta(t, 60, woken, 2)
	assert.InDelta(t, 60, ticks, 2)
}

// A sample that takes longer than a tick is followed by the next at once, as
// without triggers: they change nothing about a node that is that slow.
func TestSampleSlowNeverOverlaps(t *testing.T) {
	began := sampled(t, 10*time.Second, 1300*time.Millisecond, func(wake func()) {
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			wake()
		}
	})
	for i := 1; i < len(began); i++ {
		assert.GreaterOrEqual(t, max(began[i], -began[i])-max(began[i-1], -began[i-1]), int64(1300))
	}
	assert.GreaterOrEqual(t, len(began), 6)
}

// Between two samples it is looked whether memory has become short only where that could be
// before the tick, and where one could be held then.
func TestShortage(t *testing.T) {
	const total = 2048 // MiB, of which 400 must be available
	missing := []plugins.Verdict{{Resource: plugins.Memory, Scope: "node", Target: snapshot.Some(100.0 * (1 << 20))}}
	for name, tt := range map[string]struct {
		samples []uint64 // MiB available, one each second
		change  func(*Agent, *config.Agent)
		now     uint64 // MiB
		looks   bool
		short   bool
	}{
		"it has become short":       {samples: []uint64{1000, 700}, now: 400, looks: true, short: true},
		"some is spare yet":         {samples: []uint64{1000, 700}, now: 401, looks: true},
		"it grows":                  {samples: []uint64{1000, 700}, now: 900, looks: true},
		"it is short, and runs out": {samples: []uint64{1100, 700, 300}, now: 250, looks: true, short: true},
		"it is short, and stays so": {samples: []uint64{300, 300, 300}, now: 100},
		"the one that takes it is held": {samples: []uint64{1100, 700, 300}, change: func(a *Agent, _ *config.Agent) {
			a.throttles.cgroups.Store(&map[string][]snapshot.SharedResource{"/pod": {snapshot.SharedMemory}})
		}},
		"of another only the CPU is limited": {samples: []uint64{1100, 700, 300}, change: func(a *Agent, _ *config.Agent) {
			a.throttles.cgroups.Store(&map[string][]snapshot.SharedResource{"/pod": {snapshot.SharedCPU}})
		}, now: 250, looks: true, short: true},
		"throttles are disabled":                 {samples: []uint64{1000, 700}, change: func(_ *Agent, c *config.Agent) { c.Throttle.Enabled = false }},
		"throttles are a dry run":                {samples: []uint64{1000, 700}, change: func(_ *Agent, c *config.Agent) { c.Throttle.DryRun = true }},
		"the rule of memory is disabled":         {samples: []uint64{1000, 700}, change: func(_ *Agent, c *config.Agent) { c.Plugins.Inner.MemoryStall.Enabled = false }},
		"without a cluster":                      {samples: []uint64{1000, 700}, change: func(a *Agent, _ *config.Agent) { a.cluster = nil }},
		"cgroup v1 has no memory.high":           {samples: []uint64{1000, 700}, change: func(a *Agent, _ *config.Agent) { a.throttles.tree.Memory.V1 = true }},
		"there is more than can be taken before": {samples: []uint64{1000, 700}, change: func(_ *Agent, c *config.Agent) { c.Tick = time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			write("stat", "")
			host, err := probes.NewHost(probes.Paths{Procfs: dir, Sysfs: dir, Cgroupfs: dir}, nil)
			require.NoError(t, err)
			c := config.Default()
			c.Throttle.DryRun = false
			h := snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: time.Minute}
			var s *snapshot.Snapshot
			for i, available := range tt.samples {
				now := time.Duration(1+i) * time.Second
				s = h.Add(&snapshot.Sample{Time: time.Unix(int64(i), 0), Monotonic: now, Boottime: now, Memory: snapshot.Memory{TotalBytes: snapshot.Some[uint64](total << 20), AvailableBytes: snapshot.Some(available << 20)}})
			}
			a := &Agent{config: &c, cluster: &cluster{}, host: host, throttles: &throttles{}}
			a.throttles.cgroups.Store(&map[string][]snapshot.SharedResource{})
			a.state.Store(&view.State{Snapshot: s, Levels: &plugins.Levels{Verdicts: missing}})
			if tt.change != nil {
				tt.change(a, &c)
			}
			isShort := a.shortage()
			require.Equal(t, tt.looks, isShort != nil)
			if tt.looks {
				write("meminfo", fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", total<<10, tt.now<<10))
				assert.Equal(t, tt.short, isShort())
			}
		})
	}
}
