package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// segment writes samples as part of a run, without an end, as after a kill.
func segment(t *testing.T, dir string, number int, run string, samples []*snapshot.Sample) string {
	t.Helper()
	file := filepath.Join(dir, fmt.Sprintf("%010d-20260301T120000Z.rec", number))
	r, err := probes.CreateRecording(file, "v0.1.0", run)
	require.NoError(t, err)
	for _, s := range samples {
		require.NoError(t, r.Add(s))
	}
	require.NoError(t, r.Abandon())
	return file
}

func TestDirectory(t *testing.T) {
	n := newNode().seconds(61, 0).short(20).seconds(60, 0)
	whole, err := play(t, recordingFile(t, "all.rec", n.samples))
	require.NoError(t, err)
	require.Len(t, whole.Changes, 2)

	t.Run("segments of one run are one recording", func(t *testing.T) {
		dir := t.TempDir()
		segment(t, dir, 1, "a", n.samples[:50])
		segment(t, dir, 2, "a", n.samples[50:70])
		segment(t, dir, 3, "a", n.samples[70:])
		r, err := play(t, dir)
		require.NoError(t, err)
		assert.Equal(t, whole.Changes, r.Changes)
		assert.Equal(t, whole.Scopes, r.Scopes)
		assert.Empty(t, r.Gaps)
		require.Len(t, r.Recordings, 1)
		one := r.Recordings[0]
		assert.Equal(t, Recording{File: dir, Segments: 3, Header: one.Header, Samples: 141, Start: r.Start, End: r.End, CutShort: true}, one)
	})

	t.Run("no rate reaches from one run to the next, however soon it began", func(t *testing.T) {
		dir := t.TempDir()
		segment(t, dir, 1, "a", n.samples[:30])
		segment(t, dir, 2, "b", n.samples[30:])
		p := player(nil)
		var without []float64
		p.Watch = func(m Moment) {
			if m.Snapshot.WindowSeconds == 0 {
				without = append(without, m.Offset.Seconds())
			}
		}
		require.NoError(t, p.Files(t.Context(), []string{dir}, nil))
		r := p.Report()
		assert.Equal(t, []float64{0, 30}, without, "as both agents judged")
		require.Len(t, r.Gaps, 1)
		assert.Equal(t, Restarted, r.Gaps[0].Reason)
		assert.InDelta(t, 30, r.Gaps[0].OffsetSeconds, 0)
		assert.Len(t, r.Recordings, 2)
		assert.Equal(t, levels(whole), levels(r), "levels go on")
	})

	t.Run("nor is what an outer plugin said of the run before", func(t *testing.T) {
		dir := t.TempDir()
		says(t, n.samples[5], 2)
		defer func() { n.samples[5].OuterVerdicts = nil }()
		segment(t, dir, 1, "a", n.samples[:30])
		segment(t, dir, 2, "b", n.samples[30:60])
		r, err := play(t, dir)
		require.NoError(t, err)
		assert.Equal(t, []string{"numa NUMA 0 none>hard at 5s", "numa NUMA 0 hard>none at 30s"}, levels(r))
	})

	t.Run("a segment that cannot be read costs its own samples", func(t *testing.T) {
		dir := t.TempDir()
		segment(t, dir, 1, "a", n.samples[:50])
		spoiled := segment(t, dir, 2, "a", n.samples[50:70])
		segment(t, dir, 3, "a", n.samples[70:])
		segment(t, dir, 4, "b", nil) // killed before its first sample
		b, err := os.ReadFile(spoiled)
		require.NoError(t, err)
		b[len(b)/2] ^= 0xff
		require.NoError(t, os.WriteFile(spoiled, b, 0o600))
		r, err := play(t, dir)
		require.NoError(t, err)
		require.Len(t, r.Unreadable, 1)
		assert.Contains(t, r.Unreadable[0], spoiled+": recording: ")
		assert.Less(t, r.Samples, uint64(141))
		assert.GreaterOrEqual(t, r.Samples, uint64(121))
		assert.NotEmpty(t, r.Gaps)
		require.NoError(t, os.WriteFile(spoiled, zipped(`{"format":"plimsoll-recording/2"}`), 0o600))
		r, err = play(t, dir)
		require.NoError(t, err)
		assert.Equal(t, uint64(121), r.Samples)
		assert.Contains(t, r.Unreadable[0], "a newer version wrote it")
	})

	t.Run("beside single files, in order of time", func(t *testing.T) {
		dir := t.TempDir()
		segment(t, dir, 1, "a", n.samples[50:])
		r, err := play(t, dir, recordingFile(t, "first.rec", n.samples[:50]))
		require.NoError(t, err)
		assert.Equal(t, levels(whole), levels(r))
	})

	t.Run("without any samples", func(t *testing.T) {
		dir := t.TempDir()
		_, err := play(t, dir)
		require.ErrorContains(t, err, dir+": no segments of a recording in it")
		segment(t, dir, 1, "a", nil)
		_, err = play(t, dir)
		require.EqualError(t, err, dir+": no segment can be read: no samples in it")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "0000000002-20260301T120000Z.rec"), []byte("disk usage was high"), 0o600))
		_, err = play(t, dir)
		require.ErrorContains(t, err, "gzip: invalid header")
	})
}
