package outer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// looked is a host with a made-up /proc and made-up listeners.
type looked struct {
	*pluginEnv
	watch, mounts string
}

// newLooked has process 17, which watches the plugin directory.
func newLooked(t *testing.T) *looked {
	t.Helper()
	w := &looked{pluginEnv: newPluginEnv(t)}
	w.Procfs = t.TempDir()
	place := locationOf(t, w.dir)
	w.mounts, w.watch = fmt.Sprintf("1 0 %s / / rw - x x rw\n", place.device), watching(t, place)
	w.registry.sockets = map[string]*socket{}
	process(t, w.Procfs, "1", "init", w.mounts)
	w.watches(t, 17)
	return w
}

func (w *looked) watches(t *testing.T, pid int) {
	t.Helper()
	process(t, w.Procfs, fmt.Sprint(pid), "watcher", w.mounts, w.watch)
}

func (w *looked) ends(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, os.RemoveAll(filepath.Join(w.Procfs, fmt.Sprint(pid))))
}

func (w *looked) look(ctx context.Context) { w.updateRivals(ctx, time.Minute) }

func of(pid int) listener { return listener{pid, fmt.Sprint("/of/", pid)} }

// listens connects to a socket's listener; 0: there is none any more, and no file.
func (w *looked) listens(t *testing.T, name string, pid int) {
	t.Helper()
	if pid == 0 {
		delete(w.registry.sockets, w.path(name))
		return
	}
	s, by := newSocket(t.Context(), w.Host, w.path(name), fileIdentity{}), of(pid)
	w.registry.sockets[s.path] = s
	w.registry.setListener(s, &by)
	w.rivals.heard.add(s.path, by, time.Now())
}

// left is why the plugin of a process is left to a rival.
func (w *looked) left(name string, pid int) error {
	return w.rivals.known().leave(BesideExclusive, w.path(name), of(pid))
}

func TestRivalThatListens(t *testing.T) {
	t.Parallel()
	t.Run("beside others it is a host, also of its own plugin", func(t *testing.T) {
		t.Parallel()
		w := newLooked(t)
		w.listens(t, "its", 17)
		w.look(t.Context())
		require.NoError(t, w.left("its", 17), "a plugin that watches its own directory")
		assert.Empty(t, w.Rivals())
		w.listens(t, "another", 20)
		for name, pid := range map[string]int{"its": 17, "another": 20} {
			require.ErrorIs(t, w.left(name, pid), errRefused, name)
		}
		assert.Len(t, w.Rivals(), 1)
	})
	t.Run("it has ended, and the other plugin before", func(t *testing.T) {
		t.Parallel()
		w := newLooked(t)
		w.listens(t, "its", 17)
		w.listens(t, "another", 20)
		w.look(t.Context())
		w.listens(t, "another", 0)
		w.look(t.Context())
		w.ends(t, 17)
		w.listens(t, "its", 0)
		w.look(t.Context())
		require.ErrorIs(t, w.left("another", 21), errRefused, "it may be starting anew")
		require.ErrorIs(t, w.left("new", 22), errRefused)
		require.Len(t, w.Rivals(), 1)
		assert.NotZero(t, w.Rivals()[0].Ended)
	})
	t.Run("a plugin that crashed is no rival of the next one on its socket", func(t *testing.T) {
		t.Parallel()
		w := newLooked(t)
		w.look(t.Context())
		w.listens(t, "its", 17) // after the look
		w.ends(t, 17)
		w.look(t.Context())
		require.NoError(t, w.left("its", 20))
		assert.Empty(t, w.Rivals())
		w.listens(t, "its", 20)
		w.watches(t, 20)
		w.look(t.Context())
		require.NoError(t, w.left("its", 20))
		require.ErrorIs(t, w.left("another", 21), errRefused, "it is another's")
	})
	t.Run("an upgrade with overlap", func(t *testing.T) {
		t.Parallel()
		w := newLooked(t)
		w.listens(t, "its", 17)
		w.look(t.Context())
		w.watches(t, 20)
		w.listens(t, "its", 20)
		w.look(t.Context())
		require.NoError(t, w.left("its", 20))
		w.ends(t, 17)
		w.look(t.Context())
		require.NoError(t, w.left("its", 20))
	})
	t.Run("a socket that was left behind counts no longer than a rival", func(t *testing.T) {
		t.Parallel()
		w := newLooked(t)
		w.listens(t, "old", 16)
		w.listens(t, "its", 17)
		w.look(t.Context())
		require.ErrorIs(t, w.left("its", 17), errRefused)
		old := w.registry.sockets[w.path("old")]
		old.fileCtx = t.Context()
		require.Error(t, old.register(), "no process listens there")
		w.rivals.heard.on[old.path][0].at = time.Now().Add(-rivalReturn - time.Second)
		for len(old.wake) > 0 {
			<-old.wake
		}
		w.look(t.Context())
		require.NoError(t, w.left("its", 17))
		assert.Len(t, old.wake, 1, "all are decided anew")
	})
}

