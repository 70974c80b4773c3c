package throttle

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	moverGroup   = "/kubepods/besteffort/pod1"
	serviceGroup = "/kubepods/burstable/pod2"
	hogGroup     = "/kubepods/besteffort/pod3"
)

func party(cgroup, name string) snapshot.Party { return snapshot.Party{Cgroup: cgroup, Name: name} }

// onNode is a node on which a mover does three quarters of the traffic of sda and takes
// most of the memory, and a hog most of the traffic of sdb and of the CPUs, for which the
// service waits.
func onNode() *snapshot.Snapshot {
	pod := func(cgroup string, mover bool, cores float64, io ...snapshot.WorkloadIORates) snapshot.WorkloadState {
		return snapshot.WorkloadState{
			Workload: snapshot.Workload{Cgroup: cgroup, Kind: snapshot.KindPod}, Pod: &snapshot.Pod{Name: "x", Mover: mover},
			Rates: snapshot.Some(snapshot.WorkloadRates{CPUCores: snapshot.Some(cores), IO: io}),
		}
	}
	culprit := func(cgroup string, share float64) snapshot.Culprit {
		return snapshot.Culprit{Party: party(cgroup, cgroup), Share: share}
	}
	waits := []snapshot.Sufferer{{Party: party(serviceGroup, "shop/db"), Waited: 0.38, Share: snapshot.Some(0.1)}}
	return &snapshot.Snapshot{
		Time: noon,
		Disks: []snapshot.DiskState{
			{Disk: snapshot.Disk{Name: "sda", Number: "8:0"}}, {Disk: snapshot.Disk{Name: "sdb", Number: "8:16"}},
		},
		Workloads: []snapshot.WorkloadState{
			pod(moverGroup, true, 2, snapshot.WorkloadIORates{Number: "8:0", ReadBytesPerSecond: 300, WrittenBytesPerSecond: 5}, snapshot.WorkloadIORates{Number: "8:16", ReadBytesPerSecond: 7}),
			pod(serviceGroup, false, 1, snapshot.WorkloadIORates{Number: "8:0", ReadBytesPerSecond: 100}),
			pod(hogGroup, false, 3, snapshot.WorkloadIORates{Number: "8:16", ReadBytesPerSecond: 900}),
		},
		Contention: []snapshot.Contention{
			{Resource: snapshot.SharedDisk, Device: "sda", State: snapshot.ContentionBusy, Culprits: []snapshot.Culprit{culprit(moverGroup, 0.75), culprit(serviceGroup, 0.25)}},
			{Resource: snapshot.SharedDisk, Device: "sdb", State: snapshot.ContentionPresent, Sufferers: waits, Culprits: []snapshot.Culprit{culprit(hogGroup, 0.81), culprit(moverGroup, 0.1)}},
			{Resource: snapshot.SharedMemory, Culprits: []snapshot.Culprit{culprit(moverGroup, 0.2), culprit(hogGroup, 0.8)}},
			{Resource: snapshot.SharedCPU, State: snapshot.ContentionPresent, Sufferers: waits, Culprits: []snapshot.Culprit{culprit(hogGroup, 0.6), culprit(moverGroup, 0.3)}},
		},
	}
}

func known() map[string]Workload {
	return map[string]Workload{moverGroup: {Mover: true}, serviceGroup: {}, hogGroup: {}}
}

func said(verdicts ...plugins.Verdict) *plugins.Levels {
	return &plugins.Levels{Time: noon, Verdicts: verdicts}
}

func judged(r plugins.Resource, scope string, level plugins.Level) plugins.Verdict {
	return plugins.Verdict{Resource: r, Scope: scope, Level: level}
}

func unnamed(v plugins.Verdict) plugins.Verdict {
	v.Absent = "workloads account for 40 % of the traffic; to name a culprit 70 % are needed"
	return v
}

