package probes

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestRecordingTruncatedAnywhere(t *testing.T) {
	samples := recordedSamples(t)[:4]
	b, err := os.ReadFile(record(t, samples))
	require.NoError(t, err)
	most, step := 0, live.Times(5, 1)
	for n := (len(b) - 1) % step; n < len(b); n += step { // its last byte is missing at last
		back, _, err := play(bytes.NewReader(b[:n]))
		require.ErrorIs(t, err, ErrTruncated, "at byte %d of %d", n, len(b))
		require.GreaterOrEqual(t, len(back), most, "at byte %d: more of the file gives no fewer samples", n)
		if len(back) > most {
			require.Empty(t, cmp.Diff(samples[:len(back)], back, sameSamples()))
		}
		most = len(back)
	}
	assert.Len(t, samples, most)
}

func TestRecordingKilledWriter(t *testing.T) {
	const where = "PLIMSOLL_RECORDING_CHILD"
	samples := recordedSamples(t)
	if file := os.Getenv(where); file != "" { // the writer: it adds until it is killed
		r, err := CreateRecording(file, "v0.1.0", "")
		require.NoError(t, err)
		for i := 0; ; i++ {
			require.NoError(t, r.Add(samples[i%len(samples)]))
			fmt.Println("added")
		}
	}
	file := filepath.Join(t.TempDir(), "recording")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	// What the killed child unpacks goes with this test's own directory.
	cmd.Env = append(os.Environ(), where+"="+file, "GOCOVERDIR="+t.TempDir(), "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first := make([]byte, len("added\n")*25)
	_, err = io.ReadFull(out, first)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Error(t, cmd.Wait(), "it was killed")
	added := bytes.Count(append(first, rest...), []byte("added\n"))

	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	back, _, err := play(f)
	require.ErrorIs(t, err, ErrTruncated)
	require.GreaterOrEqual(t, len(back), added)
	for i, s := range back {
		want := samples[i%len(samples)] // the writer read the same files
		require.Empty(t, cmp.Diff(want, s, measured()), "sample %d", i)
		require.Equal(t, want.Monotonic, s.Monotonic)
	}
}

// zipped is a recording of these lines.
func zipped(lines ...string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for _, line := range lines {
		_, _ = w.Write([]byte(line + "\n"))
	}
	_ = w.Close()
	return b.Bytes()
}

const someHeader = `{"format":"plimsoll-recording/1"}`

func TestRecordingInvalid(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"text":              {[]byte("disk usage was high today"), "recording: damaged, or no recording: gzip: invalid header"},
		"an empty file":     {nil, "recording: truncated"},
		"an empty archive":  {zipped(), "first line is not a header of format plimsoll-recording/1"},
		"another archive":   {zipped("hello", "world"), "first line is not a header of format plimsoll-recording/1"},
		"another format":    {zipped(`{"format":"plimsoll-recording/2"}`), `recording: header: unsupported format "plimsoll-recording/2": a newer version wrote it, this one reads plimsoll-recording/1`},
		"a number":          {zipped("1"), "first line is not a header of format plimsoll-recording/1"},
		"no sample":         {zipped(someHeader, `{"monotonicNanoseconds":1}`, "hello"), "recording: sample 2: invalid character"},
		"another object":    {zipped(someHeader, `{"kind":"Pod"}`), "recording: sample 1: no monotonicNanoseconds"},
		"null":              {zipped(someHeader, `null`), "recording: sample 1: no monotonicNanoseconds"},
		"a wrong type":      {zipped(someHeader, `{"monotonicNanoseconds":"1"}`), "recording: sample 1: json: cannot unmarshal string"},
		"a negative count":  {zipped(someHeader, `{"monotonicNanoseconds":1,"disks":[{"readsCompletedTotal":-1}]}`), "recording: sample 1: json: cannot unmarshal number -1"},
		"garbage behind it": {append(zipped(someHeader), "garbage behind it"...), "recording: damaged, or no recording: gzip: invalid header"},
		"too long a header": {zipped(strings.Repeat(" ", maxSampleBytes)), ErrSampleTooLarge.Error()},
	} {
		_, _, err := play(bytes.NewReader(c.content))
		require.ErrorContains(t, err, c.want, name)
		assert.NotContains(t, err.Error(), "\n", name)
	}
	b := zipped(someHeader, `{"monotonicNanoseconds":1}`)
	b[len(b)-8]++ // the checksum
	back, _, err := play(bytes.NewReader(b))
	require.ErrorIs(t, err, gzip.ErrChecksum)
	require.NotErrorIs(t, err, ErrTruncated)
	assert.Len(t, back, 1)
}