// A rival that is back may not be found yet when its time is over.
func TestEndedRivalCountsUntilAllIsExamined(t *testing.T) {
	t.Parallel()
	w := newLooked(t)
	w.look(t.Context())
	w.ends(t, 17)
	w.look(t.Context())
	w.watches(t, 18)
	known := w.rivals.known()
	known.byDir[w.dir][0].Until = time.Now()
	w.rivals.newest.Store(&known)
	w.updateRivals(t.Context(), -1)
	require.Len(t, w.Rivals(), 1, "no process was examined")
	assert.Equal(t, 17, w.Rivals()[0].PID)
	w.look(t.Context())
	require.Len(t, w.Rivals(), 1)
	assert.Equal(t, 18, w.Rivals()[0].PID)
}

func TestRivalOfADirectoryThatIsConfiguredNoMore(t *testing.T) {
	t.Parallel()
	w := newLooked(t)
	w.look(t.Context())
	require.Len(t, w.Rivals(), 1)
	require.NoError(t, os.Rename(w.dir, w.dir+".old"))
	t.Cleanup(func() { _ = os.RemoveAll(w.dir + ".old") })
	w.look(t.Context())
	require.Len(t, w.Rivals(), 1, "a directory that is away may come back with it")
	w.config.Dirs = []string{socketDir(t)}
	w.look(t.Context())
	assert.Empty(t, w.Rivals())
}

// A round asks for the standing of plugins, so that must not wait for a directory that
// hangs: it touches none, as one that is away shows.
func TestStandingTouchesNoFile(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	link := w.dir + ".link"
	require.NoError(t, os.Symlink(w.dir, link))
	t.Cleanup(func() { _ = os.Remove(link) })
	w.config.Dirs = []string{link}
	newFake("p").serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	w.end()
	require.NoError(t, <-w.ended)
	w.ended <- nil
	require.NoError(t, os.Remove(link))
	assert.Equal(t, Standing{}, w.Standing("p"))
	w.config.Dirs = []string{"/elsewhere"}
	assert.Contains(t, w.Standing("p").Excluded, "not inside a directory of plugins.dirs")
}

func TestHeardIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var h heard
	for i := range 2 * maxHeard {
		h.add(fmt.Sprintf("/p/%d", i), of(1), now.Add(time.Duration(i)))
	}
	assert.Len(t, h.on, maxHeard)
	assert.NotContains(t, h.on, "/p/0", "the newest are remembered")
	h = heard{}
	for i := range 3 * maxRivals {
		h.add("/q/s", of(i), now)
		h.add("/q/s", of(0), now)
	}
	assert.Len(t, h.in("/q")["/q/s"], maxRivals)
	assert.Contains(t, h.in("/q")["/q/s"], of(0), "it is still there")

	h = heard{}
	h.add("/p/a", of(17), now)
	h.add("/p/b", of(18), now)
	rivals := map[string][]Rival{"/p": {{Dir: "/p", PID: 17}}}
	h.forget(now.Add(rivalReturn), rivals)
	assert.Len(t, h.in("/p"), 2)
	h.forget(now.Add(rivalReturn+1), rivals)
	assert.Equal(t, map[string][]listener{"/p/a": {of(17)}}, h.in("/p"), "a rival's own, while it counts")
	h.forget(now.Add(rivalReturn+1), nil)
	assert.Empty(t, h.on)
}
