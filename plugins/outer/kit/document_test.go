package kit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The plugin in the document compiles and serves as it is.
func TestDocumentPluginCompiles(t *testing.T) {
	document, err := os.ReadFile("../../../docs/write-a-plugin.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(document)
	require.NotNil(t, block)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), block[1], 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "yours.go"), []byte("package main\n\nfunc readQueue() (float64, error) { return 0.5, nil }\n"), 0o600))
	program := filepath.Join(dir, "card-queue")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, filepath.Join(dir, "main.go"), filepath.Join(dir, "yours.go")).CombinedOutput()
	require.NoError(t, err, "%s", out)

	cmd := exec.CommandContext(t.Context(), program, "--plugins.dir", dir, "--name", "full")
	require.NoError(t, cmd.Start())
	answersAt(t, filepath.Join(dir, "full.sock"))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
}
