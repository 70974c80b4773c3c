package web

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestPageHungFilesystemLastValues(t *testing.T) {
	rows := filesystemRows(scenes.MemoryHard().Snapshot, scenes.MemoryHard().Snapshot.Filesystems)
	require.Len(t, rows, 3)
	hung := rows[2]
	assert.Equal(t, "statfs hangs", hung.Trouble)
	assert.Equal(t, cell{Text: "4.0 TiB"}, hung.Available)
	assert.Equal(t, cell{Text: "5 min 12 s ago", Hot: true}, hung.Age)
	assert.Equal(t, cell{Text: "6.0 %", Hot: true}, rows[1].Left, "little room is marked")
	assert.Equal(t, cell{Text: "4 s ago"}, rows[1].Age)
}

func TestPageFilesystemNeverAnswered(t *testing.T) {
	rows := filesystemRows(scenes.EverythingAbsent().Snapshot, scenes.EverythingAbsent().Snapshot.Filesystems)
	require.Len(t, rows, 2)
	for i, why := range []string{"statfs hangs", "not mounted"} {
		for _, c := range []cell{rows[i].Size, rows[i].Available, rows[i].Left, rows[i].Free, rows[i].Age} {
			assert.Equal(t, view.Unknown, c.Text)
			assert.Equal(t, why, c.Why)
		}
	}
	assert.Equal(t, "not mounted", rows[1].Kind)
}

func TestPageFilesystemOfPod(t *testing.T) {
	f := scenes.Calm().Snapshot.Filesystems[0]
	f.Use = snapshot.UseVolume
	assert.Equal(t, f.Type+", a pod's volume "+f.Device, filesystemRows(&snapshot.Snapshot{}, []snapshot.Filesystem{f})[0].Kind)
}

func TestPageManyFilesystemsFolded(t *testing.T) {
	s := scenes.Calm()
	for i := range 100 {
		s.Snapshot.Filesystems = append(s.Snapshot.Filesystems, snapshot.Filesystem{
			Mountpoint: fmt.Sprintf("/v%03d", i), SizeBytes: snapshot.Some[uint64](100), AvailableBytes: snapshot.Some(uint64(i)),
		})
	}
	text, _ := getPage(t, s, "", 0)
	assert.True(t, strings.Contains(text, "Filesystems with more available space: 90"), "Filesystems with more available space: 90")
	assert.Less(t, strings.Index(text, "/v000"), strings.Index(text, "Filesystems with more available space"))
	assert.Greater(t, strings.Index(text, "/v050"), strings.Index(text, "Filesystems with more available space"))
}

func TestMetricsFilesystemAge(t *testing.T) {
	families := parseMetrics(t, appendMetrics(nil, fullState()))
	values := func(name string) map[string]float64 {
		out := map[string]float64{}
		for _, m := range families["plimsoll_filesystem_"+name].GetMetric() {
			out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
		return out
	}
	const odd = "/mnt/a b\n\"c\""
	assert.Equal(t, map[string]float64{"/": 1, odd: 0, "/never": 0}, values("up"), "absent before the first answer")
	assert.Equal(t, map[string]float64{"/": 0.25, odd: 3600.5}, values("probe_age_seconds"))
	assert.Equal(t, map[string]float64{"/": 0, odd: 1 << 20}, values("avail_bytes"))
	assert.Equal(t, map[string]float64{"/": 0}, values("files_free"), "0 where it is 0, and none where files are not counted")
}
