package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What cannot be tested has status 2, and the reason names what to change.
func TestPluginsTestUsage(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.json")
	require.NoError(t, os.WriteFile(none, []byte(`{"items": []}`), 0o600))
	broken := filepath.Join(t.TempDir(), "broken.json")
	require.NoError(t, os.WriteFile(broken, []byte(`{"items": 7}`), 0o600))
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing to test", nil, "missing argument"},
		{"no directory", []string{"--", "true"}, "a command needs {dir}"},
		{"no program", []string{"--", "/nonexistent/program", "{dir}"}, "the plugin could not be tested"},
		{"output", []string{"-o", "yaml", "--", "true", "{dir}"}, `-o "yaml": want text, json or junit`},
		{"timeout", []string{"--timeout", "0s", "--", "true", "{dir}"}, "want more than 0"},
		{"no pods", []string{"--pods", none, "--", "true", "{dir}"}, "it has no pods"},
		{"broken pods", []string{"--pods", broken, "--", "true", "{dir}"}, broken},
		{"ends at once", []string{"--", "true", "{dir}"}, "the process ended (exit status 0)"},
		{"directory by environment", []string{"--env", "DIR={dir}", "--", "sh", "-c", "echo $DIR; exit 3"}, "/plugin-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			assert.Equal(t, 2, Main("plimsoll", append([]string{"plugins", "test"}, c.args...), &out, &errs))
			assert.Contains(t, errs.String(), c.want)
			assert.Empty(t, out.String())
		})
	}
}
