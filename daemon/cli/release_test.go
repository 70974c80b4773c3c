package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// A live agent keeps what it has put on its Node: it is known by the lock on this machine, or
// by its Lease.
func TestReleaseNodeLeavesLiveAgent(t *testing.T) {
	dir := t.TempDir()
	lock, err := state.Acquire(dir, time.Now(), state.ByPod)
	require.NoError(t, err)
	defer lock.Release()
	own, err := os.Hostname()
	require.NoError(t, err)
	own = strings.ToLower(own)
	for node, want := range map[string]string{
		own:     "node " + own + ": taints and conditions not removed: they are that agent's",
		"other": "lease plimsoll-node-lease/other: still renewed by other, which brings back what is removed: stop it first",
	} {
		renewed := time.Now()
		var asked []string
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+r.URL.Path)
			renewed = renewed.Add(time.Second)
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": %[1]q, "namespace": "plimsoll-node-lease", "uid": "u"},
				"spec": {"holderIdentity": %[1]q, "leaseDurationSeconds": 40, "renewTime": %[2]q}}`, node, renewed.Format(metav1.RFC3339Micro))
		}))
		defer api.Close()
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`, api.URL), 0o600))
		require.ErrorContains(t, releaseNode(t.Context(), &agentFlags{node: node, state: dir, kubeconfig: kubeconfig}, io.Discard, slog.New(slog.DiscardHandler)), want)
		for _, request := range asked {
			assert.Equal(t, "GET /apis/coordination.k8s.io/v1/namespaces/plimsoll-node-lease/leases/other", request)
		}
	}
}
