package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
	"github.com/plimsoll-dev/plimsoll/recording"
)

func (a *agent) metric(series string) float64 {
	a.t.Helper()
	v, err := strconv.ParseFloat(metric(a, series), 64)
	require.NoError(a.t, err)
	return v
}

func (a *agent) records(success float64) func() error {
	return func() error {
		if is := a.metric("plimsoll_recording_success"); is != success {
			return fmt.Errorf("plimsoll_recording_success %v\n%s", is, a.stderr.String())
		}
		return nil
	}
}

const (
	samplesRecorded = `plimsoll_recording_samples_total{result="recorded"}`
	samplesLost     = `plimsoll_recording_samples_total{result="lost"}`
)

func TestRecording(t *testing.T) {
	t.Parallel()
	t.Run("six agents, three of them killed, record what a replay of the directory says", recordedOverRestarts)
	t.Run("a full disk ends the recording until it has space, and nothing else", recordedToFullDisk)
	t.Run("a disk that hangs delays no tick and no end", recordedToHangingDisk)
}

func recordedOverRestarts(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := filesystemtest.New(t)
	dir := filepath.Join(s.Enter(s.Mount("tmpfs", "disk", "disk", "size=64m")), "recording") // a slow disk loses samples
	config := configFile(t, strings.Replace(fmt.Sprintf(shortConfig, dir), "minAvailable: 0", "minAvailable: 0, segmentAge: 2s", 1))
	published := map[change]plugins.Level{}
	samples, lost := uint64(0), 0.0
	for run := range 6 {
		a := startAgent(t, "--config", config, "--path.procfs", w.dir).ticked(2)
		stop := a.watchLevels()
		if run%2 == 0 {
			w.pressing.Store(true)
			eventually(t, "memory is short", a.memoryLevel(plugins.Hard))
			w.pressing.Store(false)
			eventually(t, "memory is not short", a.memoryLevel(plugins.None))
		}
		a.ticked(a.snapshot().Sequence + 3)
		maps.Copy(published, changesOf(stop()))
		samples += a.snapshot().Sequence
		lost += a.metric(samplesLost)
		end := []os.Signal{syscall.SIGKILL, syscall.SIGTERM}[run%2]
		a.end(end)
	}
	require.Zero(t, lost, "samples were not recorded, so a replay knows less")
	maps.DeleteFunc(published, func(c change, _ plugins.Level) bool { return c.plugin != "memory-stall" })
	require.GreaterOrEqual(t, len(published), 6, "hard and none of three runs; soft between them on a busy machine")

	segments, err := recording.Segments(dir)
	require.NoError(t, err)
	assert.Greater(t, len(segments), 6, "more than one for each run")
	r := replay(t, "--config", config, dir)
	assert.GreaterOrEqual(t, r.Samples, samples-3, "a kill loses no sample but the one that is written")
	require.Len(t, r.Recordings, 6)
	cut := 0
	for _, one := range r.Recordings {
		assert.Equal(t, dir, one.File)
		if one.CutShort {
			cut++
		}
	}
	assert.Equal(t, 3, cut, "those that were killed")
	replayed := map[change]plugins.Level{}
	for _, c := range r.Changes {
		if c.Plugin == "memory-stall" {
			replayed[change{c.Plugin, c.Scope, c.Time.UTC()}] = c.To
		}
	}
	wantReplayed(t, published, replayed)
	restarts := 0
	for _, g := range r.Gaps { // a busy machine has others
		if g.Why == "the agent was restarted" {
			restarts++
		}
	}
	assert.Equal(t, 5, restarts, "no rate reaches from one agent to the next")
	t.Logf("%d segments, %d samples, %d changes", len(segments), r.Samples, len(replayed))

	status, text, stderr := run(t, "advise", "--config", config, dir)
	require.Zero(t, status, stderr)
	assert.Contains(t, text, dir+": ")

	t.Run("a spoiled segment costs its own samples and is told", func(t *testing.T) {
		middle := segments[len(segments)/2].Path
		require.NoError(t, os.WriteFile(middle, []byte("not a recording"), 0o600))
		status, text, stderr := run(t, "replay", "--config", config, dir)
		require.Zero(t, status, stderr)
		assert.Contains(t, text, "samples are missing: "+middle+": recording: damaged, or no recording: gzip: invalid header")
	})
}

func recordedToFullDisk(t *testing.T) {
	t.Parallel()
	s := filesystemtest.New(t)
	disk := s.Enter(s.Mount("tmpfs", "disk", "disk", "size=256k"))
	filler := filepath.Join(disk, "filler")
	require.NoError(t, os.WriteFile(filler, make([]byte, 236<<10), 0o600))
	dir := filepath.Join(disk, "recording")
	a := startAgent(t, "--config", configFile(t, "tick: 100ms\nwindow: 1s\nrecording: {dir: "+strconv.Quote(dir)+", minAvailable: 0}\n")).ticked(2)
	// It may be full by the time that one looks.
	eventually(t, "samples are recorded, or were", func() error {
		if !strings.Contains(a.stderr.String(), `msg="recording samples"`) {
			return errors.New(a.stderr.String())
		}
		return nil
	})
	eventually(t, "the disk is full", a.records(0))
	lost := a.metric(samplesLost)
	a.ticked(a.snapshot().Sequence + 30)
	assert.Greater(t, a.metric(samplesLost), lost)
	assert.Equal(t, 1, strings.Count(a.stderr.String(), "cannot record samples"), a.stderr.String())
	assert.Contains(t, a.stderr.String(), "no space left on device")
	assert.Contains(t, a.stderr.String(), `todo="delete files there, or set recording.dir to a filesystem with more space"`)
	page := a.mustGet("/")
	assert.Contains(t, page, "samples are not recorded: ")
	assert.Contains(t, page, "delete files there")
	require.NoError(t, os.Remove(filler))
	eventually(t, "samples are recorded again", a.records(1))
	a.ticked(a.snapshot().Sequence + 10)
	assert.Contains(t, a.stderr.String(), "samples are recorded again")
	assert.Positive(t, a.metric(samplesRecorded))
	assert.Zero(t, a.end(syscall.SIGTERM))
	r := replay(t, dir)
	require.Len(t, r.Recordings, 1, "one run")
	assert.NotEmpty(t, r.Gaps, "what was not recorded")
}

func recordedToHangingDisk(t *testing.T) {
	t.Parallel()
	s := filesystemtest.New(t)
	dead := s.Fuse("dead")
	a := startAgent(t, "--config", configFile(t, "tick: 100ms\nwindow: 1s\nrecording: {dir: "+strconv.Quote(s.Enter(dead.Point))+"}\n")).ticked(30)
	assert.Positive(t, a.metric(samplesLost))
	eventually(t, "it is told", a.records(0))
	assert.Contains(t, a.stderr.String(), "a write to the disk has not returned for 10 s")
	clock := deadline.Start()
	assert.Zero(t, a.end(syscall.SIGTERM), a.stderr.String())
	t.Logf("it ended in %s", clock.Passed().Round(time.Millisecond))
	assert.Less(t, clock.Elapsed(), 2*5*time.Second)
	assert.Contains(t, a.stderr.String(), "end of the recording not written before exit")
}
