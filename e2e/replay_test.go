package e2e_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/recording"
)

// replayReport is what of `plimsoll replay -o json` the tests look at.
type replayReport struct {
	Samples    uint64
	Recordings []struct {
		File     string
		Samples  uint64
		CutShort bool
	}
	Changes   []replayedChange
	Decisions []evict.Decision
	Gaps      []struct{ Why string }
}

type replayedChange struct {
	Time          time.Time
	Plugin, Scope string
	To            plugins.Level
}

// replay runs the program and decodes its report.
func replay(t *testing.T, args ...string) (r replayReport) {
	t.Helper()
	status, stdout, stderr := run(t, append([]string{"replay", "-o", "json"}, args...)...)
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	decode(t, stdout, &r)
	return r
}

// shortConfig has the periods of production, divided by about ten.
const shortConfig = `
tick: 200ms
window: 1s
history: 1m
eviction: {round: 1s, cooldown: 3s}
recording: {dir: %q, minAvailable: 0}
plugins:
  warmUp: 0s
  memoryStall: {kubeletEvictionHard: 16Mi, clearFor: 2s, soft: {window: 2s}, hard: {window: 1s}}
`

// change is a level that the agent published, or that a replay gives, and when.
type change struct {
	plugin, scope string
	since         time.Time
}

// watchLevels asks the agent again and again, until stop, for each level that
// it publishes and since when.
func (a *agent) watchLevels() (stop func() map[change]plugins.Level) {
	seen, quit, done := map[change]plugins.Level{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		poll := time.NewTicker(20 * time.Millisecond)
		defer poll.Stop()
		for {
			var p pressure
			if _, body, err := a.get("/api/v1/pressure"); !assert.NoError(a.t, err) || !assert.NoError(a.t, json.Unmarshal([]byte(body), &p)) {
				return
			}
			for _, v := range p.Verdicts {
				seen[change{v.Plugin, v.Scope, v.Since.UTC()}] = v.Level
			}
			select {
			case <-quit:
				return
			case <-poll.C:
			}
		}
	}()
	return func() map[change]plugins.Level {
		close(quit)
		<-done
		return seen
	}
}

func (a *agent) memoryLevel(want plugins.Level) func() error {
	return func() error {
		for _, v := range a.pressure().Verdicts {
			if v.Plugin == "memory-stall" && v.Level != want {
				return fmt.Errorf("%s: %s", v.Level, v.Reason)
			}
		}
		return nil
	}
}

// An agent records while memory runs short twice, which weather stands in for;
// what it published is what a replay of its recording says, to the nanosecond.
func TestReplayMatchesPublishedLevels(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	recorded := filepath.Join(t.TempDir(), "recording")
	config := configFile(t, fmt.Sprintf(shortConfig, recorded))
	a := startAgent(t, "--config", config, "--path.procfs", w.dir).ticked(2)
	stop := a.watchLevels()
	for range 2 {
		w.pressing.Store(true)
		eventually(t, "memory is short", a.memoryLevel(plugins.Hard))
		w.pressing.Store(false)
		eventually(t, "memory is not short", a.memoryLevel(plugins.None))
	}
	a.ticked(a.snapshot().Sequence + 3)
	published := stop()
	samples := a.snapshot().Sequence
	a.end(syscall.SIGKILL)

	r := replay(t, "--config", config, recorded)
	assert.GreaterOrEqual(t, r.Samples, samples-1, "a kill loses no sample but the one that is written")
	assert.True(t, r.Recordings[0].CutShort)
	replayed := map[change]plugins.Level{}
	for _, c := range r.Changes {
		replayed[change{c.Plugin, c.Scope, c.Time.UTC()}] = c.To
	}
	wantReplayed(t, changesOf(published), replayed)
	rises := 0
	for _, l := range replayed {
		if l == plugins.Hard {
			rises++
		}
	}
	assert.Equal(t, 2, rises)
	t.Logf("%d samples, %d changes", r.Samples, len(replayed))

	laxer := write(t, filepath.Join(t.TempDir(), "laxer.yaml"), strings.ReplaceAll(readFile(t, config), "memoryStall: {", "memoryStall: {enabled: false, "))
	for _, c := range replay(t, "--config", laxer, recorded).Changes {
		assert.NotEqual(t, "memory-stall", c.Plugin, "by another configuration it says something else")
	}
}

// changesOf leaves out what is said first of a scope, unless that is a level.
func changesOf(published map[change]plugins.Level) map[change]plugins.Level {
	changes := maps.Clone(published)
	for c, l := range published {
		earlier := func(o change) bool { return o.plugin == c.plugin && o.scope == c.scope && o.since.Before(c.since) }
		if l == plugins.None && !slices.ContainsFunc(slices.Collect(maps.Keys(published)), earlier) {
			delete(changes, c)
		}
	}
	return changes
}

// wantReplayed: what was seen from outside is replayed to the nanosecond. On a busy machine
// soft may last for one tick, between two looks.
func wantReplayed(t *testing.T, published, replayed map[change]plugins.Level) {
	t.Helper()
	assert.Subset(t, replayed, published)
	for c, l := range replayed {
		if _, seen := published[c]; !seen {
			assert.Equal(t, plugins.Soft, l, "%v was not published", c)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// killedRecording is the segment of an agent that was killed while it recorded, one for all
// tests; removed by TestMain's directory.
func killedRecording(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(binary), "recording")
	recordKilled.Do(func() {
		a := startAgent(t, "--config", configFile(t, "tick: 100ms\nwindow: 1s\nrecording: {dir: "+dir+", minAvailable: 0}\n")).ticked(12)
		a.end(syscall.SIGKILL)
	})
	segments, err := recording.Segments(dir)
	require.NoError(t, err)
	require.Len(t, segments, 1)
	return segments[0].Path
}

var recordKilled sync.Once

func TestReplayKilledAgentRecording(t *testing.T) {
	t.Parallel()
	path := killedRecording(t)
	status, table, stderr := run(t, "replay", path)
	require.Zero(t, status, stderr)
	assert.Contains(t, table, path+": ")
	assert.Contains(t, table, "memory-stall")
	assert.Contains(t, table, "Limits of a replay:")

	status, svg, stderr := run(t, "replay", "-o", "svg", path)
	require.Zero(t, status, stderr)
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	assert.Contains(t, svg, "memory-stall")
	assert.GreaterOrEqual(t, replay(t, path).Samples, uint64(11))
}

func TestReplayStopsAtOverlapCommand(t *testing.T) {
	t.Parallel()
	path := killedRecording(t)
	status, table, stderr := run(t, "replay", path, path)
	assert.Equal(t, 1, status)
	assert.Equal(t, "plimsoll: replay: "+path+": sample 1: it overlaps with the recording before it\n", stderr)
	assert.Contains(t, table, "replay stopped: "+path)
	assert.Contains(t, table, "memory-stall")
}
