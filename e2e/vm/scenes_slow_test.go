package vm_test

import (
	"fmt"
	"time"
)

// usedBefore is how long a disk is used before it becomes slow: a rule that knows what it
// carried must have seen that.
const usedBefore = 45 * time.Second

// scenesOfSlowDisks are of disks that become slow by themselves while they are used, on the
// machine of scenesOfCloud. No workload causes that, so none may be named and no level raised.
func scenesOfSlowDisks() []scene {
	const (
		beside = "; a service works on vdg, a fast disk"
		why    = "the disk has become slow by itself: it carries less than before for the same workload"
	)
	shop := func(n *node) { n.work("shop", inPodOf("burstable", shopUID), "-file /dev/vdg"+fewReads) }
	// falls is a disk that carries so many requests a second from then on.
	falls := func(name, disk, drive string, before, to int, did string, use func(*node), loads ...string) scene {
		return scene{
			name: name, class: "slow disk", run: 75 * time.Second, usual: usualOf(disk), why: why,
			did: fmt.Sprintf("%s; after %d s the disk carries %d requests a second", did, int(usedBefore.Seconds()), to),
			begin: func(n *node) {
				use(n)
				n.until(2*usedBefore, "the disk is used", halfway(usedBefore))
				n.throttle(to, drive)
			},
			end: func(n *node) {
				units(loads...)(n)
				n.throttle(before, drive)
			},
		}
	}
	return []scene{
		falls("backup-disk-falls", "vdc", "vd2", 500, 50, "a backup reads vdc, a disk of 500 requests a second, with 24 requests of 256 KiB in flight"+beside, func(n *node) {
			shop(n)
			n.press("backup", inPodOf("besteffort", copyUID), "vdc")
		}, "backup", "shop"),
		falls("service-disk-falls", "vdg", "vd6", 0, 8, "a service writes and reads 8 MiB/s of vdg, a fast disk, in requests of 256 KiB", func(n *node) {
			n.work("shop", inPodOf("burstable", shopUID), "-file /dev/vdg -write 4 -read 4")
		}, "shop"),
		falls("commits-disk-falls", "vdd", "vd3", 3000, 20, "a pod writes 64 KiB of vdd, a disk of 3000 requests a second, with a sync each, over and over"+beside, func(n *node) {
			shop(n)
			n.unit("commits", inPodOf("burstable", mailUID), "while :; do dd if=/dev/zero of=/dev/vdd bs=64k count=1000 oflag=dsync status=none; done")
		}, "commits", "shop"),
		falls("one-of-two-disks-falls", "vdc", "vd2", 500, 25, "one pod reads vdc, a disk of 500 requests a second, and another one vdd, of 3000, one request of 256 KiB after the other"+beside, func(n *node) {
			shop(n)
			for unit, pod := range map[string]string{"vdc": copyUID, "vdd": scanUID} {
				n.unit(unit, inPodOf("besteffort", pod), "while :; do dd if=/dev/"+unit+" of=/dev/null bs=256k iflag=direct status=none; done")
			}
		}, "vdc", "vdd", "shop"),
		{
			name: "disk-falls-and-recovers", class: "slow disk", run: 75 * time.Second, usual: usualOf("vdd"), why: why,
			did: "a pod reads vdd, a disk of 3000 requests a second, one request of 256 KiB after the other" + beside + "; after 45 s vdd carries 20 requests a second, for 60 s, and what it did before from then on",
			begin: func(n *node) {
				shop(n)
				n.unit("reader", inPodOf("besteffort", copyUID), "while :; do dd if=/dev/vdd of=/dev/null bs=256k iflag=direct status=none; done")
				n.until(2*usedBefore, "the disk is used", halfway(usedBefore))
				n.throttle(20, "vd3")
				n.until(2*time.Minute, "the disk was slow", halfway(time.Minute))
				n.throttle(3000, "vd3")
			},
			end: units("reader", "shop"),
		},
	}
}
