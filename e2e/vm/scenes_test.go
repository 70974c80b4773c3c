package vm_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// scenes of the machine with cgroup v2: bad ones first, since a few of a machine are to show
// what a judge misses.
func scenes() []scene {
	return slices.Concat(badScenes(), healthyScenes(), networkScenes(), heldOutScenes())
}

// usualOf are disks of which a request takes about 1 ms for a service alone: measured on each
// kind of them 0.4 to 2.5 ms. None of the limits delays the few requests of one.
func usualOf(disks ...string) map[string]time.Duration {
	u := map[string]time.Duration{}
	for _, d := range disks {
		u[d] = time.Millisecond
	}
	return u
}

const fewReads = " -write 1 -read 1"

func healthyScenes() []scene {
	return []scene{
		{
			name: "calm-service", class: "calm", run: 40 * time.Second,
			did:   "a service writes and reads 1 MiB/s of vdh, a disk of 100 requests a second; nothing else",
			why:   "no workload causes pressure",
			begin: func(n *node) { n.work("shop", inPodOf("burstable", shopUID), "-file /dev/vdh"+fewReads) },
			end:   units("shop"), usual: usualOf("vdh"),
		},
		{
			name: "lone-backup", class: "busy disk", run: 75 * time.Second,
			did: "a backup reads vdh, a disk of 100 requests a second, with 24 requests of 256 KiB in flight; a service works on vdi",
			why: "the disk is full and its requests are slow, but no other workload uses it: a backup may run at full speed",
			begin: func(n *node) {
				n.work("mail", inPodOf("burstable", mailUID), "-file /dev/vdi"+fewReads)
				n.press("backup", "-p IOAccounting=yes", "vdh")
			},
			end: units("backup", "mail"), usual: usualOf("vdh", "vdi"),
		},
		{
			name: "image-unpack", class: "busy disk", run: 40 * time.Second,
			did: "files are copied to and removed from vdf, a disk of 300 requests a second, as an image is unpacked; a service writes and reads 1 MiB/s of the same disk",
			why: "a burst of less than a minute, which every start of a pod makes",
			begin: func(n *node) {
				n.throttle(300, "vd5")
				n.work("shop", inPodOf("burstable", shopUID), "-file /vdf/data"+fewReads)
				n.unit("unpack", "", "while :; do rm -rf /vdf/image; cp -r /usr/lib/systemd /vdf/image; sync -f /vdf; done")
			},
			end: func(n *node) { units("unpack", "shop")(n); n.throttle(0, "vd5") }, usual: usualOf("vdf"),
		},
		{
			name: "fstrim", class: "busy disk", run: 40 * time.Second,
			did: "a file of 64 MiB is written to vdf, removed and trimmed, over and over; a service writes and reads 1 MiB/s of the same disk",
			why: "trimming itself is slow and moves no data, and the disk carries the rest",
			begin: func(n *node) {
				n.work("shop", inPodOf("burstable", shopUID), "-file /vdf/data"+fewReads)
				n.unit("trim", "", "while :; do dd if=/dev/zero of=/vdf/gone bs=1M count=64 status=none; sync -f /vdf; rm /vdf/gone; fstrim /vdf; done")
			},
			end: units("trim", "shop"), usual: usualOf("vdf"),
		},
		{
			name: "md-scrub", class: "busy disk", run: 75 * time.Second,
			did: "the mirror of vdc and vdd is checked over and over; a service works on vdf",
			why: "the kernel reads both disks in full, without harm to any workload",
			begin: func(n *node) {
				n.throttle(200, "vd2", "vd3")
				n.work("shop", inPodOf("burstable", shopUID), "-file /vdf/data"+fewReads)
				n.unit("scrub", "", "while :; do echo check >/sys/block/md0/md/sync_action; sleep 1; done")
			},
			end: func(n *node) {
				units("scrub", "shop")(n)
				n.run("echo idle >/sys/block/md0/md/sync_action")
				n.throttle(0, "vd2", "vd3")
			}, usual: usualOf("vdc", "vdd", "vdf"),
		},
		{
			name: "boot-storm", class: "busy disk", run: 40 * time.Second,
			did: "ten programs at a time read what a start reads, with the page cache dropped before; a service works on vdf",
			why: "many pods start at once; it is over soon and nothing is short",
			begin: func(n *node) {
				n.work("shop", inPodOf("burstable", shopUID), "-file /vdf/data"+fewReads)
				n.unit("storm", "", "while :; do echo 3 >/proc/sys/vm/drop_caches; for i in {1..10}; do cat /usr/lib/systemd/* >/dev/null & done; wait; done")
			},
			end: units("storm", "shop"), usual: usualOf("vda", "vdf"),
		},
		{
			name: "all-cores-busy", class: "busy CPU", run: 40 * time.Second,
			did:  "four programs compute on two CPUs; a service works on vdf",
			why:  "each program waits for a CPU because of the others, for little more than a minute: a level may be reported at its end, and no pod is named",
			want: []judgement.Want{{Resource: plugins.CPU, Level: plugins.Soft, AtMost: true, NoCulprit: true}},
			begin: func(n *node) {
				n.work("shop", inPodOf("burstable", shopUID), "-file /vdf/data"+fewReads)
				for i := range 4 {
					n.work(fmt.Sprintf("spin%d", i), "-p CPUWeight=20", "-cpu 1000")
				}
			},
			end: units("spin0", "spin1", "spin2", "spin3", "shop"), usual: usualOf("vdf"),
		},
		{
			name: "cpu-full-without-waiting", class: "busy CPU", run: 75 * time.Second,
			did: "a BestEffort pod computes on both CPUs, with the weight that a kubelet gives its class; a service needs a tenth of a CPU",
			why: "the CPUs are used to the last, and the service has what it needs: nothing waits but what has agreed to",
			begin: func(n *node) {
				n.work("shop", inPodOf("burstable", shopUID), "-cpu 100")
				n.unit("fill", inPodOf("besteffort", copyUID), "while :; do :; done & while :; do :; done")
				n.run("systemctl set-property --runtime kubepods-besteffort.slice CPUWeight=1")
			},
			end: func(n *node) {
				units("fill", "shop")(n)
				n.run("systemctl revert kubepods-besteffort.slice")
			},
		},
		{
			name: "batch-waits-for-itself", class: "busy CPU", run: 75 * time.Second,
			did: "one pod computes with eight programs on two CPUs; no other workload needs a CPU",
			why: "six of the eight always wait, for their own pod: it has all there is",
			begin: func(n *node) {
				n.unit("batch", inPodOf("burstable", copyUID), "for i in {1..8}; do while :; do :; done & done; wait")
			},
			end: units("batch"),
		},
		{
			name: "own-quota", class: "busy CPU", run: 75 * time.Second,
			did: "a pod with a quota of half a CPU computes with four programs; no other workload needs a CPU",
			why: "it waits for its own quota, and a CPU is idle",
			begin: func(n *node) {
				n.unit("capped", inPodOf("burstable", shopUID)+" -p CPUQuota=50%", "for i in {1..4}; do while :; do :; done & done; wait")
			},
			end: units("capped"),
		},
		{
			name: "page-cache-full", class: "full memory", run: 45 * time.Second,
			did: "a program reads vdg from end to end over and over: 2 GiB of file pages in a memory of 2 GiB",
			why: "little memory is free, but nearly all of it is available: unused pages are dropped at no cost",
			begin: func(n *node) {
				n.unit("reader", "-p MemoryAccounting=yes", "while :; do cat /dev/vdg >/dev/null; done")
				n.until(3*time.Minute, "memory is full of pages", func() bool {
					return n.run("awk '/^MemFree:/ { print ($2 < 150000) }' /proc/meminfo") == "1\n"
				})
			},
			end: units("reader"),
		},
		{
			name: "own-limit-v2", class: "own limit", run: 45 * time.Second,
			did: "a pod with a limit of 160 MiB holds 60 and reads 150 MiB of file pages at random, on a disk of 1000 requests a second",
			why: "it thrashes at its own limit and is the only workload that waits; the node has memory available",
			begin: func(n *node) {
				n.startHogOn("/vdb/pages", "-p MemoryMax=160M", "-fill 60")
			},
			end: units("hog"),
		},
		{
			name: "delayed-disk", class: "slow disk", run: 75 * time.Second,
			did: "a service reads 1 MiB/s and a program as fast as it goes of a dm-delay device of 50 ms over vdg, a fast disk",
			why: "every request takes 50 ms, with or without other users: a slow disk, caused by no workload",
			begin: func(n *node) {
				n.delayed("vdg", 50)
				n.work("shop", inPodOf("burstable", shopUID), "-file /dev/mapper/slow -read 1")
				n.press("backup", inPodOf("besteffort", copyUID), "mapper/slow")
			},
			end: func(n *node) { units("backup", "shop")(n); n.run("dmsetup remove --retry slow") }, usual: usualOf("vdg"),
		},
	}
}

