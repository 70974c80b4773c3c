package web

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// beatingCluster has a heartbeat of three good attempts and a bad one.
func beatingCluster(at time.Time) *view.Cluster {
	c := fullCluster()
	c.Heartbeat = &view.Heartbeat{Target: "agent", Interval: 10 * time.Second, Duration: 40 * time.Second, Outcomes: map[lease.Outcome]uint64{}, Dials: 2}
	for _, a := range []lease.Attempt{
		{Time: at.Add(-32 * time.Second), Took: 30 * time.Millisecond, Outcome: lease.Created},
		{Time: at.Add(-22 * time.Second), Took: 4 * time.Millisecond, Outcome: lease.Renewed},
		{Time: at.Add(-12 * time.Second), Took: 2 * time.Second, Outcome: lease.Lost, Err: errors.New("no <answer>")},
		{Time: at.Add(-10 * time.Second), Took: time.Second, Outcome: lease.Renewed},
	} {
		c.Heartbeat.Add(a)
	}
	return c
}

func TestHeartbeatMetrics(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	s := inCluster(beatingCluster(at))
	renewals := valuesOf(t, s, "plimsoll_lease_renewals_total", "result")
	assert.Len(t, renewals, len(lease.Outcomes()), "those that never came are 0")
	assert.InDelta(t, 2, renewals["renewed"], 0)
	assert.InDelta(t, 1, renewals["lost"], 0)
	assert.InDelta(t, 0, renewals["held"], 0)
	all := parseMetrics(t, appendMetrics(nil, s))
	assert.InDelta(t, 1_700_000_000-9, all["plimsoll_lease_last_renewal_timestamp_seconds"].GetMetric()[0].GetGauge().GetValue(), 0.001)
	assert.InDelta(t, 2, all["plimsoll_lease_dials_total"].GetMetric()[0].GetCounter().GetValue(), 0)
	h := all["plimsoll_lease_renew_duration_seconds"].GetMetric()[0].GetHistogram()
	assert.EqualValues(t, 3, h.GetSampleCount())
	assert.InDelta(t, 1.034, h.GetSampleSum(), 1e-9)
	assert.EqualValues(t, 1, h.GetBucket()[0].GetCumulativeCount(), "4 ms within 5 ms")
	assert.EqualValues(t, 2, h.GetBucket()[3].GetCumulativeCount())

	assert.NotContains(t, all, "plimsoll_node_lease_renewals_total", "a kubelet's")

	s.Cluster.NodeLease = &view.Heartbeat{Outcomes: map[lease.Outcome]uint64{lease.Held: 3}}
	assert.InDelta(t, 3, valuesOf(t, s, "plimsoll_node_lease_renewals_total", "result")["held"], 0)
	assert.InDelta(t, 0, valuesOf(t, s, "plimsoll_lease_renewals_total", "result")["held"], 0)
	s.Cluster.Heartbeat = &view.Heartbeat{}
	all = parseMetrics(t, appendMetrics(nil, s))
	assert.NotContains(t, all, "plimsoll_lease_last_renewal_timestamp_seconds", "not renewed is not 1970")
	s.Cluster.Heartbeat = nil
	assert.NotContains(t, parseMetrics(t, appendMetrics(nil, s)), "plimsoll_lease_renewals_total")
}

func TestPageHeartbeat(t *testing.T) {
	s := inCluster(nil)
	s.Cluster = beatingCluster(s.Snapshot.Time)
	p := newPageCluster(s)
	f := p.Facts[len(p.Facts)-1]
	assert.Equal(t, "Heartbeat", f.Name)
	assert.Equal(t, "renewed 9 s ago", f.Text)
	assert.False(t, f.Hot)
	assert.Equal(t, "longest gap 13.0 s, 2 connections", f.Of)
	assert.Len(t, p.Beats, 4)
	assert.Equal(t, beatRow{Time: view.Clock(s.Snapshot.Time.Add(-12 * time.Second)), Took: "2.0 s", Class: "soft", Outcome: "lost", Error: "no <answer>"}, p.Beats[1])

	s.Cluster.Heartbeat.Duration = 8 * time.Second
	p = newPageCluster(s)
	assert.True(t, p.Facts[len(p.Facts)-1].Hot, "it has expired")
	s.Cluster.Heartbeat = &view.Heartbeat{Error: "refused"}
	p = newPageCluster(s)
	assert.Equal(t, "no renewal yet", p.Facts[len(p.Facts)-1].Text)
	assert.True(t, p.Facts[len(p.Facts)-1].Hot)
	s.Cluster.NodeLease = &view.Heartbeat{Error: "held by the-kubelet"}
	f = newPageCluster(s).Facts[len(p.Facts)]
	assert.Equal(t, "Node Lease", f.Name)
	assert.Contains(t, f.Of, "held by the-kubelet")
}

func TestHeartbeatKeepsLastAttempts(t *testing.T) {
	h := view.Heartbeat{Outcomes: map[lease.Outcome]uint64{}}
	for i := range 100 {
		h.Add(lease.Attempt{Time: time.Unix(int64(i), 0), Outcome: lease.Renewed})
	}
	assert.Len(t, h.Last, 12)
	assert.Equal(t, time.Unix(99, 0).UTC(), h.Last[0].Time)
	c := h.Clone()
	h.Add(lease.Attempt{Time: time.Unix(200, 0), Outcome: lease.Slow})
	assert.Equal(t, time.Unix(99, 0).UTC(), c.Last[0].Time, "a clone is one of its own")
	assert.EqualValues(t, 0, c.Outcomes[lease.Slow])
}
