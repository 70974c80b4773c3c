package vm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// TestManyDisks has one machine with many disks and stacks of them, on which
// devices come and go while the agent reads.
func TestManyDisks(t *testing.T) {
	t.Parallel()
	n := startNode(t, vm.Options{Name: "disks", MemMiB: 1024, Disks: 8, SCSIDisks: 4, Slots: 3}, ".", "./e2e/vm/steady", "./probes/recordfixture")
	n.stackDisks()
	t.Run("recorded", manyDisksRecorded(n))
	t.Run("hot-plug", hotPlug(n))
	t.Run("who hurts whom", whoHurtsWhom(n))
	t.Run("what is ordinary", ordinaryLoads(n))
	t.Run("a link that is full and loses", lossyLink(n))
}

// stackDisks makes a mirror of two disks, volumes as those of LVM and of
// cryptsetup, and a loop device on a file; md takes its orders in sysfs.
func (n *node) stackDisks() {
	n.t.Helper()
	n.run(`set -e
		modprobe raid1
		echo md0 >/sys/module/md_mod/parameters/new_array
		cd /sys/block/md0/md
		echo raid1 >level; echo 2 >raid_disks
		for d in vdb vdc; do cat /sys/block/$d/dev >new_dev; done
		echo 1048576 >component_size
		echo 0 >dev-vdb/slot; echo 1 >dev-vdc/slot
		echo none >resync_start; echo active >array_state
		[ "$(cat ../size)" = 2097152 ]`)
	n.run(`set -e
		printf '0 1048576 linear /dev/vdd 0\n1048576 1048576 linear /dev/vde 0\n' |
			dmsetup create store --uuid LVM-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
		mkfs.ext4 -q -O ^has_journal /dev/mapper/store && mount /dev/mapper/store /mnt
		dmsetup create secret --uuid CRYPT-PLAIN-secret --table '0 2097152 crypt aes-xts-plain64 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff 0 /dev/vdf 0'
		mkdir -p /loop && mkfs.ext4 -q -O ^has_journal /dev/vdg && mount /dev/vdg /loop
		truncate -s 512M /loop/image && losetup --direct-io=on /dev/loop0 /loop/image`)
}

func manyDisksRecorded(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		skipUnrecorded(t)
		n := shared.with(t)
		for unit, flags := range map[string]string{
			"mirror": "-file /dev/md0 -write 2 -read 1", "volume": "-file /mnt/work -write 2",
			"secret": "-file /dev/mapper/secret -write 1", "loop": "-file /dev/loop0 -write 1 -read 1",
			"scsi": "-file /dev/sda -read 4",
		} {
			n.work(unit, "-p IOAccounting=yes", flags)
		}
		n.until(30*time.Second, "the mirror writes on", func() bool {
			return regexp.MustCompile(`"Written":\d{7}`).MatchString(n.run("tail -n 2 " + worked("mirror")))
		})
		a := n.record(machine{
			name: "vm-v2-many-disks",
			load: "8 virtio and 4 SCSI disks; md0 mirrors vdb and vdc, dm-0 is LVM's over vdd and vde, dm-1 cryptsetup's over vdf, loop0 a file on vdg;" +
				" steady works: mirror.service -write 2 -read 1 on md0, volume.service -write 2 on dm-0, secret.service -write 1 on dm-1," +
				" loop.service -write 1 -read 1 on loop0, scsi.service -read 4 on sda; halfway the disk vdj and the NIC eth1 are plugged in",
			cgroups: "/system.slice/mirror.service,/system.slice/volume.service,/system.slice/secret.service,/system.slice/loop.service,/system.slice/scsi.service",
			want:    "sys/block/md0/slaves/vdb@", hide: []string{n.mac(), n.bootID()},
		}, func() {
			require.NoError(t, n.PlugDisk(t.Context(), "late", 1))
			require.NoError(t, n.PlugNIC(t.Context(), "latenic", "52:54:00:00:00:aa", 2))
		})
		assert.True(t, slices.ContainsFunc(a.Files, func(f txtar.File) bool { return strings.HasSuffix(f.Name, "/sys/block/vdj/diskseq") }))
		n.unplug("late", "/sys/block/vdj")
		n.unplug("latenic", "/sys/class/net/eth1")
	}
}

// unplug waits until the machine has let go.
func (n *node) unplug(name, gone string) {
	n.t.Helper()
	require.NoError(n.t, n.Unplug(n.t.Context(), name))
	n.until(time.Minute, name+" is unplugged", func() bool { return n.run("test -e "+gone+" || echo gone") == "gone\n" })
}

// hotPlug has a disk and a NIC that come, go, and come again as others under
// the same name, within a tick or two; the agent records what it reads.
func hotPlug(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.configure("tick: 3s\nwindow: 12s\nrecording: {dir: /root/recording, minAvailable: 0}\n")
		n.startAgentWith("--standalone --config /root/agent.yaml")
		sequence, index := n.plug("first", 16)
		n.until(30*time.Second, "the agent sees both", func() bool { return n.sees("vdj") && n.sees("eth1") })
		n.unplug("first", "/sys/block/vdj")
		n.unplug("firstnic", "/sys/class/net/eth1")
		// The second has done more than the first when it is seen: whoever goes
		// by the name alone takes the difference for a rate.
		sequence2, index2 := n.plug("second", 48)
		require.NotEqual(t, sequence, sequence2)
		require.NotEqual(t, index, index2)
		n.until(30*time.Second, "the agent sees the second ones", func() bool {
			return n.sees(`"sequence":`+sequence2) && n.sees(`"index":`+index2)
		})
		n.until(30*time.Second, "the second disk has rates", func() bool { return n.rates("vdj") })
		n.unplug("second", "/sys/block/vdj")
		n.unplug("secondnic", "/sys/class/net/eth1")
		n.until(30*time.Second, "the agent sees neither", func() bool { return !n.sees("vdj") && !n.sees("eth1") })
		n.run("systemctl stop plimsoll")
		all := n.recorded(12 * time.Second)
		checkPlugged(t, all)
		assert.Equal(t, []string{sequence, sequence2}, sequencesOf(all, "vdj"), "one after the other")
	}
}

