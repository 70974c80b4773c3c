package vm_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// scene is a load that is done to a machine while an agent records it, with
// what a good judge must say of it: written before anybody has judged.
type scene struct {
	name, did, why string
	class          string // of Label
	config         string // of the recording agent, more than the file
	agent          string // its arguments; empty: it is standalone
	// begin starts the load and end ends it; run is how long it lasts.
	begin func(*node)
	run   time.Duration
	end   func(*node)
	want  []judgement.Want // From and To are left to the times of the load
	// notJudged is what cannot be judged meanwhile, its times likewise.
	notJudged []judgement.NotJudged
	// heldOut: no rule was or may be tuned by it.
	heldOut bool
	// from is when what is wanted begins, if not with the load.
	from func(*node) time.Time
	// usual is how long a request of the disks took when nobody pressed.
	usual map[string]time.Duration
}

const (
	calm    = 12 * time.Second // before each load
	clears  = 5 * time.Second  // after it, where no level is expected
	unlatch = time.Minute      // after it elsewhere: longer than a level stays latched
	onState = "/run/scene"
)

// labelledDir is where the set goes when it is made; without it no scene runs.
func labelledDir() string { return os.Getenv("PLIMSOLL_LABELLED") }

// stage plays the scenes one after the other on one machine.
func stage(t *testing.T, n *node, machine string, scenes []scene) {
	t.Helper()
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) { n.with(t).play(machine, s) })
	}
}

// play records one scene.
func (n *node) play(machine string, s scene) {
	n.t.Helper()
	n.run("rm -rf " + onState + "*")
	n.configure("recording: {dir: " + onState + ", segmentSize: 256Mi, minAvailable: 0}\n" + s.config)
	n.startAgentWith(cmp.Or(s.agent, "--standalone --config /root/agent.yaml"))
	n.t.Cleanup(func() { n.run("systemctl stop plimsoll 2>/dev/null || true") })
	n.until(2*calm, "calm is recorded", halfway(calm))
	from := n.clock()
	s.begin(n)
	n.until(s.run+time.Minute, "the load has run", halfway(s.run))
	wanted := from
	if s.from != nil {
		wanted = s.from(n)
	}
	pressed := n.clock()
	s.end(n)
	to := n.clock()
	after := clears
	if len(s.want) > 0 {
		after = unlatch
	}
	n.until(2*after, "the end is recorded", halfway(after))
	n.run("systemctl stop plimsoll")
	dir := labelledDir()
	if s.heldOut {
		dir = filepath.Join(dir, judgement.HeldOutDir)
		require.NoError(n.t, os.MkdirAll(dir, 0o755))
	}
	file := filepath.Join(dir, s.name+".rec")
	n.run("mv " + onState + "/*.rec " + onState + ".rec") // there is one segment
	require.NoError(n.t, n.Pull(context.WithoutCancel(n.t.Context()), onState+".rec", file))
	start := repack(n.t, file)
	at := func(t time.Time) float64 { return float64(t.Sub(start).Milliseconds()) / 1000 }
	l := judgement.Label{Class: s.class, Machine: machine, Did: s.did, Why: s.why, Load: judgement.Span{From: at(from), To: at(to)}, Usual: s.usual, Want: s.want}
	for i := range l.Want {
		l.Want[i].Span = judgement.Span{From: at(wanted), To: at(pressed)}
	}
	l.NotJudged = s.notJudged
	for i := range l.NotJudged {
		l.NotJudged[i].Span = judgement.Span{From: at(wanted), To: at(pressed)}
	}
	text, err := yaml.Marshal(l)
	require.NoError(n.t, err)
	require.NoError(n.t, os.WriteFile(filepath.Join(dir, s.name+".yaml"), text, 0o600))
	n.t.Logf("%s: load from %.1f to %.1f s, wanted from %.1f s", s.name, at(from), at(to), at(wanted))
}

// repack packs a recording as small as it goes: an agent flushes at each sample.
// It gives the time of the first.
func repack(t *testing.T, file string) (start time.Time) {
	t.Helper()
	packed, err := os.ReadFile(file)
	require.NoError(t, err)
	samples := 0
	_, err = probes.Play(bytes.NewReader(packed), func(s *snapshot.Sample) error {
		if samples == 0 {
			start = s.Time
		}
		samples++
		return nil
	})
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	require.NoError(t, err)
	_, err = io.Copy(w, r)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(file, small.Bytes(), 0o600))
	t.Logf("%d samples, %d bytes", samples, small.Len())
	return start
}

