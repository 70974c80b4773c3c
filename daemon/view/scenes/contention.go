package scenes

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// neighbour is a pod on a node with contention: its shares of the traffic of each
// disk, of memory growth, and of the time that it waits.
type neighbour struct {
	namespace, name, class string
	nvme, sda, sdb, memory float64
	ioWait, memoryWait     float64
}

func neighbours() []neighbour {
	list := []neighbour{
		{namespace: "batch-analytics", name: "du-of-the-whole-data-lake-28f7c-x2k9p", class: "burstable", nvme: 0.66, memory: 0.58},
		{
			namespace: "payments-production-eu-west-1", name: "payments-db-postgresql-primary-with-a-name-as-long-as-helm-makes-them-0", class: "burstable",
			nvme: 0.05, sda: 0.3, ioWait: 0.52, memory: 0.02, memoryWait: 0.24,
		},
		{namespace: "velero", name: "backup-nightly-20260301-node-agent-7xk2v", class: "besteffort", nvme: 0.06, sda: 0.25, sdb: 0.97, ioWait: 0.5},
	}
	for i := range 13 {
		x := float64(i)
		list = append(list, neighbour{
			namespace: "shop", name: fmt.Sprintf("cart-service-66b8d9f7c4-%05x", 0x9a3b1+i*7919), class: "burstable",
			nvme: 0.0115 + 0.0003*x, ioWait: 0.025 + 0.012*x, memory: 0.012 + 0.002*x, memoryWait: 0.012 + 0.009*x,
		})
	}
	return list
}

// Contended is a node of a cluster with contention on two disks and memory, a
// third disk that is only busy, and long names.
func Contended() *view.State {
	s := runWith(Pressure{CPU: 0.4, MemorySome: 0.3, MemoryFull: 0.04, IO: 0.48, Available: 2 << 30, Scans: 260_000}, addContention)
	disk := func(name string, l plugins.Level, await float64, since time.Duration) plugins.Verdict {
		return plugins.Verdict{
			Plugin: "disk-contention", Resource: plugins.Disk, Scope: name, Level: l, MetLevel: l, Since: s.Time.Add(-since), Condition: "DiskContention",
			Observed: snapshot.Some(await), Operator: ">=", Threshold: snapshot.Some(0.02), Unit: "seconds",
			Reason: fmt.Sprintf("await over 60s %.1f ms (>= 20 ms)", 1000*await),
		}
	}
	st := inCluster(state(s, memoryStall(plugins.None, 0.04, s.Time.Add(-9*time.Minute))))
	list := st.Levels.Verdicts
	st.Levels.Verdicts = []plugins.Verdict{list[0], disk("nvme0n1", plugins.Soft, 0.031, 40*time.Second), disk("sda", plugins.None, 0.014, 3*time.Hour), disk("sdb", plugins.None, 0.004, 3*time.Hour), list[len(list)-1]}
	st.Levels.Disks = []plugins.DiskCapacity{{Device: "nvme0n1", Knee: plugins.Knee{
		Read: plugins.Carry{IOPS: 3000, BytesPerSecond: 125e6, AwaitSeconds: 0.008, FullIOPS: true, FullBytes: true}, Since: s.Time.Add(-20 * time.Minute),
		Before: plugins.Before{Read: plugins.Carry{IOPS: 16000, BytesPerSecond: 500e6, AwaitSeconds: 0.002, FullIOPS: true, FullBytes: true}, Until: s.Time.Add(-20 * time.Minute)},
	}, ReadBytesPerSecond: 125e6, AtKnee: true}}
	known := map[string]pods.Pod{}
	for i, n := range neighbours() {
		known[neighbourUID(i)] = pods.Pod{Namespace: n.namespace, Name: n.name}
	}
	return st.WithCluster(&view.Cluster{
		DryRun: true, Pods: len(known), PodsSynced: true,
		PodOf: func(uid string) (pods.Pod, bool) { p, ok := known[uid]; return p, ok },
	}, ContendedDecisions(st))
}

