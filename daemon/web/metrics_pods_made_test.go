package web

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// manyPods is a node of n pods with 20 series each, on one disk of ten series.
// Pod i uses more than pod i-1.
func manyPods(n int) *view.State {
	count := snapshot.Some[uint64]
	known := map[string]pods.Pod{}
	s := &view.State{Snapshot: &snapshot.Snapshot{Sequence: 1}, Cluster: &view.Cluster{PodsSynced: true, PodOf: podsBy(known)}}
	s.Snapshot.Memory.TotalBytes = count(64 << 30)
	s.Snapshot.Disks = []snapshot.DiskState{{Disk: snapshot.Disk{Name: "nvme0n1", Number: "259:0"}}}
	for i := range uint64(n) {
		uid := fmt.Sprintf("%08x-1c2f-4d6e-8000-%012d", i*2_654_435_761, i)
		w := snapshot.WorkloadState{Workload: snapshot.Workload{
			Cgroup: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid + ".slice", Inode: 1000 + i, Kind: snapshot.KindPod, PodUID: uid,
			MemoryBytes: count((300 + i) << 20), SwapBytes: count(0), LimitHits: count(i / 9), OOMKills: count(0),
			CPUMicroseconds: count(i * 98_765_432_123), ThrottledMicroseconds: count(i * 1_234_567),
			IO:      []snapshot.WorkloadIO{{Number: "259:0", Reads: i * 1_234_567, Writes: i * 7_654, ReadBytes: i << 32, WrittenBytes: i << 23}},
			Network: snapshot.Some(snapshot.WorkloadNetwork{ReceiveBytes: i << 33, ReceivePackets: i << 20, TransmitBytes: i << 31, TransmitPackets: i << 19}),
			Pressure: snapshot.Pressure{
				CPU:    snapshot.Stall{Some: count(i * 45_678_901)},
				Memory: snapshot.Stall{Some: count(i * 12_345), Full: count(i * 1_234)},
				IO:     snapshot.Stall{Some: count(i * 7_654_321), Full: count(i * 6_543_210)},
			},
		}}
		w.WorkingSetBytes = count((256 + i) << 20)
		s.Snapshot.Workloads = append(s.Snapshot.Workloads, w)
		known[uid] = pods.Pod{
			Namespace: fmt.Sprintf("team-%02d", i%17), Name: fmt.Sprintf("checkout-%02d-6d5f7b%04x-%05x", i%23, i*40_503%65_536, i*65_537%1_048_576),
		}
	}
	return s
}

// podsBy finds pods by the UID of their cgroups.
func podsBy(known map[string]pods.Pod) func(string) (pods.Pod, bool) {
	return func(uid string) (pods.Pod, bool) {
		pod, ok := known[uid]
		return pod, ok
	}
}

// using is a service with one series, that uses so many MiB of 1 GiB.
func using(name string, mib uint64) snapshot.WorkloadState {
	return snapshot.WorkloadState{Workload: snapshot.Workload{
		Cgroup: "/system.slice/" + name, Inode: 7, Kind: snapshot.KindService, MemoryBytes: snapshot.Some(mib << 20),
	}}
}

// sampled is the sample of a number with workloads.
func sampled(sequence uint64, list ...snapshot.WorkloadState) *view.State {
	s := &view.State{Snapshot: &snapshot.Snapshot{Sequence: sequence, Workloads: list}}
	s.Snapshot.Memory.TotalBytes = snapshot.Some[uint64](1 << 30)
	return s
}

// differentPods is a pod that the API server knows, one that it does not, and
// a service of which little is known.
func differentPods() *view.State {
	s := manyPods(2)
	count := snapshot.Some[uint64]
	s.Snapshot.Workloads[0].PodUID, s.Snapshot.Workloads[0].Cgroup = "static-hash", "/kubepods/podstatic-hash"
	w := &s.Snapshot.Workloads[1]
	w.Pressure.CPU.Full = count(1)
	w.IO = append(w.IO, snapshot.WorkloadIO{Number: "8:16", ReadBytes: 5})
	s.Snapshot.Workloads = append(s.Snapshot.Workloads, snapshot.WorkloadState{Workload: snapshot.Workload{
		Cgroup: "/system.slice/cron.service", Inode: 9, Kind: snapshot.KindService, CPUMicroseconds: count(1_500_000), MemoryBytes: count(0),
		Network: snapshot.Opt[snapshot.WorkloadNetwork]{}, Absent: snapshot.Absent{"io": "the io controller is not enabled here"},
	}})
	return s
}
