package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOOMScoreOnlyLowered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oom_score_adj")
	for was, want := range map[string]string{"0\n": "-997", "1000\n": "-997", "-997\n": "-997\n", "-1000\n": "-1000\n"} {
		require.NoError(t, os.WriteFile(path, []byte(was), 0o600))
		require.NoError(t, lowerOOMScore(path))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(got), was)
	}
	require.EqualError(t, lowerOOMScore(filepath.Join(t.TempDir(), "none")), "no such file or directory")
}
