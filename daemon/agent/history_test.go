package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// pastAgent publishes states ten seconds apart to a historyKeeper.
type pastAgent struct {
	t      *testing.T
	keeper *historyKeeper
	log    bytes.Buffer
	bell   web.Notifier
	state  atomic.Pointer[view.State]
	end    func()
}

func startPast(t *testing.T, dir string, interval time.Duration) *pastAgent {
	t.Helper()
	a := &pastAgent{t: t, keeper: newHistory(dir)}
	a.keeper.interval = interval
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	log := slog.New(slog.NewTextHandler(&a.log, nil))
	go func() { ended <- a.keeper.run(ctx, a.bell.Next, a.state.Load, log) }()
	a.end = func() {
		t.Helper()
		cancel()
		require.NoError(t, <-ended)
	}
	return a
}

// publish a state, after which so many steps are kept.
func (a *pastAgent) publish(at time.Time, want int) {
	a.t.Helper()
	s := *scenes.Calm()
	snap := *s.Snapshot
	snap.Time, s.Snapshot = at, &snap
	a.state.Store(&s)
	deadline.Within(a.t, 5*time.Second, "it is kept", func() error {
		a.bell.Notify()
		if is := a.known(); is != want {
			return fmt.Errorf("%d steps are", is)
		}
		return nil
	})
}

// known is how many steps have a value.
func (a *pastAgent) known() int {
	return knownSteps(a.t, &a.keeper.store)
}

func knownSteps(t *testing.T, store *history.Store) (known int) {
	t.Helper()
	r, err := history.ParseRange(nil, scenes.Start().Add(30*time.Minute))
	require.NoError(t, err)
	for _, v := range store.Answer(r, "").Node["availableRatio"].Mean {
		if v == v {
			known++
		}
	}
	return known
}

func TestHistoryKeeper(t *testing.T) {
	t.Run("it goes on after a restart, and a spoiled file begins anew", func(t *testing.T) {
		dir := t.TempDir()
		for run := range 3 {
			a := startPast(t, dir, time.Hour)
			a.publish(scenes.Start().Add(time.Duration(run)*time.Minute), run+1)
			a.end()
			assert.Equal(t, run+1, a.known())
			assert.Empty(t, a.log.String())
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "history"), []byte("spoiled"), 0o600))
		a := startPast(t, dir, time.Hour)
		a.publish(scenes.Start().Add(10*time.Minute), 1)
		a.end()
		assert.Equal(t, 1, a.known())
		assert.Contains(t, a.log.String(), "cannot read the saved history; the plots begin now")
	})
	t.Run("it is saved while the agent runs", func(t *testing.T) {
		dir := t.TempDir()
		a := startPast(t, dir, 20*time.Millisecond)
		a.publish(scenes.Start(), 1)
		deadline.Within(t, 5*time.Second, "it is in the file", func() error {
			var store history.Store
			f, err := os.Open(filepath.Join(dir, "history"))
			if err != nil {
				return err
			}
			defer f.Close()
			if err := store.Load(f); err != nil {
				return err
			}
			if knownSteps(t, &store) != 1 {
				return assert.AnError
			}
			return nil
		})
		a.end()
	})
	t.Run("a disk that hangs stops nothing", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "history.half"), 0o600)) // opening it to write waits for a reader
		a := startPast(t, dir, 10*time.Millisecond)
		for i := range 3 {
			a.publish(scenes.Start().Add(time.Duration(i)*time.Minute), i+1)
		}
		a.end()
		assert.Contains(t, a.log.String(), "cannot save the history")
		assert.Contains(t, a.log.String(), "does not answer in time")
		r, err := os.Open(filepath.Join(dir, "history.half")) // the write goes on
		require.NoError(t, err)
		defer r.Close()
		require.NoError(t, a.keeper.writer.Flush(time.Minute))
	})
}