// delayed puts the device /dev/mapper/slow over a disk: each request waits for
// so many ms before it goes there.
func (n *node) delayed(disk string, ms int) {
	n.t.Helper()
	n.run(fmt.Sprintf("modprobe dm-delay && dmsetup create slow --table '0 2097152 delay /dev/%s 0 %d'", disk, ms))
	n.t.Cleanup(func() { n.run("dmsetup remove --retry slow 2>/dev/null || true") })
}

// wired puts eth1 and eth2 on one wire, eth2 in a namespace of its own, and
// sends through a queue of eth1.
func wired(queue string) func(*node) {
	return func(n *node) {
		n.t.Helper()
		if !strings.Contains(n.run("ls /sys/class/net"), "eth1") {
			require.NoError(n.t, n.PlugNIC(n.t.Context(), "near", "52:54:00:00:02:01", 1))
			require.NoError(n.t, n.PlugNIC(n.t.Context(), "far", "52:54:00:00:02:02", 2))
			n.until(time.Minute, "the kernel has both", func() bool {
				return n.run("test -e /sys/class/net/eth1/ifindex -a -e /sys/class/net/eth2/ifindex && echo there || true") == "there\n"
			})
			n.run(`set -e
				ip netns add far; ip link set eth2 netns far
				ip -n far addr add 10.9.0.2/24 dev eth2; ip -n far link set eth2 up; ip -n far link set lo up
				ip addr add 10.9.0.1/24 dev eth1; ip link set eth1 up`)
		}
		n.run("modprobe sch_netem; tc qdisc replace dev eth1 root netem " + queue)
		n.unit("sink", "", "ip netns exec far busybox nc -ll -p 5001 -e busybox dd of=/dev/null")
		n.unit("sender", "", "sleep 1; for i in {1..12}; do busybox nc 10.9.0.2 5001 </dev/zero >/dev/null & done; wait")
	}
}

