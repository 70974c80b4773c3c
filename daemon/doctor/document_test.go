package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every check that the sources name, with those of probes as one.
func TestDoctorRowsDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	named := regexp.MustCompile(`check = "([^"]+)"|Row\{(?:Pass|Warn|Fail), "([^"]+)"`)
	n := 0
	for _, file := range sources {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if matched, err := filepath.Match("*_test.go", file); err != nil || matched {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			assert.Contains(t, string(document), "`"+m[1]+m[2]+"`")
			n++
		}
	}
	assert.Greater(t, n, 15)
}
