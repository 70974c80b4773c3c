package probes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// These tests play machines that were recorded under a load, see `make
// recordings`, and compare the values with that load. A machine that shares its
// processors is not always on time, hence the tolerances.

// TestMachineHybrid: pods of the cgroupfs driver, the
// controllers of v1, and v2 beside them for pressure.
func TestMachineHybrid(t *testing.T) {
	p := playMachine(t, "host-hybrid")
	all := p.play(p.as("steady-pods-v1"))
	require.Len(t, all, 61)
	wantNoErrors(t, all, nil)
	wantMonotone(t, all)

	const counted, limited, idle = "pod11111111", "podaaaaaaaa", "pod99999999"
	const disk = "254:0"
	wantSteady(t, all, "written by the pod, MiB/s", 8, 0.1, ioRate(counted, disk, ioWrittenMiB))
	wantSteady(t, all, "read by the pod, MiB/s", 4, 0.1, ioRate(counted, disk, ioReadMiB))
	wantSteady(t, all, "written by the pod, requests/s", 32, 0.1, ioRate(counted, disk, func(r snapshot.WorkloadIORates) float64 { return r.WritesPerSecond }))
	wantSteady(t, all, "used by the pod, CPUs", 0.15, 0.2, workloadRate(counted, cores))
	wantSteady(t, all, "used by the pod with a quota, CPUs", 0.1, 0.1, workloadRate(limited, cores))
	throttled, _ := median(all, workloadRate(limited, func(r snapshot.WorkloadRates) snapshot.Opt[float64] { return r.ThrottledRatio }))
	assert.Greater(t, throttled, 0.3, "its quota holds it back")
	waits, _ := median(all, workloadRate(limited, func(r snapshot.WorkloadRates) snapshot.Opt[float64] { return r.Pressure.CPU.Some }))
	assert.Greater(t, waits, 0.3, "and that counts as waiting for the CPU")
	written, _ := median(all, diskRate("vda", writtenMiB))
	assert.GreaterOrEqual(t, written, 7.5, "the disk has the pod's writes, and those of others")

	pods := podsOf(all[60])
	require.Len(t, pods, 3)
	assert.Equal(t, []string{"11111111-2222-4333-8444-555555555555", "99999999-8888-4777-8666-555544443333", "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"},
		[]string{pods[0].PodUID, pods[1].PodUID, pods[2].PodUID})
	assert.Equal(t, u64(96<<20), pods[0].MemoryLimitBytes)
	memory, known := pods[0].MemoryBytes.Get()
	require.True(t, known, "%v", pods[0].Absent)
	assert.InDelta(t, 50<<20, memory, 8<<20)
	assert.NotContains(t, pods[0].Absent, "io")
	assert.Equal(t, "blkio inactive: the kernel counts only devices that ever had a throttle rule", pods[1].Absent["io"], idle)
	for _, p := range pods {
		assert.Empty(t, p.Pressure.Absent, "v2 beside v1 has the pressure of %s", p.PodUID)
	}
}