func unwired(n *node) {
	units("sender", "sink")(n)
	n.run("tc qdisc del dev eth1 root")
}

func networkScenes() []scene {
	const speed = "network: {devices: [{name: eth1, speed: 4}]}\n"
	of := func(name, queue, did, why string, want ...judgement.Want) scene {
		class := "busy network"
		if len(want) > 0 {
			class = "network contention"
		}
		return scene{
			name: name, class: class, run: 45 * time.Second, config: speed, did: did, why: why, begin: wired(queue), end: unwired, want: want,
		}
	}
	return []scene{
		of("network-busy", "rate 2500kbit", "twelve streams of TCP through eth1 at 2.5 Mbit/s, of 4", "a link may be used"),
		of("network-full", "rate 4mbit", "twelve streams of TCP fill eth1, a link of 4 Mbit/s, without loss", "a full link is what a backup is for: nothing is lost"),
		of("network-lossy", "rate 2mbit loss 5%", "twelve streams of TCP through eth1 at 2 Mbit/s, of 4, of which 5 % are lost", "the loss is not caused by a lack of bandwidth on this link"),
		of("network-full-and-lossy", "rate 4mbit loss 4%", "twelve streams of TCP fill eth1, a link of 4 Mbit/s, and 4 % are lost", "the link is full and TCP retransmits: the node is marked, no pod is named",
			judgement.Want{Resource: plugins.NetworkIO, Scope: "eth1", Level: plugins.Soft, NoCulprit: true}),
	}
}

// fill starts the hog and waits until it has filled memory.
func (n *node) fill(flags string) {
	n.t.Helper()
	since := n.clock()
	n.startHogOn("/vdb/pages", "", flags)
	n.until(3*time.Minute, "memory is full", func() bool {
		return n.run(fmt.Sprintf("journalctl -q --no-pager -o cat -u hog --since @%d | grep -c ' filled ' || true", since.Unix())) != "0\n"
	})
}

func hardMemory() []judgement.Want {
	return []judgement.Want{{Resource: plugins.Memory, Level: plugins.Hard, Culprit: "hog"}}
}

