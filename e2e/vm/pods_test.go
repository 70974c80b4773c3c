package vm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// TestPodsOfCgroupV2 holds what the agent says of pods against what they do, in
// one machine: a known load, pods that churn, and a crowd of them.
func TestPodsOfCgroupV2(t *testing.T) {
	t.Parallel()
	n := startNode(t, vm.Options{Name: "pods", MemMiB: 3072, Disks: 2}, ".", "./e2e/vm/steady", "./e2e/vm/hog")
	t.Run("what they write, read, hold and wait for is what the agent says", podLoad(n))
	t.Run("hundreds that come and go cost no error and no file", podChurn(n))
	t.Run("a crowd leaves the agent ticking", podCrowd(n))
}

func podLoad(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.startAgent()
		t.Cleanup(func() { n.run("systemctl stop plimsoll") })
		n.work("worker", inPod("-p MemoryMax=96M"), "-file /dev/vdb -write 4 -read 2 -cpu 50 -memory 32")
		n.until(30*time.Second, "the agent has rates of the pod", func() bool {
			w, ok := n.podState(podUID)
			r, rated := w.Rates.Get()
			return ok && rated && len(r.IO) > 0
		})
		was, before := n.pod(podUID), n.didSoFar("worker")
		n.until(30*time.Second, "some work is done", func() bool { return n.didSoFar("worker").Written-before.Written >= 40<<20 })
		now, after := n.pod(podUID), n.didSoFar("worker")
		// What the agent says is up to a tick old, and asking takes time.
		const slack = 24 << 20 // a slow machine is read every few seconds
		assert.InDelta(t, after.Written-before.Written, now.IO[0].WrittenBytes-was.IO[0].WrittenBytes, slack)
		assert.InDelta(t, after.Read-before.Read, now.IO[0].ReadBytes-was.IO[0].ReadBytes, slack)
		assert.Equal(t, now.IO[0].WrittenBytes>>18, now.IO[0].Writes, "requests of 256 KiB")
		assert.Equal(t, n.run("cat /sys/block/vdb/dev"), now.IO[0].Number+"\n")
		held, _ := now.MemoryBytes.Get()
		assert.InDelta(t, 36<<20, held, 12<<20)
		used, _ := now.CPUMicroseconds.Get()
		assert.GreaterOrEqual(t, used, uint64(after.CPU.Microseconds())/2)

		_, err := n.Monitor(t.Context(), "block_set_io_throttle vd1 0 0 0 10 0 0")
		require.NoError(t, err)
		n.until(time.Minute, "a slow disk makes it wait, and says so", func() bool {
			r, _ := n.pod(podUID).Rates.Get()
			some, ok := r.Pressure.IO.Some.Get()
			memory, _ := r.Pressure.Memory.Some.Get()
			return ok && some > 0.5 && memory < 0.1 && len(r.IO) == 1 && r.IO[0].WritesPerSecond+r.IO[0].ReadsPerSecond < 15
		})
		_, err = n.Monitor(t.Context(), "block_set_io_throttle vd1 0 0 0 0 0 0")
		require.NoError(t, err)
		n.run("systemctl stop worker")
		podAtItsLimit(n)
	}
}

// podAtItsLimit has a pod that needs more memory than it may have.
func podAtItsLimit(n *node) {
	n.run("mkfs.ext4 -q /dev/vdc && mount /dev/vdc /mnt && dd if=/dev/zero of=/mnt/pages bs=1M count=150 status=none && sync")
	n.startHog("-p MemoryMax=120M --slice=kubepods-pod11111111_2222_4333_8444_555555555555.slice", "-fill 40")
	n.until(time.Minute, "its limit is hit, and it waits for memory", func() bool {
		w, ok := n.podState("11111111-2222-4333-8444-555555555555")
		r, rated := w.Rates.Get()
		some, _ := r.Pressure.Memory.Some.Get()
		return ok && rated && some > 0.05
	})
	n.run("systemctl stop hog; umount /mnt")
}

