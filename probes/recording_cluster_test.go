package probes

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestRecordingPodsWhereChanged(t *testing.T) {
	samples := recordedSamples(t)[:6]
	two := snapshot.NewCluster(twoPods(), snapshot.Reclaimable{}, nil)
	same := snapshot.NewCluster(twoPods(), snapshot.Reclaimable{}, nil) // made anew, and no other
	one := snapshot.NewCluster(twoPods()[:1], snapshot.Reclaimable{CPUMillicores: snapshot.Some(uint64(44_000))}, nil)
	for i, c := range []*snapshot.Cluster{nil, two, two, same, one, one} {
		samples[i].Cluster = c
		samples[i].Workloads = []snapshot.Workload{{Cgroup: "/kubepods/burstable/podu2", Kind: snapshot.KindPod, PodUID: "u2"}}
	}
	file := record(t, samples)
	packed, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(unzipped(t, packed), `"cluster":{`), "written where it changed alone")

	back, _, err := play(bytes.NewReader(packed))
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(samples, back, sameSamples()))
	live, replayed := testHistory(), testHistory()
	for i := range samples {
		want, got := live.Add(samples[i]), replayed.Add(back[i])
		assert.Empty(t, cmp.Diff(want, got, sameSamples()))
		require.Len(t, got.Workloads, 1)
		assert.Equal(t, want.Workloads[0].Pod != nil, got.Workloads[0].Pod != nil)
	}
}

func unzipped(t *testing.T, packed []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

func TestRecordingWithoutPods(t *testing.T) {
	back, _, err := play(bytes.NewReader(zipped(someHeader, `{"monotonicNanoseconds":1}`, `{"monotonicNanoseconds":2}`)))
	require.NoError(t, err)
	require.Len(t, back, 2)
	_, why := testHistory().Add(back[1]).Pods()
	assert.NotEmpty(t, why)
}

func TestRecordingNegativeRequest(t *testing.T) {
	_, _, err := play(bytes.NewReader(zipped(someHeader, `{"monotonicNanoseconds":1,"cluster":{"pods":[{"uid":"u1","memoryRequestBytes":-1}]}}`)))
	assert.ErrorContains(t, err, "sample 1")
}
