package vm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// creditDisk is what QEMU is told of a disk with a token bucket, as some volumes of clouds
// have: it carries 600 requests a second for 15 s, and 100 from then on.
const creditDisk = "throttling.iops-total=100,throttling.iops-total-max=600,throttling.iops-total-max-length=15"

// bootCloud boots the machine of scenesOfCloud: vdb has pages, vdc carries 500 requests a
// second, vdd 3000, vde and vdf have a token bucket each, vdg has no limit.
func bootCloud(o vm.Options) func(*testing.T) *node {
	return func(t *testing.T) *node {
		o.Name, o.Disks, o.DiskOptions = "labelled-cloud", 6, map[int]string{4: creditDisk, 5: creditDisk}
		n := startNode(t, o, ".", "./e2e/vm/steady", "./e2e/vm/hog")
		n.kernelIs(o)
		n.run("mkfs.ext4 -q /dev/vdb && mkdir -p /vdb && mount /dev/vdb /vdb; dd if=/dev/zero of=/vdb/pages bs=1M count=150 status=none; sync")
		n.throttle(1000, "vd1")
		n.throttle(500, "vd2")
		n.throttle(3000, "vd3")
		return n
	}
}

// zram makes a swap of that size in compressed memory, and takes it away.
func (n *node) zram(size string) {
	n.t.Helper()
	n.run("modprobe zram && echo " + size + " >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0")
}

func (n *node) noZRAM() {
	n.t.Helper()
	n.run("swapoff /dev/zram0; echo 1 >/sys/block/zram0/reset")
}

// pressFew reads a disk with four requests of 256 KiB in flight.
func (n *node) pressFew(unit, properties, disk string) {
	n.t.Helper()
	n.unit(unit, properties, "for i in {1..4}; do dd if=/dev/"+disk+" of=/dev/null bs=256k skip=$((i*100)) iflag=direct & done; wait")
}

// spent waits until a service waits for 20 ms and more for a request of its disk: its tokens
// are spent.
func (n *node) spent(service string) {
	n.t.Helper()
	before := n.didSoFar(service)
	n.until(3*time.Minute, "the tokens are spent", func() bool {
		now := n.didSoFar(service)
		requests := (now.Written + now.Read - before.Written - before.Read) / (256 << 10)
		if requests < 2 {
			return false
		}
		wait := (now.Waited - before.Waited) / time.Duration(requests)
		before = now
		return wait > 20*time.Millisecond
	})
}

