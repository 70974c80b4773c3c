package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/doctor"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/state"
)

// The lock of the state directory is a pipe without a writer, which hangs a reader as a disk does
// that does not answer.
func TestDoctorDiskHangs(t *testing.T) {
	dir := t.TempDir()
	lock, kubeconfig := filepath.Join(dir, "agent.lock"), filepath.Join(dir, "kubeconfig")
	require.NoError(t, unix.Mkfifo(lock, 0o600))
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {}}]}`), 0o600))
	f := agentFlags{state: dir, kubeconfig: kubeconfig, socket: filepath.Join(dir, "plimsoll.sock"), addresses: []string{"127.0.0.1:0"}}
	examined := make(chan []doctor.Row, 1)
	go func() { examined <- f.examination(new(state.Writer)).Examine(t.Context()) }()
	defer func() {
		writer, err := os.OpenFile(lock, os.O_RDWR|unix.O_NONBLOCK, 0) // ends the read
		require.NoError(t, err)
		require.NoError(t, writer.Close())
	}()
	select {
	case rows := <-examined:
		at := slices.IndexFunc(rows, func(r doctor.Row) bool { return r.Check == "state directory" })
		require.GreaterOrEqual(t, at, 0)
		assert.Equal(t, doctor.Fail, rows[at].Result)
		assert.Contains(t, rows[at].Finding, dir+": its disk does not answer")
	case <-deadline.After(20 * time.Second):
		require.Fail(t, "the examination hangs")
	}
}

// What is in force, decided alone or switched off, by each switch.
func TestDoctorActs(t *testing.T) {
	acting := func(change func(c *config.Agent)) (dry, off, acts []string) {
		c := config.Default()
		c.Eviction.DryRun, c.Throttle.DryRun, c.VGDP.DryRun = false, false, false
		change(&c)
		for _, a := range actsOf(&c) {
			switch {
			case a.Off != "":
				off = append(off, a.Off)
			case a.DryRun != "":
				dry = append(dry, a.What+" "+a.DryRun)
			default:
				acts = append(acts, a.What)
			}
		}
		return dry, off, acts
	}
	const movers = "data mover budget and throttles of data movers"
	all := []string{"marks", "evictions", "throttles", movers}
	for name, row := range map[string]struct {
		change         func(c *config.Agent)
		dry, off, acts []string
	}{
		"all act":       {func(*config.Agent) {}, nil, nil, all},
		"evictions dry": {func(c *config.Agent) { c.Eviction.DryRun = true }, []string{"marks eviction.dryRun", "evictions eviction.dryRun"}, nil, all[2:]},
		"one plugin in force": {
			func(c *config.Agent) { c.Eviction.DryRunPlugins = []string{"*", "-memory-stall"} },
			[]string{"marks and evictions of the plugins * -memory-stall eviction.dryRunPlugins"},
			nil,
			[]string{"marks of other plugins", "evictions of other plugins", "throttles", movers},
		},
		"no plugin in force":     {func(c *config.Agent) { c.Eviction.DryRunPlugins = []string{"*", "disk-contention"} }, []string{"marks eviction.dryRunPlugins", "evictions eviction.dryRunPlugins"}, nil, all[2:]},
		"throttles dry":          {func(c *config.Agent) { c.Throttle.DryRun = true }, []string{"throttles throttle.dryRun"}, nil, []string{"marks", "evictions", movers}},
		"data movers dry":        {func(c *config.Agent) { c.VGDP.DryRun = true }, []string{movers + " vgdp.dryRun"}, nil, all[:3]},
		"no data movers":         {func(c *config.Agent) { c.VGDP.DryRun, c.VGDP.Enabled = true, false }, nil, []string{"vgdp.enabled"}, all[:3]},
		"no evictions, but mark": {func(c *config.Agent) { c.Eviction.Enabled = false }, nil, []string{"eviction.enabled"}, []string{"marks", "throttles", movers}},
		"no marks":               {func(c *config.Agent) { c.Conditions.Enabled = false }, nil, []string{"conditions.enabled", "conditions.enabled"}, all[2:]},
	} {
		t.Run(name, func(t *testing.T) {
			dry, off, acts := acting(row.change)
			assert.Equal(t, row.dry, dry)
			assert.Equal(t, row.off, off)
			assert.Equal(t, row.acts, acts)
		})
	}
	assert.Equal(t, doctor.Act{What: "marks", DryRun: "eviction.dryRun"}, actsOf(new(config.Default()))[0], "a fresh install observes")
}
