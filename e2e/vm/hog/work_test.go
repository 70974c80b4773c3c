package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// one piece of a work, and its count.
func piece(t *testing.T, kind, dir string) (w *work, do func() error) {
	t.Helper()
	w = &work{kind: kind, dir: dir, threads: 1}
	require.NoError(t, w.begin())
	var err error
	do, err = map[string]func(int) (func() error, error){
		"direct": w.direct, "synced": w.synced, "cpu": w.compute, "forks": w.forks,
	}[kind](1)
	require.NoError(t, err)
	return w, do
}

func TestWorkCounted(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "common"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(dir, "data"), dataSize))
	for kind, least := range map[string]uint64{"direct": blockSize, "synced": syncEvery << 20, "cpu": 1, "forks": 1} {
		t.Run(kind, func(t *testing.T) {
			w, do := piece(t, kind, dir)
			require.NoError(t, do())
			assert.GreaterOrEqual(t, w.done.Load(), least)
		})
	}
	require.ErrorContains(t, (&work{kind: "walk"}).run(), `no such work: "walk"`)
}

func TestWorkFileBegunAnew(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "common"), 0o700))
	_, do := piece(t, "synced", dir)
	for range fileMiB/syncEvery + 1 {
		require.NoError(t, do())
	}
	info, err := os.Stat(filepath.Join(dir, "synced1"))
	require.NoError(t, err)
	assert.EqualValues(t, syncEvery<<20, info.Size())
}

// TestWorkSeen: others find the count in its file, and the lock taken while one works.
func TestWorkSeen(t *testing.T) {
	dir := t.TempDir()
	w := &work{count: filepath.Join(dir, "count"), lock: filepath.Join(dir, "lock"), listen: "127.0.0.1:0"}
	require.NoError(t, w.begin())
	w.done.Add(7)
	b, err := os.ReadFile(w.count)
	require.NoError(t, err)
	assert.Equal(t, []byte{7, 0, 0, 0, 0, 0, 0, 0}, b)

	take := func() error {
		f, err := os.Open(w.lock)
		require.NoError(t, err)
		defer f.Close()
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	require.NoError(t, w.locked(0, func() error {
		require.ErrorIs(t, take(), unix.EWOULDBLOCK)
		return nil
	}))
	require.NoError(t, w.locked(1, take), "only one thread takes it")
	require.NoError(t, take(), "and gives it back")
}

func TestWorkAnswers(t *testing.T) {
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	require.NoError(t, (&work{listen: address}).begin())
	deadline.Within(t, 10*time.Second, "it answers", func() error {
		r, err := http.Get("http://" + address + "/live")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		assert.Equal(t, "ok\n", string(b))
		return err
	})
}

func TestHogAhead(t *testing.T) {
	l := load{fill: 1000, ahead: 70, pace: 100}
	assert.Equal(t, 64, l.piece(0, 0))
	assert.Equal(t, 6, l.piece(64, 0))
	assert.Equal(t, 2, l.piece(70, 0))
	l.pace = 40
	assert.Equal(t, 1, l.piece(70, 0))
}