// plug plugs a disk and a NIC in and uses them; the kernel's numbers for them
// are never given again.
func (n *node) plug(name string, mib int) (sequence, index string) {
	n.t.Helper()
	require.NoError(n.t, n.PlugDisk(n.t.Context(), name, 1))
	require.NoError(n.t, n.PlugNIC(n.t.Context(), name+"nic", fmt.Sprintf("52:54:00:00:01:%02x", mib), 2))
	n.until(time.Minute, "the kernel has them", func() bool {
		return n.run("test -b /dev/vdj && test -e /sys/class/net/eth1/ifindex && echo there || true") == "there\n"
	})
	n.run(fmt.Sprintf("dd if=/dev/zero of=/dev/vdj bs=1M count=%d oflag=direct status=none", mib))
	n.run("ip link set eth1 up; for i in 1 2 3; do busybox arping -c 1 -w 1 -I eth1 10.9.9.9 >/dev/null || true; done")
	return strings.TrimSpace(n.run("cat /sys/block/vdj/diskseq")), strings.TrimSpace(n.run("cat /sys/class/net/eth1/ifindex"))
}

// sequencesOf are those that the disks of that name had, one after the other.
func sequencesOf(all []*snapshot.Snapshot, name string) []string {
	var seen []string
	for _, s := range all {
		for _, d := range s.Disks {
			if v, ok := d.Sequence.Get(); ok && d.Name == name {
				seen = append(seen, fmt.Sprint(v))
			}
		}
	}
	return slices.Compact(seen)
}

// configure writes the agent's configuration.
func (n *node) configure(lines string) {
	n.t.Helper()
	config := filepath.Join(n.t.TempDir(), "agent.yaml")
	text := "apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\n" + lines
	require.NoError(n.t, os.WriteFile(config, []byte(text), 0o600))
	require.NoError(n.t, n.Push(n.t.Context(), config, "/root/agent.yaml"))
}

// sees says whether that stands in the agent's snapshot.
func (n *node) sees(what string) bool {
	n.t.Helper()
	b, err := json.Marshal(n.snapshot()) // as it stood there, without spaces
	require.NoError(n.t, err)
	return strings.Contains(string(b), what)
}

// rates says whether the agent has rates of that disk.
func (n *node) rates(disk string) bool {
	n.t.Helper()
	var s struct{ Disks []snapshot.DiskState }
	require.NoError(n.t, json.Unmarshal(n.snapshot(), &s))
	return slices.ContainsFunc(s.Disks, func(d snapshot.DiskState) bool { return d.Name == disk && !d.Rates.IsZero() })
}

func (n *node) snapshot() json.RawMessage {
	n.t.Helper()
	return n.api("snapshot")
}

// recorded are the snapshots that the agent had, made anew from its recording.
func (n *node) recorded(window time.Duration) []*snapshot.Snapshot {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "recording")
	n.run("mv /root/recording/*.rec /root/segment") // there is one
	require.NoError(n.t, n.Pull(n.t.Context(), "/root/segment", file))
	n.run("rm -r /root/recording /root/segment")
	f, err := os.Open(file)
	require.NoError(n.t, err)
	defer f.Close()
	h := snapshot.History{Window: window, Keep: time.Minute, MaxGap: time.Minute}
	var all []*snapshot.Snapshot
	_, err = probes.Play(f, func(s *snapshot.Sample) error {
		all = append(all, h.Add(s))
		return nil
	})
	require.NoError(n.t, err)
	return all
}

// checkPlugged holds every snapshot against what was done: no device has rates
// when it is first seen, and never those of another that had its name.
func checkPlugged(t *testing.T, all []*snapshot.Snapshot) {
	t.Helper()
	first := map[string]time.Duration{} // of each device by its identity
	rates := 0
	for _, s := range all {
		for _, p := range s.Probes {
			assert.Empty(t, p.Error, p.Name)
		}
		for _, d := range s.Disks {
			r, ok := d.Rates.Get()
			checkSince(t, s, first, fmt.Sprintf("%s %v", d.Name, d.Sequence), r.WindowSeconds, ok)
			if ok && d.Name == "vdj" {
				rates++
				assert.LessOrEqual(t, r.WrittenBytesPerSecond*r.WindowSeconds, 49.0*(1<<20), "%s %v", s.Time, d)
			}
		}
		for _, c := range s.NICs {
			r, ok := c.Rates.Get()
			checkSince(t, s, first, fmt.Sprintf("%s %v", c.Name, c.Index), r.WindowSeconds, ok)
			assert.Less(t, r.ReceiveBytesPerSecond, 10e6, "%s %v", s.Time, c)
		}
	}
	t.Logf("%d snapshots, %d with rates of vdj", len(all), rates)
	assert.Positive(t, rates)
}

func checkSince(t *testing.T, s *snapshot.Snapshot, first map[string]time.Duration, identity string, window float64, rates bool) {
	t.Helper()
	since, known := first[identity]
	if !known {
		first[identity] = s.Monotonic()
		assert.False(t, rates, "%s has rates when it is first seen", identity)
		return
	}
	assert.LessOrEqual(t, window, (s.Monotonic() - since).Seconds(), "%s has rates of a time when it was not there", identity)
}
