package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/state"
)

// The agent that runs on this machine may be another node's than the one that is released.
func TestReleaseNodeBesideRunningAgent(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for what, row := range map[string]struct {
		standalone, running bool
		out, err            string
	}{
		"an agent runs here, of no cluster":        {true, true, "", "limits on this machine: not removed, because an agent runs here (pid "},
		"none runs here, of no cluster":            {true, false, "", "cannot read the limits"},
		"an agent runs here, the cluster is asked": {false, true, "limits on this machine: not removed, because an agent runs here (pid ", "no such file"},
		"none runs here, the cluster is asked":     {false, false, "", "cannot read the limits"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "throttles.json"), []byte("unreadable"), 0o600))
			if row.running {
				lock, err := state.Acquire(dir, time.Now(), state.BySystemd)
				require.NoError(t, err)
				defer lock.Release()
			}
			f := agentFlags{standalone: row.standalone, node: "other", state: dir}
			if !row.standalone {
				f.kubeconfig = filepath.Join(dir, "kubeconfig") // it is not there
			}
			var out strings.Builder
			err := releaseNode(t.Context(), &f, &out, log)
			require.ErrorContains(t, err, row.err)
			assert.Contains(t, out.String(), row.out)
			if row.running {
				assert.NotContains(t, err.Error(), "cannot read the limits", "they are not touched")
				assert.Contains(t, out.String()+err.Error(), "started by systemd")
				assert.Contains(t, out.String()+err.Error(), "stop it first")
			}
		})
	}
}
