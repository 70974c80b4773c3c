package recording

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// config has no floor: the machine of the test may be full.
func config(dir string) Config {
	c := DefaultConfig()
	c.Dir, c.MinAvailable = dir, 0
	return c
}

func recorder(c Config) (*Recorder, *bytes.Buffer) {
	var log bytes.Buffer
	return New(c, "v0.1.0", state.ByCommand, slog.New(slog.NewTextHandler(&log, nil))), &log
}

// sample n. Its boot ID does not compress well.
func sample(n int) *snapshot.Sample {
	at := time.Duration(n+1) * time.Second
	return &snapshot.Sample{Time: time.Unix(1_800_000_000, 0).UTC().Add(at), Monotonic: at, Boottime: at, BootID: fmt.Sprintf("%x", bytes.Repeat([]byte(fmt.Sprint(n*n*7919)), 20))}
}

// recorded are the numbers of the samples in a directory, and the runs of its segments.
func recorded(t *testing.T, dir string) (samples []int, runs []string) {
	t.Helper()
	segments, err := Segments(dir)
	require.NoError(t, err)
	for _, s := range segments {
		f, err := os.Open(s.Path)
		require.NoError(t, err)
		h, err := probes.Play(f, func(s *snapshot.Sample) error {
			samples = append(samples, int(s.Monotonic/time.Second)-1)
			return nil
		})
		require.NoError(t, f.Close())
		if !errors.Is(err, probes.ErrTruncated) {
			require.NoError(t, err, s.Path)
		}
		runs = append(runs, h.Run)
	}
	return samples, runs
}

// text does not compress.
func text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text())
	}
	return b.String()
}

func size(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	segments, err := Segments(dir)
	require.NoError(t, err)
	for _, s := range segments {
		bytes += s.Size
	}
	return bytes
}

func numbers(from, to int) (list []int) {
	for n := from; n < to; n++ {
		list = append(list, n)
	}
	return list
}

