package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestContentionReport(t *testing.T) {
	db := snapshot.Party{Cgroup: "/a", Kind: "pod", Name: "uid-1", PodUID: "uid-1"}
	s := &view.State{
		Snapshot: &snapshot.Snapshot{Contention: []snapshot.Contention{
			{Resource: snapshot.SharedDisk, Device: "sdb", State: snapshot.ContentionUnknown},
			{Resource: snapshot.SharedNetwork, Device: "eth0", State: snapshot.ContentionUnknown},
			{Resource: snapshot.SharedDisk, Device: "sdc", State: snapshot.ContentionBusy, Culprits: []snapshot.Culprit{{Party: db, Share: 1}}},
			{
				Resource: snapshot.SharedDisk, Device: "sda", State: snapshot.ContentionPresent, Coverage: snapshot.Some(0.9449), MoreCulprits: 5, MoreSufferers: 1,
				Culprits: []snapshot.Culprit{
					{Party: snapshot.Party{Cgroup: "/b", Kind: "service", Name: "copy.service"}, Share: 0.7119},
					{Party: snapshot.Party{Cgroup: "/c", Kind: "service", Name: "other.service"}, Share: 0.1},
				},
				Sufferers: []snapshot.Sufferer{{Party: db, Waited: 0.378}, {Party: db, Waited: 0.9, LowestClass: true}},
			},
		}},
		Cluster: &view.Cluster{PodOf: func(uid string) (pods.Pod, bool) { return pods.Pod{Namespace: "shop", Name: "db-0"}, uid == "uid-1" }, Throttles: &view.Throttles{Throttled: []view.Throttled{
			{Cgroup: "/b", Disk: "sdb", Percent: 80}, {Cgroup: "/b", Disk: "sda", Percent: 20}, {Cgroup: "/c", Disk: "sda", Percent: 40, DryRun: true},
		}}},
	}
	n := contentionReport(s)
	assert.Equal(t, []lease.ResourceContention{{
		Resource: "disk", Device: "sda", Coverage: new(0.94),
		Culprits:  []lease.Workload{{Kind: "service", Name: "copy.service", Ratio: 0.71, Throttled: 20}, {Kind: "service", Name: "other.service", Ratio: 0.1}},
		Sufferers: []lease.Workload{{Kind: "pod", Name: "shop/db-0", Ratio: 0.38}}, MoreCulprits: 5, MoreSufferers: 1,
	}}, n.Resources)
	assert.Equal(t, []string{"Disk sdb", "Network eth0"}, n.Unknown, "the controller leaves out what begins with Network")
	assert.NotEmpty(t, n.Version)

	t.Run("it ends where no round reports any more", func(t *testing.T) {
		now := time.Hour
		h := &heartbeat{beat: &lease.Heartbeat{Uptime: func() time.Duration { return now }}}
		assert.NotContains(t, h.annotations(), lease.ContentionAnnotation)
		h.setContention(n, reportValid(30*time.Second))
		_, err := lease.ReadContention(h.annotations())
		require.NoError(t, err)
		now += 90 * time.Second
		assert.NotEmpty(t, h.annotations()[lease.ContentionAnnotation])
		now++
		assert.Empty(t, h.annotations()[lease.ContentionAnnotation])
		assert.Contains(t, h.annotations(), lease.ContentionAnnotation, "an empty one is removed from the Lease")
	})
}

// The heartbeat goes on while sampling hangs.
func TestHeartbeatWhileSamplingHangs(t *testing.T) {
	h := newMemoryFixture(t)
	file, err := config.Open("", nil)
	require.NoError(t, err)
	for tick, valid := range map[time.Duration]time.Duration{time.Second: 15 * time.Second, 10 * time.Second: 30 * time.Second} {
		h.config.Tick = tick
		a := &Agent{
			Config: file, config: &h.config, throttles: h.throttles, triggers: newTriggers(&h.config, file.Current, nil), throttleDue: make(chan struct{}, 1), published: make(chan struct{}, 1),
			cluster: &cluster{heartbeat: &heartbeat{}},
		}
		s := h.sample(1000, plugins.None)
		synctest.Test(t, func(t *testing.T) {
			a.publish(s.Snapshot, s.Levels, s.Snapshot.Time)
			time.Sleep(valid - time.Nanosecond)
			text, _ := a.cluster.heartbeat.report.Encode()
			assert.Equal(t, `{"notJudged":["cpu"]}`, text, "no rule of the test judges it")
			time.Sleep(time.Nanosecond)
			text, _ = a.cluster.heartbeat.report.Encode()
			assert.Equal(t, `{"notJudged":["cpu","disk","filesystem","memory","network"]}`, text)
		})
	}
}