func TestCulprits(t *testing.T) {
	mover, hog := Target{Cgroup: moverGroup, Disk: "sda"}, Target{Cgroup: hogGroup, Disk: "sdb"}
	const hogReads = "shop/db waits 38 % of the time; " + hogGroup + " has 81 % of the traffic"
	for name, row := range map[string]struct {
		verdict plugins.Verdict
		change  func(*snapshot.Snapshot)
		want    map[Target]Use
	}{
		"a mover on a pressed disk, who waits does not matter": {judged(plugins.Disk, "sda", plugins.Soft), nil, map[Target]Use{mover: {Rates{Read: 300, Write: 5}, moverGroup + " has 75 % of the traffic"}}},
		"who makes a service wait":                             {judged(plugins.Disk, "sdb", plugins.Soft), nil, map[Target]Use{hog: {Rates{Read: 900}, hogReads}}},
		"nothing is pressed":                                   {judged(plugins.Disk, "sdb", plugins.None), nil, nil},
		"nobody waits":                                         {judged(plugins.Disk, "sdb", plugins.Soft), func(s *snapshot.Snapshot) { s.Contention[1].State = snapshot.ContentionBusy }, nil},
		"it is not known who waits":                            {judged(plugins.Disk, "sdb", plugins.Soft), func(s *snapshot.Snapshot) { s.Contention[1].State = snapshot.ContentionUnknown }, nil},
		"the rule names nobody":                                {unnamed(judged(plugins.Disk, "sdb", plugins.Soft)), nil, nil},
		"a mover needs no name":                                {unnamed(judged(plugins.Disk, "sda", plugins.Soft)), nil, map[Target]Use{mover: {Rates{Read: 300, Write: 5}, moverGroup + " has 75 % of the traffic"}}},
		"its share is too small":                               {judged(plugins.Disk, "sdb", plugins.Soft), func(s *snapshot.Snapshot) { s.Contention[1].Culprits[0].Share = 0.19 }, nil},
		"it waits for another disk": {judged(plugins.Disk, "sdb", plugins.Soft), func(s *snapshot.Snapshot) {
			s.Contention[0].Sufferers = []snapshot.Sufferer{{Party: snapshot.Party{Cgroup: hogGroup}, Waited: 0.9, Share: snapshot.Some(0.1)}}
		}, map[Target]Use{hog: {Rates{Read: 900}, hogReads}}},
		"it is the one that waits":  {judged(plugins.Disk, "sdb", plugins.Soft), func(s *snapshot.Snapshot) { s.Contention[1].Culprits[0].Waited = 0.38 }, nil},
		"it waits too little":       {judged(plugins.Disk, "sdb", plugins.Soft), func(s *snapshot.Snapshot) { s.Contention[1].Culprits[0].Waited = 0.04 }, map[Target]Use{hog: {Rates{Read: 900}, hogReads}}},
		"it was not measured":       {judged(plugins.Disk, "sdb", plugins.Soft), func(s *snapshot.Snapshot) { s.Workloads[2].Rates = snapshot.Opt[snapshot.WorkloadRates]{} }, nil},
		"the CPUs":                  {judged(plugins.CPU, "node", plugins.Hard), nil, map[Target]Use{{Cgroup: hogGroup}: {Rates{CPU: 3}, "shop/db waits 38 % of the time; " + hogGroup + " has 60 % of the CPU time in use"}, {Cgroup: moverGroup}: {Rates{CPU: 2}, "shop/db waits 38 % of the time; " + moverGroup + " has 30 % of the CPU time in use"}}},
		"memory: movers only":       {judged(plugins.Memory, "node", plugins.Hard), nil, map[Target]Use{{Cgroup: moverGroup}: {Rates{CPU: 2}, moverGroup + " has 20 % of the memory growth"}}},
		"memory: too small a share": {judged(plugins.Memory, "node", plugins.Hard), func(s *snapshot.Snapshot) { s.Contention[2].Culprits[0].Share = 0.19 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := onNode()
			if row.change != nil {
				row.change(s)
			}
			if row.want == nil {
				row.want = map[Target]Use{}
			}
			assert.Equal(t, row.want, NewInput(s, said(row.verdict), known(), nil).Culprits)
		})
	}
	report := judged(plugins.Disk, "sdb", plugins.Soft)
	report.ReportOnly = true
	assert.Empty(t, NewInput(onNode(), said(report), known(), nil).Culprits, "a rule that only reports throttles nobody")
	workload := judged(plugins.Disk, "sdb", plugins.Soft)
	workload.PerWorkload = true
	assert.Empty(t, NewInput(onNode(), said(workload), known(), nil).Culprits)
	assert.Empty(t, NewInput(onNode(), said(judged(plugins.Disk, "sdb", plugins.Soft)), nil, nil).Culprits, "a workload that is no known pod")
}

