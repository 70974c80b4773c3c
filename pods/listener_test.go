package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// watcherOn runs a watcher of s in a bubble of its own time.
func watcherOn(t *testing.T, s *server, test func(w *Watcher, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := &Watcher{Node: "n1", Pods: s, Log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		test(w, &log)
		stop()
		require.NoError(t, <-ended)
	})
}

func TestWatchSilentIsGivenUp(t *testing.T) {
	s := &server{rows: []corev1.Pod{*made()}}
	watcherOn(t, s, func(w *Watcher, log *bytes.Buffer) {
		require.True(t, w.Synced())
		for range 5 { // the bookmarks keep it
			time.Sleep(watchTimeout - time.Second)
			s.last().bookmark("9", false)
			synctest.Wait()
			require.Zero(t, w.List(DefaultRules()).StaleSince)
		}
		require.Equal(t, 1, s.calls())
		s.set(func(s *server) { s.hang = true })
		heard := time.Now()
		time.Sleep(watchTimeout - time.Nanosecond)
		synctest.Wait()
		require.Zero(t, w.List(DefaultRules()).StaleSince, "given up too early")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		list := w.List(DefaultRules())
		assert.Equal(t, heard.Add(watchTimeout), list.StaleSince)
		assert.Contains(t, list.StaleBecause, "not even a bookmark")
		assert.Len(t, list.Pods, 1, "what was known is still known")
		assert.Contains(t, log.String(), "level=WARN")
	})
}

func TestWatchStaleUntilWholeList(t *testing.T) {
	s := &server{rows: []corev1.Pod{*made()}}
	watcherOn(t, s, func(w *Watcher, log *bytes.Buffer) {
		s.set(func(s *server) {
			s.fail = errors.New("away")
			s.rows = []corev1.Pod{*made(func(p *corev1.Pod) { p.UID = "u2" })}
		})
		lost := time.Now()
		s.last().Stop()
		synctest.Wait()
		list := w.List(DefaultRules())
		assert.Equal(t, lost, list.StaleSince)
		assert.Equal(t, "u1", list.Pods[0].UID)
		time.Sleep(time.Hour)
		synctest.Wait()
		list = w.List(DefaultRules())
		assert.Equal(t, lost, list.StaleSince, "it began with the first loss")
		assert.Contains(t, list.StaleBecause, "away")
		assert.True(t, list.Synced)
		assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), "one line for one outage:\n%s", log)

		s.set(func(s *server) { s.fail = nil })
		for range 17 { // never fresh and old at once
			time.Sleep(time.Second)
			synctest.Wait()
			list = w.List(DefaultRules())
			require.Equal(t, list.StaleSince.IsZero(), list.Pods[0].UID == "u2")
		}
		assert.Zero(t, list.StaleSince, "an API server that is back is asked within 16 s")
		assert.Empty(t, list.StaleBecause)
		assert.Contains(t, log.String(), "connection to the API server recovered")
	})
}

func TestWatchRefusedConnectionsRetried(t *testing.T) {
	s := &server{rows: []corev1.Pod{*made()}}
	watcherOn(t, s, func(w *Watcher, _ *bytes.Buffer) {
		s.last().bookmark("9", false)
		s.set(func(s *server) { s.fail, s.asked = fmt.Errorf("dial: %w", syscall.ECONNREFUSED), nil })
		s.last().Stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		gaps := s.gaps()
		assert.LessOrEqual(t, slices.Max(gaps), 16*time.Second)
		assert.Greater(t, slices.Max(gaps), 8*time.Second, "a fleet does not hammer it")
		assert.Less(t, len(gaps), 3600/5)

		// The old watch would go on where it was: what it has missed would be
		// in a moment after the mark's end.
		s.set(func(s *server) { s.fail, s.late = nil, true })
		time.Sleep(16 * time.Second)
		synctest.Wait()
		options := s.last().options
		require.NotNil(t, options.SendInitialEvents)
		assert.Empty(t, options.ResourceVersion, "the list as it is now, not one that is no older than ours")
		assert.NotZero(t, w.List(DefaultRules()).StaleSince, "the list is on its way, not here")
		s.last().bookmark("10", true)
		synctest.Wait()
		assert.Zero(t, w.List(DefaultRules()).StaleSince)
	})
}