// ran is a recorder that got these samples and ended.
func ran(t *testing.T, c Config, from, to int) (Status, string) {
	t.Helper()
	r, log := recorder(c)
	for n := from; n < to; n++ {
		r.record(sample(n))
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(done)
	return *r.Status(), log.String()
}

func TestRecorder(t *testing.T) {
	t.Run("the next start continues in a segment of its own", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "not", "there", "yet")
		for run := range 5 {
			s, log := ran(t, config(dir), 10*run, 10*run+10)
			assert.Equal(t, uint64(10), s.Recorded)
			assert.Equal(t, run+1, s.Segments)
			assert.Contains(t, log, fmt.Sprintf("older=%d", run))
		}
		samples, runs := recorded(t, dir)
		assert.Equal(t, numbers(0, 50), samples)
		require.Len(t, runs, 5)
		assert.NotEqual(t, runs[0], runs[1])
		info, err := os.Stat(dir)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700)|os.ModeDir, info.Mode(), "its owner alone")
	})

	t.Run("a segment without an end, and one without samples, are left as they are", func(t *testing.T) {
		dir := t.TempDir()
		r, _ := recorder(config(dir))
		for n := range 3 {
			r.record(sample(n))
		}
		r.lock.Release() // as the kernel does for one that is killed
		f, err := probes.CreateRecording(filepath.Join(dir, segmentName(2, time.Now())), "v0.1.0", "killed")
		require.NoError(t, err)
		require.NoError(t, f.Abandon())
		ran(t, config(dir), 3, 6)
		samples, runs := recorded(t, dir)
		assert.Equal(t, numbers(0, 6), samples)
		assert.Len(t, runs, 3)
	})

	t.Run("size and age bound a segment, and the size of all is never exceeded by more than a sample", func(t *testing.T) {
		c := config(t.TempDir())
		c.SegmentSize, c.MaxSize = 2000, 9000
		r, _ := recorder(c)
		largest := int64(0)
		for n := range 1000 {
			before := r.size()
			r.record(sample(n))
			largest = max(largest, r.size()-before)
			require.LessOrEqual(t, size(t, c.Dir), int64(c.MaxSize)+largest)
			require.LessOrEqual(t, r.size(), int64(c.SegmentSize)+largest)
			require.Equal(t, uint64(size(t, c.Dir)), r.Status().Bytes)
		}
		samples, runs := recorded(t, c.Dir)
		assert.Equal(t, numbers(1000-len(samples), 1000), samples, "the newest, without a gap")
		assert.Greater(t, len(samples), 20)
		assert.GreaterOrEqual(t, len(runs), 4)
		assert.Equal(t, runs[0], runs[len(runs)-1])
	})

	t.Run("age bounds a segment, and the recording", func(t *testing.T) {
		c := config(t.TempDir())
		c.SegmentAge, c.MaxAge = time.Hour, 5*time.Hour
		r, _ := recorder(c)
		for hour := range 10 {
			r.record(sample(2 * hour))
			r.record(sample(2*hour + 1))
			r.begun = r.begun.Add(-time.Hour) // an hour passes
			segments, err := Segments(c.Dir)
			require.NoError(t, err)
			for i := range segments {
				s := &segments[len(segments)-1-i]
				written := time.Now().Add(-time.Duration(i+1) * time.Hour)
				require.NoError(t, os.Chtimes(s.Path, written, written))
			}
		}
		samples, runs := recorded(t, c.Dir)
		assert.Len(t, runs, 5)
		assert.Equal(t, numbers(10, 20), samples)
	})

	t.Run("a clock that is set ahead deletes few", func(t *testing.T) {
		c := config(t.TempDir())
		c.SegmentAge, c.MaxAge = time.Hour, 5*time.Hour
		addFour(t, c.Dir, 1000, time.Now().Add(-6*time.Hour))
		r, _ := recorder(c)
		for n := range 3 {
			r.record(sample(n))
		}
		assert.Equal(t, 3, r.Status().Segments, "two of the four, and the new one")
		r.begun = r.begun.Add(-time.Hour) // an hour passes
		r.record(sample(3))
		assert.Equal(t, 2, r.Status().Segments)
	})

	t.Run("files of others stay", func(t *testing.T) {
		c := config(t.TempDir())
		c.SegmentSize, c.MaxSize = 1000, 3000
		other := filepath.Join(c.Dir, "node-a.rec")
		require.NoError(t, os.WriteFile(other, make([]byte, 1<<20), 0o600))
		s, _ := ran(t, c, 0, 200)
		assert.Equal(t, uint64(200), s.Recorded)
		assert.FileExists(t, other)
	})

	t.Run("two agents do not share a directory", func(t *testing.T) {
		c := config(t.TempDir())
		one, _ := recorder(c)
		one.record(sample(0))
		s, log := ran(t, c, 1, 2)
		assert.Equal(t, Status{Dir: c.Dir, Lost: 1, Failed: s.Failed, FailedSince: s.FailedSince}, s)
		assert.Contains(t, log, "in use by another agent")
		assert.Contains(t, log, "set another recording.dir for one of the two agents")
		one.record(sample(2))
		assert.Equal(t, uint64(2), one.Status().Recorded)
	})

	t.Run("a deleted segment is followed by a new one", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "r")
		r, _ := recorder(config(dir))
		r.record(sample(0))
		require.NoError(t, os.RemoveAll(dir))
		r.record(sample(1))
		samples, _ := recorded(t, dir)
		assert.Equal(t, []int{1}, samples)
	})

	t.Run("a sample that no reader accepts costs itself", func(t *testing.T) {
		dir := t.TempDir()
		r, log := recorder(config(dir))
		r.record(sample(0))
		r.record(&snapshot.Sample{Monotonic: 1, BootID: strings.Repeat("a", 16<<20)})
		assert.Contains(t, r.Status().Failed, "measure fewer cgroups: workloads.roots")
		r.record(sample(1))
		samples, runs := recorded(t, dir)
		assert.Equal(t, []int{0, 1}, samples)
		assert.Len(t, runs, 1)
		assert.Empty(t, r.Status().Failed)
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	})
}

