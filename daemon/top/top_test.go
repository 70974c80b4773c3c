package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var update = flag.Bool("update", false, "update the golden frames")

func allScenes() map[string]*view.State {
	return map[string]*view.State{
		"waiting": nil, "first_tick": scenes.FirstTick(), "calm": scenes.Calm(), "memory_hard": scenes.MemoryHard(),
		"own_limit": scenes.OwnLimit(), "absent": scenes.EverythingAbsent(), "hostile": scenes.Hostile(),
		"dry_run": scenes.DryRun(), "evicted": scenes.Evicted(), "deaf": scenes.Disconnected(), "contended": scenes.Contended(),
	}
}

func frameOf(s *view.State, width, height int, color bool) string {
	var b strings.Builder
	Render(&b, s, width, height, color)
	return b.String()
}

func TestTopGoldenFrames(t *testing.T) {
	for name, s := range allScenes() {
		for _, size := range [][2]int{{80, 24}, {120, 40}} {
			got := frameOf(s, size[0], size[1], false)
			file := filepath.Join("testdata", fmt.Sprintf("%s_%dx%d.txt", name, size[0], size[1]))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", file)
		}
	}
}

func TestTopFrameFitsTerminal(t *testing.T) {
	for name, s := range allScenes() {
		for _, size := range [][2]int{{80, 24}, {40, 10}, {12, 5}, {1, 1}, {200, 60}} {
			lines := strings.Split(strings.TrimSuffix(frameOf(s, size[0], size[1], false), "\n"), "\n")
			assert.LessOrEqual(t, len(lines), size[1], "%s %v", name, size)
			for _, l := range lines {
				assert.LessOrEqual(t, utf8.RuneCountInString(l), size[0], "%s %v: %q", name, size, l)
			}
		}
	}
}

func TestTopFrameEssentials(t *testing.T) {
	frame := frameOf(scenes.MemoryHard(), 80, 24, false)
	for _, want := range []string{"node-a", "Memory: hard for 12 s", "evictions disabled", "threshold >= 25.0 %", "candidates:", "pod 8d1c2f6e", "nvme0n1", "containerd.service", "cache.service"} {
		assert.Contains(t, frame, want)
	}
	assert.Contains(t, frameOf(scenes.OwnLimit(), 80, 24, false), "own limit: cache.service")
	assert.Contains(t, frameOf(scenes.Calm(), 80, 24, false), "eth0")
}

func TestTopTallTerminalShowsMore(t *testing.T) {
	s := scenes.Calm()
	for i := range 100 {
		w := s.Snapshot.Workloads[i%5]
		w.Name, w.Cgroup = fmt.Sprintf("more-%03d", i), fmt.Sprintf("/more-%03d", i)
		s.Snapshot.Workloads = append(s.Snapshot.Workloads, w)
	}
	small, tall := strings.Count(frameOf(s, 80, 24, false), "more-"), strings.Count(frameOf(s, 80, 80, false), "more-")
	assert.Positive(t, small)
	assert.Greater(t, tall, 5*small)
	assert.Equal(t, 100, strings.Count(frameOf(s, 120, 1000, false), "more-"), "without a terminal all of it is shown")
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestTopWithoutColours(t *testing.T) {
	for name, s := range allScenes() {
		plain, colored := frameOf(s, 100, 30, false), frameOf(s, 100, 30, true)
		assert.NotContains(t, plain, "\x1b", name)
		assert.Contains(t, colored, "\x1b[", name)
		assert.Equal(t, plain, sgr.ReplaceAllString(colored, ""), name)
	}
}

func TestTopNamesEscaped(t *testing.T) {
	s := scenes.Hostile()
	colored := sgr.ReplaceAllString(frameOf(s, 400, 60, true), "")
	texts := append(Lines(nil, s), strings.Split(colored, "\n")...)
	for _, l := range texts {
		assert.Equal(t, view.Printable(l), l)
	}
	assert.Contains(t, colored, `\x1b]0;owned\x07`)
}

func TestTopUnjudgedIsNotGreen(t *testing.T) {
	frame := frameOf(scenes.EverythingAbsent(), 80, 24, true)
	assert.Contains(t, frame, "No pressure found; not judged: memory, CPU, disk")
	assert.Contains(t, frame, "the kernel was started without psi=1")
	assert.NotContains(t, frame, "\x1b[32m", "nothing is green")
	assert.Contains(t, frameOf(scenes.Calm(), 80, 24, true), "\x1b[32m")
}

// A frame that is printed once, and to no terminal, tells of sampling that hangs.
func TestTopOldSample(t *testing.T) {
	const old = "No new values for 1 min 30 s: the agent answers, but takes no new sample\n"
	for age, want := range map[int]bool{0: false, 5: false, 90: true} {
		lines := strings.SplitAfter(frameOf(agedBy(age), 120, 40, false), "\n")
		assert.Contains(t, lines[0], "No pressure")
		assert.Equal(t, want, lines[1] == old, "%d s: %s", age, lines[1])
	}
	assert.Contains(t, frameOf(agedBy(0), 120, 40, true), "\x1b[32mNo pressure")
	assert.NotContains(t, frameOf(agedBy(90), 120, 40, true), "\x1b[32mNo pressure", "old values are no all-clear")
	slow := seldom()
	slow.SampleAge = 34 * time.Second
	assert.NotContains(t, frameOf(slow, 120, 40, false), "No new values")
}

func TestTopAbsentIsNoNumber(t *testing.T) {
	frame := frameOf(scenes.EverythingAbsent(), 80, 24, false)
	assert.NotRegexp(t, `\s0 (%|kB/s|kbit/s)|\s0/s`, frame)
	assert.Contains(t, frame, "unavailable (")
}

func TestTopRemoteStateHasNoPlot(t *testing.T) {
	s := scenes.Calm()
	s.Snapshot = &snapshot.Snapshot{Time: s.Snapshot.Time, Pressure: s.Snapshot.Pressure, WindowSeconds: 10}
	frame := frameOf(s, 80, 24, false)
	assert.NotContains(t, frame, "▁")
	assert.Contains(t, frame, "1.2 %")
}

func TestTopGaugeMarksThreshold(t *testing.T) {
	v := plugins.Verdict{Observed: snapshot.Some(0.05), Threshold: snapshot.Some(0.1), Unit: "ratio"}
	assert.Equal(t, "[###   |     ]", gauge(v, 12))
	v.Observed = snapshot.Some(0.2)
	assert.Equal(t, "[#####|##### ]", gauge(v, 12))
	v.Observed = snapshot.Opt[float64]{}
	assert.Equal(t, "[            ]", gauge(v, 12))
}

func TestTopPlotEmptyWhereUnknown(t *testing.T) {
	point := func(ago, some float64) snapshot.TrendPoint {
		return snapshot.TrendPoint{AgoSeconds: ago, Stall: snapshot.Ratios{IO: snapshot.StallRatio{Some: snapshot.Some(some)}}}
	}
	io := func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.IO }
	got := spark([]snapshot.TrendPoint{point(300, 1), point(119, 0), point(31, 0.2), point(29, 1), point(1, 0.5), point(0, 0.1)}, 4, io)
	assert.Equal(t, "▁ ▂█", got, "each sign is the highest of its time")
}

