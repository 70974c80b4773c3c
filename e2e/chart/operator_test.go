package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// What the Prometheus Operator makes of the chart's monitors is what a real
// Prometheus scrapes by in e2e TestScrape.
func TestTheOperator(t *testing.T) {
	if os.Getenv("PLIMSOLL_LONG") == "" && !*update {
		t.Skip("the operator's generator takes three minutes of a processor to build: make e2e")
	}
	program, err := cluster.Program(t.Context(), cluster.Operator)
	require.NoError(t, err)
	h := chart.NewHelm(t, "")
	for _, kind := range []string{"podMonitor", "serviceMonitor"} {
		t.Run(kind, func(t *testing.T) {
			generate := exec.CommandContext(t.Context(), program)
			generate.Stdin = strings.NewReader(h.Run("template", "plimsoll", chart.Dir, "--show-only", "templates/monitoring.yaml", "--set", kind+".enabled=true"))
			made, err := generate.Output()
			require.NoError(t, err)
			path := filepath.Join("..", "testdata", "prometheus-"+strings.ToLower(kind)+".yml")
			if *update {
				require.NoError(t, os.WriteFile(path, made, 0o644))
			}
			have, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(string(have), string(made)), "go test ./e2e/chart -run TestTheOperator -update writes it")
		})
	}
}