func TestWatchLateAnswerListsAnew(t *testing.T) {
	s := &server{rows: []corev1.Pod{*made()}}
	watcherOn(t, s, func(w *Watcher, _ *bytes.Buffer) {
		s.last().bookmark("9", false)
		s.set(func(s *server) {
			s.takes, s.rows = 2*maxResumeGap, []corev1.Pod{*made(func(p *corev1.Pod) { p.UID = "u2" })}
		})
		s.last().Stop()
		for range 30 {
			synctest.Wait()
			if list := w.List(DefaultRules()); list.StaleSince.IsZero() {
				require.Equal(t, "u2", list.Pods[0].UID)
			}
			time.Sleep(maxResumeGap / 2)
		}
		require.Zero(t, w.List(DefaultRules()).StaleSince)
		assert.NotNil(t, s.last().options.SendInitialEvents)
	})
}

func TestWatchRegularEnd(t *testing.T) {
	s := &server{}
	watcherOn(t, s, func(w *Watcher, log *bytes.Buffer) {
		for range 3 {
			s.last().bookmark("9", false)
			time.Sleep(time.Minute)
			s.last().Stop()
			synctest.Wait()
			assert.Zero(t, w.List(DefaultRules()).StaleSince)
		}
		assert.Equal(t, 4, s.calls())
		assert.Nil(t, s.last().options.SendInitialEvents, "it goes on where it was")
		assert.Empty(t, log.String())
	})
}

func TestWatchMadeUpByClient(t *testing.T) {
	s := &server{}
	watcherOn(t, s, func(w *Watcher, _ *bytes.Buffer) {
		s.set(func(s *server) { s.made = watch.NewEmptyWatch() })
		lost := time.Now()
		s.last().bookmark("9", false)
		s.last().Stop()
		synctest.Wait()
		list := w.List(DefaultRules())
		assert.Equal(t, lost, list.StaleSince)
		assert.Contains(t, list.StaleBecause, errNoAnswer.Error())
	})
}

func TestWatchErrorIsReason(t *testing.T) {
	s := &server{}
	watcherOn(t, s, func(w *Watcher, _ *bytes.Buffer) {
		s.set(func(s *server) { s.fail = errors.New("away") })
		expired := apierrors.NewResourceExpired("too old").Status()
		s.last().Error(&expired)
		synctest.Wait()
		list := w.List(DefaultRules())
		assert.False(t, list.StaleSince.IsZero())
		assert.Contains(t, list.StaleBecause, "too old")
	})
}

func TestWatchBeforeFirstList(t *testing.T) {
	s := &server{fail: errors.New("away")}
	require.Equal(t, List{}, (&Watcher{}).List(DefaultRules()).withoutIndex())
	watcherOn(t, s, func(w *Watcher, _ *bytes.Buffer) {
		list := w.List(DefaultRules())
		assert.False(t, list.Synced)
		assert.False(t, w.Synced())
		assert.Empty(t, list.Pods)
		assert.False(t, list.StaleSince.IsZero())
	})
}

// withoutIndex is a list as others make it.
func (l List) withoutIndex() List {
	l.byCgroup = nil
	if len(l.Pods) == 0 {
		l.Pods = nil
	}
	return l
}

func TestWatchChangedCallback(t *testing.T) {
	told := 0
	w := &Watcher{Changed: func() { told++ }, Log: slog.New(slog.DiscardHandler)}
	s := strippingStore{w.newStore(), &listerWatcher{watcher: w}}
	for i, change := range []func() error{
		func() error { return s.Replace([]any{made()}, "1") },
		func() error { return s.Add(made(func(p *corev1.Pod) { p.Name = "web-2" })) },
		func() error { return s.Update(made(prioritized(7))) },
		func() error { return s.Delete(made()) },
	} {
		require.NoError(t, change())
		assert.Equal(t, i+1, told)
	}
	require.Error(t, s.Add("no pod"))
	assert.Equal(t, 4, told, "nothing changed")
	w.Changed = nil
	require.NoError(t, s.Delete(made()), "nobody follows")
}
