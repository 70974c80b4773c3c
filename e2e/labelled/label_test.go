package labelled

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

func TestLabelPerRecordingAndSetSize(t *testing.T) {
	labels, err := Load("testdata")
	require.NoError(t, err)
	recordings, err := filepath.Glob("testdata/*.rec")
	require.NoError(t, err)
	assert.Len(t, recordings, len(labels))
	all := int64(0)
	for _, l := range labels {
		info, err := os.Stat(l.Recording("testdata"))
		require.NoError(t, err)
		all += info.Size()
		assert.Less(t, info.Size(), int64(250_000), l.Name)
		assert.NotEmpty(t, l.Machine, l.Name)
		assert.NotEmpty(t, l.Did, l.Name)
		assert.NotEmpty(t, l.Why, l.Name)
		assert.Less(t, l.Load.From, l.Load.To, l.Name)
		for _, n := range l.NotJudged {
			assert.NotEmpty(t, n.Scope, l.Name)
			assert.NotEmpty(t, n.Sufferer, l.Name)
			assert.Less(t, n.From, n.To, l.Name)
		}
		for _, w := range l.Want {
			assert.Greater(t, w.Level, plugins.None, l.Name)
			assert.GreaterOrEqual(t, w.From, l.Load.From, l.Name)
			assert.Less(t, w.From, w.To, l.Name)
		}
	}
	assert.Less(t, all, int64(2_500_000))
}

func TestLabelMisspelt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "one.yaml")
	require.NoError(t, os.WriteFile(file, []byte("machine: here\nwants: []\n"), 0o600))
	_, err := Load(dir)
	require.ErrorContains(t, err, file)
	require.ErrorContains(t, err, "wants")

	require.NoError(t, os.WriteFile(file, []byte("machine: here\nwant: [{resource: disk, scope: vdb, level: soft, from: 1.5, to: 2, atMost: true, noCulprit: true}]\nusual: {vdb: 5ms}\n"), 0o600))
	labels, err := Load(dir)
	require.NoError(t, err)
	require.Len(t, labels, 1)
	assert.Equal(t, "one", labels[0].Name)
	assert.Equal(t, Want{Span: Span{1.5, 2}, Resource: plugins.Disk, Scope: "vdb", Level: plugins.Soft, AtMost: true, NoCulprit: true}, labels[0].Want[0])
	assert.InDelta(t, 0.005, labels[0].Usual["vdb"].Seconds(), 1e-9)
}