// didSoFar is what the steady load of that unit says.
func (n *node) didSoFar(unit string) (d struct {
	Written, Read uint64
	Waited, CPU   time.Duration
},
) {
	n.t.Helper()
	lines := strings.Split(strings.TrimSpace(n.run("tail -n 2 "+worked(unit))), "\n")
	require.NoError(n.t, json.Unmarshal([]byte(lines[0]), &d), lines[0]) // the last may be half written
	return d
}

func (n *node) pod(uid string) snapshot.WorkloadState {
	n.t.Helper()
	w, ok := n.podState(uid)
	require.True(n.t, ok, "no pod %s", uid)
	return w
}

func (n *node) podState(uid string) (snapshot.WorkloadState, bool) {
	n.t.Helper()
	var s snapshot.Snapshot
	require.NoError(n.t, json.Unmarshal(n.snapshot(), &s))
	i := slices.IndexFunc(s.Workloads, func(w snapshot.WorkloadState) bool { return w.PodUID == uid })
	if i < 0 {
		return snapshot.WorkloadState{}, false
	}
	return s.Workloads[i], true
}

// pods is where pods are made by hand, as the cgroupfs driver makes them.
const handmade = "/sys/fs/cgroup/kubepods"

func podChurn(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.configure("tick: 250ms\nwindow: 2s\nrecording: {dir: /root/recording, minAvailable: 0}\n")
		n.startAgentWith("--standalone --config /root/agent.yaml")
		before := n.agentFiles()
		n.run("cd /sys/fs/cgroup && echo +memory +io +cpu >cgroup.subtree_control && mkdir -p kubepods/burstable && " +
			"for d in kubepods kubepods/burstable; do echo +memory +io +cpu >$d/cgroup.subtree_control; done")
		n.run(`systemd-run -q --unit=churn -p StandardOutput=truncate:/run/churn bash -c 'cd ` + handmade + `/burstable
			for round in 1 2 3 4; do
				for i in {1..300}; do echo pod0000$i/a; done | xargs mkdir -p
				case $round in 4) sleep 8;; *) sleep 0.7;; esac
				for i in {1..300}; do echo pod0000$i/a pod0000$i; done | xargs rmdir
				echo $round
			done; echo over'`)
		most := 0
		n.until(3*time.Minute, "the churn is over", func() bool {
			most = max(most, n.agentFiles())
			return strings.HasSuffix(n.run("cat /run/churn"), "over\n")
		})
		n.until(time.Minute, "the agent sees none of them", func() bool { return !n.sees("pod0000") })
		after := n.agentFiles()
		n.run("systemctl stop plimsoll")
		all := n.recorded(2 * time.Second)
		met := checkHandmade(t, all)
		t.Logf("%d snapshots, %d pods met; files open: %d before, %d at most, %d after", len(all), met, before, most, after)
		assert.Positive(t, met)
		assert.LessOrEqual(t, after, before+32, "what was opened for pods that went is closed")
		assert.Less(t, most, before+9000)
	}
}

// checkHandmade has no probe fail and no pod without processes do anything.
func checkHandmade(t *testing.T, all []*snapshot.Snapshot) (met int) {
	t.Helper()
	inodes := map[uint64]bool{}
	for _, s := range all {
		for _, p := range s.Probes {
			assert.Empty(t, p.Error, p.Name)
		}
		for _, w := range s.Workloads {
			if !strings.HasPrefix(w.PodUID, "0000") {
				continue
			}
			inodes[w.Inode] = true
			used, _ := w.CPUMicroseconds.Get()
			assert.Zero(t, used, w.Cgroup)
			assert.Empty(t, w.IO, w.Cgroup)
			r, _ := w.Rates.Get()
			some, _ := r.Pressure.CPU.Some.Get()
			assert.Zero(t, some, w.Cgroup)
		}
	}
	return len(inodes)
}

// agent's own numbers, of its process.
func (n *node) agentPID() string {
	n.t.Helper()
	return strings.TrimSpace(n.run("systemctl show -P MainPID plimsoll"))
}

