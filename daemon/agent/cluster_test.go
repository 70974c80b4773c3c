package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// A list that has every plugin is a dry run like eviction.dryRun, and what is shown says so.
func TestViewDryRun(t *testing.T) {
	const dry = "DRY RUN of evictions: no mark, no eviction"
	c := &cluster{pods: &pods.Watcher{}, status: &lease.Status{}}
	for name, row := range map[string]struct {
		change func(*evict.Config)
		dry    bool
	}{
		"in force":            {func(*evict.Config) {}, false},
		"by the switch":       {func(c *evict.Config) { c.DryRun = true }, true},
		"all plugins":         {func(c *evict.Config) { c.DryRunPlugins = []string{"*"} }, true},
		"all plugins but one": {func(c *evict.Config) { c.DryRunPlugins = []string{"*", "-memory-stall"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := evict.DefaultConfig()
			config.DryRun = false
			row.change(&config)
			shown := c.view(config, &evict.Counters{})
			assert.Equal(t, row.dry, shown.DryRun)
			shown.PodsSynced = true
			state := view.State{Agent: view.Agent{Mode: "cluster"}, Cluster: shown}
			if text := state.ModeText(); row.dry {
				assert.Equal(t, dry, text)
			} else {
				assert.NotContains(t, text, dry)
			}
		})
	}
}