func badScenes() []scene {
	two := []judgement.Want{
		{Resource: plugins.Disk, Scope: "vdh", Level: plugins.Soft, Culprit: copyUID, Sufferer: shopUID},
		{Resource: plugins.Disk, Scope: "vdi", Level: plugins.Soft, Culprit: scanUID, Sufferer: mailUID},
	}
	return []scene{
		{
			name: "hog", class: "memory shortage", run: 45 * time.Second, want: hardMemory(), from: filled,
			did:   "a program takes all memory but 50 MiB as fast as it can, and reads 150 MiB of file pages at random on a disk of 1000 requests a second",
			why:   "every page read evicts another that is needed soon: the node stalls",
			begin: func(n *node) { n.fill("-available 50") }, end: units("hog"),
		},
		{
			name: "leak", class: "memory shortage", run: 45 * time.Second, want: hardMemory(), from: filled,
			did:   "a program takes 40 MiB a second until 50 MiB are available, and reads 150 MiB of file pages at random on a disk of 1000 requests a second",
			why:   "sooner or later the node stalls",
			begin: func(n *node) { n.fill("-available 50 -pace 40") }, end: units("hog"),
		},
		{
			name: "hog-with-swap", class: "memory shortage", run: 45 * time.Second, want: hardMemory(), from: filled,
			did: "a program takes all memory but 50 MiB as fast as it can, after 256 MiB of swap on vde, and reads 150 MiB of file pages at random, on disks of 1000 requests a second each",
			why: "swap only delays it: then the node stalls",
			begin: func(n *node) {
				n.throttle(1000, "vd4")
				n.run("mkswap /dev/vde 262144 >/dev/null && swapon /dev/vde")
				n.fill("-available 50")
			},
			end: func(n *node) { units("hog")(n); n.run("swapoff /dev/vde"); n.throttle(0, "vd4") },
		},
		{
			name: "presser-on-a-disk", class: "disk contention", run: 90 * time.Second, want: two[:1:1], usual: usualOf("vdh"),
			did: "a service reads 1 MiB/s of vdh, a disk of 100 requests a second; a BestEffort pod reads it with 24 requests of 256 KiB in flight",
			why: "the service waits for the presser",
			begin: func(n *node) {
				n.work("shop", inPodOf("burstable", shopUID), "-file /dev/vdh -read 1")
				n.press("presser", inPodOf("besteffort", copyUID), "vdh")
			},
			end: units("presser", "shop"),
		},
		{
			name: "pressers-on-two-disks", class: "disk contention", run: 90 * time.Second, want: two, usual: usualOf("vdh", "vdi"),
			did: "a service and a presser on vdh, and others on vdi, disks of 100 requests a second each",
			why: "each service waits for the presser on its own disk, and for none on the other disk",
			begin: func(n *node) {
				n.work("shop", inPodOf("burstable", shopUID), "-file /dev/vdh -read 1")
				n.work("mail", inPodOf("burstable", mailUID), "-file /dev/vdi -read 1")
				n.press("presser1", inPodOf("besteffort", copyUID), "vdh")
				n.press("presser2", inPodOf("besteffort", scanUID), "vdi")
			},
			end: units("presser1", "presser2", "shop", "mail"),
		},
		{
			name: "cpu-contended", class: "CPU contention", run: 100 * time.Second,
			want: []judgement.Want{{Resource: plugins.CPU, Level: plugins.Soft, NoCulprit: true, Presser: copyUID, Sufferer: shopUID}},
			did:  "a pod computes with eight programs on two CPUs; a service of the same weight needs one and a half",
			why:  "the service waits for a CPU because of the other pod: the level is reported, and no pod is named",
			begin: func(n *node) {
				n.unit("shop", inPodOf("burstable", shopUID), "for i in {1..3}; do while :; do :; done & done; wait")
				n.unit("batch", inPodOf("burstable", copyUID), "for i in {1..8}; do while :; do :; done & done; wait")
			},
			end: units("batch", "shop"),
		},
		{
			name: "presser-behind-dm-delay", class: "disk contention", run: 90 * time.Second, want: two[:1:1], usual: usualOf("vdh"),
			did: "a service reads 1 MiB/s of a dm-delay device of 50 ms over vdh, a disk of 100 requests a second; a BestEffort pod reads it with 24 requests of 256 KiB in flight",
			why: "the service waits for the presser, on the disk beneath; the same IO on the device above is not counted again",
			begin: func(n *node) {
				n.delayed("vdh", 50)
				n.work("shop", inPodOf("burstable", shopUID), "-file /dev/mapper/slow -read 1")
				n.press("presser", inPodOf("besteffort", copyUID), "mapper/slow")
			},
			end: func(n *node) { units("presser", "shop")(n); n.run("dmsetup remove --retry slow") },
		},
	}
}