// ContendedDecisions is what a round of a dry run decides about that node.
func ContendedDecisions(s *view.State) []evict.Decision {
	in := withContention(s, input(s.Levels, nil, evict.DefaultConfig(), evict.State{}))
	for i, n := range neighbours() {
		uid := neighbourUID(i)
		in.Cluster.Pods.Pods = append(in.Cluster.Pods.Pods, pods.Pod{UID: uid, CgroupUID: uid, Namespace: n.namespace, Name: n.name})
	}
	d, _ := evict.Decide(in)
	return []evict.Decision{d}
}

func neighbourUID(i int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-0000000000ff", 0x5eed0000+i*257)
}

// addContention puts the neighbours into second i of a node.
func addContention(i uint64, s *snapshot.Sample) {
	s.IOSource = snapshot.IOStat
	s.Disks = nil
	for _, d := range []struct {
		name, number, kind      string
		reads, kilobytes, await float64
	}{
		{"nvme0n1", "259:0", "nvme", 12_000, 48, 31}, {"sda", "8:0", "disk", 2_000, 256, 14}, {"sdb", "8:16", "disk", 900, 512, 4},
	} {
		s.Disks = append(s.Disks, snapshot.Disk{
			Name: d.name, Number: d.number, Kind: d.kind, Layer: snapshot.LayerLeaf, SizeBytes: snapshot.Some[uint64](1_920_383_410_176), Rotational: snapshot.Some(false),
			DiskCounters: snapshot.DiskCounters{
				Reads: counterAfter(i, d.reads), ReadBytes: counterAfter(i, d.reads*d.kilobytes*1000), ReadMs: counterAfter(i, d.reads*d.await),
				BusyMs: counterAfter(i, 980), WeightedMs: counterAfter(i, d.reads*d.await),
			},
		})
	}
	const taken = 900e6 // bytes per second
	page := float64(os.Getpagesize())
	s.Memory.Reclaimed = snapshot.Some(counterAfter(i, taken/page))
	for at, n := range neighbours() {
		on := func(number string, share, reads, kilobytes float64) snapshot.WorkloadIO {
			return snapshot.WorkloadIO{Number: number, Reads: counterAfter(i, share*reads), ReadBytes: counterAfter(i, share*reads*kilobytes*1000)}
		}
		w := snapshot.Workload{
			Cgroup: "/kubepods.slice/kubepods-" + n.class + ".slice/kubepods-" + n.class + "-pod" + neighbourUID(at) + ".slice",
			Kind:   snapshot.KindPod, Name: "pod " + neighbourUID(at)[:8], PodUID: neighbourUID(at), Inode: uint64(500 + at),
			MemoryBytes: snapshot.Some[uint64](400 << 20), InactiveFileBytes: snapshot.Some[uint64](50 << 20), CPUMicroseconds: snapshot.Some(counterAfter(i, 80_000)),
			LimitHits: snapshot.Some[uint64](0), Reclaimed: snapshot.Some(counterAfter(i, n.memory*taken/page)),
		}
		w.IO = []snapshot.WorkloadIO{on("259:0", n.nvme, 12_000, 48), on("8:0", n.sda, 2_000, 256), on("8:16", n.sdb, 900, 512)}
		wait := func(share float64) snapshot.Stall {
			return snapshot.Stall{Some: snapshot.Some(counterAfter(i, share*1e6)), Full: snapshot.Some(counterAfter(i, share*0.8e6))}
		}
		w.Pressure = snapshot.Pressure{CPU: snapshot.Stall{Some: snapshot.Some(counterAfter(i, 1000)), Full: snapshot.Some(counterAfter(i, 500))}, Memory: wait(n.memoryWait), IO: wait(n.ioWait)}
		s.Workloads = append(s.Workloads, w)
	}
	slices.SortFunc(s.Workloads, func(a, b snapshot.Workload) int { return cmp.Compare(a.Cgroup, b.Cgroup) })
}

// counterAfter is a counter after so many seconds.
func counterAfter(seconds uint64, perSecond float64) uint64 {
	return uint64(float64(seconds) * perSecond)
}
