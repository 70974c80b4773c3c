package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// stalled is a workload with a memory stall, an io stall, CPU cores and a
// working set.
func stalled(name string, memory, io, cores float64, set uint64) snapshot.WorkloadState {
	w := snapshot.WorkloadState{Workload: snapshot.Workload{Cgroup: "/" + name, Name: name}, WorkingSetBytes: snapshot.Some(set)}
	w.Rates = snapshot.Some(snapshot.WorkloadRates{CPUCores: snapshot.Some(cores), Pressure: snapshot.Ratios{
		Memory: snapshot.StallRatio{Full: snapshot.Some(memory)}, IO: snapshot.StallRatio{Full: snapshot.Some(io)},
	}})
	return w
}

func TestWorkloadOrder(t *testing.T) {
	s := &State{Snapshot: &snapshot.Snapshot{Workloads: []snapshot.WorkloadState{
		{Workload: snapshot.Workload{Cgroup: "/unseen", Name: "unseen"}},
		stalled("large", 0, 0, 0.1, 9<<30), stalled("busy", 0.0004, 0, 4, 1), stalled("io", 0.0002, 0.3, 0, 1), stalled("memory", 0.2, 0, 0, 1),
	}}}
	var names []string
	for _, w := range ByPressure(s.Snapshot.Workloads) {
		names = append(names, w.Name)
	}
	assert.Equal(t, []string{"memory", "io", "busy", "large", "unseen"}, names, "what is below a tenth of a percent is noise")
}

func TestWorkloadAtOwnLimit(t *testing.T) {
	with := func(hits uint64, stall float64) bool {
		w := stalled("w", stall, 0, 0, 0)
		r, _ := w.Rates.Get()
		r.LimitHits = snapshot.Some(hits)
		w.Rates = snapshot.Some(r)
		return AtOwnLimit(&w)
	}
	assert.True(t, with(1, 0.05))
	assert.False(t, with(0, 0.9), "it stalls for the node's lack of memory")
	assert.False(t, with(1000, 0.01), "a file reader meets its limit and loses nothing")
	assert.False(t, AtOwnLimit(&snapshot.WorkloadState{}))
}

func TestStallSomeWithoutFull(t *testing.T) {
	assert.InDelta(t, 0.4, Stall(snapshot.StallRatio{Some: snapshot.Some(0.4)}), 0)
	assert.InDelta(t, 0.1, Stall(snapshot.StallRatio{Some: snapshot.Some(0.4), Full: snapshot.Some(0.1)}), 0)
	assert.Negative(t, Stall(snapshot.StallRatio{}))
}

func nic(name string, physical bool, bytes float64) snapshot.NICState {
	return snapshot.NICState{NIC: snapshot.NIC{Name: name, Physical: physical}, Rates: snapshot.Some(snapshot.NICRates{ReceiveBytesPerSecond: bytes})}
}

func TestNICOrder(t *testing.T) {
	list := []snapshot.NICState{nic("cali1", false, 5000), nic("eth0", true, 0), nic("lo", false, 1e9), nic("veth0", false, 10), {NIC: snapshot.NIC{Name: "new"}}}
	for i := range maxVirtual {
		list = append(list, nic("z"+string(rune('a'+i)), false, 1e6))
	}
	shown, rest := NICs(list)
	assert.Equal(t, "eth0", shown[0].Name)
	assert.Len(t, shown, 1+maxVirtual)
	var names []string
	for _, n := range rest {
		names = append(names, n.Name)
	}
	assert.Equal(t, []string{"lo", "veth0", "new", "cali1"}, names, "the quietest of too many virtual ones is apart as well")
}

func TestLoopDiskShownWhileBusy(t *testing.T) {
	disk := func(name string, reads float64) snapshot.DiskState {
		return snapshot.DiskState{Disk: snapshot.Disk{Name: name}, Rates: snapshot.Some(snapshot.DiskRates{ReadsPerSecond: reads})}
	}
	list := []snapshot.DiskState{disk("loop0", 0), disk("loop1", 3), disk("sda", 0), disk("sr0", 0), disk("srv", 0)}
	shown, idle := Disks(list)
	assert.Len(t, shown, 3)
	assert.Len(t, idle, 2)
}