// heldOutScenes are of the CPUs. They came after the rule, and no threshold of it may be
// chosen by them.
func heldOutScenes() []scene {
	return []scene{
		{
			name: "four-services", class: "busy CPU", run: 75 * time.Second, heldOut: true,
			did: "four services need a third of a CPU each, every tenth of a second anew, on two CPUs",
			why: "the CPUs are busy and each service gets what it needs",
			begin: func(n *node) {
				for i, uid := range []string{shopUID, mailUID, copyUID, scanUID} {
					n.work(fmt.Sprintf("service%d", i), inPodOf("burstable", uid), "-cpu 330")
				}
			},
			end: units("service0", "service1", "service2", "service3"),
		},
		{
			name: "outweighed-service", class: "CPU contention", run: 100 * time.Second, heldOut: true,
			want: []judgement.Want{{Resource: plugins.CPU, Level: plugins.Soft, NoCulprit: true, Presser: copyUID, Sufferer: shopUID}},
			did:  "a service needs one CPU; a pod of eight times its weight computes with two programs on the two CPUs",
			why:  "the service waits for most of the time because of the other pod, although no more than three tasks want to run",
			begin: func(n *node) {
				n.unit("shop", inPodOf("burstable", shopUID), "while :; do :; done")
				n.unit("heavy", inPodOf("burstable", copyUID), "while :; do :; done & while :; do :; done")
				n.run("systemctl set-property --runtime kubepods-burstable-pod" + strings.ReplaceAll(copyUID, "-", "_") + ".slice CPUWeight=800")
			},
			end: units("heavy", "shop"),
		},
		{
			name: "two-quotas", class: "busy CPU", run: 75 * time.Second, heldOut: true,
			did: "a pod with a quota of 0.4 CPUs computes with two programs, another one with a quota of 0.8 CPUs with three, on two CPUs",
			why: "each waits for its own quota, and a CPU is mostly idle",
			begin: func(n *node) {
				n.unit("small", inPodOf("burstable", shopUID)+" -p CPUQuota=40%", "for i in {1..2}; do while :; do :; done & done; wait")
				n.unit("large", inPodOf("burstable", mailUID)+" -p CPUQuota=80%", "for i in {1..3}; do while :; do :; done & done; wait")
			},
			end: units("small", "large"),
		},
	}
}

// scenesUncounted are those of a machine with cgroup v2 whose kernel counts no IO
// of cgroups.
func scenesUncounted() []scene {
	return []scene{{
		name: "uncounted-v2", class: "uncounted IO", run: 90 * time.Second, usual: usualOf("vdb"),
		did: "on cgroup v2 without the io controller a service reads 1 MiB/s of vdb, a disk of 100 requests a second; a BestEffort pod reads it with 24 requests of 256 KiB in flight",
		why: "the service waits for the disk, and the kernel does not tell for whose requests: that is no all-clear",
		begin: func(n *node) {
			n.work("shop", inPodOf("burstable", shopUID), "-file /dev/vdb -read 1")
			n.press("presser", inPodOf("besteffort", copyUID), "vdb")
		},
		end:       units("presser", "shop"),
		notJudged: []judgement.NotJudged{{Resource: plugins.Disk, Scope: "vdb", Sufferer: shopUID}},
	}}
}

