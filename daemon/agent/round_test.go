package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/state"
)

func TestRoundKnowsContention(t *testing.T) {
	file, err := config.Open("", nil)
	require.NoError(t, err)
	a, s := &Agent{Config: file, throttles: &throttles{}}, scenes.Contended()
	a.state.Store(s)
	require.True(t, a.hasNewLevels())
	in := a.observe(t.Context(), nil)
	assert.Equal(t, s.Snapshot.Contention, in.Contention)
	assert.False(t, a.hasNewLevels(), "each sample is used once")
}

func TestRoundKnowsStandings(t *testing.T) {
	file, err := config.Open("", nil)
	require.NoError(t, err)
	a := &Agent{Config: file, throttles: &throttles{}, outer: &outerHost{host: &outer.Host{Settings: outer.DefaultConfig}}}
	a.state.Store(scenes.Calm())
	a.savedState.Named = []evict.NamedPod{{Plugin: "p"}}
	in := a.observe(t.Context(), nil)
	assert.Equal(t, "no plugin of this name has registered since the agent started", in.Standings["p"].Excluded)
}

// What is switched off is told, and after a round no condition is waited for.
func TestViewOfWhatIsSwitchedOff(t *testing.T) {
	file, err := config.Open("", func(c *config.Agent) { c.Conditions.Enabled, c.Eviction.Enabled = false, false })
	require.NoError(t, err)
	a := &Agent{Config: file, movers: &moverBudget{}, throttles: &throttles{}}
	a.cluster = &cluster{pods: &pods.Watcher{}, status: &lease.Status{}, cnr: &cnr{}, adopted: true, marked: make(chan struct{})}
	assert.Nil(t, a.viewCluster().Conditions)
	in := a.writeMarks(t.Context(), evict.Input{Cluster: &evict.Cluster{}}, evict.Marks{Conditions: []evict.Condition{{Type: "t"}}})
	assert.Equal(t, "conditions.enabled is false", in.Cluster.Unmarked)
	v := a.viewCluster()
	assert.Equal(t, []evict.Condition{}, v.Conditions)
	assert.True(t, v.ConditionsOff)
	assert.True(t, v.EvictionsOff)
}

// A changed state directory is one only after a restart: what is known of the first stays.
func TestStateDirChanged(t *testing.T) {
	var log strings.Builder
	dir := "/srv/first/state"
	file, err := config.Open("", func(c *config.Agent) { c.State.Dir = dir })
	require.NoError(t, err)
	start := file.Current()
	host := newOuterHost(start, 0, file.Current, slog.New(slog.DiscardHandler)).host
	a := &Agent{Config: file, Log: slog.New(slog.NewTextHandler(&log, nil)), lock: &StateLock{dir: dir}, throttles: &throttles{late: make(chan state.Answer[savedThrottles])}}
	dir = "/srv/second/state"
	require.NoError(t, file.Reload())
	require.Equal(t, dir, file.Current().State.Dir)
	assert.Equal(t, []string{"/srv/first/plugins"}, host.Settings().Dirs)
	a.endThrottles()
	assert.Contains(t, log.String(), "--state.dir /srv/first/state")
}

func TestReleaseCommand(t *testing.T) {
	for want, change := range map[string]func(c *config.Agent){
		"plimsoll release --kubeconfig FILE --node n1":                       func(*config.Agent) {},
		"plimsoll release --kubeconfig FILE --node n1 --state.dir /srv/here": func(c *config.Agent) { c.State.Dir = "/srv/here" },
		"plimsoll release --config FILE --node n1":                           func(c *config.Agent) { c.Kubernetes.Standalone = true },
	} {
		c := config.Default()
		c.Kubernetes.Node = "n1"
		change(&c)
		assert.Equal(t, want, ReleaseCommand(&c))
	}
}

func TestRoundOnNewHardLevelAtOnce(t *testing.T) {
	at := func(l plugins.Level) *view.State {
		return &view.State{Levels: &plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "p", Level: l}}}}
	}
	for _, c := range []struct {
		name           string
		judged, risen  plugins.Level
		rested         time.Duration
		anotherIsAsked bool
	}{
		{"nothing rises", plugins.None, plugins.None, evict.MinRound, false},
		{"soft", plugins.None, plugins.Soft, evict.MinRound, true},
		{"hard after soft", plugins.Soft, plugins.Hard, evict.MinRound / 4, true},
		{"hard at once", plugins.None, plugins.Hard, evict.MinRound / 4, true},
		{"hard was judged", plugins.Hard, plugins.Hard, evict.MinRound, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &Agent{levelRose: make(chan struct{}, 1), lastJudged: at(c.judged).Levels}
				a.state.Store(at(c.judged))
				go func() {
					time.Sleep(evict.MinRound / 4)
					a.state.Store(at(c.risen))
					if c.anotherIsAsked {
						wake(a.levelRose)
					}
				}()
				start := time.Now()
				a.pauseBetweenRounds(t.Context())
				assert.Equal(t, c.rested, time.Since(start))
				assert.Equal(t, c.anotherIsAsked, len(a.levelRose) == 1, "a round at once")
			})
		})
	}
}

