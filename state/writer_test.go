package state

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

var errFull = errors.New("no space left on device")

func TestWriterHungDiskTimesOutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writer
		disk := make(chan struct{})
		hangs := func() error { <-disk; return nil }
		start := time.Now()
		require.ErrorIs(t, w.Do(time.Second, hangs), ErrTimeout)
		assert.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, w.Do(time.Second, hangs), ErrTimeout)
		assert.Equal(t, time.Second, time.Since(start), "it has had its time")
		close(disk)
		synctest.Wait()
		require.NoError(t, w.Do(time.Second, hangs), "it writes again")
		require.ErrorIs(t, w.Do(time.Second, func() error { return errFull }), errFull)
	})
}

// What is written later waits for what is read, though its reader does not any more.
func TestReadHungDiskTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writer
		disk := make(chan struct{})
		var order []string
		start := time.Now()
		got, err := Read(&w, 3*time.Second, func() (int, error) { <-disk; order = append(order, "read"); return 7, nil })
		require.ErrorIs(t, err, ErrTimeout)
		assert.Zero(t, got)
		assert.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, w.Do(time.Second, func() error { order = append(order, "written"); return nil }), ErrTimeout)
		close(disk)
		require.NoError(t, w.Flush(time.Second))
		assert.Equal(t, []string{"read", "written"}, order)
		got, err = Read(&w, time.Second, func() (int, error) { return 7, errFull })
		require.ErrorIs(t, err, errFull)
		assert.Equal(t, 7, got, "what there is with an error")
	})
}

func TestReadAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writer
		disk := make(chan struct{})
		answer := Begin(&w, time.Second, func() (int, error) { <-disk; return 7, errFull })
		assert.Empty(t, answer)
		close(disk)
		assert.Equal(t, Answer[int]{7, errFull}, <-answer)
	})
}

func TestWriterFlushWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writer
		require.NoError(t, w.Flush(time.Second), "nothing was to be written")
		written := 0
		slow := func() error { time.Sleep(2 * time.Second); written++; return nil }
		require.ErrorIs(t, w.Do(time.Second, slow), ErrTimeout)
		require.ErrorIs(t, w.Do(0, slow), ErrTimeout)
		require.ErrorIs(t, w.Flush(time.Second), ErrTimeout)
		require.NoError(t, w.Flush(5*time.Second))
		assert.Equal(t, 2, written)
		require.NoError(t, w.Do(3*time.Second, slow), "it writes again")
		require.NoError(t, w.Flush(0))
	})
}

func TestWriterQueuedWriteOwnTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writer
		slow := func() error { time.Sleep(700 * time.Millisecond); return nil }
		require.ErrorIs(t, w.Do(0, slow), ErrTimeout)
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		require.ErrorIs(t, w.Do(time.Second, slow), ErrTimeout)
		assert.Equal(t, time.Second, time.Since(start), "600 ms for the one before it, and 700 for itself")
		time.Sleep(time.Second)
		require.NoError(t, w.Do(time.Second, slow))
	})
}

func TestWriterKeepsNewestQueued(t *testing.T) {
	for most, want := range map[int][]int{0: {0, 4}, 1: {0, 4}, 3: {0, 2, 3, 4}, 9: {0, 1, 2, 3, 4}} {
		synctest.Test(t, func(t *testing.T) {
			w := Writer{MaxQueued: most}
			disk := make(chan struct{})
			var written []int
			for i := range 5 {
				require.ErrorIs(t, w.Do(0, func() error { <-disk; written = append(written, i); return nil }), ErrTimeout)
				synctest.Wait() // the first is under way
			}
			close(disk)
			synctest.Wait()
			assert.Equal(t, want, written, "at most %d wait", most)
		})
	}
}

// A pipe that nobody reads hangs whoever opens it, as a disk that does not
// answer.
func TestWriterWritesWhenDiskAnswers(t *testing.T) {
	f := File[memory]{Path: filepath.Join(t.TempDir(), "evict.json")}
	half := f.Path + ".half"
	require.NoError(t, syscall.Mkfifo(half, 0o600))
	var w Writer
	first, err := f.Prepare(memory{Settled: true})
	require.NoError(t, err)
	require.ErrorIs(t, w.Do(10*time.Millisecond, first), ErrTimeout)
	last, err := f.Prepare(remembering())
	require.NoError(t, err)
	require.ErrorIs(t, w.Do(10*time.Millisecond, last), ErrTimeout)
	pipe := f.Path + ".pipe"
	require.NoError(t, os.Rename(half, pipe)) // the write that hangs has it open still
	back, err := f.Load()
	require.ErrorIs(t, err, ErrNoState, "%v", back)

	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer reader.Close()
	deadline.Within(t, 10*time.Second, "the newest value is kept", func() error {
		back, err := f.Load()
		if err == nil && back.Last == nil {
			err = errFull
		}
		return err
	})
}
