package daemon

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// leading is a controller that leads, with loops that beat when the test does.
func leading(t *testing.T) *Controller {
	t.Helper()
	file, err := config.OpenOf("", config.DefaultController, func(c *config.Controller) {
		c.Fleet.Enabled, c.Backups.Enabled, c.VGDP.Enabled = false, false, false
	})
	require.NoError(t, err)
	c := &Controller{Config: file, election: &election{identity: "us"}, pulses: &pulses{}}
	c.election.leads.Store(true)
	c.election.leader.Store(&c.election.identity)
	return c
}

func TestAControllerWhoseLoopIsStuckIsNotReadyAndThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		require.NoError(t, c.ready(), "what waits for its first lists is not stuck")
		for range 10 * int(stuckAfter/time.Second) { // it works
			c.pulses.beat(loopFleet)
			time.Sleep(time.Second)
			require.NoError(t, c.ready())
		}
		for since := 2 * time.Second; since < 2*stuckAfter; since += time.Second {
			time.Sleep(time.Second)
			assert.Equal(t, since > lateAfter, c.ready() != nil, "after %s", since)
			assert.Equal(t, since > stuckAfter, c.healthy() != nil, "after %s", since)
		}
		assert.ErrorContains(t, c.healthy(), "fleet: last pass of its loop was 5m59s ago")
		c.pulses.end()
		assert.NoError(t, c.healthy(), "one that stands by has no loop")
	})
}

func TestALoopThatRestsLongByItselfIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		c.pulses.beat(loopBackups)
		time.Sleep(c.Config.Current().Backups.Resync + lateAfter)
		assert.NoError(t, c.ready())
		time.Sleep(time.Second)
		assert.Error(t, c.ready())
	})
}

// A leader whose loop is stuck does not end its term: the process must end.
func TestAControllerWhoseLoopIsStuckEndsAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		stuck := make(chan struct{})
		defer close(stuck)
		began := time.Now()
		g, ctx := errgroup.WithContext(t.Context())
		g.Go(func() error { c.pulses.beat(loopLoads); <-stuck; return nil })
		g.Go(func() error { return watchLoops(ctx, c.healthy) })
		assert.ErrorContains(t, ended(ctx, g), "so that another replica can lead: vgdp: last pass of its loop was")
		assert.LessOrEqual(t, time.Since(began), stuckAfter+2*watchEvery+endTimeout)
	})
}

func TestTheWatchdogIsFedByALoopThatWorks(t *testing.T) {
	next := systemdHears(t)
	t.Setenv("WATCHDOG_USEC", "60000000")
	c := leading(t)
	svc := &service{log: discard()}
	c.pulses.last = map[string]time.Time{loopFleet: time.Now().Add(-stuckAfter - time.Second)}
	c.feed(svc)
	assert.False(t, svc.ready.Load(), "nothing was said")
	c.pulses.beat(loopFleet)
	c.feed(svc)
	assert.Contains(t, next(), "WATCHDOG=1")
}

func TestAnAgentWhoseRoundHangsIsNotReadyAndNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, err := config.Open("", func(*config.Agent) {})
		require.NoError(t, err)
		a := &Agent{Config: file}
		a.state.Store(&view.State{})
		sampled := func() error { a.beat.Store(time.Now().UnixNano()); return a.ready() }
		require.NoError(t, sampled(), "before the first round")
		a.rounds.beat(loopRounds)
		time.Sleep(lateAfter + file.Current().Eviction.Round + file.Current().Plugins.Deadline)
		require.NoError(t, sampled())
		time.Sleep(time.Second)
		require.ErrorContains(t, sampled(), "rounds: last pass of its loop was 39s ago")
		assert.NoError(t, a.healthy(), "its Lease says that the node lives")
		a.rounds.beat(loopRounds)
		assert.NoError(t, sampled())
	})
}

func TestEachLoopOfTheControllerBeatsWhenItLooks(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`), 0o600))
	file, err := config.OpenOf("", config.DefaultController, func(c *config.Controller) { c.Kubernetes.Kubeconfig = kubeconfig })
	require.NoError(t, err)
	c, err := NewController(file, discard())
	require.NoError(t, err)
	defer c.events.Shutdown()
	assert.Empty(t, c.pulses.last)
	c.queue.Settings()
	c.fleet.Settings()
	c.loads.Settings()
	assert.Equal(t, []string{loopBackups, loopFleet, loopLoads}, slices.Sorted(maps.Keys(c.pulses.last)))
}