// failing records once a second for so long, and returns how often it was tried.
func failing(r *Recorder, seconds int) (tries int) {
	for n := range seconds {
		before := r.retryAt
		r.record(sample(n))
		if r.retryAt != before {
			tries++
		}
		time.Sleep(time.Second)
	}
	return tries
}

func TestCannotRecord(t *testing.T) {
	t.Run("it is logged once, counted, and tried again ever more seldom", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			require.NoError(t, os.WriteFile(dir, nil, 0o600)) // as of a recording that was one file
			r, log := recorder(config(dir))
			assert.Equal(t, 15, failing(r, 600), "1, 2, 4 … 60 s")
			s := r.Status()
			assert.Equal(t, uint64(600), s.Lost)
			assert.Zero(t, s.Recorded)
			assert.Contains(t, s.Failed, dir+": not a directory; set recording.dir to a directory")
			assert.Equal(t, 1, strings.Count(log.String(), "\n"), log)
			require.NoError(t, os.Remove(dir))
			failing(r, 61)
			assert.Empty(t, r.Status().Failed)
			assert.Contains(t, log.String(), "samples are recorded again")
			assert.GreaterOrEqual(t, r.Status().Recorded, uint64(1))
		})
	})

	t.Run("a disk that is full and has space by turns is logged twice a minute at most", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "r")
			r, log := recorder(config(dir))
			for range 100 {
				require.NoError(t, os.RemoveAll(dir))
				require.NoError(t, os.WriteFile(dir, nil, 0o600))
				failing(r, 3)
				require.NoError(t, os.Remove(dir))
				failing(r, 3)
			}
			assert.LessOrEqual(t, strings.Count(log.String(), "level=WARN"), 6+10)
		})
	})

	t.Run("below the floor of available space nothing is written", func(t *testing.T) {
		c := config(t.TempDir())
		c.MinAvailable = 1
		s, log := ran(t, c, 0, 3)
		assert.Equal(t, uint64(3), s.Lost)
		assert.Regexp(t, `too little space is available: \d+\.\d %, less than recording.minAvailable, 100.0 %; delete files there`, s.Failed)
		assert.Contains(t, log, "level=WARN")
		_, err := Segments(c.Dir)
		assert.ErrorIs(t, err, ErrNoSegments)
	})

	t.Run("below that floor the other bounds hold, and nothing more is deleted", belowFloor)

	t.Run("a recording that fills its disk beyond its bounds gives space back, and goes on", filledByItself)

	t.Run("a full disk keeps what it has, and gets what comes once it has space", fullDisk)

	t.Run("of a sample that does not fit nothing stays", partialSample)

	t.Run("read-only", func(t *testing.T) {
		s := filesystemtest.New(t)
		dir := s.Enter(s.Mount("tmpfs", "r", "r", "size=64k,ro"))
		_, log := ran(t, config(filepath.Join(dir, "r")), 0, 1)
		assert.Contains(t, log, "read-only file system")
		assert.Contains(t, log, "mounted writable")
	})

	t.Run("a disk that hangs delays no caller, and is told", hangingDisk)
}

// addFour segments of one size, written at a time.
func addFour(t *testing.T, dir string, size int, written time.Time) {
	t.Helper()
	for i := range uint64(4) {
		path := filepath.Join(dir, segmentName(i+1, written))
		require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
		require.NoError(t, os.Chtimes(path, written, written))
	}
}

func belowFloor(t *testing.T) {
	c := config(t.TempDir())
	c.MinAvailable = 1
	addFour(t, c.Dir, 1000, time.Now().Add(-2*time.Hour))
	r, _ := recorder(c)
	left := func() int {
		r.retryAt = time.Time{}
		r.record(sample(0))
		require.Contains(t, r.Status().Failed, "too little space is available")
		require.Equal(t, uint64(1000*r.Status().Segments), r.Status().Bytes)
		return r.Status().Segments
	}
	assert.Equal(t, 4, left(), "nothing is deleted for what others may have written")
	r.Config.MaxSize = 3000
	assert.Equal(t, 3, left())
	r.Config.MaxAge = time.Hour
	assert.Equal(t, 1, left())
	assert.Zero(t, left())
	_, err := Segments(c.Dir)
	assert.ErrorIs(t, err, ErrNoSegments)
}

