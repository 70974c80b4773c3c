package names_test

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/names"
)

// minor of a version 1.x.
func minor(t *testing.T, version string) int {
	t.Helper()
	text, is := strings.CutPrefix(version, "1.")
	require.True(t, is, version)
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// What each Velero's node-agents serve, as its source says.
func TestDataMovers(t *testing.T) {
	raw, err := os.ReadFile("testdata/data-movers.json")
	require.NoError(t, err)
	var versions []struct {
		Velero, Source string
		Serves, Leaves []string
	}
	require.NoError(t, json.Unmarshal(raw, &versions))
	require.Len(t, versions, 4)
	for _, v := range versions {
		t.Run(v.Velero, func(t *testing.T) {
			var of []string
			for _, m := range names.DataMovers() {
				if minor(t, m.Since) <= minor(t, v.Velero) {
					of = append(of, m.Name)
				}
			}
			assert.ElementsMatch(t, v.Serves, of, v.Source)
			for _, name := range v.Serves {
				assert.True(t, names.IsVelerosMover(name), name)
			}
			for _, name := range v.Leaves {
				assert.False(t, slices.Contains(of, name), name)
			}
		})
	}
	newest := versions[len(versions)-1]
	for _, name := range newest.Leaves {
		assert.False(t, names.IsVelerosMover(name), name)
	}
}

// The document has a row for each data mover and each kind.
func TestDataMoversDocumented(t *testing.T) {
	raw, err := os.ReadFile("../docs/vgdp.md")
	require.NoError(t, err)
	for _, m := range names.DataMovers() {
		name := "(empty)"
		if m.Name != "" {
			name = "`" + m.Name + "`"
		}
		assert.Contains(t, string(raw), "| "+name+" | Velero "+m.Since+" | "+m.Moves+" |\n")
	}
	held := map[string]string{"1.12": "1.16"} // the oldest that is supported
	for _, f := range names.MoverKinds() {
		since := f.AcceptedSince
		if oldest := held[since]; oldest != "" {
			since = oldest
		}
		mover, where := "no", "on its pod's node"
		if f.HasMover {
			mover = "yes"
		}
		if !f.NodeFixed {
			where = "on any possible node"
		}
		assert.Contains(t, string(raw), "| "+string(f.Kind)+" | "+f.Short+" | Velero "+since+" | "+mover+" | "+where+" |\n")
	}
}
