package vm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// pressure is what the agent says of its rules.
type pressure struct{ Verdicts []plugins.Verdict }

func (n *node) pressure() (p pressure) {
	n.t.Helper()
	require.NoError(n.t, json.Unmarshal(n.api("pressure"), &p))
	return p
}

// onDisk is what disk-contention says of a disk.
func (n *node) onDisk(disk string) plugins.Verdict {
	n.t.Helper()
	p := n.pressure()
	i := slices.IndexFunc(p.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == "disk-contention" && v.Scope == disk })
	require.GreaterOrEqual(n.t, i, 0, "nothing is said of %s", disk)
	return p.Verdicts[i]
}

// contention is who uses a disk and who waits for it.
func (n *node) contention(disk string) snapshot.Contention {
	n.t.Helper()
	var s snapshot.Snapshot
	require.NoError(n.t, json.Unmarshal(n.snapshot(), &s))
	for _, c := range s.Contention {
		if c.Device == disk {
			return c
		}
	}
	return snapshot.Contention{}
}

// learned leaves a state behind as if an agent had watched the disks for a day,
// which it did not: their reads and writes of 256 KiB took 5 ms.
func (n *node) learned(dir string, disks ...string) {
	n.t.Helper()
	known := plugins.Baselines{}
	bootID := n.bootID()
	for _, name := range disks {
		d := snapshot.Disk{Name: name, Number: strings.TrimSpace(n.run("cat /sys/block/" + name + "/dev"))}
		sequence, err := strconv.ParseUint(strings.TrimSpace(n.run("cat /sys/block/"+name+"/diskseq")), 10, 64)
		require.NoError(n.t, err)
		d.Sequence = snapshot.Some(sequence)
		usual := plugins.RequestStats{Requests: 1e6, Seconds: 24 * 3600, TotalSeconds: 5e3}
		b := plugins.Baseline{Device: name, Seen: n.clock()}
		for i := range b.Read {
			b.Read[i], b.Write[i] = usual, usual
		}
		known[plugins.DiskKey(&d, bootID)] = b
	}
	file := filepath.Join(n.t.TempDir(), "baselines.json")
	require.NoError(n.t, state.File[plugins.Baselines]{Path: file}.Save(known))
	n.run("mkdir -p " + dir)
	require.NoError(n.t, n.Push(n.t.Context(), file, dir+"/baselines.json"))
}

// throttle is how many requests a second QEMU lets through to a disk; 0: all.
func (n *node) throttle(perSecond int, disks ...string) {
	n.t.Helper()
	for _, d := range disks {
		_, err := n.Monitor(context.WithoutCancel(n.t.Context()), fmt.Sprintf("block_set_io_throttle %s 0 0 0 %d 0 0", d, perSecond))
		require.NoError(n.t, err)
	}
}

// inPodOf are the properties of a unit in the slice of a pod of that class.
func inPodOf(class, uid string) string {
	return sliceOf(class, uid) + " -p CPUAccounting=yes -p MemoryAccounting=yes -p IOAccounting=yes"
}

// sliceOf is the slice of a pod of that class, in which only pressure is counted.
func sliceOf(class, uid string) string {
	return fmt.Sprintf("--slice=kubepods-%s-pod%s.slice", class, strings.ReplaceAll(uid, "-", "_"))
}

// press reads a disk with 24 requests of 256 KiB in flight.
func (n *node) press(unit, properties, disk string) {
	n.t.Helper()
	n.run(fmt.Sprintf("systemd-run -q --unit=%s %s bash -c 'for i in {1..24}; do dd if=/dev/%s of=/dev/null bs=256k skip=$((i*100)) iflag=direct & done; wait'",
		unit, properties, disk))
	n.loads = append(n.loads, unit)
	n.t.Cleanup(func() { n.run("systemctl stop " + unit + " 2>/dev/null || true") })
}

const (
	shopUID, mailUID = "11111111-2222-4333-8444-111111111111", "11111111-2222-4333-8444-222222222222"
	copyUID, scanUID = "11111111-2222-4333-8444-333333333333", "11111111-2222-4333-8444-444444444444"
)

