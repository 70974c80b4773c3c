package vgdp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	moverGroup   = "/kubepods/besteffort/pod1"
	serviceGroup = "/kubepods/burstable/pod2"
)

// moverSnapshot is a node on which a mover does three quarters of the traffic of sda and
// takes most of the memory.
func moverSnapshot() *snapshot.Snapshot {
	pod := func(cgroup string, mover bool, cores float64, io ...snapshot.WorkloadIORates) snapshot.WorkloadState {
		return snapshot.WorkloadState{
			Workload: snapshot.Workload{Cgroup: cgroup, Kind: snapshot.KindPod}, Pod: &snapshot.Pod{Name: "x", Mover: mover},
			Rates: snapshot.Some(snapshot.WorkloadRates{CPUCores: snapshot.Some(cores), IO: io}),
		}
	}
	culprit := func(cgroup string, share float64) snapshot.Culprit {
		return snapshot.Culprit{Party: snapshot.Party{Cgroup: cgroup}, Share: share}
	}
	return &snapshot.Snapshot{
		Time: noon,
		Disks: []snapshot.DiskState{
			{Disk: snapshot.Disk{Name: "sda", Number: "8:0"}}, {Disk: snapshot.Disk{Name: "sdb", Number: "8:16"}},
		},
		Workloads: []snapshot.WorkloadState{
			pod(moverGroup, true, 2, snapshot.WorkloadIORates{Number: "8:0", ReadBytesPerSecond: 300, WrittenBytesPerSecond: 5}, snapshot.WorkloadIORates{Number: "8:16", ReadBytesPerSecond: 7}),
			pod(serviceGroup, false, 1, snapshot.WorkloadIORates{Number: "8:0", ReadBytesPerSecond: 100}),
		},
		Contention: []snapshot.Contention{
			{Resource: snapshot.SharedDisk, Device: "sda", Culprits: []snapshot.Culprit{culprit(moverGroup, 0.75), culprit(serviceGroup, 0.25)}},
			{Resource: snapshot.SharedDisk, Device: "sdb", Culprits: []snapshot.Culprit{culprit(serviceGroup, 0.9), culprit(moverGroup, 0.1)}},
			{Resource: snapshot.SharedMemory, Culprits: []snapshot.Culprit{culprit(moverGroup, 0.2)}},
		},
	}
}

func said(verdicts ...plugins.Verdict) *plugins.Levels {
	return &plugins.Levels{Time: noon, Verdicts: verdicts}
}

func judged(r plugins.Resource, scope string, level plugins.Level) plugins.Verdict {
	return plugins.Verdict{Resource: r, Scope: scope, Level: level}
}

func TestMoverUsageWherePressed(t *testing.T) {
	u := NewUsage(moverSnapshot(), said(judged(plugins.Disk, "sda", plugins.Soft), judged(plugins.Disk, "sdb", plugins.Soft), judged(plugins.CPU, "node", plugins.Hard)), nil)
	assert.Equal(t, map[Target]Rates{{moverGroup, "sda"}: {Read: 300, Write: 5}}, u.Rates, "on sdb it is others who press")
	assert.Equal(t, map[string]plugins.Level{"sda": plugins.Soft, "sdb": plugins.Soft}, u.Disks)
	assert.Equal(t, map[string]bool{moverGroup: true}, u.Alive)
	assert.Equal(t, noon, u.Time)

	assert.Empty(t, NewUsage(moverSnapshot(), said(judged(plugins.Disk, "sda", plugins.None)), nil).Rates, "nothing is pressed")
	u = NewUsage(moverSnapshot(), said(judged(plugins.Memory, "node", plugins.Hard)), nil)
	assert.Equal(t, map[Target]Rates{{Mover: moverGroup}: {CPU: 2}}, u.Rates)
	s := moverSnapshot()
	s.Contention[2].Culprits[0].Share = 0.19
	assert.Empty(t, NewUsage(s, said(judged(plugins.Memory, "node", plugins.Hard)), nil).Rates)
	s.Workloads[0].Rates = snapshot.Opt[snapshot.WorkloadRates]{}
	assert.Empty(t, NewUsage(s, said(judged(plugins.Disk, "sda", plugins.Soft)), nil).Rates, "what was not measured is not there")
}

func TestThrottleKeptWhileUnknown(t *testing.T) {
	target := Target{moverGroup, "sda"}
	curbs := map[Target]MoverLimit{target: {Base: Rates{Read: 300}, Percent: 40, Changed: at(-time.Minute), Expires: at(time.Minute)}}
	partial := judged(plugins.Disk, "sda", plugins.None)
	partial.Partial = true
	u := NewUsage(moverSnapshot(), said(partial), curbs)
	assert.True(t, u.Unknown["sda"])
	after := Throttle(curbs, u)
	assert.Equal(t, curbs, after, "neither released nor renewed")
	u.Time = at(time.Minute)
	assert.Empty(t, Throttle(curbs, u), "and it expires")

	u = NewUsage(moverSnapshot(), said(judged(plugins.Disk, "sda", plugins.None)), curbs)
	assert.False(t, u.Unknown["sda"])
	assert.Equal(t, 50, Throttle(curbs, u)[target].Percent)
	absent := judged(plugins.Memory, "node", plugins.None)
	absent.Absent = "no PSI"
	assert.True(t, NewUsage(moverSnapshot(), said(absent), nil).Unknown[""])
	assert.False(t, NewUsage(moverSnapshot(), said(absent, judged(plugins.NetworkIO, "eth0", plugins.None)), nil).Unknown[""], "one of the two sees")
}

func TestMoverAliveWithCgroup(t *testing.T) {
	curbs := map[Target]MoverLimit{{moverGroup, "sda"}: {}}
	s := moverSnapshot()
	s.Workloads[0].Pod = nil
	assert.True(t, NewUsage(s, said(), curbs).Alive[moverGroup])
	assert.Empty(t, NewUsage(s, said(), nil).Alive, "a pod that nobody knows is no mover")
	s.Workloads[0].Pod = &snapshot.Pod{}
	assert.False(t, NewUsage(s, said(), curbs).Alive[moverGroup], "it is no mover after all")
	s.Workloads = nil
	assert.False(t, NewUsage(s, said(), curbs).Alive[moverGroup])
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

func TestThrottleAndBudgetClockSetBack(t *testing.T) {
	b := Budget{Limit: 1, Changed: at(time.Hour), HoldUntil: at(time.Hour)}
	assert.Nil(t, b.Next(NodePressure{Time: noon, Configured: 4}).Pressure(noon))
	u := NewUsage(moverSnapshot(), said(), nil)
	assert.Empty(t, Throttle(map[Target]MoverLimit{{moverGroup, "sda"}: {Percent: 20, Changed: at(time.Hour), Expires: at(2 * time.Hour)}}, u))
}