// unit starts a program of the shell as a unit; properties are systemd's.
func (n *node) unit(name, properties, script string) {
	n.t.Helper()
	n.run(fmt.Sprintf("systemd-run -q --unit=%s %s bash -c %s", name, properties, shellQuoted(script)))
	n.t.Cleanup(func() { n.run("systemctl stop " + name + " 2>/dev/null || true") })
}

// units is an end that stops these.
func units(names ...string) func(*node) {
	return func(n *node) { n.run("systemctl stop " + strings.Join(names, " ")) }
}

// filled is when the hog said that it had filled memory.
func filled(n *node) time.Time {
	n.t.Helper()
	line := n.run("journalctl -q --no-pager -o cat -u hog | grep ' filled ' | tail -n 1")
	at, err := time.Parse(time.RFC3339Nano, cmp.Or(strings.SplitN(line, " ", 2)[0], "none"))
	require.NoError(n.t, err, "the hog never filled memory: it said %q", line)
	return at
}

// TestMakeLabelledRecordings makes the set that daemon/replay judges:
// five machines, one load after the other on each.
func TestMakeLabelledRecordings(t *testing.T) {
	if labelledDir() == "" {
		t.Skip("makes recordings that are committed, for half an hour: make labelled")
	}
	t.Run("v2", func(t *testing.T) {
		n := startNode(t, vm.Options{Name: "labelled", Disks: 8, Slots: 2}, ".", "./e2e/vm/steady", "./e2e/vm/hog")
		n.prepareStage()
		stage(t, n, "QEMU (emulated), Linux 6.1, cgroup v2, 2 CPUs, 2 GiB", scenes())
	})
	t.Run("v1", func(t *testing.T) {
		n := startNode(t, vm.Options{Name: "labelled-v1", MemMiB: 1024, Disks: 2, Append: "systemd.unified_cgroup_hierarchy=0"}, ".", "./e2e/vm/steady", "./e2e/vm/hog")
		n.throttle(100, "vd2")
		n.run("for d in vdb vdc; do mkfs.ext4 -q /dev/$d && mkdir -p /$d && mount /dev/$d /$d; done; dd if=/dev/zero of=/vdb/pages bs=1M count=150 status=none; sync")
		stage(t, n, "QEMU (emulated), Linux 6.1, cgroup v1 with v2 beside it for pressure, 2 CPUs, 1 GiB", scenesOfV1())
	})
	t.Run("numa", func(t *testing.T) {
		n := startNode(t, vm.Options{Name: "labelled-numa", MemMiB: 1536, NUMA: 2, Disks: 2}, ".", "./e2e/vm/steady", "./e2e/vm/hog")
		n.throttle(1000, "vd1")
		n.run("mkfs.ext4 -q /dev/vdb && mkdir -p /vdb && mount /dev/vdb /vdb; dd if=/dev/zero of=/vdb/pages bs=1M count=150 status=none; sync")
		stage(t, n, "QEMU (emulated), Linux 6.1, cgroup v2, 2 CPUs and 1.5 GiB in two NUMA nodes", scenesOfNUMA())
	})
	t.Run("rootfs", stageRootfs)
	t.Run("v2-uncounted", func(t *testing.T) {
		n := startNode(t, vm.Options{Name: "labelled-uncounted", MemMiB: 1024, Disks: 1, Append: "cgroup_disable=io"}, ".", "./e2e/vm/steady")
		n.throttle(100, "vd1")
		stage(t, n, "QEMU (emulated), Linux 6.1, cgroup v2 without the io controller, 2 CPUs, 1 GiB", scenesUncounted())
	})
}

// prepareStage gives each disk its part: vdb pages, vdc and vdd a mirror, vde
// swap, vdf an image, vdg idle, vdh and vdi 100 requests a second.
func (n *node) prepareStage() {
	n.t.Helper()
	n.run(`set -e
		modprobe raid1
		echo md0 >/sys/module/md_mod/parameters/new_array
		cd /sys/block/md0/md
		echo raid1 >level; echo 2 >raid_disks
		for d in vdc vdd; do cat /sys/block/$d/dev >new_dev; done
		echo 1048576 >component_size
		echo 0 >dev-vdc/slot; echo 1 >dev-vdd/slot
		echo none >resync_start; echo active >array_state
		for d in vdb vdf; do mkfs.ext4 -q /dev/$d && mkdir -p /$d && mount /dev/$d /$d; done
		dd if=/dev/zero of=/vdb/pages bs=1M count=150 status=none; sync`)
	n.throttle(1000, "vd1")
	n.throttle(100, "vd7", "vd8")
}