func TestStackedDisksBelowLeaves(t *testing.T) {
	disk := func(name string, l snapshot.Layer, reads float64) snapshot.DiskState {
		return snapshot.DiskState{Disk: snapshot.Disk{Name: name, Layer: l}, Rates: snapshot.Some(snapshot.DiskRates{ReadsPerSecond: reads})}
	}
	list := []snapshot.DiskState{
		disk("dm-0", snapshot.LayerStacked, 900), disk("dm-1", snapshot.LayerLeaf, 5), disk("old", "", 2), disk("sda", snapshot.LayerPath, 700), disk("vda", snapshot.LayerLeaf, 0),
	}
	names := func(disks []snapshot.DiskState) (names []string) {
		for _, d := range disks {
			names = append(names, d.Name)
		}
		return names
	}
	shown, _ := Disks(list)
	assert.Equal(t, []string{"dm-1", "vda", "old", "sda", "dm-0"}, names(shown))
	assert.Equal(t, []string{"dm-1", "vda", "old"}, names(BusiestDisks(shown, 3)), "where the room is short the busy LVM is not shown twice, as itself and its disk")
	assert.Equal(t, []string{"dm-1", "vda", "old", "dm-0"}, names(BusiestDisks(shown, 4)))

	nics := []snapshot.NICState{nic("bond0", false, 1), nic("br0", false, 1e9), nic("eth0", true, 5e8), nic("eth9", true, 0)}
	for i, l := range []snapshot.Layer{snapshot.LayerLeaf, snapshot.LayerStacked, snapshot.LayerPath, snapshot.LayerLeaf} {
		nics[i].Layer = l
	}
	ordered, _ := NICs(nics)
	require.Len(t, ordered, 4)
	for i, name := range []string{"bond0", "eth9", "eth0", "br0"} {
		assert.Equal(t, name, ordered[i].Name)
	}
	assert.Equal(t, "eth9", BusiestNICs(ordered, 2)[1].Name)
}

func TestDeviceKindText(t *testing.T) {
	for want, d := range map[string]snapshot.Disk{
		"lvm on nvme0n1":                  {Kind: "lvm", Slaves: []string{"nvme0n1"}, Layer: snapshot.LayerStacked},
		"md on sda, sdb, sdc and 21 more": {Kind: "md", Slaves: append([]string{"sda", "sdb", "sdc"}, make([]string, 21)...)},
		"disk, a path":                    {Kind: "disk", Layer: snapshot.LayerPath},
		`\x1b on \x1b`:                    {Kind: "\x1b", Slaves: []string{"\x1b"}},
		"":                                {},
	} {
		assert.Equal(t, want, DiskKind(&d))
	}
	for want, n := range map[string]snapshot.NIC{
		"bond on eth0, eth1":      {Kind: "bond", Lower: []string{"eth0", "eth1"}, Layer: snapshot.LayerLeaf},
		"physical, port of bond0": {Kind: "physical", Master: "bond0", Layer: snapshot.LayerPath},
		"virtual":                 {},
		"physical":                {Physical: true},
	} {
		assert.Equal(t, want, NICKind(&n))
	}
}

func TestBusiestKeepOrder(t *testing.T) {
	self := func(v float64) float64 { return v }
	assert.Equal(t, []float64{3, 9}, Busiest([]float64{1, 3, 2, 9}, 2, self))
	assert.Equal(t, []float64{1, 3}, Busiest([]float64{1, 3}, 5, self))
	assert.Empty(t, Busiest([]float64{1, 3}, -1, self))
}

func TestAbsencesGroupedByReason(t *testing.T) {
	s := judgedBy()
	s.Snapshot.Pressure.Totals.Absent = snapshot.Absent{"memory": "no PSI"}
	for _, name := range []string{"/a", "/b", "/c\x1b"} {
		w := snapshot.WorkloadState{Workload: snapshot.Workload{Cgroup: name, Absent: snapshot.Absent{"io": "not enabled"}}}
		s.Snapshot.Workloads = append(s.Snapshot.Workloads, w)
	}
	s.Snapshot.Workloads[2].Pressure.Absent = snapshot.Absent{"io": "no\nPSI"}
	assert.Equal(t, []Absence{
		{Where: "node", What: "pressure.memory", Reason: "no PSI"},
		{Where: "3 workloads", What: "io", Reason: "not enabled"},
		{Where: `workload /c\x1b`, What: "pressure.io", Reason: `no\x0aPSI`},
	}, Absences(s))
}

func TestFailedProbes(t *testing.T) {
	all := []snapshot.Probe{{Name: "cpu"}, {Name: "disks", Error: "no"}}
	assert.Equal(t, []snapshot.Probe{{Name: "disks", Error: "no"}}, FailedProbes(all))
}

func TestNotedProbes(t *testing.T) {
	slow := snapshot.Probe{Name: "workloads", Note: "read every 3rd tick: it costs 3 % of a core"}
	both := snapshot.Probe{Name: "disks", Error: "sdb: input/output error", Note: "read every 2nd tick"}
	all := []snapshot.Probe{{Name: "cpu"}, slow, both}
	assert.Equal(t, []snapshot.Probe{slow, both}, NotedProbes(all))
	assert.Equal(t, []snapshot.Probe{both}, FailedProbes(all))
}
