package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// triggers as the API says them.
type triggers struct {
	Armed             int
	WindowSeconds     float64
	FiredTotal        map[string]uint64
	SamplesWokenTotal uint64
}

// triggers as of the last sample.
func (a *agent) triggers() triggers {
	a.t.Helper()
	var p struct {
		Agent struct{ Triggers triggers }
	}
	require.NoError(a.t, json.Unmarshal([]byte(a.mustGet("/api/v1/pressure")), &p))
	return p.Agent.Triggers
}

// A minute lies between two ticks here: whatever is sampled after the start and
// before the first of them was woken by the kernel.
const minuteTicks = "tick: 1m\nwindow: 2m\nhistory: 4m\nwatchdog: 10m\neviction: {round: 1m}\n" +
	"plugins: {memoryStall: {soft: {window: 1m}, hard: {window: 1m}, clearFor: 1m}, diskContention: {clearFor: 1m}, cpuContention: {clearFor: 1m}, networkContention: {enabled: false}, filesystem: {enabled: false}}\n"

func TestTriggerSamplesCgroupStallEarly(t *testing.T) {
	if !exists("/proc/pressure/memory") {
		t.Skip("no PSI")
	}
	const limit, file = 48 << 20, 160 << 20
	path, dirs := limitedCgroup(t, limit)
	a := startAgent(t, "--config", configFile(t, minuteTicks+"workloads: {roots: ["+path+"]}\n")).ticked(1)
	require.Equal(t, 4, a.triggers().Armed, "memory and io, of the host and of the cgroup")
	began := time.Now()
	startThrash(t, file, dirs)
	var s snapshot.Snapshot
	var now triggers
	within(t, 50*time.Second, "the stall is sampled", func() error {
		s, now = a.snapshot(), a.triggers()
		if memoryStallOf(&s, path) == 0 || now.FiredTotal["memory"] == 0 || a.snapshot().Sequence != s.Sequence {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	if time.Since(began) < 50*time.Second {
		assert.Equal(t, s.Sequence-1, now.SamplesWokenTotal, "no tick has come yet")
	}
	t.Logf("load started → its stall sampled: %s", s.Time.Sub(began).Round(time.Millisecond))
	assert.Contains(t, a.stderr.String(), path, "the log says where triggers are armed")
	assert.Contains(t, a.mustGet("/metrics"), `plimsoll_pressure_triggers_fired_total{resource="memory"}`)
	assert.Zero(t, a.end(syscall.SIGTERM))
}

// memoryStallOf a cgroup is the share of the window in which all of it stalled.
func memoryStallOf(s *snapshot.Snapshot, cgroup string) float64 {
	for _, w := range s.Workloads {
		if r, ok := w.Rates.Get(); ok && w.Cgroup == cgroup {
			full, _ := r.Pressure.Memory.Full.Get()
			return full
		}
	}
	return 0
}

// The goal is 2 s from the first stall to the level, by polling alone; here
// that is doubled, for the machine does other things as well.
func TestPollingSeesPressureInTwoSeconds(t *testing.T) {
	const bound = 2 * 2 * time.Second
	w := newWeather(t)
	a := startAgent(t, "--path.procfs", w.dir, "--config", configFile(t, "triggers: {enabled: false}\n"+
		"plugins: {warmUp: 0s, memoryStall: {hard: {window: 1s}, clearFor: 1s}}\n")).ticked(3)
	require.Zero(t, a.triggers().Armed)
	is := func(level string) func() error {
		return func() error {
			if got := a.pressure().Levels["memory"]; got != level {
				return errors.New(got)
			}
			return nil
		}
	}
	for i := range 5 {
		<-time.After(time.Duration(i) * 200 * time.Millisecond) // none came with a tick: each onset is at another time after one
		w.pressing.Store(true)
		clock := deadline.Start()
		took := within(t, patience, "the level is hard", is("hard"))
		t.Logf("pressure onset → level seen: %s", took.Round(10*time.Millisecond))
		assert.Less(t, took, clock.Stretch(bound))
		w.pressing.Store(false)
		eventually(t, "the level is none", is("none"))
	}
	assert.Zero(t, a.triggers().SamplesWokenTotal)
}

// Where the kernel's files are not the kernel's, nothing can wake the agent: it
// says so once, and polls.
func TestTriggersAbsentAgentPolls(t *testing.T) {
	proc := filepath.Join(t.TempDir(), "proc")
	copyProc(t, proc)
	before, err := os.ReadFile(filepath.Join(proc, "pressure/memory"))
	require.NoError(t, err)
	a := startAgent(t, "--path.procfs", proc).ticked(3)
	var said []string
	for line := range strings.Lines(a.stderr.String()) {
		if strings.Contains(line, "PSI trigger") {
			said = append(said, line)
		}
	}
	require.Len(t, said, 1, a.stderr.String())
	assert.Contains(t, said[0], "host io, host memory: the pressure file is not on procfs or cgroup2")
	assert.Contains(t, a.stdout.String(), "no PSI trigger")
	assert.Contains(t, a.mustGet("/"), "no PSI trigger")
	after, err := os.ReadFile(filepath.Join(proc, "pressure/memory"))
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after), "nothing was written there")
}
