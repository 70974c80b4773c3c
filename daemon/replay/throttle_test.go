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
	list := pods.List{Synced: true, Pods: recordedPods(s, c.Eviction.Protect, nil)}
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

// Memory runs out between two rounds, before any level is met: the pod that takes it is
// throttled then, as the agent does, and the round is no sooner for it.
func TestThrottledBeforeLevel(t *testing.T) {
	c := config.Default()
	ch := newChain(&c, false, nil)
	h := snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: time.Minute}
	var began []Throttling
	for i, available := range []uint64{1500, 1100, 700, 300} { // MiB, of which 400 must be available
		now := time.Duration(1+i) * time.Second
		s := h.Add(&snapshot.Sample{
			Time: time.Unix(int64(i), 0).UTC(), Monotonic: now, Boottime: now,
			Memory: snapshot.Memory{TotalBytes: snapshot.Some[uint64](2 << 30), AvailableBytes: snapshot.Some(available << 20)},
			Workloads: []snapshot.Workload{{
				Cgroup: "/kubepods/besteffort/pod7", Inode: 7, Kind: snapshot.KindPod, Name: "pod7", PodUID: "7", At: now, DetailAt: now, ThrottledAt: now,
				MemoryBytes: snapshot.Some((1600 - available) << 20),
			}},
			Cluster: snapshot.NewCluster([]snapshot.Pod{{UID: "7", Namespace: "batch", Name: "eater", QoS: "BestEffort"}}, snapshot.Reclaimable{}, nil),
		})
		levels := &plugins.Levels{Time: s.Time, Verdicts: []plugins.Verdict{{Resource: plugins.Memory, Scope: "node", Target: snapshot.Some(max(0, 400-float64(available)) * (1 << 20))}}}
		throttled, _, _ := ch.round(s, levels)
		began = append(began, throttled...)
		assert.Equal(t, time.Second, ch.roundAt, "the next is due later")
	}
	require.Len(t, began, 1)
	assert.Equal(t, "batch/eater", began[0].Name)
	assert.Equal(t, "batch/eater took 1200 MiB in 3 s, and 100 % of the memory growth of a minute; 300 MiB are available", began[0].Reason)
}