// scenesOfCloud are of disks as clouds sell them, of swap in compressed memory, and of two
// loads at once.
func scenesOfCloud() []scene {
	const credits = "a disk that carries 600 requests a second for 15 s and 100 from then on"
	shop := inPodOf("burstable", shopUID)
	contended := func(disk string) judgement.Want {
		return judgement.Want{Resource: plugins.Disk, Scope: disk, Level: plugins.Soft, Culprit: copyUID, Sufferer: shopUID}
	}
	return []scene{
		{
			name: "reads-of-500", class: "disk contention", run: 90 * time.Second, want: []judgement.Want{contended("vdc")}, usual: usualOf("vdc"),
			did: "a service reads 1 MiB/s of vdc, a disk of 500 requests a second; a BestEffort pod reads it with 24 requests of 256 KiB in flight",
			why: "the service waits for the presser",
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdc -read 1")
				n.press("presser", inPodOf("besteffort", copyUID), "vdc")
			},
			end: units("presser", "shop"),
		},
		{
			name: "lone-backup-of-500", class: "busy disk", run: 75 * time.Second, usual: usualOf("vdc", "vdg"),
			did: "a backup reads vdc, a disk of 500 requests a second, with 24 requests of 256 KiB in flight; a service works on vdg",
			why: "no other workload uses the disk of the backup",
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdg"+fewReads)
				n.press("backup", inPodOf("besteffort", copyUID), "vdc")
			},
			end: units("backup", "shop"),
		},
		{
			name: "reader-of-3000", class: "busy disk", run: 75 * time.Second, usual: usualOf("vdd"),
			did: "a BestEffort pod reads vdd, a disk of 3000 requests a second, one request of 256 KiB after the other; a service writes and reads 1 MiB/s of the same disk",
			why: "one request in flight is less than the disk carries, and the service does not wait for it",
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdd"+fewReads)
				n.unit("reader", inPodOf("besteffort", copyUID), "while :; do dd if=/dev/vdd of=/dev/null bs=256k iflag=direct status=none; done")
			},
			end: units("reader", "shop"),
		},
		{
			name: "tokens-spent-alone", class: "busy disk", run: 90 * time.Second, usual: usualOf("vde", "vdg"),
			did: "a backup reads vde, " + credits + ", with four requests of 256 KiB in flight; a service works on vdg",
			why: "the disk becomes slow, and no other workload uses it",
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdg"+fewReads)
				n.pressFew("backup", inPodOf("besteffort", copyUID), "vde")
			},
			end: units("backup", "shop"),
		},
		{
			name: "tokens-spent-by-neighbour", class: "disk contention", run: 90 * time.Second, want: []judgement.Want{contended("vdf")}, usual: usualOf("vdf"),
			did: "a service reads 1 MiB/s of vdf, " + credits + "; a BestEffort pod reads it with four requests of 256 KiB in flight",
			why: "the presser has spent the disk's tokens, and the service waits for its requests",
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdf -read 1")
				n.pressFew("presser", inPodOf("besteffort", copyUID), "vdf")
				n.spent("shop")
			},
			end: units("presser", "shop"),
		},
		{
			name: "disk-turns-slow", class: "slow disk", run: 75 * time.Second, usual: usualOf("vdg"),
			did: "a service writes and reads 2 MiB/s of vdg in requests of 256 KiB; the disk carries four requests a second from then on; a pod writes a line a second to another disk",
			why: "the disk has become slow by itself: no other workload uses it",
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdg"+fewReads)
				n.unit("log", inPodOf("burstable", mailUID), "while :; do date >>/vdb/log; sync /vdb/log; sleep 1; done")
				n.throttle(4, "vd6")
			},
			end: func(n *node) {
				n.throttle(0, "vd6")
				units("log", "shop")(n)
			},
		},
		{
			name: "two-on-a-delayed-disk", class: "slow disk", run: 75 * time.Second, usual: usualOf("vdg"),
			did: "two services read 1 MiB/s each of a dm-delay device of 200 ms over vdg, a fast disk",
			why: "every request takes 200 ms, with or without the other service: a slow disk, caused by no workload",
			begin: func(n *node) {
				n.delayed("vdg", 200)
				n.work("shop", shop, "-file /dev/mapper/slow -read 1")
				n.work("mail", inPodOf("burstable", mailUID), "-file /dev/mapper/slow -read 1")
			},
			end: func(n *node) { // the name of the device is looked up when it is closed, in requests of 200 ms
				units("mail", "shop")(n)
				n.run("udevadm settle; dmsetup remove --retry slow")
			},
		},
		{
			name: "zram-holds-cold-pages", class: "full memory", run: 60 * time.Second, usual: usualOf("vdg"),
			did: "some hundred MiB of a pod that does not use them are swapped to compressed memory since before the recording; a service works on vdg, and a program reads 300 MiB of files over and over",
			why: "swap is used, nothing is swapped any more, and memory is available",
			before: func(n *node) {
				n.zram("1G")
				n.unit("cold", inPodOf("burstable", mailUID), "exec /root/hog -fill 1500 -available 0")
				n.until(3*time.Minute, "the pod has its memory", func() bool {
					return n.run("journalctl -q --no-pager -o cat -u cold | grep -c ' filled ' || true") != "0\n"
				})
				n.run("timeout 40 /root/hog -fill 600 -available -4000 >/dev/null || true")
				require.Equal(n.t, "1\n", n.run("awk '/^SwapTotal:/ { total = $2 } /^SwapFree:/ { print (total - $2 > 102400) }' /proc/meminfo"), "little is swapped")
			},
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdg"+fewReads)
				n.unit("reader", "-p MemoryAccounting=yes", "while :; do head -c 300M /dev/vdb >/dev/null; done")
			},
			end: func(n *node) { units("reader", "shop", "cold")(n); n.noZRAM() },
		},
		{
			name: "own-limit-with-zram", class: "own limit", run: 45 * time.Second,
			did: "a pod with a limit of 160 MiB takes 220 MiB, of which the kernel swaps what does not fit to compressed memory, and reads 150 MiB of file pages at random, on a disk of 1000 requests a second",
			why: "it thrashes at its own limit and is the only workload that waits; the node has memory available",
			begin: func(n *node) {
				n.zram("512M")
				n.startHogOn("/vdb/pages", "-p MemoryMax=160M", "-fill 220")
			},
			end: func(n *node) { units("hog")(n); n.noZRAM() },
		},
		{
			name: "hog-with-zram", class: "memory shortage", run: 45 * time.Second, want: hardMemory(), from: filled,
			did: "a program takes all memory but 50 MiB as fast as it can, after 256 MiB of swap in compressed memory, and reads 150 MiB of file pages at random on a disk of 1000 requests a second",
			why: "swap only delays it: then the node stalls",
			begin: func(n *node) {
				n.zram("256M")
				n.fill("-available 50")
			},
			end: func(n *node) { units("hog")(n); n.noZRAM() },
		},
		{
			name: "presser-beside-hog", class: "memory shortage", run: 90 * time.Second, from: filled, usual: usualOf("vdc"),
			want: append(hardMemory(), contended("vdc")),
			did:  "two loads at once: a program takes all memory but 50 MiB, and reads 150 MiB of file pages at random on a disk of 1000 requests a second; a service reads 1 MiB/s of vdc, a disk of 500 requests a second, beside a BestEffort pod with 24 requests of 256 KiB in flight",
			why:  "the node stalls for memory, and the service waits for the presser as well",
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdc -read 1")
				n.press("presser", inPodOf("besteffort", copyUID), "vdc")
				n.fill("-available 50")
			},
			end: units("hog", "presser", "shop"),
		},
		{
			name: "backup-beside-log-storm", class: "busy disk", run: 75 * time.Second, usual: usualOf("vdc", "vdd", "vdg"),
			did: "two loads at once: a backup reads vdc, a disk of 500 requests a second, with 24 requests of 256 KiB in flight; a pod writes 64 KiB with a sync, over and over, on vdd; a service works on vdg",
			why: "each has a disk of its own",
			begin: func(n *node) {
				n.work("shop", shop, "-file /dev/vdg"+fewReads)
				n.press("backup", inPodOf("besteffort", copyUID), "vdc")
				n.unit("storm", inPodOf("burstable", mailUID), "while :; do dd if=/dev/zero of=/dev/vdd bs=64k count=1000 oflag=dsync status=none; done")
			},
			end: units("storm", "backup", "shop"),
		},
	}
}