// TestMachineKubelet: cgroup v2, systemd's slices, and a
// pod that goes and is followed by another.
func TestMachineKubelet(t *testing.T) {
	p := playMachine(t, "vm-v2-kubelet")
	all := p.play(p.as("steady-pods-kubelet"))
	require.Len(t, all, 61)
	wantNoErrors(t, all, nil)
	wantMonotone(t, all)

	const worker, throttled = "kubepods-burstable-pod", "/kubepods-pod"
	const vdc = "254:32"
	wantSteady(t, all, "written by the pod, MiB/s", 4, 0.1, ioRate(worker, vdc, ioWrittenMiB))
	wantSteady(t, all, "read by the pod, MiB/s", 2, 0.1, ioRate(worker, vdc, ioReadMiB))
	wantSteady(t, all, "written to the disk, MiB/s", 4, 0.1, diskRate("vdc", writtenMiB))
	wantSteady(t, all, "read from the disk, MiB/s", 2, 0.1, diskRate("vdc", readMiB))
	wantSteady(t, all, "used by the pod with a quota, CPUs", 0.1, 0.1, workloadRate(throttled, cores))
	held, _ := median(all, workloadRate(throttled, func(r snapshot.WorkloadRates) snapshot.Opt[float64] { return r.ThrottledRatio }))
	assert.Greater(t, held, 0.5)

	first, last := podsOf(all[0]), podsOf(all[60])
	require.Len(t, first, 3)
	require.Len(t, last, 3)
	goes := func(p snapshot.WorkloadState) bool {
		return slices.ContainsFunc(first, func(w snapshot.WorkloadState) bool { return w.PodUID == p.PodUID })
	}
	i := slices.IndexFunc(last, func(p snapshot.WorkloadState) bool { return !goes(p) })
	require.GreaterOrEqual(t, i, 0, "one was replaced")
	assert.Contains(t, last[i].Cgroup, "/kubepods-besteffort.slice/")
	for _, p := range slices.Concat(first, last) {
		assert.Regexp(t, `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, p.PodUID)
		assert.Empty(t, p.Absent, p.Cgroup)
		assert.Empty(t, p.Pressure.Absent, p.Cgroup)
		assert.False(t, p.Network.IsZero(), "%s has a network of its own", p.Cgroup)
	}
	for _, name := range []string{"kubelet.service", "containerd.service", "ssh.service"} {
		assert.True(t, slices.ContainsFunc(all[60].Workloads, func(w snapshot.WorkloadState) bool { return w.Name == name }), name)
	}
	wantSinceItCame(t, all, last[i].PodUID)
}

// wantSinceItCame checks that no rate of a pod reaches back before the pod
// existed.
func wantSinceItCame(t *testing.T, all []*snapshot.Snapshot, uid string) {
	t.Helper()
	met := -1
	for i, s := range all {
		pods := podsOf(s)
		j := slices.IndexFunc(pods, func(p snapshot.WorkloadState) bool { return p.PodUID == uid })
		if j < 0 {
			continue
		}
		r, ok := pods[j].Rates.Get()
		if met < 0 {
			met = i
			assert.False(t, ok, "rates of a pod that was just made")
			continue
		}
		assert.LessOrEqual(t, r.WindowSeconds, (s.Monotonic()-all[met].Monotonic()).Seconds()+0.001)
	}
	assert.Positive(t, met)
}

// TestMachineWithoutPSI: host and pods report that there is no PSI, and all else is measured.
func TestMachineWithoutPSI(t *testing.T) {
	p := playMachine(t, "vm-v2-psi-off")
	all := p.play(p.as("steady-without-psi"))
	require.Len(t, all, 61)
	wantNoErrors(t, all, map[string]string{"pressure": "cpu, memory, io: " + psi.WhyNone})
	wantMonotone(t, all)
	require.Contains(t, psi.WhyNone, "booted without psi=1")
	absent := snapshot.Absent{"cpu": psi.WhyNone, "memory": psi.WhyNone, "io": psi.WhyNone}
	for _, s := range all {
		assert.Equal(t, absent, s.Pressure.Totals.Absent)
		assert.Zero(t, s.Pressure.Ratios)
		for _, w := range s.Workloads {
			assert.Equal(t, absent, w.Pressure.Absent, w.Cgroup)
		}
	}
	const pod, vdb = "kubepods-burstable-pod", "254:16"
	wantSteady(t, all, "written by the pod, MiB/s", 2, 0.1, ioRate(pod, vdb, ioWrittenMiB))
	wantSteady(t, all, "read by the pod, MiB/s", 1, 0.1, ioRate(pod, vdb, ioReadMiB))
	wantSteady(t, all, "written to the disk, MiB/s", 2, 0.1, diskRate("vdb", writtenMiB))
	pods := podsOf(all[60])
	require.Len(t, pods, 1)
	assert.Equal(t, "0d1c2b3a-4f5e-4678-9abc-def012345678", pods[0].PodUID)
	assert.True(t, pods[0].MemoryLimitBytes.IsZero(), "the limit is of the unit in the slice")
	assert.Equal(t, "the cpu controller is not enabled for this cgroup", pods[0].Absent["throttledMicrosecondsTotal"])
	assert.Equal(t, "host network: its traffic is in the node's counters only", pods[0].Absent["network"])
}

// Adding up all devices would count the IO of a stack twice or three times.
func TestMachineStackedDisks(t *testing.T) {
	p := playMachine(t, "vm-v2-many-disks")
	all := p.play(p.as("steady-many-disks"))
	require.Len(t, all, 61)
	wantNoErrors(t, all, nil)
	wantMonotone(t, all)
	for device, mib := range map[string]float64{
		"md0": 2, "vdb": 2, "vdc": 2, "dm-0": 2, "vdd": 2, "dm-1": 1, "vdf": 1, "loop0": 1, "vdg": 1,
	} {
		wantSteady(t, all, "written to "+device+", MiB/s", mib, 0.1, diskRate(device, writtenMiB))
	}
	wantSteady(t, all, "read from sda, MiB/s", 4, 0.1, diskRate("sda", readMiB))
	wantSteady(t, all, "written to all leaves, MiB/s", 8, 0.1, func(s *snapshot.Snapshot) snapshot.Opt[float64] { return sumOf(s, snapshot.LayerLeaf, writtenMiB) })
	wantSteady(t, all, "written to all stacks, MiB/s", 6, 0.1, func(s *snapshot.Snapshot) snapshot.Opt[float64] { return sumOf(s, snapshot.LayerStacked, writtenMiB) })
	wantSteady(t, all, "read from all leaves, MiB/s", 6, 0.1, func(s *snapshot.Snapshot) snapshot.Opt[float64] { return sumOf(s, snapshot.LayerLeaf, readMiB) })
	stacks := map[string][]string{}
	for _, d := range all[0].Disks {
		if d.Layer != snapshot.LayerLeaf {
			stacks[d.Name+" "+d.Kind] = d.Slaves
		}
	}
	assert.Equal(t, map[string][]string{
		"md0 md": {"vdb", "vdc"}, "dm-0 lvm": {"vdd", "vde"}, "dm-1 crypt": {"vdf"}, "loop0 loop": nil,
	}, stacks)
	t.Run("a disk and a NIC that are plugged in have rates of the time since", func(t *testing.T) { wantPluggedIn(t, all) })
}

// sumOf adds up a rate over the disks of a layer; absent while one has none.
func sumOf(s *snapshot.Snapshot, l snapshot.Layer, of func(snapshot.DiskRates) float64) snapshot.Opt[float64] {
	total := 0.0
	for _, d := range s.Disks {
		if d.Layer != l {
			continue
		}
		r, ok := d.Rates.Get()
		if !ok {
			return snapshot.Opt[float64]{}
		}
		total += of(r)
	}
	return snapshot.Some(total)
}

func wantPluggedIn(t *testing.T, all []*snapshot.Snapshot) {
	t.Helper()
	disk, nic := -1, -1
	for i, s := range all {
		if j := slices.IndexFunc(s.Disks, func(d snapshot.DiskState) bool { return d.Name == "vdj" }); j >= 0 {
			if disk < 0 {
				disk = i
			}
			r, _ := s.Disks[j].Rates.Get()
			assert.LessOrEqual(t, r.WindowSeconds, (s.Monotonic()-all[disk].Monotonic()).Seconds()+0.001)
		}
		if slices.ContainsFunc(s.NICs, func(n snapshot.NICState) bool { return n.Name == "eth1" }) && nic < 0 {
			nic = i
		}
	}
	assert.Greater(t, disk, 10)
	assert.Greater(t, nic, 10)
}

// Samples recorded while playing a machine give the same snapshots as the
// machine itself.
func TestMachinePlayedEqualsRecorded(t *testing.T) {
	for _, name := range machineNames(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "samples")
			r, err := CreateRecording(file, "test", "")
			require.NoError(t, err)
			played := playMachine(t, name).play(func(s *snapshot.Sample) { require.NoError(t, r.Add(s)) })
			require.NoError(t, r.Close())
			f, err := os.Open(file)
			require.NoError(t, err)
			defer f.Close()
			h, n := history(), 0
			_, err = Play(f, func(s *snapshot.Sample) error {
				added := h.Add(s)
				if n%live.Times(5, 1) == 0 { // what counts up differs in those after it, too
					if diff := cmp.Diff(played[n], added, sameSamples()); diff != "" {
						return fmt.Errorf("sample %d (-played +recorded):\n%s", n, diff)
					}
				}
				n++
				return nil
			})
			require.NoError(t, err)
			assert.Len(t, played, n)
		})
	}
}

// machineNames are all archives of this form.
func machineNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/machines/*.txtar.gz")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	var names []string
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		assert.Less(t, info.Size(), int64(1<<20), f)
		names = append(names, filepath.Base(f[:len(f)-len(".txtar.gz")]))
	}
	return names
}

// TestMachineNUMA: two NUMA nodes, and a service bound to each.
func TestMachineNUMA(t *testing.T) {
	p := playMachine(t, "vm-v2-numa")
	all := p.play(p.as("steady-numa"))
	require.Len(t, all, 61)
	wantNoErrors(t, all, nil)
	wantMonotone(t, all)
	for _, s := range all {
		require.Len(t, s.NUMANodes, 2)
		total, _ := s.Memory.TotalBytes.Get()
		available, _ := s.Memory.AvailableBytes.Get()
		var totals, parts uint64
		for id, n := range s.NUMANodes {
			require.Equal(t, id, n.ID)
			require.Empty(t, n.Absent)
			all, _ := n.TotalBytes.Get()
			free, _ := n.FreeBytes.Get()
			part, _ := n.AvailableBytes.Get()
			reserve, _ := n.ReserveBytes.Get()
			assert.Less(t, free, all)
			assert.Positive(t, reserve)
			totals, parts = totals+all, parts+part
		}
		assert.Equal(t, total, totals)
		assert.InEpsilon(t, available, parts, 0.05, "the kernel's MemAvailable, of both together")
	}
	for name, row := range map[string]struct {
		node int
		mib  float64
	}{"here.service": {0, 24}, "there.service": {1, 64}} {
		i := slices.IndexFunc(all[60].Workloads, func(w snapshot.WorkloadState) bool { return w.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		w := &all[60].Workloads[i]
		require.Len(t, w.NUMA, 2, "%v", w.Absent)
		assert.InDelta(t, row.mib*(1<<20), w.NUMA[row.node].Bytes, 12<<20, name)
		assert.Less(t, w.NUMA[1-row.node].Bytes, uint64(4<<20), name)
	}
}
