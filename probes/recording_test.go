package probes

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// play reads all samples of a recording.
func play(r io.Reader) ([]*snapshot.Sample, Header, error) {
	var samples []*snapshot.Sample
	h, err := Play(r, func(s *snapshot.Sample) error {
		samples = append(samples, s)
		return nil
	})
	return samples, h, err
}

// recordedSamples are those of the recorded machine.
func recordedSamples(t *testing.T) []*snapshot.Sample {
	t.Helper()
	m := recordedMachine(t)
	h := m.host()
	var samples []*snapshot.Sample
	for more := true; more; more = m.next() {
		samples = append(samples, mustSample(t, h))
	}
	samples[3].Workloads = []snapshot.Workload{{Cgroup: "/a", Inode: 1, IO: []snapshot.WorkloadIO{{Number: "8:0", Reads: 1}}, Pressure: snapshot.Pressure{Memory: snapshot.Stall{Full: u64(0)}}}}
	return samples
}

func record(t *testing.T, samples []*snapshot.Sample) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "recording")
	r, err := CreateRecording(file, "v0.1.0", "")
	require.NoError(t, err)
	for _, s := range samples {
		require.NoError(t, r.Add(s))
	}
	require.NoError(t, r.Close())
	return file
}

func TestRecordingRoundTrip(t *testing.T) {
	samples := recordedSamples(t)
	f, err := os.Open(record(t, samples))
	require.NoError(t, err)
	defer f.Close()
	back, header, err := play(f)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(samples, back, sameSamples()))
	assert.Equal(t, RecordingFormat, header.Format)
	assert.Equal(t, "v0.1.0", header.Version)
	assert.Equal(t, kernel(), header.Kernel)
	assert.Equal(t, strings.Join(os.Args, " "), header.Command)

	live, replayed := testHistory(), testHistory()
	for i := range samples {
		assert.Empty(t, cmp.Diff(live.Add(samples[i]), replayed.Add(back[i]), sameSamples()))
	}
}

func TestRecordingUnsorted(t *testing.T) {
	back, _, err := play(bytes.NewReader(zipped(someHeader,
		`{"monotonicNanoseconds":1,"disks":[{"device":"sdb"},{"device":"sda"}],"nics":[{"device":"lo"},{"device":"eth0"}],"workloads":[{"cgroup":"/b"},{"cgroup":"/a"}]}`)))
	require.NoError(t, err)
	require.Len(t, back, 1)
	for _, found := range []bool{
		diskOf(back[0], "sda") != nil, diskOf(back[0], "sdb") != nil, nicOf(back[0], "lo") != nil,
		nicOf(back[0], "eth0") != nil, workloadOf(back[0], "/a") != nil, workloadOf(back[0], "/b") != nil,
	} {
		assert.True(t, found)
	}
}

func TestRecordingModeAndNoOverwrite(t *testing.T) {
	file := record(t, nil)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	_, err = CreateRecording(file, "v0.1.0", "")
	require.ErrorIs(t, err, os.ErrExist)
	assert.ErrorContains(t, err, "record: ")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, before, after)

	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(elsewhere, link))
	_, err = CreateRecording(link, "v0.1.0", "")
	require.ErrorIs(t, err, os.ErrExist, "nor is a link followed")
	assert.NoFileExists(t, elsewhere)
}

func TestRecordingRefusesUnreadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recording")
	r, err := CreateRecording(file, "v0.1.0", "")
	require.NoError(t, err)
	small := &snapshot.Sample{Monotonic: 1}
	require.NoError(t, r.Add(small))
	require.ErrorIs(t, r.Add(&snapshot.Sample{Monotonic: 2, BootID: strings.Repeat("a", maxSampleBytes)}), ErrSampleTooLarge)
	require.ErrorIs(t, r.Add(&snapshot.Sample{Monotonic: 2, Workloads: make([]snapshot.Workload, maxSampleValues)}), ErrSampleTooLarge)
	require.NoError(t, r.Add(small))
	require.NoError(t, r.Close())
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	back, _, err := play(f)
	require.NoError(t, err)
	assert.Len(t, back, 2)
}

// A node of ten thousand workloads fits with all that is measured of them.
func TestRecordingLargestNode(t *testing.T) {
	s := &snapshot.Sample{Monotonic: 1, BootID: "a"}
	n := u64(1 << 62)
	for i := range 10_000 {
		s.Workloads = append(s.Workloads, snapshot.Workload{
			Cgroup: fmt.Sprintf("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%032d.slice", i),
			Inode:  1 << 40, Kind: snapshot.KindPod, Name: "kubepods-burstable-pod.slice", PodUID: "6f7c1c9e-3f0a-4d8e-9a51-0b5b6f6f2c11",
			MemoryBytes: n, InactiveFileBytes: n, RSSBytes: n, Reclaimed: n, Charged: n, MemoryLimitBytes: n, LimitHits: n, OOMKills: n, CPUMicroseconds: n, ThrottledMicroseconds: n,
			Pressure: snapshot.Pressure{CPU: snapshot.Stall{Some: n, Full: n}, Memory: snapshot.Stall{Some: n, Full: n}, IO: snapshot.Stall{Some: n, Full: n}},
			IO: []snapshot.WorkloadIO{
				{Number: "8:0", Reads: 1 << 62, Writes: 1 << 62, ReadBytes: 1 << 62, WrittenBytes: 1 << 62},
				{Number: "8:16", Reads: 1 << 62, Writes: 1 << 62, ReadBytes: 1 << 62, WrittenBytes: 1 << 62},
			},
		})
	}
	f, err := os.Open(record(t, []*snapshot.Sample{s}))
	require.NoError(t, err)
	defer f.Close()
	back, _, err := play(f)
	require.NoError(t, err)
	require.Len(t, back, 1)
	assert.True(t, reflect.DeepEqual(s.Workloads, back[0].Workloads))
}
