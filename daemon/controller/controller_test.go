package controller

import (
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// leading is a controller that leads, with loops that beat when the test does.
func leading(t *testing.T) *Controller {
	t.Helper()
	file, err := config.OpenOf("", config.DefaultController, func(c *config.Controller) {
		c.Fleet.Enabled, c.Backups.Enabled, c.VGDP.Enabled = false, false, false
	})
	require.NoError(t, err)
	c := &Controller{Config: file, election: &election{identity: "us"}, pulses: &process.Liveness{}}
	c.election.leads.Store(true)
	c.election.leader.Store(&c.election.identity)
	return c
}

func TestAControllerWhoseLoopIsStuckIsNotReadyAndThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		require.NoError(t, c.ready(), "what waits for its first lists is not stuck")
		for range 10 * int(process.StuckAfter/time.Second) { // it works
			c.pulses.Record(loopFleet)
			time.Sleep(time.Second)
			require.NoError(t, c.ready())
		}
		for since := 2 * time.Second; since < 2*process.StuckAfter; since += time.Second {
			time.Sleep(time.Second)
			assert.Equal(t, since > process.NotReadyAfter, c.ready() != nil, "after %s", since)
			assert.Equal(t, since > process.StuckAfter, c.healthy() != nil, "after %s", since)
		}
		assert.ErrorContains(t, c.healthy(), "fleet: last pass of its loop was 5m59s ago")
		c.pulses.Reset()
		assert.NoError(t, c.healthy(), "one that stands by has no loop")
	})
}

func TestALoopThatRestsLongByItselfIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		c.pulses.Record(loopBackups)
		time.Sleep(c.Config.Current().Backups.Resync + process.NotReadyAfter)
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
		g.Go(func() error { c.pulses.Record(loopLoads); <-stuck; return nil })
		g.Go(func() error { return process.WatchLoops(ctx, c.healthy) })
		assert.ErrorContains(t, process.WaitAll(ctx, g), "so that another replica can lead: vgdp: last pass of its loop was")
		assert.LessOrEqual(t, time.Since(began), process.StuckAfter+2*process.WatchInterval+process.StopTimeout)
	})
}

func TestTheWatchdogIsFedByALoopThatWorks(t *testing.T) {
	next := systemdHears(t)
	t.Setenv("WATCHDOG_USEC", "60000000")
	c := leading(t)
	svc := &process.Service{Log: slog.New(slog.DiscardHandler)}
	c.pulses.LastPass = map[string]time.Time{loopFleet: time.Now().Add(-process.StuckAfter - time.Second)}
	c.feed(svc)
	assert.False(t, svc.Ready.Load(), "nothing was said")
	c.pulses.Record(loopFleet)
	c.feed(svc)
	assert.Contains(t, next(), "WATCHDOG=1")
}

func TestEachLoopOfTheControllerBeatsWhenItLooks(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`), 0o600))
	file, err := config.OpenOf("", config.DefaultController, func(c *config.Controller) { c.Kubernetes.Kubeconfig = kubeconfig })
	require.NoError(t, err)
	c, err := New(file, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer c.events.Shutdown()
	assert.Empty(t, c.pulses.LastPass)
	c.queue.Settings()
	c.fleet.Settings()
	c.loads.Settings()
	assert.Equal(t, []string{loopBackups, loopFleet, loopLoads}, slices.Sorted(maps.Keys(c.pulses.LastPass)))
}

// systemdHears is a service manager as far as a program knows one: a socket.
func systemdHears(t *testing.T) (next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		buf := make([]byte, 4096)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		n, err := c.Read(buf)
		require.NoError(t, err)
		return strings.ReplaceAll(string(buf[:n]), "\n", " ")
	}
}
