package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// recorded is a recording of some seconds in which nothing happened.
func recorded(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calm.rec")
	r, err := probes.CreateRecording(file, "v0.1.0", "")
	require.NoError(t, err)
	for i := range 5 {
		at := time.Hour + time.Duration(i)*time.Second
		require.NoError(t, r.Add(&snapshot.Sample{Time: time.Unix(1_700_000_000+int64(i), 0), Monotonic: at, Boottime: at, BootID: "b"}))
	}
	require.NoError(t, r.Close())
	return file
}

func TestReplayOutputs(t *testing.T) {
	file := recorded(t)
	for output, begins := range map[string]string{"table": file + ": 5 samples", "json": "{\n  \"format\": \"plimsoll-replay/1\"", "svg": "<svg xmlns="} {
		status, stdout, stderr := told("replay", "-o", output, file)
		assert.Zero(t, status, stderr)
		assert.Empty(t, stderr)
		assert.True(t, strings.HasPrefix(stdout, begins), "%s: %.200s", output, stdout)
	}
	_, byDefault, _ := told("replay", file)
	assert.Contains(t, byDefault, "judged with the default configuration, as by an agent that has been running for a long time")
	_, warm, _ := told("replay", "--warm-up", file)
	assert.Contains(t, warm, "as by an agent that has just started")
}

func TestReplayConfigFlag(t *testing.T) {
	config := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(config, []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\nplugins: {memoryStall: {enabled: false}}\n"), 0o600))
	status, stdout, stderr := told("replay", "--config", config, recorded(t))
	assert.Zero(t, status, stderr)
	assert.Contains(t, stdout, "judged with "+config)
	assert.NotContains(t, stdout, "memory-stall")

	text, err := os.ReadFile(config)
	require.NoError(t, err)
	status, stdout, stderr = said("replay --config - "+recorded(t), string(text))
	assert.Zero(t, status, stderr)
	assert.Contains(t, stdout, "judged with the configuration on standard input")
	assert.NotContains(t, stdout, "memory-stall")
	status, _, stderr = said("advise --config - "+recorded(t), "kind: Ship\n")
	assert.Equal(t, exitFailure, status)
	assert.Contains(t, stderr, "config: ")
}

func TestReplayUsageErrors(t *testing.T) {
	file := recorded(t)
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{exitUsage, "replay: missing argument: plimsoll replay RECORDING...", []string{"replay"}},
		{exitUsage, `replay: -o "xml": want table, json or svg`, []string{"replay", "-o", "xml", file}},
		{exitUsage, "replay: unknown flag: --sail", []string{"replay", "--sail", file}},
		{exitUsage, "replay: --config - and the recording -: standard input cannot be both", []string{"replay", "--config", "-", "-"}},
		{exitFailure, "config: stat /none.yaml: no such file", []string{"replay", "--config", "/none.yaml", file}},
		{exitFailure, "replay: open /none: no such file or directory", []string{"replay", "/none"}},
		{exitFailure, "replay: stat /none: no such file or directory", []string{"replay", file, "/none"}},
		{exitFailure, "replay: -: standard input cannot be combined", []string{"replay", "-", file}},
	} {
		status, stdout, stderr := told(c.args...)
		assert.Equal(t, c.status, status, c.want)
		assert.Empty(t, stdout, c.want)
		assert.True(t, strings.HasPrefix(stderr, "plimsoll: "+c.want), "%s: %s", c.want, stderr)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

func TestReplayStopsAtOverlap(t *testing.T) {
	file := recorded(t)
	status, stdout, stderr := told("replay", file, file)
	assert.Equal(t, exitFailure, status)
	assert.Contains(t, stdout, "replay stopped: "+file+": sample 1: it overlaps")
	assert.Contains(t, stdout, file+": 5 samples")
	assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
}
