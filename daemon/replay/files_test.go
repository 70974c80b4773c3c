package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// play plays files and returns what came of it.
func play(t *testing.T, names ...string) (*Report, error) {
	t.Helper()
	p := player(nil)
	err := p.Files(t.Context(), names, strings.NewReader(""))
	return p.Report(), err
}

func TestReplayOrdersRecordings(t *testing.T) {
	n := newNode().seconds(61, 0).short(20).seconds(60, 0)
	whole, err := play(t, recordingFile(t, "all.rec", n.samples))
	require.NoError(t, err)
	require.Len(t, whole.Changes, 2)
	a, b, c := recordingFile(t, "a.rec", n.samples[:50]), recordingFile(t, "b.rec", n.samples[50:70]), recordingFile(t, "c.rec", n.samples[70:])
	parts, err := play(t, c, a, b)
	require.NoError(t, err)
	var names []string
	for _, r := range parts.Recordings {
		names = append(names, filepath.Base(r.File))
	}
	assert.Equal(t, []string{"a.rec", "b.rec", "c.rec"}, names)
	assert.Equal(t, []uint64{50, 20, 71}, []uint64{parts.Recordings[0].Samples, parts.Recordings[1].Samples, parts.Recordings[2].Samples})
	assert.Equal(t, whole.Changes, parts.Changes)
	assert.Equal(t, whole.Scopes, parts.Scopes)
	assert.Empty(t, parts.Gaps)
}

func TestReplayOrdersBoots(t *testing.T) {
	n := newNode().seconds(20, 0)
	first := n.samples
	n.samples = nil
	n.reboot()
	early := n.clock
	n.clock = early.AddDate(-30, 0, 0) // no clock was set yet
	n.seconds(5, 0)
	unset := n.samples
	n.samples, n.clock = nil, early
	n.seconds(20, 0)
	set := n.samples
	_, err := play(t, recordingFile(t, "set", set), recordingFile(t, "first", first))
	require.NoError(t, err)
	r, err := play(t, recordingFile(t, "first", first), recordingFile(t, "set", set))
	require.NoError(t, err)
	require.Len(t, r.Gaps, 1)
	assert.Equal(t, Rebooted, r.Gaps[0].Reason)
	_, err = play(t, recordingFile(t, "unset", unset), recordingFile(t, "first", first))
	require.NoError(t, err, "by its own clock it is the older one")
	late := recordingFile(t, "unset", unset)
	_, err = play(t, late, recordingFile(t, "set", set[5:]), recordingFile(t, "first", first))
	require.EqualError(t, err, late+": sample 1: "+errMachine.Error(), "with the clock that was set later it comes after, and does not fit")
}

func TestReplayRefusesMismatch(t *testing.T) {
	n := newNode().seconds(30, 0)
	a, b := recordingFile(t, "a.rec", n.samples[:20]), recordingFile(t, "b.rec", n.samples[10:])
	r, err := play(t, b, a)
	require.EqualError(t, err, b+": sample 1: it overlaps with the recording before it")
	assert.Equal(t, err.Error(), r.Failed)
	assert.Equal(t, uint64(20), r.Samples, "what could be played is in the report")
	_, err = play(t, a, a)
	require.ErrorContains(t, err, a+": sample 1: it overlaps")

	other := newNode()
	other.boot, other.clock = "another", other.clock.Add(-5e9)
	other.seconds(30, 0)
	o := recordingFile(t, "other.rec", other.samples)
	_, err = play(t, a, o)
	require.ErrorContains(t, err, "sample 1: it is of another boot and not later than the recording before it: another machine, or the clock was set back")
}

func TestReplayTruncatedRecording(t *testing.T) {
	n := newNode().seconds(61, 0).short(20)
	file := recordingFile(t, "whole", n.samples)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, b[:len(b)-40], 0o600))
	r, err := play(t, file)
	require.NoError(t, err)
	assert.True(t, r.Recordings[0].CutShort)
	assert.GreaterOrEqual(t, r.Samples, uint64(79))
	assert.Len(t, r.Changes, 1)
}

func zipped(lines ...string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(strings.Join(lines, "\n") + "\n"))
	_ = w.Close()
	return b.Bytes()
}

func TestReplayBadRecordingError(t *testing.T) {
	const header = `{"format":"plimsoll-recording/1"}`
	dir := t.TempDir()
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":     {nil, "FILE: recording: truncated: the writer did not close it"},
		"text":      {[]byte("disk usage was high"), "FILE: recording: damaged, or no recording: gzip: invalid header"},
		"headless":  {zipped("hello"), "FILE: recording: header: the first line is not a header of format plimsoll-recording/1"},
		"newer":     {zipped(`{"format":"plimsoll-recording/2"}`), "FILE: recording: header: unsupported format \"plimsoll-recording/2\": a newer version wrote it, this one reads plimsoll-recording/1"},
		"no sample": {zipped(header), "FILE: no samples in it"},
		"spoiled":   {zipped(header, `{"monotonicNanoseconds":1}`, "hello"), "FILE: recording: sample 2: invalid character"},
		"another":   {zipped(header, `{"kind":"Pod"}`), "FILE: recording: sample 1: no monotonicNanoseconds"},
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, c.content, 0o600))
		_, alone := play(t, file)
		_, beside := play(t, file, recordingFile(t, "good", newNode().seconds(3, 0).samples))
		for _, err := range []error{alone, beside} {
			require.ErrorContains(t, err, strings.ReplaceAll(c.want, "FILE", file), name)
			assert.NotContains(t, err.Error(), "\n", name)
		}
	}
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err := play(t, fifo, fifo) // reading its beginning would take it away, and wait for a writer
	require.EqualError(t, err, fifo+": not a regular file; each of several recordings is read twice")
	for _, bad := range [][]string{{filepath.Join(dir, "none")}, {dir}, {dir, dir}} {
		_, err := play(t, bad...)
		require.ErrorContains(t, err, bad[0])
	}
}

func TestReplayStandardInput(t *testing.T) {
	b, err := os.ReadFile(recordingFile(t, "a", newNode().seconds(5, 0).samples))
	require.NoError(t, err)
	p := player(nil)
	require.NoError(t, p.Files(t.Context(), []string{Stdin}, bytes.NewReader(b)))
	assert.Equal(t, uint64(5), p.Report().Samples)
	_, err = play(t, Stdin, Stdin)
	require.ErrorContains(t, err, "-: standard input cannot be combined")
}

func TestReplayCancelled(t *testing.T) {
	file := recordingFile(t, "a", newNode().seconds(50, 0).samples)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := player(nil).Files(ctx, []string{file}, nil)
	require.EqualError(t, err, file+": sample 1: stopped by a signal")
}

func TestReplayClockStandsStill(t *testing.T) {
	n := newNode().seconds(20, 0)
	samples := append(append([]*snapshot.Sample{}, n.samples...), n.samples[19])
	r, err := play(t, recordingFile(t, "a", append(samples, n.seconds(3, 0).samples[20:]...)))
	require.NoError(t, err)
	require.Len(t, r.Gaps, 1)
	assert.Equal(t, "the clock did not advance", r.Gaps[0].Reason)
}
