package rungs

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables of docs/adr/0091 anew from testdata/cells.jsonl")

const (
	records = "testdata/cells.jsonl"
	page    = "../../../docs/adr/0091-which-throttles-a-ladder-may-have.md"
)

// TestTable: the tables of the decision are what the records say.
func TestTable(t *testing.T) {
	all, err := Read(records)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(b)
	for _, version := range []string{"v1", "v2"} {
		begin, end := "<!-- "+version+" -->\n", "<!-- end of "+version+" -->"
		before, rest, found := strings.Cut(text, begin)
		require.True(t, found, begin)
		_, after, found := strings.Cut(rest, end)
		require.True(t, found, end)
		text = before + begin + Table(version, all) + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
		return
	}
	assert.Equal(t, text, string(b), "go test ./e2e/vm/rungs -run TestTable -update")
}

func TestCellsOnce(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		seen := map[Cell]bool{}
		for _, c := range Cells(version) {
			assert.Equal(t, version, c.Cgroup)
			assert.False(t, seen[c], "%v is there twice", c)
			seen[c] = true
		}
		assert.Greater(t, len(seen), 20)
	}
}

func TestRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cells.jsonl")
	none, err := Read(path)
	require.NoError(t, err)
	assert.Empty(t, none)
	one := Record{Cell: Cell{"v2", CPU, CPUMax}, Set: []string{"cpu.max: 2000 100000"}, With: Phase{P50: 1.5}}
	other := Record{Cell: Cell{"v2", CPU, IOLatency}, Absent: "no such file"}
	require.NoError(t, Append(path, &one))
	require.NoError(t, Append(path, &other))
	all, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, []Record{one, other}, all)
	assert.True(t, Has(all, one.Cell))
	assert.False(t, Has(all, Cell{"v1", CPU, CPUMax}))
	require.NoError(t, os.WriteFile(path, []byte("{}\n{\n"), 0o600))
	_, err = Read(path)
	require.ErrorContains(t, err, path+": record 2")
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{nil, 0.5, 0},
		{[]float64{3}, 0.99, 3},
		{[]float64{4, 1, 3, 2}, 0.5, 2},
		{[]float64{4, 1, 3, 2}, 0.51, 3},
		{[]float64{4, 1, 3, 2}, 0.99, 4},
		{[]float64{4, 1, 3, 2}, 0, 1},
	} {
		assert.InDelta(t, c.want, Quantile(c.values, c.q), 0, "%v %v", c.values, c.q)
	}
}

func TestRow(t *testing.T) {
	of := func(r Record) string {
		r.Cell = Cell{"v2", Synced, IOMax}
		return r.Row()
	}
	columns := strings.Count(strings.SplitN(head, "\n", 2)[0], "|")
	for name, c := range map[string]struct {
		record Record
		want   []string
	}{
		"lost":   {Record{Lost: "no answer"}, []string{"| **the machine gave no answer** |"}},
		"absent": {Record{Absent: "no such file"}, []string{"| this kernel has it not |"}},
		"measured": {
			Record{
				Before: Phase{Requests: 9, P50: 1.234, P99: 20}, Under: Phase{Rate: 100}, After: Phase{Seconds: 5, Rate: 99.5},
				With: Phase{Requests: 9, P50: 1234, P99: 5678, Probes: 10, Failed: 2, CulpritProbes: 9, CulpritFailed: 3, Rate: 20, Gap: 101, Waits: map[string]float64{"a": 1, "fsync": 700}},
				Kill: 5100, KillFreed: true,
			},
			[]string{"| 1.23 / 20.0 | – | 1234 / 5678 | – | 2 of 10; culprit 3 of 9 | 100 | 20.0 | 99.5 | 101 | fsync 700 | **not before it was off** |"},
		},
		"ended":        {Record{Ended: "with", Kill: 12}, []string{"| 0 of 0 | 0 | ended | ended | 0 | – | 12.0 |"}},
		"not released": {Record{With: Phase{Rate: 7}}, []string{"| 7.00 | – | 0 | – | – |"}},
	} {
		t.Run(name, func(t *testing.T) {
			row := of(c.record)
			for _, want := range c.want {
				assert.Contains(t, row, want)
			}
			assert.Equal(t, columns, strings.Count(row, "|"), row)
		})
	}
}