func TestPlayEndsOnReaderError(t *testing.T) {
	enough := errors.New("enough")
	n := 0
	h, err := Play(bytes.NewReader(zipped(someHeader, `{"monotonicNanoseconds":1}`, `{"monotonicNanoseconds":2}`)), func(*snapshot.Sample) error {
		n++
		return enough
	})
	require.ErrorIs(t, err, enough)
	assert.Equal(t, 1, n)
	assert.Equal(t, RecordingFormat, h.Format)
}

// A few KiB that unpack to gigabytes, or a line whose values need a hundred
// times its length, must not exhaust memory.
func TestRecordingMemoryBombRefused(t *testing.T) {
	zeros := make([]byte, 1<<20)
	var long bytes.Buffer
	w := gzip.NewWriter(&long)
	_, err := w.Write([]byte(someHeader + "\n"))
	require.NoError(t, err)
	for range 4 * maxSampleBytes / len(zeros) { // one line
		_, err = w.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	for name, bomb := range map[string][]byte{
		"a line without end": long.Bytes(),
		"a list of nothing":  zipped(someHeader, `{"monotonicNanoseconds":1,"workloads":[`+strings.Repeat("{},", maxSampleBytes/4)+"{}]}"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := play(bytes.NewReader(bomb))
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, ErrSampleTooLarge.Error(), name)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8*maxSampleBytes), name)
	}
}

// playable passes a recording to a History; any result must be printable.
func playable(t *testing.T, b []byte, play func(io.Reader, func(*snapshot.Sample) error) (Header, error)) {
	history := testHistory()
	n := 0
	_, err := play(bytes.NewReader(b), func(s *snapshot.Sample) error {
		n++
		snap := history.Add(s)
		if _, err := json.Marshal(snap); err != nil {
			t.Fatalf("sample %d: %v", n, err)
		}
		snap.Trend()
		snap.Over(time.Minute)
		return nil
	})
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Fatalf("an error of several lines: %q", err)
	}
}

// FuzzPlay reads arbitrary bytes as an archive, and as an unpacked one's lines
// below a valid header.
func FuzzPlay(f *testing.F) {
	seed := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(f, err)
		return string(b)
	}
	one := snapshot.Sample{
		Time: time.Unix(1, 0).UTC(), Monotonic: 1, Boottime: 1, CPU: snapshot.CPU{Seconds: map[string]float64{"user": 1e300}, Online: snapshot.Some(0)},
		Disks:     []snapshot.Disk{{Name: "sda"}, {Name: "sda"}},
		NICs:      []snapshot.NIC{{Name: "eth0", SpeedBytesPerSecond: u64(0)}},
		Workloads: []snapshot.Workload{{Cgroup: "/a", IO: []snapshot.WorkloadIO{{Number: "8:0"}}}, {Cgroup: "/"}},
	}
	two := one
	two.Monotonic, two.Boottime = 1<<62, 1<<62
	f.Add([]byte(seed(one) + "\n" + seed(two)))
	three := one
	three.Monotonic, three.Boottime = 2, 2
	three.Disks = []snapshot.Disk{{Name: "sda", DiskCounters: snapshot.DiskCounters{Reads: 1 << 63, ReadMs: 1 << 63}}}
	f.Add([]byte(seed(one) + "\n" + seed(three) + "\n{}\nnull"))
	f.Add(zipped(someHeader, seed(one)))
	f.Add(zipped("[]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		playable(t, b, Play)
		playable(t, append([]byte(someHeader+"\n"), b...), playLines)
	})
}
