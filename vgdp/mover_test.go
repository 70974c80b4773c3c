package vgdp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func said(verdicts ...plugins.Verdict) *plugins.Levels {
	return &plugins.Levels{Time: noon, Verdicts: verdicts}
}

func judged(r plugins.Resource, scope string, level plugins.Level) plugins.Verdict {
	return plugins.Verdict{Resource: r, Scope: scope, Level: level}
}

func TestMovers(t *testing.T) {
	mover := func(namespace string) *snapshot.Pod { return &snapshot.Pod{Namespace: namespace, Mover: true} }
	pod := func(cgroup string, p *snapshot.Pod) snapshot.WorkloadState {
		return snapshot.WorkloadState{Workload: snapshot.Workload{Kind: snapshot.KindPod, Cgroup: cgroup}, Pod: p}
	}
	s := &snapshot.Snapshot{Workloads: []snapshot.WorkloadState{
		pod("moves", mover("velero")), pod("too", mover("velero")), pod("does not", &snapshot.Pod{Namespace: "velero"}), pod("unlisted", nil),
		pod("a tenant's, with the label", mover("shop")),
		{Workload: snapshot.Workload{Cgroup: "a service"}, Pod: mover("velero")},
	}}
	assert.Equal(t, map[string]bool{"moves": true, "too": true}, Movers(s, []string{"kube-system", "velero"}))
}

func TestNodePressureWithoutCandidates(t *testing.T) {
	unnamed := judged(plugins.Disk, "sda", plugins.Soft)
	unnamed.Absent = "the baseline of this disk is not learned yet"
	s := NewNodePressure(said(unnamed))
	assert.Equal(t, plugins.Soft, s.Level)
	assert.Empty(t, s.Absent)
	starting := judged(plugins.Disk, "sda", plugins.None)
	starting.Partial = true
	assert.Contains(t, NewNodePressure(said(starting)).Absent, "just started")
	assert.Empty(t, NewNodePressure(said(starting, judged(plugins.Memory, "node", plugins.None))).Absent)
}

func TestBudgetClockSetBack(t *testing.T) {
	for name, b := range map[string]Budget{
		"since it last changed":           {Limit: 1, Changed: at(time.Hour), HoldUntil: at(time.Hour)},
		"and it had not changed for long": {Limit: 1, Changed: at(-time.Hour), HoldUntil: at(time.Hour)},
	} {
		assert.Nil(t, b.Next(NodePressure{Time: noon, Configured: 4}).Pressure(noon), name)
		b.Level = plugins.Hard
		b = b.Next(NodePressure{Time: noon, Level: plugins.Hard, Configured: 4, Running: 1})
		assert.Equal(t, at(HoldStep), b.HoldUntil, "under lasting pressure: %s", name)
	}
}