// scenesOfNUMA are those of the machine with two NUMA nodes.
func scenesOfNUMA() []scene {
	const (
		judged = "plugins: {numaMemory: {enabled: true}}\n"
		bound  = "-p NUMAPolicy=bind -p NUMAMask=0"
	)
	filling := func(n *node, file, properties, flags string) {
		since := n.clock()
		n.startHogOn(file, properties, flags)
		n.until(3*time.Minute, "the NUMA node is full", func() bool {
			return n.run(fmt.Sprintf("journalctl -q --no-pager -o cat -u hog --since @%d | grep -c ' filled ' || true", since.Unix())) != "0\n"
		})
	}
	return []scene{
		{
			name: "numa-full-without-waiting", class: "full memory", run: 45 * time.Second, config: judged,
			did:  "a program that is bound to NUMA node 0 takes all its memory but 60 MiB and keeps it; a service works on vdb, and a program reads vdc from end to end over and over, both on any NUMA node",
			why:  "one NUMA node is full and the kernel reclaims there; the others take memory of NUMA node 1, and nothing is short; the program that reads waits for pages now and then, so a level of memory may be reported, and no workload may be named",
			want: []judgement.Want{{Resource: plugins.Memory, Level: plugins.Soft, AtMost: true, NoCulprit: true}},
			begin: func(n *node) {
				n.work("shop", inPodOf("burstable", shopUID), "-file /vdb/data"+fewReads)
				filling(n, "''", bound, "-numa 0 -available 60")
				n.unit("reader", "-p MemoryAccounting=yes", "while :; do cat /dev/vdc >/dev/null; done")
			},
			end: units("reader", "hog", "shop"), usual: usualOf("vdb", "vdc"),
		},
		{
			name: "numa-bound", class: "memory shortage", run: 45 * time.Second, config: judged, from: filled,
			want: []judgement.Want{{Resource: plugins.Memory, Scope: "NUMA 0", Level: plugins.Hard, Culprit: "hog"}},
			did:  "a program that is bound to NUMA node 0 takes all its memory but 95 MiB, of which the kernel keeps 50 free, and reads 150 MiB of file pages at random with 16 threads on a disk of 500 requests a second; NUMA node 1 has memory available",
			why:  "every page read evicts another that is needed soon: the program stalls, although the host has memory available",
			begin: func(n *node) {
				n.throttle(500, "vd1") // the emulated machine would compute all the time for more
				filling(n, "/vdb/pages", bound, "-numa 0 -available 95 -readers 16")
			},
			end: units("hog"),
		},
	}
}

// scenesOfV1 are those of the machine with cgroup v1.
func scenesOfV1() []scene {
	// Without a rule of blk-throttle v1 counts no IO; this one limits nothing.
	const counted = " -p 'IOReadBandwidthMax=/dev/vdc 100G'"
	return []scene{
		{
			name: "own-limit-v1", class: "own limit", run: 45 * time.Second,
			did:   "on cgroup v1 a pod with a limit of 160 MiB holds 60 and reads 150 MiB of file pages at random",
			why:   "it thrashes at its own limit; the node has memory available",
			begin: func(n *node) { n.startHogOn("/vdb/pages", "-p MemoryMax=160M", "-fill 60") }, end: units("hog"),
		},
		{
			name: "buffered-writes-v1", class: "uncounted IO", run: 90 * time.Second, usual: usualOf("vdc"),
			want: []judgement.Want{{Resource: plugins.Disk, Scope: "vdc", Level: plugins.Soft, AtMost: true, NoCulprit: true}},
			did:  "on cgroup v1 a BestEffort pod writes vdc, a disk of 100 requests a second, through the page cache; a service reads 1 MiB/s of it past the page cache",
			why:  "the service waits; writeback by the kernel is not charged to the pod, so no pod may be named",
			begin: func(n *node) {
				n.work("shop", inPodOf("burstable", shopUID)+counted, "-file /vdc/data -read 1")
				n.unit("writer", inPodOf("besteffort", copyUID)+counted, "while :; do dd if=/dev/zero of=/vdc/written bs=1M count=64 conv=notrunc status=none; sync -f /vdc; done")
			},
			end: units("writer", "shop"),
		},
		{
			name: "uncounted-v1", class: "uncounted IO", run: 90 * time.Second, usual: usualOf("vdc"),
			did: "on cgroup v1 without a throttle rule a service reads 1 MiB/s of vdc, a disk of 100 requests a second; a BestEffort pod reads it with 24 requests of 256 KiB in flight",
			why: "the service waits for the disk, and the kernel does not tell for whose requests: that is no all-clear",
			begin: func(n *node) {
				n.work("shop", sliceOf("burstable", shopUID), "-file /dev/vdc -read 1")
				n.press("presser", sliceOf("besteffort", copyUID), "vdc")
			},
			end:       units("presser", "shop"),
			notJudged: []judgement.NotJudged{{Resource: plugins.Disk, Scope: "vdc", Sufferer: shopUID}},
		},
	}
}