// A culprit that was idle until two seconds ago is limited by what it uses, not by the mean of ten.
func TestCulpritHasJustBegun(t *testing.T) {
	h := snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	var s *snapshot.Snapshot
	for i := range 11 {
		at, pressing := time.Duration(i)*time.Second, uint64(max(0, i-8))
		s = h.Add(&snapshot.Sample{
			Time: noon.Add(at), Monotonic: at, Boottime: at, BootID: "a",
			Disks: []snapshot.Disk{{Name: "sdb", Number: "8:16", DiskCounters: snapshot.DiskCounters{ReadBytes: 85e6 * pressing}}},
			Workloads: []snapshot.Workload{{
				Cgroup: hogGroup, Kind: snapshot.KindPod, At: at, CPUMicroseconds: snapshot.Some(2e6 * pressing),
				IO: []snapshot.WorkloadIO{{Number: "8:16", ReadBytes: 85e6 * pressing}},
			}},
		})
	}
	l := said(judged(plugins.Disk, "sdb", plugins.Soft), judged(plugins.CPU, "node", plugins.Soft))
	l.Disks = []plugins.DiskCapacity{{Device: "sdb", ReadBytesPerSecond: 1e6}}
	s.Contention = onNode().Contention
	list := Next(nil, NewInput(s, l, known(), nil))
	assert.InEpsilon(t, 85e6, list[Target{Cgroup: hogGroup, Disk: "sdb"}].Base.Read, 0.01)
	assert.InEpsilon(t, 2, list[Target{Cgroup: hogGroup}].Base.CPU, 0.01)
}

// A database that waits is no culprit, though it does a quarter of the traffic and eleven
// others wait for longer.
func TestCulpritWaitsBehindOthers(t *testing.T) {
	for class, waited := range map[string]float64{"besteffort": 0.37, "burstable": 0.49} {
		t.Run(class, func(t *testing.T) {
			const database, batch = "/kubepods/burstable/podx", "/kubepods/burstable/pody"
			reads := map[string]uint64{database: 250, batch: 600} // per second
			stalled := map[string]uint64{database: 500_000}       // µs per second
			for i := range 11 {
				ci := fmt.Sprintf("/kubepods/%s/podci%02d", class, i)
				reads[ci], stalled[ci] = 10, 500_000
			}
			running := map[string]Workload{}
			h := snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
			var s *snapshot.Snapshot
			for i := range uint64(11) {
				at := time.Duration(i) * time.Second
				sample := &snapshot.Sample{Time: noon.Add(at), Monotonic: at, Boottime: at, BootID: "a", IOSource: snapshot.IOStat}
				sample.Disks = []snapshot.Disk{{Name: "sda", Number: "8:0", Layer: snapshot.LayerLeaf, DiskCounters: snapshot.DiskCounters{
					Reads: 1000 * i, ReadBytes: 1000 * i << 20, ReadMs: 80_000 * i,
				}}}
				for _, cgroup := range slices.Sorted(maps.Keys(reads)) {
					w := snapshot.NewWorkload(cgroup)
					w.At, w.IO = at, []snapshot.WorkloadIO{{Number: "8:0", Reads: reads[cgroup] * i, ReadBytes: reads[cgroup] * i << 20}}
					w.Pressure.IO.Some = snapshot.Some(stalled[cgroup] * i)
					sample.Workloads, running[cgroup] = append(sample.Workloads, w), Workload{}
				}
				s = h.Add(sample)
			}
			in := NewInput(s, said(judged(plugins.Disk, "sda", plugins.Soft)), running, nil)
			require.Len(t, in.Culprits, 1, "%v", in.Culprits)
			assert.Contains(t, in.Culprits, Target{Cgroup: batch, Disk: "sda"})
			longest, _ := in.Disks["sda"].Waited.Get()
			assert.InDelta(t, waited, longest, 0.01)
		})
	}
}

