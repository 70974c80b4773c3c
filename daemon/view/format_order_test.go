package view

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// stalled is a workload with a memory stall, an io stall, CPU cores and a
// working set.
func stalled(name string, memory, io, cores float64, set uint64) probes.WorkloadState {
	w := probes.WorkloadState{Workload: probes.Workload{Cgroup: "/" + name, Name: name}, WorkingSetBytes: probes.Some(set)}
	w.Rates = probes.Some(probes.WorkloadRates{CPUCores: probes.Some(cores), Pressure: probes.Ratios{
		Memory: probes.StallRatio{Full: probes.Some(memory)}, IO: probes.StallRatio{Full: probes.Some(io)},
	}})
	return w
}

func TestWorkloadsWithPressureOfTheirOwnComeFirst(t *testing.T) {
	s := &State{Snapshot: &probes.Snapshot{Workloads: []probes.WorkloadState{
		{Workload: probes.Workload{Cgroup: "/unseen", Name: "unseen"}},
		stalled("large", 0, 0, 0.1, 9<<30), stalled("busy", 0.0004, 0, 4, 1), stalled("io", 0.0002, 0.3, 0, 1), stalled("memory", 0.2, 0, 0, 1),
	}}}
	var names []string
	for _, w := range s.ByPressure() {
		names = append(names, w.Name)
	}
	assert.Equal(t, []string{"memory", "io", "busy", "large", "unseen"}, names, "what is below a tenth of a percent is noise")
}

func TestAWorkloadIsAtItsOwnLimitOnlyIfItHitsItAndStalls(t *testing.T) {
	with := func(hits uint64, stall float64) bool {
		w := stalled("w", stall, 0, 0, 0)
		r, _ := w.Rates.Get()
		r.LimitHits = probes.Some(hits)
		w.Rates = probes.Some(r)
		return AtOwnLimit(&w)
	}
	assert.True(t, with(1, 0.05))
	assert.False(t, with(0, 0.9), "it stalls for the node's lack of memory")
	assert.False(t, with(1000, 0.01), "a file reader meets its limit and loses nothing")
	assert.False(t, AtOwnLimit(&probes.WorkloadState{}))
}

func TestStallIsSomeWhereTheKernelDoesNotTellFull(t *testing.T) {
	assert.InDelta(t, 0.4, Stall(probes.StallRatio{Some: probes.Some(0.4)}), 0)
	assert.InDelta(t, 0.1, Stall(probes.StallRatio{Some: probes.Some(0.4), Full: probes.Some(0.1)}), 0)
	assert.Negative(t, Stall(probes.StallRatio{}))
}

func nic(name string, physical bool, bytes float64) probes.NICState {
	return probes.NICState{NIC: probes.NIC{Name: name, Physical: physical}, Rates: probes.Some(probes.NICRates{ReceiveBytesPerSecond: bytes})}
}

func TestPhysicalNICsComeFirstAndQuietVirtualOnesAreApart(t *testing.T) {
	list := []probes.NICState{nic("cali1", false, 5000), nic("eth0", true, 0), nic("lo", false, 1e9), nic("veth0", false, 10), {NIC: probes.NIC{Name: "new"}}}
	for i := range maxVirtual {
		list = append(list, nic("z"+string(rune('a'+i)), false, 1e6))
	}
	shown, rest := (&State{Snapshot: &probes.Snapshot{NICs: list}}).NICs()
	assert.Equal(t, "eth0", shown[0].Name)
	assert.Len(t, shown, 1+maxVirtual)
	var names []string
	for _, n := range rest {
		names = append(names, n.Name)
	}
	assert.Equal(t, []string{"lo", "veth0", "new", "cali1"}, names, "the quietest of too many virtual ones is apart as well")
}

func TestALoopDiskIsShownOnlyWhileItWorks(t *testing.T) {
	disk := func(name string, reads float64) probes.DiskState {
		return probes.DiskState{Disk: probes.Disk{Name: name}, Rates: probes.Some(probes.DiskRates{ReadsPerSecond: reads})}
	}
	list := []probes.DiskState{disk("loop0", 0), disk("loop1", 3), disk("sda", 0), disk("sr0", 0), disk("srv", 0)}
	shown, idle := (&State{Snapshot: &probes.Snapshot{Disks: list}}).Disks()
	assert.Len(t, shown, 3)
	assert.Len(t, idle, 2)
}

func TestTheBusiestKeepTheirOrder(t *testing.T) {
	self := func(v float64) float64 { return v }
	assert.Equal(t, []float64{3, 9}, Busiest([]float64{1, 3, 2, 9}, 2, self))
	assert.Equal(t, []float64{1, 3}, Busiest([]float64{1, 3}, 5, self))
	assert.Empty(t, Busiest([]float64{1, 3}, -1, self))
}

func TestWhatManyLackForOneReasonIsSaidOnce(t *testing.T) {
	s := judgedBy()
	s.Snapshot.Pressure.Totals.Absent = probes.Absent{"memory": "no PSI"}
	for _, name := range []string{"/a", "/b", "/c\x1b"} {
		w := probes.WorkloadState{Workload: probes.Workload{Cgroup: name, Absent: probes.Absent{"io": "not enabled"}}}
		s.Snapshot.Workloads = append(s.Snapshot.Workloads, w)
	}
	s.Snapshot.Workloads[2].Pressure.Absent = probes.Absent{"io": "no\nPSI"}
	assert.Equal(t, []Absence{
		{Where: "node", What: "pressure.memory", Why: "no PSI"},
		{Where: "3 workloads", What: "io", Why: "not enabled"},
		{Where: `workload /c\x1b`, What: "pressure.io", Why: `no\x0aPSI`},
	}, s.Absences())
}

func TestAProbeFailedIfItHasAnError(t *testing.T) {
	s := &State{Snapshot: &probes.Snapshot{Probes: []probes.Probe{{Name: "cpu"}, {Name: "disks", Error: "no"}}}}
	assert.Equal(t, []probes.Probe{{Name: "disks", Error: "no"}}, s.FailedProbes())
}