// A disk that takes no writes is known before a pod is to be evicted, and shown.
func TestStateUnsaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{Log: slog.New(slog.DiscardHandler), cluster: &cluster{saveTimeout: time.Minute, store: state.File[evict.State]{Path: filepath.Join(dir, "evict.json")}}}
		unsavedAfter := func(d time.Duration) float64 {
			time.Sleep(d)
			a.saveState(evict.Input{}, a.savedState)
			seconds, _ := a.unsaved.Load().since()
			return seconds
		}
		assert.Zero(t, unsavedAfter(0))
		require.FileExists(t, a.cluster.store.Path)
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.WriteFile(dir, nil, 0o600))
		assert.Zero(t, unsavedAfter(saveInterval-1), "nothing has changed")
		unsavedAfter(1)
		require.NotNil(t, a.unsaved.Load())
		assert.InDelta(t, 60, unsavedAfter(time.Minute), 0)
		assert.Contains(t, a.unsaved.Load().why, "not a directory")
		require.NoError(t, os.Remove(dir))
		assert.Zero(t, unsavedAfter(time.Second))
		assert.FileExists(t, a.cluster.store.Path)
	})
}

// An agent that ends after a save that failed saves once more, and tells where that fails too.
func TestSaveLast(t *testing.T) {
	var log strings.Builder
	dir := filepath.Join(t.TempDir(), "state")
	file, err := config.Open("", nil)
	require.NoError(t, err)
	a := &Agent{Config: file, Log: slog.New(slog.NewTextHandler(&log, nil)), cluster: &cluster{saveTimeout: time.Minute, store: state.File[evict.State]{Path: filepath.Join(dir, "evict.json")}}}
	end := func() {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		require.NoError(t, a.roundLoop(ctx))
	}
	end()
	require.NoFileExists(t, a.cluster.store.Path, "nothing has failed")
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	newest := evict.State{Victims: []evict.Chosen{{Victim: evict.Victim{UID: "u"}}}}
	a.saveState(evict.Input{}, newest)
	require.NotNil(t, a.unsaved.Load())
	end()
	assert.Contains(t, log.String(), "the newest eviction state is not saved")
	require.NoError(t, os.Remove(dir))
	end()
	kept, err := a.cluster.store.Load()
	require.NoError(t, err)
	assert.Equal(t, a.savedState.Victims, kept.Victims)
	assert.Equal(t, 1, strings.Count(log.String(), "the newest eviction state is not saved"))
}

// The disk tells what an earlier agent saved after this one has begun: nothing is written over it,
// and it is taken over with what was decided meanwhile.
func TestStateReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		lock := &StateLock{late: make(chan state.Answer[*state.Lock]), answered: make(chan struct{})}
		a := &Agent{Log: slog.New(slog.NewTextHandler(&log, nil)), lock: lock, cluster: &cluster{saveTimeout: time.Minute, store: state.File[evict.State]{Path: filepath.Join(t.TempDir(), "evict.json")}}}
		saved := evict.State{Requests: map[string]evict.Victim{"u": {UID: "u"}}, Victims: []evict.Chosen{{Victim: evict.Victim{UID: "u"}}}}
		require.NoError(t, a.cluster.store.Save(saved))
		disk := make(chan struct{})
		require.ErrorIs(t, a.cluster.writer.Do(0, func() error { <-disk; return nil }), state.ErrTimeout)
		synctest.Wait()
		a.loadState(evict.DefaultConfig())
		assert.Contains(t, log.String(), "cannot read the saved eviction state: the disk of the state directory hangs")
		require.Empty(t, a.savedState.Requests)
		m := a.savedState
		m.Victims = []evict.Chosen{{Victim: evict.Victim{UID: "new"}}}
		save := func() evict.State {
			a.adoptState()
			a.saveState(evict.Input{}, a.savedState)
			kept, err := a.cluster.store.Load()
			require.NoError(t, err)
			return kept
		}
		a.saveState(evict.Input{}, m)
		assert.NotNil(t, a.unsaved.Load())
		close(disk)
		synctest.Wait()
		assert.Equal(t, saved, save(), "it may be another agent's")
		close(lock.answered)
		kept := save()
		assert.Equal(t, saved.Requests, kept.Requests)
		require.Len(t, kept.Victims, 2)
		assert.Equal(t, "new", kept.Victims[1].UID)
		assert.Equal(t, m.CooldownUntil, kept.CooldownUntil)
		assert.Nil(t, a.unsaved.Load())
		assert.Equal(t, 1, strings.Count(log.String(), "the saved eviction state is taken over"))
	})
}
