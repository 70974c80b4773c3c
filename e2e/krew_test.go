package e2e_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The binary has the name that kubectl looks for, and the commands that the
// manifest for krew names.
func TestKrew(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../.krew.yaml")
	require.NoError(t, err)
	status, stdout, stderr := plugin(t)("--help")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "kubectl plimsoll [command]")
	for _, command := range []string{"who", "nodes", "top", "explain", "doctor"} {
		assert.Contains(t, stdout, "\n  "+command+" ")
		assert.Contains(t, string(manifest), "kubectl plimsoll "+command)
	}
	assert.NotContains(t, stdout, "\n  controller ")
}