func TestTopNarrowTableDropsColumns(t *testing.T) {
	wide := table{head: []string{"NAME", "one", "two"}, rows: []row{{cells: []cell{text("a-long-name-of-a-thing"), text("11"), text("22")}}}}
	var b strings.Builder
	wide.lines(20)[1].write(&b, 20, false)
	assert.Equal(t, "a-long-name-of…   11", b.String())
	b.Reset()
	wide.lines(60)[1].write(&b, 60, false)
	assert.Equal(t, "a-long-name-of-a-thing   11   22", b.String())
}

func TestTopHeaderMode(t *testing.T) {
	stuck, unsaved := scenes.Evicted(), scenes.Evicted()
	stuck.Cluster.RoundsStuckSeconds, unsaved.Cluster.UnsavedSeconds = 90, 90
	for _, c := range []struct {
		state *view.State
		want  string
	}{
		{scenes.Calm(), "standalone mode: evictions disabled"},
		{scenes.DryRun(), "DRY RUN of evictions: no mark, no eviction"},
		{scenes.Evicted(), "cluster: 2 pods on this node"},
		{stuck, "cluster: rounds stuck for 1 min 30 s, no pod is evicted"},
		{scenes.Disconnected(), "cluster: no connection to the API server since 12:00:30 UTC, evictions paused"},
	} {
		second := strings.Split(frameOf(c.state, 80, 24, false), "\n")[1]
		assert.True(t, strings.HasPrefix(second, c.want), second)
	}
	marked := "\x1b[1;33m"
	assert.NotContains(t, strings.Split(frameOf(scenes.Evicted(), 80, 24, true), "\n")[1], marked)
	assert.Contains(t, strings.Split(frameOf(scenes.DryRun(), 80, 24, true), "\n")[1], marked)
	assert.Contains(t, strings.Split(frameOf(stuck, 80, 24, true), "\n")[1], marked)
	assert.Contains(t, strings.Split(frameOf(unsaved, 80, 24, true), "\n")[1], marked)
}

func TestTopLastEviction(t *testing.T) {
	assert.Contains(t, frameOf(scenes.Evicted(), 120, 40, false), "last eviction, 1 min 10 s ago: evicted shop/cart-66b8d-mm4qz: working set 3.0 GiB; terminated after 14 s\n")
	assert.NotContains(t, frameOf(scenes.Calm(), 120, 40, false), "last eviction")
}

func TestTopProbeNote(t *testing.T) {
	s := scenes.Calm()
	s.Snapshot.Probes = append(s.Snapshot.Probes, snapshot.Probe{Name: "workloads", Note: "read every 3rd tick: it costs 3 % of a core"})
	for _, size := range [][2]int{{80, 24}, {120, 40}} {
		assert.Contains(t, frameOf(s, size[0], size[1], false), "probe workloads: read every 3rd tick: it costs 3 % of a core")
	}
}
