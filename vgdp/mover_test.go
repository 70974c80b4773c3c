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
	pod := func(p *snapshot.Pod) snapshot.WorkloadState {
		return snapshot.WorkloadState{Workload: snapshot.Workload{Kind: snapshot.KindPod}, Pod: p}
	}
	s := &snapshot.Snapshot{Workloads: []snapshot.WorkloadState{pod(&snapshot.Pod{Mover: true}), pod(&snapshot.Pod{}), pod(nil), {Pod: &snapshot.Pod{Mover: true}}}}
	assert.Equal(t, 1, Movers(s), "nor is a service one")
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
	b := Budget{Limit: 1, Changed: at(time.Hour), HoldUntil: at(time.Hour)}
	assert.Nil(t, b.Next(NodePressure{Time: noon, Configured: 4}).Pressure(noon))
}
