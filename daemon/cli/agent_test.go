package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/state"
)

func TestFlagsOverrideClusterMode(t *testing.T) {
	const alone, joined = "{standalone: true}", "{kubeconfig: /etc/file}"
	for name, c := range map[string]struct {
		file  string
		flags agentFlags
		want  config.Kubernetes
	}{
		"the file alone, without a cluster":       {alone, agentFlags{}, config.Kubernetes{Standalone: true}},
		"the file alone, with one":                {joined, agentFlags{}, config.Kubernetes{Kubeconfig: "/etc/file"}},
		"--standalone beside a kubeconfig":        {joined, agentFlags{standalone: true}, config.Kubernetes{Standalone: true}},
		"--kubeconfig beside standalone":          {alone, agentFlags{kubeconfig: "/etc/flag"}, config.Kubernetes{Kubeconfig: "/etc/flag"}},
		"--kubeconfig beside another of the file": {joined, agentFlags{kubeconfig: "/etc/flag"}, config.Kubernetes{Kubeconfig: "/etc/flag"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.yaml")
			text := "apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\nkubernetes: " + c.file + "\n"
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			file, err := config.Open(path, c.flags.override)
			require.NoError(t, err)
			assert.Equal(t, c.want, file.Current().Kubernetes)
		})
	}
}

func TestFlagDryRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	text := "apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\neviction: {dryRun: false}\nvgdp: {dryRun: false}\nthrottle: {dryRun: false}\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	for _, dry := range []bool{false, true} {
		file, err := config.Open(path, (&agentFlags{dryRun: dry}).override)
		require.NoError(t, err)
		assert.Equal(t, dry, file.Current().Eviction.DryRun)
		assert.Equal(t, dry, file.Current().VGDP.DryRun)
		assert.Equal(t, dry, file.Current().Throttle.DryRun)
	}
}

func TestDoctorStandaloneReadsNoCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(path, []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\nkubernetes: {standalone: true}\n"), 0o600))
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1") // as in a pod
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	p := (&agentFlags{config: path}).examination(new(state.Writer))
	assert.NoError(t, p.ClusterErr)
	assert.Nil(t, p.Cluster)
	assert.Error(t, (&agentFlags{}).examination(new(state.Writer)).ClusterErr, "the token of a pod is not there")
}

// A pipe holds 64 KiB that nobody reads.
func TestLogToFullPipeReturns(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		unread, pipe, err := os.Pipe()
		require.NoError(t, err)
		log, flush := logger(pipe, config.Log{Level: "info", Format: format}, &slog.LevelVar{})
		for range 100 {
			log.Info("line", "text", strings.Repeat("a line of a kibibyte", 52))
		}
		require.NoError(t, unread.Close())
		flush()
		require.NoError(t, pipe.Close())
	}
}
