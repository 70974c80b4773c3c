package cri

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestFilesystems(t *testing.T) {
	for what, row := range map[string]struct {
		info   *runtime.ImageFsInfoResponse
		judged string
		all    []string
	}{
		"containerd":                 {images("/a"), "/a", []string{"/a"}},
		"several snapshotters":       {images("/a", "/b"), "/a", []string{"/a", "/b"}},
		"a filesystem of containers": {&runtime.ImageFsInfoResponse{ImageFilesystems: usages("/a"), ContainerFilesystems: usages("/c")}, "/c", []string{"/c"}},
		"none":                       {&runtime.ImageFsInfoResponse{}, "", nil},
		"no name":                    {images(""), "", nil},
		"no answer":                  {nil, "", nil},
	} {
		t.Run(what, func(t *testing.T) {
			all, judged := filesystems(row.info)
			assert.Equal(t, row.judged, judged)
			assert.Equal(t, row.all, all)
		})
	}
}

func TestPodsOf(t *testing.T) {
	now := time.Now()
	zero := layer("a", "/a", 0, 0, 0)
	zero.WritableLayer.Timestamp = 0 // as containerd reports what it has not measured
	bytesOnly := layer("b", "/a", 5, 0, 0)
	bytesOnly.WritableLayer.InodesUsed = nil
	neither := layer("c", "/a", 5, 5, 0)
	neither.WritableLayer.UsedBytes, neither.WritableLayer.InodesUsed = nil, nil
	none := layer("d", "/a", 0, 0, 0)
	none.WritableLayer = nil
	for what, row := range map[string]struct {
		stats []*runtime.ContainerStats
		want  []snapshot.PodRootfs
		why   string
	}{
		"not measured":            {[]*runtime.ContainerStats{zero, neither, none}, nil, "the runtime has not measured the writable layers of 3 containers"},
		"beside a measured one":   {[]*runtime.ContainerStats{zero, layer("a", "/a", 3, 2, 0)}, []snapshot.PodRootfs{used("a", 3, 2)}, "the runtime has not measured the writable layers of 1 containers"},
		"no inodes":               {[]*runtime.ContainerStats{bytesOnly}, []snapshot.PodRootfs{{PodUID: "b", UsedBytes: snapshot.Some[uint64](5)}}, ""},
		"too old":                 {[]*runtime.ContainerStats{layer("a", "/a", 3, 2, maxLayerAge+time.Minute)}, nil, "what the runtime reports of the writable layers of 1 containers is older than 5m0s"},
		"both":                    {[]*runtime.ContainerStats{zero, layer("a", "/a", 3, 2, maxLayerAge+time.Minute)}, nil, "the runtime has not measured the writable layers of 1 containers, and what it reports of those of 1 is older than 5m0s"},
		"on another filesystem":   {[]*runtime.ContainerStats{layer("a", "/elsewhere", 3, 2, 0)}, nil, ""},
		"its own mount, as CRI-O": {[]*runtime.ContainerStats{layer("a", "/storage/overlay/1/merged", 3, 2, 0)}, []snapshot.PodRootfs{used("a", 3, 2)}, ""},
		"of no pod":               {[]*runtime.ContainerStats{layer("", "/a", 3, 2, 0), nil}, nil, ""},
		"more than a number":      {[]*runtime.ContainerStats{layer("a", "/a", math.MaxUint64, 2, 0), layer("a", "/a", 3, 2, 0)}, []snapshot.PodRootfs{used("a", math.MaxUint64, 4)}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			list, unknown := podsOf(row.stats, []string{"/elsewhere"}, now)
			assert.Equal(t, row.want, list)
			assert.Equal(t, row.why, unknown.reason())
		})
	}
}

// FuzzPodsOf: no answer makes it panic, each pod is there once, in order, and at least
// something is known of it.
func FuzzPodsOf(f *testing.F) {
	seed := &runtime.ListContainerStatsResponse{Stats: []*runtime.ContainerStats{layer("b", "/a", 5, 1, 0), layer("a", "/a", 7, 1, 0), layer("a", "/a", 1, 0, time.Hour)}}
	b, err := proto.Marshal(seed)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var answer runtime.ListContainerStatsResponse
		if proto.Unmarshal(b, &answer) != nil {
			return
		}
		list, unknown := podsOf(answer.GetStats(), nil, time.Now())
		require.LessOrEqual(t, len(list)+unknown.old+unknown.unmeasured, len(answer.GetStats()))
		for i, p := range list {
			require.True(t, i == 0 || list[i-1].PodUID < p.PodUID)
			require.False(t, p.UsedBytes.IsZero() && p.FilesUsed.IsZero())
		}
	})
}
