package config

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// place is a configuration file with this body in a directory of its own.
func place(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	write(t, path, body)
	return path
}

func write(t *testing.T, path, body string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, file(body), 0o600))
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path, nil)
	require.NoError(t, err)
	return f
}

// running calls test with a file that is watched, in a bubble where a second
// passes at once.
func running(t *testing.T, path string, test func(t *testing.T, f *File, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := open(t, path)
		var log bytes.Buffer
		f.Logger = slog.New(slog.NewTextHandler(&log, nil))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		defer func() {
			cancel()
			assert.NoError(t, <-done)
		}()
		time.Sleep(pollInterval / 2) // so that no poll falls together with a test's step
		test(t, f, &log)
	})
}

// polls lets n polls pass and the last of them end.
func polls(n int) {
	time.Sleep(time.Duration(n) * pollInterval) // on the bubble's clock
	synctest.Wait()
}

func TestConfigWithoutFile(t *testing.T) {
	running(t, "", func(t *testing.T, f *File, log *bytes.Buffer) {
		polls(5)
		assert.Equal(t, Default(), *f.Current())
		ok, err, _ := f.Status()
		assert.True(t, ok)
		require.NoError(t, err)
		assert.Empty(t, log.String())
	})
}

func TestConfigBadFileStopsStart(t *testing.T) {
	path := place(t, "tick: 10\nwindow: x\n")
	f, err := Open(path, nil)
	assert.Nil(t, f)
	var errs Errors
	require.ErrorAs(t, err, &errs)
	assert.Len(t, errs, 2)
	assert.True(t, strings.HasPrefix(err.Error(), path+":3: tick: wrong unit"), err.Error())

	_, err = Open(path+".missing", nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestConfigPipeRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := Open(path, nil)
	require.EqualError(t, err, "read "+path+": not a regular file")
}

func TestConfigFlagsOverrideEachLoad(t *testing.T) {
	path := place(t, "tick: 2s\nwindow: 20s\n")
	f, err := Open(path, func(a *Agent) { a.Tick = 3 * time.Second })
	require.NoError(t, err)
	assert.Equal(t, 3*time.Second, f.Current().Tick)
	assert.Equal(t, 20*time.Second, f.Current().Window)

	write(t, path, "tick: 2s\nwindow: 30s\n")
	require.NoError(t, f.Reload())
	assert.Equal(t, 3*time.Second, f.Current().Tick)
	assert.Equal(t, 30*time.Second, f.Current().Window)

	write(t, path, "window: 5s\n")
	require.EqualError(t, f.Reload(), "flags: window: window (5s) must be at least 2 × tick (3s)", "the two contradict each other")
	assert.Equal(t, 30*time.Second, f.Current().Window)

	_, err = Open("", func(a *Agent) { a.Log.Level = "loud" })
	require.EqualError(t, err, `flags: log.level: want one of debug, info, warn, error, got "loud"`)
}

func TestConfigReloadWhenWhole(t *testing.T) {
	path := place(t, "")
	running(t, path, func(t *testing.T, f *File, log *bytes.Buffer) {
		before := f.Current()
		polls(3)
		require.Same(t, before, f.Current())

		write(t, path, "tick: 2s\nweb: {open: true}\n")
		polls(1)
		require.Same(t, before, f.Current(), "a file just seen may be half written")
		polls(1)
		require.NotSame(t, before, f.Current())
		assert.Equal(t, 2*time.Second, f.Current().Tick)
		assert.Equal(t, time.Second, before.Tick, "who holds the old one keeps it as it was")
		assert.Contains(t, log.String(), `msg="configuration reloaded"`)
		assert.Contains(t, log.String(), `changed="[tick web.open]"`)
		assert.Contains(t, log.String(), `level=WARN msg="some changed keys take effect only after a restart"`)
		assert.Contains(t, log.String(), `keys=[web.open]`)

		log.Reset()
		polls(5)
		assert.Empty(t, log.String(), "nothing is said twice")
	})
}

func TestConfigPartialWriteIgnored(t *testing.T) {
	path := place(t, "tick: 2s\n")
	running(t, path, func(t *testing.T, f *File, _ *bytes.Buffer) {
		before := f.Current()
		for _, soFar := range []string{"", "tick", "tick: 2s\nwindow: 1", "tick: 2s\nwindow: 11s\n"} {
			write(t, path, soFar)
			polls(1)
			require.Same(t, before, f.Current())
			ok, _, _ := f.Status()
			require.True(t, ok)
		}
		polls(1)
		assert.Equal(t, 11*time.Second, f.Current().Window)

		before = f.Current()
		for range 3 { // what comes and goes is new each time
			write(t, path, "tick: 3s\n")
			polls(1)
			write(t, path, "tick: 2s\nwindow: 11s\n")
			polls(1)
		}
		assert.Same(t, before, f.Current())
	})
}

func TestConfigBadFileKeepsLastGood(t *testing.T) {
	path := place(t, "tick: 2s\n")
	running(t, path, func(t *testing.T, f *File, log *bytes.Buffer) {
		good := f.Current()
		_, _, loaded := f.Status()

		write(t, path, "tick: 3s\nwindow: 10\n")
		polls(2)
		assert.Same(t, good, f.Current())
		ok, err, at := f.Status()
		assert.False(t, ok)
		require.EqualError(t, err, path+`:4: window: wrong unit: "10": write a duration like 10s`)
		assert.True(t, at.After(loaded))
		assert.Equal(t, 1, strings.Count(log.String(), `level=ERROR msg="failed to reload the configuration; the last good one stays in use"`))
		require.Error(t, f.Reload())
		_, _, again := f.Status()
		assert.True(t, again.After(at), "a reload that was asked for is an attempt of its own")

		log.Reset()
		polls(5)
		assert.Empty(t, log.String(), "a mistake is not logged at every poll")

		write(t, path, "tick: 2s\n")
		polls(2)
		ok, err, _ = f.Status()
		assert.True(t, ok)
		require.NoError(t, err)
		assert.Same(t, good, f.Current(), "no value changed, so neither did the pointer")
	})
}

func TestConfigFileMissing(t *testing.T) {
	path := place(t, "tick: 2s\n")
	running(t, path, func(t *testing.T, f *File, _ *bytes.Buffer) {
		good := f.Current()
		require.NoError(t, os.Rename(path, path+".away"))
		polls(2)
		ok, err, _ := f.Status()
		assert.False(t, ok)
		require.ErrorIs(t, err, fs.ErrNotExist)
		assert.Same(t, good, f.Current())

		require.NoError(t, os.Rename(path+".away", path))
		polls(2)
		ok, _, _ = f.Status()
		assert.True(t, ok)

		require.NoError(t, os.Truncate(path, 0))
		polls(2)
		_, err, _ = f.Status()
		require.ErrorContains(t, err, "apiVersion: missing")
		require.NoError(t, os.Remove(path))
		polls(2)
		_, err, _ = f.Status()
		require.ErrorIs(t, err, fs.ErrNotExist, "an empty file is there")
	})
}

// A kubelet updates a ConfigMap by renaming a symlink to a directory.
func TestConfigMapSymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	for version, body := range map[string]string{"1": "tick: 2s\n", "2": "tick: 3s\n"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "agent.yaml"), body)
	}
	require.NoError(t, os.Symlink("1", filepath.Join(dir, "..data")))
	path := filepath.Join(dir, "agent.yaml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "agent.yaml"), path))
	running(t, path, func(t *testing.T, f *File, _ *bytes.Buffer) {
		require.Equal(t, 2*time.Second, f.Current().Tick)
		require.NoError(t, os.Symlink("2", filepath.Join(dir, "..new")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
		polls(2)
		assert.Equal(t, 3*time.Second, f.Current().Tick)
	})
}

func TestConfigReloadAtomic(t *testing.T) {
	path := place(t, "tick: 1s\nwindow: 10s\n")
	f := open(t, path)
	const reloads = 50
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for f.Current().Tick < reloads*time.Millisecond+time.Second {
				now := f.Current()
				_, err, _ := f.Status()
				if !assert.NoError(t, err) || !assert.Equal(t, 10*now.Tick, now.Window) {
					return
				}
			}
		})
	}
	for i := range reloads {
		a := Default()
		a.Tick = time.Second + time.Duration(i+1)*time.Millisecond
		a.Window = 10 * a.Tick
		require.NoError(t, os.WriteFile(path, []byte(printed(t, a)), 0o600))
		require.NoError(t, f.Reload())
		require.Equal(t, a.Tick, f.Current().Tick)
	}
	readers.Wait()
}

func TestConfigHugeFileRefused(t *testing.T) {
	path := place(t, "")
	require.NoError(t, os.Truncate(path, 1<<40)) // sparse
	_, err := Open(path, nil)
	var errs Errors
	require.True(t, errors.As(err, &errs))
	require.EqualError(t, err, path+": larger than 256Ki: not a configuration file")
}
