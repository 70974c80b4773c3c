package scenes

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// totals are the counters that differ between loads, grown second by second.
type totals struct {
	cpu                                      float64
	cpuSome, memorySome, memoryFull, io, own uint64
	scans, hits                              uint64
}

func (t *totals) add(l Pressure) {
	micro := func(share float64) uint64 { return uint64(share * 1e6) }
	t.cpu += 8 * l.CPU
	t.cpuSome += micro(l.CPU / 10)
	t.memorySome += micro(l.MemorySome)
	t.memoryFull += micro(l.MemoryFull)
	t.io += micro(l.IO)
	t.own += micro(l.Stall)
	t.scans += l.Scans
	t.hits += l.Hits
}

// sample is second i of a node with eight CPUs.
func sample(i int, l Pressure, t *totals) *snapshot.Sample {
	t.add(l)
	at := time.Duration(i+1) * time.Second
	some := snapshot.Some[uint64]
	return &snapshot.Sample{
		Time: Start().Add(at), Monotonic: at, Boottime: 26*time.Hour + at, BootID: "made-up",
		CPU: snapshot.CPU{Online: snapshot.Some(8), Seconds: map[string]float64{"user": t.cpu}},
		Memory: snapshot.Memory{
			TotalBytes: some(16 << 30), AvailableBytes: some(l.Available), FreeBytes: some(200 << 20),
			SwapTotalBytes: some(0), SwapFreeBytes: some(0), ScansDirect: some(t.scans), ScansKswapd: some(0),
			Refaults: some(t.scans / 10), Reclaimed: some(t.scans / 2), OOMKills: some(1), SwapIns: some(0), SwapOuts: some(0),
		},
		Pressure: snapshot.Pressure{
			CPU:    snapshot.Stall{Some: some(t.cpuSome)},
			Memory: snapshot.Stall{Some: some(t.memorySome), Full: some(t.memoryFull)},
			IO:     snapshot.Stall{Some: some(t.io), Full: some(t.io / 2)},
		},
		Network: snapshot.Network{TCPSegmentsSent: some(uint64(i) * 9000), TCPRetransmits: some(uint64(i)), ListenDrops: some(0), SoftnetSqueezed: some(uint64(i) / 4)},
		Disks:   disks(uint64(i)), NICs: nics(uint64(i)), Filesystems: filesystems(i), Workloads: workloads(uint64(i), t),
		Probes: []snapshot.Probe{{Name: "cpu", Duration: 40 * time.Microsecond}, {Name: "memory", Duration: 60 * time.Microsecond}},
	}
}

func disks(i uint64) []snapshot.Disk {
	return []snapshot.Disk{
		{
			Name: "dm-0", Number: "252:0", SizeBytes: snapshot.Some[uint64](500 << 30), Rotational: snapshot.Some(false),
			Kind: "lvm", Slaves: []string{"nvme0n1"}, Layer: snapshot.LayerStacked,
			DiskCounters: snapshot.DiskCounters{
				Reads: i * 801, Writes: i * 640, ReadBytes: i * 52_000_000, WrittenBytes: i * 21_000_000,
				ReadMs: i * 200, WriteMs: i * 620, BusyMs: i * 125, WeightedMs: i * 820,
			},
		},
		{Name: "loop0", Number: "7:0", Kind: "loop", Layer: snapshot.LayerStacked, SizeBytes: snapshot.Some[uint64](64 << 20), Rotational: snapshot.Some(false)},
		{
			Name: "nvme0n1", Number: "259:0", Kind: "nvme", Layer: snapshot.LayerLeaf, SizeBytes: snapshot.Some[uint64](1_920_383_410_176), Rotational: snapshot.Some(false),
			DiskCounters: snapshot.DiskCounters{
				Reads: i * 830, Writes: i * 412, ReadBytes: i * 54_000_000, WrittenBytes: i * 21_500_000,
				ReadMs: i * 190, WriteMs: i * 310, BusyMs: i * 120, WeightedMs: i * 500,
			},
		},
		{
			Name: "sda", Number: "8:0", Kind: "disk", Layer: snapshot.LayerLeaf, SizeBytes: snapshot.Some[uint64](8_001_563_222_016), Rotational: snapshot.Some(true),
			DiskCounters: snapshot.DiskCounters{Writes: i * 3, WrittenBytes: i * 90_000, WriteMs: i * 41, BusyMs: i * 30, WeightedMs: i * 41},
		},
	}
}