func TestPressure(t *testing.T) {
	in := NewInput(onNode(), said(judged(plugins.Disk, "sdb", plugins.Soft), judged(plugins.Memory, "node", plugins.Hard), judged(plugins.CPU, "node", plugins.Soft)), known(), nil)
	assert.Equal(t, Pressure{Level: plugins.Soft, Named: true, Waited: snapshot.Some(0.38)}, in.pressureOn(Target{Cgroup: hogGroup, Disk: "sdb"}))
	assert.Equal(t, plugins.None, in.pressureOn(Target{Cgroup: hogGroup, Disk: "sdz"}).Level, "the disk is gone")
	assert.Equal(t, plugins.Soft, in.pressureOn(Target{Cgroup: hogGroup}).Level, "memory is no reason to take CPU from it")
	assert.Equal(t, plugins.Hard, in.pressureOn(Target{Cgroup: moverGroup}).Level)
	lowest := onNode()
	lowest.Contention[1].Sufferers[0].LowestClass = true
	in = NewInput(lowest, said(judged(plugins.Disk, "sdb", plugins.Soft)), known(), nil)
	assert.Equal(t, snapshot.Some(0.0), in.Disks["sdb"].Waited)
}

func TestThrottleKeptWhileUnknown(t *testing.T) {
	target := Target{Cgroup: moverGroup, Disk: "sda"}
	list := map[Target]Throttle{target: {Base: Rates{Read: 300}, Percent: 40, Began: at(-time.Minute), Changed: at(-time.Minute), Expires: at(time.Minute)}}
	partial := judged(plugins.Disk, "sda", plugins.None)
	partial.Partial = true
	in := NewInput(onNode(), said(partial), known(), list)
	assert.True(t, in.Disks["sda"].Unknown)
	assert.Equal(t, list, Next(list, in), "neither released nor renewed")
	in.Time = at(time.Minute)
	assert.Empty(t, Next(list, in), "and it expires")

	in = NewInput(onNode(), said(judged(plugins.Disk, "sda", plugins.None)), known(), list)
	assert.Equal(t, 50, Next(list, in)[target].Percent)
	absent := judged(plugins.Memory, "node", plugins.None)
	absent.Absent = "no PSI"
	assert.True(t, NewInput(onNode(), said(absent), known(), nil).Mover.Unknown)
	assert.False(t, NewInput(onNode(), said(absent, judged(plugins.NetworkIO, "eth0", plugins.None)), known(), nil).Mover.Unknown, "one of the two sees")
}

func TestThrottledAliveWithCgroup(t *testing.T) {
	target := Target{Cgroup: moverGroup, Disk: "sda"}
	list := map[Target]Throttle{target: {Percent: 40, Began: at(-time.Hour), Changed: at(-time.Hour), Expires: at(time.Minute)}}
	s := onNode()
	s.Workloads[0].Pod = nil
	calm := said(judged(plugins.Disk, "sda", plugins.None))
	in := NewInput(s, calm, nil, list)
	assert.Equal(t, map[string]Workload{moverGroup: {Unlisted: true}}, in.Workloads)
	assert.Equal(t, list, Next(list, in), "until its pod is listed, or it expires")
	assert.Empty(t, NewInput(s, calm, nil, nil).Workloads)
	s.Workloads[0].Pod = &snapshot.Pod{}
	assert.Empty(t, Next(list, NewInput(s, calm, nil, list)), "it may not be throttled after all")
	s.Workloads = nil
	assert.Empty(t, Next(list, NewInput(s, calm, nil, list)))
}
