package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The unit overrules nothing of the configuration, and its agent has the defaults of root, by
// which other commands find it.
func TestUnitLeavesPathsToConfig(t *testing.T) {
	unit, err := os.ReadFile("../../systemd/plimsoll-agent.service")
	require.NoError(t, err)
	assert.Contains(t, string(unit), "\nExecStart=/usr/bin/plimsoll agent --config /etc/plimsoll/agent.yaml\n")
	_, line, _ := strings.Cut(string(unit), "\nEnvironment=")
	line, _, _ = strings.Cut(line, "\n")
	env := map[string]string{}
	for variable := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	getenv := func(name string) string { return env[name] }
	assert.Equal(t, []string{defaultSocket(0, os.Getenv), defaultState(0, os.Getenv)}, []string{defaultSocket(998, getenv), defaultState(998, getenv)})
}
