package doctor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestDiskThresholds(t *testing.T) {
	disk := func(name string, rotational bool) snapshot.Disk {
		return snapshot.Disk{Name: name, Layer: snapshot.LayerLeaf, WWID: snapshot.Some(name), Rotational: snapshot.Some(rotational), DiskCounters: snapshot.DiskCounters{Reads: 1}}
	}
	s := &snapshot.Sample{Disks: []snapshot.Disk{disk("nvme0n1", false), disk("nvme1n1", false), disk("vda", true), disk("vdb", true), disk("slow", false), {Name: "dm-0", Layer: snapshot.LayerStacked}}}
	fast, slow := plugins.Baseline{}, plugins.Baseline{}
	fast.Read[0] = plugins.RequestStats{Requests: 2000, Seconds: 300, TotalSeconds: 2}
	slow.Write[3] = plugins.RequestStats{Requests: 1e6, Seconds: 7200, TotalSeconds: 15_000}
	p := Examination{Disks: Disks{Rule: plugins.DefaultDiskContention(), Baselines: plugins.Baselines{"wwid:vda": fast, "wwid:slow": slow}}}
	p.Disks.Rule.Ceilings = []plugins.DiskCeiling{{Device: "vdb", IOPS: 3000, BytesPerSecond: 125 << 20}}
	assert.Equal(t, []Row{
		{Pass, "disk threshold", "nvme0n1, nvme1n1: slow from 20 ms: it does not rotate"},
		{Pass, "disk threshold", "vda: slow from 20 ms: it says that it rotates (queue/rotational is 1), but its reads take 1.0 ms, which no disk with moving parts does"},
		{Pass, "disk threshold", "vdb: under pressure at its ceiling, 3000 requests/s or 125.0 MiB/s (plugins.diskContention.ceilings)"},
		{Pass, "disk threshold", "slow: slow from 20 ms: it does not rotate; up to 45 ms where its requests usually take 15 ms (3 times that)"},
	}, p.Disks.rows(s))

	t.Run("without what was learned", func(t *testing.T) {
		p.Disks.Baselines, p.Disks.Unread = nil, errors.New("permission denied")
		rows := p.Disks.rows(s)
		assert.Equal(t, Warn, rows[0].Result)
		assert.Contains(t, rows[0].Finding, "permission denied")
		assert.Contains(t, rows[2].Finding, "vda: slow from 100 ms: it says that it rotates")
	})
	t.Run("of a rule that is off", func(t *testing.T) {
		assert.Equal(t, []Row{{Pass, "disk threshold", "disks are not judged (plugins.diskContention.enabled: false)"}}, Disks{}.rows(s))
	})
}

func TestStalls(t *testing.T) {
	none := snapshot.Workload{Absent: snapshot.Absent{"pressure": "no cgroup of this path in the unified hierarchy"}}
	assert.Empty(t, stalls(&snapshot.Sample{}))
	assert.Empty(t, stalls(&snapshot.Sample{Workloads: []snapshot.Workload{none, {}}}))
	rows := stalls(&snapshot.Sample{Workloads: []snapshot.Workload{none, none}})
	assert.Len(t, rows, 1)
	assert.Equal(t, Warn, rows[0].Result)
	assert.Contains(t, rows[0].Finding, "in the unified hierarchy")
}

func TestAttribution(t *testing.T) {
	none := snapshot.Workload{Absent: snapshot.Absent{"io": "blkio inactive"}}
	some := snapshot.Workload{IO: []snapshot.WorkloadIO{{Number: "8:0"}}}
	assert.Empty(t, attribution(&snapshot.Sample{}))
	assert.Empty(t, attribution(&snapshot.Sample{Workloads: []snapshot.Workload{none, some}}))
	rows := attribution(&snapshot.Sample{Workloads: []snapshot.Workload{none, none}})
	assert.Len(t, rows, 1)
	assert.Equal(t, Warn, rows[0].Result)
	assert.Contains(t, rows[0].Finding, "blkio inactive")
}