func filledByItself(t *testing.T) {
	s := filesystemtest.New(t)
	c := config(s.Enter(s.Mount("tmpfs", "r", "r", "size=512k")))
	addFour(t, c.Dir, 100<<10, time.Now())
	c.MinAvailable, c.MaxSize = 0.5, 250<<10 // as lowered by the user: two fit
	status, _ := ran(t, c, 0, 3)
	assert.Equal(t, uint64(3), status.Recorded)
	assert.Zero(t, status.Lost)
	assert.Equal(t, 3, status.Segments)
}

func fullDisk(t *testing.T) {
	s := filesystemtest.New(t)
	dir := s.Enter(s.Mount("tmpfs", "r", "r", "size=64k"))
	c := config(filepath.Join(dir, "r"))
	r, log := recorder(c)
	n := 0
	for ; r.Status().Failed == "" && n < 10_000; n++ {
		r.record(sample(n))
	}
	require.Contains(t, log.String(), "no space left on device")
	require.Contains(t, log.String(), "delete files there")
	samples, _ := recorded(t, c.Dir)
	require.Equal(t, numbers(0, n-1), samples, "whole samples alone")
	for range 20 { // tries that fail leave nothing behind
		r.retryAt = time.Time{}
		r.record(sample(n))
	}
	segments, err := Segments(c.Dir)
	require.NoError(t, err)
	require.Len(t, segments, 1)
	require.NoError(t, os.Remove(segments[0].Path))
	r.retryAt = time.Time{}
	r.record(sample(n))
	samples, _ = recorded(t, c.Dir)
	assert.Equal(t, []int{n}, samples)
}

func partialSample(t *testing.T) {
	s := filesystemtest.New(t)
	large := sample(9)
	large.BootID = text(20_000)
	for name, before := range map[string]int{"its segment neither, if it is the first": 0, "but what was there": 3} {
		dir := s.Enter(s.Mount("tmpfs", name, name, "size=12k")) // the lock, the header, a page
		r, log := recorder(config(dir))
		for n := range before {
			r.record(sample(n))
		}
		size := r.size()
		r.record(large)
		require.Contains(t, log.String(), "no space left on device")
		segments, err := Segments(dir)
		if before == 0 {
			require.ErrorIs(t, err, ErrNoSegments, name)
			continue
		}
		require.NoError(t, err)
		require.Len(t, segments, 1)
		assert.Equal(t, size, segments[0].Size, name)
		samples, _ := recorded(t, dir)
		assert.Equal(t, numbers(0, before), samples)
	}
}

func hangingDisk(t *testing.T) {
	s := filesystemtest.New(t)
	dead := s.Fuse("dead")
	r, _ := recorder(config(s.Enter(dead.Point)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	r.Add(sample(0))
	deadline.Eventually(t, func() bool { return r.underWay() > 0 }, 10*time.Second, time.Millisecond)
	r.Add(sample(0))
	assert.Empty(t, r.Status().Failed, "a disk may be slow for some seconds")
	r.mu.Lock()
	r.since = r.since.Add(-hangs)
	r.mu.Unlock()
	r.Add(sample(0))
	assert.Contains(t, r.Status().Failed, "a write to the disk has not returned for 10 s; check the disk of recording.dir", "before any is lost, however seldom samples are")
	assert.Zero(t, r.Status().Lost)
	longest := time.Duration(0)
	for n := range 1000 {
		start := time.Now()
		r.Add(sample(n))
		longest = max(longest, time.Since(start))
	}
	t.Logf("longest Add %s", longest)
	assert.Equal(t, uint64(1000+2-queued), r.Status().Lost)
	cancel()
	dead.Abort()
	<-ended
}