func nics(i uint64) []snapshot.NIC {
	noSpeed := snapshot.Absent{"speedBytesPerSecond": "speed: unknown to the driver"}
	return []snapshot.NIC{
		{Name: "cali1a2b3c", Kind: "veth", Layer: snapshot.LayerStacked, Absent: noSpeed, NICCounters: snapshot.NICCounters{ReceiveBytes: i * 90_000, TransmitBytes: i * 1_200_000}},
		{
			Name: "eth0", Physical: true, Kind: "physical", Layer: snapshot.LayerLeaf, SpeedBytesPerSecond: snapshot.Some[uint64](1_250_000_000),
			NICCounters: snapshot.NICCounters{ReceiveBytes: i * 310_000_000, TransmitBytes: i * 42_000_000, ReceiveDrops: i / 8},
		},
		{Name: "lo", Kind: "loopback", Layer: snapshot.LayerStacked, Absent: noSpeed, NICCounters: snapshot.NICCounters{ReceiveBytes: i * 5000, TransmitBytes: i * 5000}},
		{Name: "veth0", Kind: "veth", Layer: snapshot.LayerStacked, Absent: noSpeed},
	}
}

// filesystems are asked every ten seconds, and have not answered at the first
// sample.
func filesystems(i int) []snapshot.Filesystem {
	if i == 0 {
		yet := snapshot.Absent{"statfs": "first statfs has not returned yet"}
		return []snapshot.Filesystem{{Mountpoint: "/", Type: "ext4", Device: "/dev/nvme0n1p2", Absent: yet}, {Mountpoint: "/data", Type: "xfs", Device: "/dev/sda1", Absent: yet}}
	}
	some, age := snapshot.Some[uint64], snapshot.Some(float64(i%10))
	return []snapshot.Filesystem{
		{
			Mountpoint: "/", Type: "ext4", Device: "/dev/nvme0n1p2", AgeSeconds: age,
			SizeBytes: some(1_800_000_000_000), AvailableBytes: some(1_100_000_000_000 - uint64(i)*21_500_000), Files: some(120_000_000), FilesFree: some(118_500_000),
		},
		{
			Mountpoint: "/data", Type: "xfs", Device: "/dev/sda1", AgeSeconds: age,
			SizeBytes: some(8_000_000_000_000), AvailableBytes: some(480_000_000_000), Files: some(3_900_000_000), FilesFree: some(3_899_000_000),
		},
	}
}

// workloads are sorted by cgroup, as a Sample has them.
func workloads(i uint64, t *totals) []snapshot.Workload {
	some := snapshot.Some[uint64]
	list := []snapshot.Workload{
		{Cgroup: "/kubepods.slice/kubepods-burstable.slice/pod-b.slice", Kind: snapshot.KindPod, Name: "pod 8d1c2f6e", PodUID: "8d1c2f6e-0000-4000-8000-00000000000b", MemoryBytes: some(5 << 30)},
		{Cgroup: "/kubepods.slice/pod-a.slice", Kind: snapshot.KindPod, Name: "pod 41aa9e07", PodUID: "41aa9e07-0000-4000-8000-00000000000a", MemoryBytes: some(3 << 30), MemoryLimitBytes: some(4 << 30)},
		{Cgroup: "/system.slice/cache.service", Kind: snapshot.KindService, Name: "cache.service", MemoryBytes: some(512 << 20), MemoryLimitBytes: some(512 << 20)},
		{Cgroup: "/system.slice/containerd.service", Kind: snapshot.KindService, Name: "containerd.service", MemoryBytes: some(180 << 20)},
		{Cgroup: "/user.slice/user-1000.slice/session-3.scope", Kind: snapshot.KindService, Name: "session-3.scope", MemoryBytes: some(96 << 20)},
	}
	for n := range list {
		w := &list[n]
		w.Inode = uint64(100 + n)
		w.Reclaimed = some(t.scans / 2 * uint64(max(0, 6-3*n)) / 10)
		w.InactiveFileBytes, w.CPUMicroseconds, w.LimitHits = some(20<<20), some(i*uint64(600_000>>n)), some(0)
		w.Pressure.CPU = snapshot.Stall{Some: some(t.cpuSome / uint64(n+3)), Full: some(t.cpuSome / uint64(n+6))}
		w.Pressure.Memory = snapshot.Stall{Some: some(t.memorySome / uint64(n+1)), Full: some(t.memoryFull / uint64(n+1))}
		w.Pressure.IO = snapshot.Stall{Some: some(t.io / uint64(n+2)), Full: some(t.io / uint64(n+4))}
	}
	list[2].LimitHits = some(t.hits)
	list[2].Pressure.Memory = snapshot.Stall{Some: some(t.own), Full: some(t.own)}
	list[4].LimitHits, list[4].Absent = snapshot.Opt[uint64]{}, snapshot.Absent{"limitHitsTotal": "memory.events: no such file or directory"}
	return list
}
