package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

func TestThrottled(t *testing.T) {
	const cgroup = "/kubepods/besteffort/podimport"
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	s := &snapshot.Snapshot{
		Time: now, Disks: []snapshot.DiskState{{Disk: snapshot.Disk{Name: "vda", Number: "8:0"}}},
		Workloads: []snapshot.WorkloadState{{
			Workload: snapshot.NewWorkload(cgroup), Pod: &snapshot.Pod{Namespace: "batch", Name: "import", QoS: "BestEffort"},
			Rates: snapshot.Some(snapshot.WorkloadRates{IO: []snapshot.WorkloadIORates{{Number: "8:0", ReadBytesPerSecond: 100e6}}}),
		}},
		Contention: []snapshot.Contention{{
			Resource: snapshot.SharedDisk, Device: "vda", State: snapshot.ContentionPresent,
			Culprits:  []snapshot.Culprit{{Party: snapshot.Party{Cgroup: cgroup, Name: "batch/import"}, Share: 0.9}},
			Sufferers: []snapshot.Sufferer{{Party: snapshot.Party{Name: "shop/db"}, Waited: 0.4, Share: snapshot.Some(0.1)}},
		}},
	}
	levels := &plugins.Levels{Time: now, Verdicts: []plugins.Verdict{{Resource: plugins.Disk, Scope: "vda", Level: plugins.Soft}}}
	c := config.Default()
	c.Throttle.DryRun = false // a replay is always a dry run
	ch := newChain(&c, false, nil)
	list := pods.List{Synced: true, Pods: recordedPods(s)}
	began := ch.throttle(s, levels, list)
	require.Equal(t, []Throttling{{Time: now, Name: "batch/import", Disk: "vda", Percent: 80, Limit: throttle.Rates{Read: 80e6, Write: 80e6}, Reason: "shop/db waits 40 % of the time; batch/import has 90 % of the traffic"}}, began)
	assert.Empty(t, ch.throttle(s, levels, list), "it goes on")

	c.Throttle.Enabled = false
	assert.Empty(t, newChain(&c, false, nil).throttle(s, levels, list))

	r := &Report{}
	for range maxDecisions + 3 {
		r.throttle(began[0])
	}
	assert.EqualValues(t, 3, r.Omitted.Throttled)
	var b strings.Builder
	require.NoError(t, WriteTable(&b, &Report{Throttled: began}))
	assert.Regexp(t, `2026-03-01 02:00:00 +0 s +vda +throttle +would throttle batch/import: vda limited to 80.0 MB/s read, 80.0 MB/s write, 80 % of its previous use, since shop/db waits 40 % of the time; batch/import has 90 % of the traffic\n`, b.String())
}
