package controller

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/daemon/capabilities"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// leading is a controller that leads, with loops that beat when the test does.
func leading(t *testing.T) *Controller {
	t.Helper()
	file, err := config.OpenOf("", config.DefaultController, func(c *config.Controller) {
		c.Fleet.Enabled, c.Backups.Enabled, c.VGDP.Enabled = false, false, false
	})
	require.NoError(t, err)
	c := &Controller{
		Config: file, election: &election{identity: "us", config: file.Current().Election}, liveness: &process.Liveness{}, api: &connection{log: slog.New(slog.DiscardHandler)}, abilities: &abilities.Reader{},
		queue: &backup.Reconciler{}, agents: &agents.Reconciler{}, loads: &admission.Reconciler{}, has: &capabilities.Watcher{},
	}
	c.election.isLeader.Store(true)
	return c
}

func TestControllerHungLoopReadyThenLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		require.NoError(t, c.ready(), "what waits for its first lists is not stuck")
		for range 10 * int(process.StuckAfter/time.Second) { // it works
			c.liveness.Record(loopAgents, 0)
			time.Sleep(time.Second)
			require.NoError(t, c.ready())
		}
		for since := 2 * time.Second; since < 2*process.StuckAfter; since += time.Second {
			time.Sleep(time.Second)
			assert.Equal(t, since > process.NotReadyAfter, c.ready() != nil, "after %s", since)
			assert.Equal(t, since > process.StuckAfter, c.healthy() != nil, "after %s", since)
		}
		assert.ErrorContains(t, c.healthy(), "agents: last pass of its loop was 5m59s ago")
		c.liveness.Reset()
		assert.NoError(t, c.healthy(), "one that stands by has no loop")
	})
}

// What is refused for longer than a Lease lasts is not done, also where all else works.
func TestControllerLastingProblemNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		c.api.begin(question{web.APIForbidden, "nodes"}, "list nodes: because")
		time.Sleep(c.election.config.Duration)
		require.NoError(t, c.ready())
		time.Sleep(time.Nanosecond)
		assert.ErrorContains(t, c.ready(), "list nodes: because; grant what deploy/rbac-controller.yaml grants")
		assert.NoError(t, c.healthy(), "a restart would not help")
		c.api.end(question{web.APIForbidden, "nodes"})
		assert.NoError(t, c.ready())
	})
}

func TestControllerLongIdleLoopIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		resync := time.Hour // of a configuration that has changed since
		c.liveness.Record(loopBackups, resync)
		time.Sleep(resync + process.NotReadyAfter)
		assert.NoError(t, c.ready())
		time.Sleep(time.Second)
		assert.Error(t, c.ready())
	})
}

func TestConfiguredVeleroIsProtected(t *testing.T) {
	c := config.DefaultController()
	c.Fleet.Protect.Namespaces = []string{"mine"}
	c.Velero = []config.Velero{{Namespace: "backup"}}
	assert.Equal(t, []string{"mine", "backup"}, agentsSettings(&c).Protect.Namespaces)
	assert.Equal(t, []string{"mine"}, c.Fleet.Protect.Namespaces)
}

// A leader whose loop is stuck does not end its term: the process must end.
func TestControllerHungLoopEndsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(t)
		stuck := make(chan struct{})
		defer close(stuck)
		began := time.Now()
		g, ctx := errgroup.WithContext(t.Context())
		g.Go(func() error { c.liveness.Record(loopLoads, 0); <-stuck; return nil })
		g.Go(func() error { return process.WatchLoops(ctx, c.healthy) })
		assert.ErrorContains(t, process.WaitAll(ctx, g), "so that another replica can lead: vgdp: last pass of its loop was")
		assert.LessOrEqual(t, time.Since(began), process.StuckAfter+2*process.WatchInterval+process.StopTimeout)
	})
}

func TestControllerFeedsWatchdog(t *testing.T) {
	next := systemdHears(t)
	t.Setenv("WATCHDOG_USEC", "60000000")
	c := leading(t)
	svc := &process.Service{Log: slog.New(slog.DiscardHandler)}
	c.liveness.Record(loopAgents, -process.StuckAfter-time.Second)
	c.feedWatchdog(svc)
	assert.False(t, svc.Ready.Load(), "nothing was said")
	c.liveness.Record(loopAgents, 0)
	c.feedWatchdog(svc)
	assert.Contains(t, next(), "WATCHDOG=1")
}

func TestControllerLoopsRecordPasses(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`), 0o600))
	file, err := config.OpenOf("", config.DefaultController, func(c *config.Controller) { c.Kubernetes.Kubeconfig = kubeconfig })
	require.NoError(t, err)
	c, err := New(file, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer c.events.Shutdown()
	assert.Empty(t, c.liveness.Loops())
	c.queue.Settings()
	c.agents.Settings()
	c.loads.Settings()
	assert.Equal(t, []string{loopAgents, loopBackups, loopLoads}, c.liveness.Loops())
}

// definitions are those of a Velero that cannot queue Backups; the last one that is read
// calls done.
type definitions struct {
	dynamic.ResourceInterface
	done func()
}

func (d definitions) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	all := abilities.Definitions()
	if name == all[len(all)-1] {
		d.done()
	}
	if name != all[0] {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"names": map[string]any{"plural": "backups"},
		"versions": []any{map[string]any{"storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": map[string]any{
			"status": map[string]any{"properties": map[string]any{"phase": map[string]any{"enum": []any{"New", "InProgress"}}}},
		}}}}},
	}}}, nil
}

// A standby's metrics are the only ones while no replica is the leader.
func TestStandbyKnowsWhetherVeleroQueues(t *testing.T) {
	for enabled, cannot := range map[bool]bool{true: true, false: false} {
		c := leading(t)
		c.election.isLeader.Store(false)
		file, err := config.OpenOf("", config.DefaultController, func(c *config.Controller) { c.Backups.Enabled = enabled })
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		c.Config = file
		c.abilities = &abilities.Reader{Definitions: definitions{done: cancel}, Log: slog.New(slog.DiscardHandler)}
		require.NoError(t, c.readAbilities(ctx))
		s := c.state()
		assert.Equal(t, cannot, s.CannotQueue, "enabled: %t", enabled)
		assert.Equal(t, enabled, s.QueueEnabled)
		assert.True(t, s.AgentsEnabled)
		assert.False(t, s.QueueDecided)
	}
}

func TestControllerTellsWhatWasTested(t *testing.T) {
	list := leading(t).stateOf([]capability.Capability{capability.Has(capabilities.Hide, "served")}, []admission.Report{{}, {NotHidden: "no policy works"}}).Capabilities
	require.Len(t, list, 1)
	assert.Equal(t, capability.Missing, list[0].State)
	assert.Equal(t, "no policy works", list[0].Why)
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
