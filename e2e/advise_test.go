package e2e_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// advice is what of `plimsoll advise -o json` the test looks at.
type advice struct {
	Format        string
	Samples       uint64
	Proposals     []struct{ Key, Outcome, Reason string }
	Configuration string
}

// What a minute of this machine tells is how little a minute tells; the
// configuration that comes with it is one that the program takes.
func TestAdviseShortRecording(t *testing.T) {
	t.Parallel()
	path := killedRecording(t)
	status, text, stderr := run(t, "advise", path)
	require.Zero(t, status, stderr)
	assert.Contains(t, text, "memoryStall.soft.stallFull: not enough data: ")
	assert.Contains(t, text, "Limits:")

	status, stdout, stderr := run(t, "advise", "-o", "json", path)
	require.Zero(t, status, stderr)
	var a advice
	require.NoError(t, json.Unmarshal([]byte(stdout), &a))
	assert.Equal(t, "plimsoll-advise/1", a.Format)
	assert.GreaterOrEqual(t, a.Samples, uint64(11))
	require.NotEmpty(t, a.Proposals)
	for _, p := range a.Proposals {
		assert.Equal(t, "not enough data", p.Outcome, "%s: %s", p.Key, p.Reason)
	}
	file := write(t, filepath.Join(t.TempDir(), "advised.yaml"), a.Configuration)
	status, _, stderr = run(t, "config", "check", file)
	assert.Zero(t, status, stderr)
	status, stdout, stderr = run(t, "advise", "-o", "config", path)
	assert.Zero(t, status, stderr)
	assert.Equal(t, a.Configuration, stdout)

	status, _, stderr = run(t, "advise", "-o", "svg", path)
	assert.Equal(t, 2, status)
	assert.Equal(t, "plimsoll: advise: -o \"svg\": want text, json or config\n", stderr)
}