// agentAge is for how long it has run.
func (n *node) agentAge() time.Duration {
	n.t.Helper()
	return time.Duration(n.count("echo $(($(date +%s) - $(stat -c %Y /proc/"+n.agentPID()+")))")) * time.Second
}

func (n *node) agentFiles() int {
	n.t.Helper()
	return n.count("ls /proc/" + n.agentPID() + "/fd | wc -l")
}

// count runs a command that says a number.
func (n *node) count(command string) int {
	n.t.Helper()
	v, err := strconv.Atoi(strings.TrimSpace(n.run(command)))
	require.NoError(n.t, err, command)
	return v
}

// crowded is how many pods a crowd has.
func crowded() int {
	if os.Getenv("PLIMSOLL_LONG") != "" {
		return 10000
	}
	return 500
}

// podCrowd prints what a crowd costs in an emulated machine, many times what it
// costs in a real one: that it ticks on, and what it keeps, has bounds; its time
// of the emulator's CPUs has none.
func podCrowd(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		crowd := crowded()
		n := shared.with(t)
		n.run("rm -f /root/agent.yaml; mkdir -p " + handmade + "/besteffort")
		for from := 0; from < crowd; from += 1000 {
			n.run(fmt.Sprintf("cd %s/besteffort && seq -f pod2222%%05.0f %d %d | xargs mkdir", handmade, from, min(from+1000, crowd)-1))
		}
		t.Cleanup(func() {
			n.run("cd " + handmade + "/besteffort && find . -mindepth 1 -type d | xargs rmdir")
		})
		n.startAgent()
		n.until(2*time.Minute, "the agent sees all", func() bool { return n.said("grep -o '\"podUid\": *\"2222' | wc -l") == crowd })
		pid := n.agentPID()
		start := time.Now()
		sequence, cpu := n.sequence(), n.count("awk '{ print $14 + $15 }' /proc/"+pid+"/stat")
		n.until(3*time.Minute, "the agent ticks on", func() bool { return n.sequence() >= sequence+15 })
		took := time.Since(start).Seconds()
		used := float64(n.count("awk '{ print $14 + $15 }' /proc/"+pid+"/stat")-cpu) / 100
		resident := n.count("awk '/VmRSS/ { print $2 }' /proc/" + pid + "/status")
		files := n.agentFiles()
		t.Logf("%d pods: %d ticks in %.1f s, %.2f s CPU (with answers to this test), %d MiB resident, %d files open",
			crowd, n.sequence()-sequence, took, used, resident>>10, files)
		assert.Less(t, resident>>10, 512)
		assert.Less(t, files, 9000)
		n.staleIsSaid()
	}
}

// staleIsSaid has the agent tell when what it says of workloads is older than a
// few ticks.
func (n *node) staleIsSaid() {
	n.t.Helper()
	var s snapshot.Snapshot
	require.NoError(n.t, json.Unmarshal(n.snapshot(), &s))
	newest := time.Duration(0)
	for i := range s.Workloads {
		newest = max(newest, s.Workloads[i].At)
	}
	i := slices.IndexFunc(s.Probes, func(p snapshot.Probe) bool { return p.Name == "workloads" })
	age := s.UptimeSeconds - newest.Seconds() // the machine was not suspended: its clocks are one
	n.t.Logf("workloads are as of %.1f s ago; it says %q", age, s.Probes[i].Note)
	if age > 5 {
		assert.NotEmpty(n.t, s.Probes[i].Note, "workloads are as of %.1f s ago, and nobody says so", age)
	}
}

// said is a number made of the agent's snapshot in the machine, since that is large.
func (n *node) said(filter string) int {
	n.t.Helper()
	return n.count("busybox wget -q -O- " + strings.ReplaceAll(pressureURL, "pressure", "snapshot") + " | " + filter)
}

func (n *node) sequence() int {
	n.t.Helper()
	return n.said(`head -c 400 | grep -o '"sequence": *[0-9]*' | head -n 1 | grep -o '[0-9]*$'`)
}