// whoHurtsWhom has a service and a presser on each of two slow disks, the first
// behind a device that delays all that goes there, and a backup alone on one.
func whoHurtsWhom(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.throttle(100, "vd7", "vd8")
		t.Cleanup(func() { n.throttle(0, "vd7", "vd8") })
		n.learned("/root/state", "vdh", "vdi")
		n.configure("window: 5s\nplugins: {warmUp: 0s, diskContention: {for: 5s, clearFor: 5s}}\n")
		n.startAgentWith("--standalone --config /root/agent.yaml --state.dir /root/state")
		t.Cleanup(func() { n.run("systemctl stop plimsoll") })

		n.backsUpAlone()
		n.run("systemctl stop backup")

		n.delayed("vdh", 20)
		through := map[string]string{"vdh": "mapper/slow", "vdi": "vdi"}
		for disk, pods := range map[string][2]string{"vdh": {shopUID, copyUID}, "vdi": {mailUID, scanUID}} {
			n.work("service-"+disk, inPodOf("burstable", pods[0]), "-file /dev/"+through[disk]+" -read 1")
			n.press("presser-"+disk, inPodOf("besteffort", pods[1]), through[disk])
		}
		for disk, pods := range map[string][2]string{"vdh": {shopUID, copyUID}, "vdi": {mailUID, scanUID}} {
			var v plugins.Verdict
			var c snapshot.Contention // of a sample after the verdict's
			n.until(time.Minute, disk+" is judged, and who waits is seen", func() bool {
				v, c = n.onDisk(disk), n.contention(disk)
				if v.Absent != "" { // such as the traffic of the backup, which is gone
					t.Logf("%s: nobody is named: %s", disk, v.Absent)
				}
				return v.Level == plugins.Soft && len(v.Candidates) > 0 && c.State == snapshot.ContentionPresent && len(c.Sufferers) > 0
			})
			assert.Equal(t, pods[1], v.Candidates[0].PodUID, "the presser is named")
			assert.Equal(t, pods[0], c.Sufferers[0].PodUID, "for the sake of the service")
			for _, p := range c.Culprits {
				assert.Contains(t, pods, p.PodUID, "nobody of the other disk is named")
			}
			t.Logf("%s: %s", disk, v.Reason)
		}
		n.run("systemctl stop presser-vdh presser-vdi")
		n.until(time.Minute, "it is over", func() bool { return n.onDisk("vdh").Level == plugins.None && n.onDisk("vdi").Level == plugins.None })
	}
}

// backsUpAlone has a backup fill a disk, slow as it is, that nobody else uses.
func (n *node) backsUpAlone() {
	n.t.Helper()
	n.press("backup", "-p IOAccounting=yes", "vdh")
	n.until(30*time.Second, "the backup fills the disk", func() bool { return named(n.contention("vdh"), "backup.service") > 0.9 })
	n.until(30*time.Second, "who waits is asked", func() bool { return strings.HasPrefix(n.onDisk("vdh").Reason, "busy, but no workload waits") })
	known := 0
	n.throughout(2*time.Second, func() {
		c, v := n.contention("vdh"), n.onDisk("vdh")
		if named(c, "backup.service") > 0.9 { // a starved machine reads who did it long after what was done
			known++
			require.Equal(n.t, snapshot.ContentionBusy, c.State, "%+v", c)
		}
		require.Equal(n.t, plugins.None, v.Level, v.Reason)
	})
	assert.Positive(n.t, known)
	v := n.onDisk("vdh")
	assert.Contains(n.t, v.Reason, "busy, but no workload waits")
	n.t.Logf("alone: %s", v.Reason)
	await, _ := v.Observed.Get()
	assert.Greater(n.t, await, 0.1, "slow as it is, it is its own")
}

// named is the share of a culprit whose name ends so.
func named(c snapshot.Contention, name string) float64 {
	for _, p := range c.Culprits {
		if strings.HasSuffix(p.Name, name) {
			return p.Share
		}
	}
	return 0
}

// ordinary is how long each ordinary load runs.
func ordinary() time.Duration {
	if os.Getenv("PLIMSOLL_LONG") != "" {
		return 55 * time.Second
	}
	return 3 * time.Second
}

// ordinaryLoads are what every node does now and then beside a service, each of
// them for less than a minute or without anybody who waits: none is judged.
func ordinaryLoads(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.learned("/root/state", "vdb", "vdc", "vdh")
		n.throttle(100, "vd1", "vd2", "vd7")
		t.Cleanup(func() { n.throttle(0, "vd1", "vd2", "vd7") })
		n.configure("window: 5s\nplugins: {warmUp: 0s}\n")
		n.startAgentWith("--standalone --config /root/agent.yaml --state.dir /root/state")
		t.Cleanup(func() { n.run("systemctl stop plimsoll; umount /unpacked") })
		n.run("mkfs.ext4 -q -F /dev/vdh && mkdir -p /unpacked && mount /dev/vdh /unpacked")
		n.work("service", inPodOf("burstable", shopUID), "-file /unpacked/data -write 1 -read 1")
		for _, load := range []struct{ name, command string }{
			{"image unpack", "while :; do rm -rf /unpacked/image; cp -r /usr/lib/systemd /unpacked/image; sync -f /unpacked; done"},
			{"fstrim", "while :; do fstrim /unpacked || echo 1 >/proc/sys/vm/drop_caches; sleep 0.2; done"},
			{"md scrub", "while :; do echo check >/sys/block/md0/md/sync_action; sleep 1; done"},
			{"boot storm", "while :; do echo 3 >/proc/sys/vm/drop_caches; for i in {1..10}; do cat /usr/lib/systemd/* >/dev/null & done; wait; done"},
		} {
			unit := "load-" + strings.ReplaceAll(load.name, " ", "-")
			n.run("systemd-run -q --unit=" + unit + " bash -c '" + load.command + "'")
			busiest, worst := 0.0, plugins.Verdict{}
			n.throughout(ordinary(), func() {
				for _, v := range n.pressure().Verdicts {
					require.Equal(t, plugins.None, v.Level, "%s: %s %s: %s", load.name, v.Plugin, v.Scope, v.Reason)
					if await, _ := v.Observed.Get(); v.Resource == plugins.Disk && await > busiest {
						busiest, worst = await, v
					}
				}
			})
			t.Logf("%s: nothing is judged; slowest: %s: %s", load.name, worst.Scope, worst.Reason)
			n.run("systemctl stop " + unit + "; echo idle >/sys/block/md0/md/sync_action")
		}
	}
}
