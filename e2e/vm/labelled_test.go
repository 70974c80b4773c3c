package vm_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// scene is a load that is done to a machine while an agent records it, with
// what a good judge must say of it: written before anybody has judged.
type scene struct {
	name, did, why string
	class          string // of Label
	config         string // of the recording agent, more than the file
	agent          string // its arguments; empty: it is standalone
	// before makes what the load needs, before anything is recorded.
	before func(*node)
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
	// kubelet is what a kubelet said from then on; nil: none runs.
	kubelet func(n *node, start time.Time) *judgement.Kubelet
}

const (
	calm    = 12 * time.Second // before each load
	clears  = 5 * time.Second  // after it, where no level is expected
	unlatch = time.Minute      // after it elsewhere: longer than a level stays latched
	onState = "/run/scene"
)

// labelledDir is where the set goes when it is made; without it no scene runs.
func labelledDir() string { return os.Getenv("PLIMSOLL_LABELLED") }

// recorder makes the labelled recordings that are not there, until its time is over; zero:
// all of them.
type recorder struct{ until time.Time }

// newRecorder makes them for as many minutes as the environment says.
func newRecorder(t *testing.T) recorder {
	t.Helper()
	text := os.Getenv("PLIMSOLL_LABELLED_MINUTES")
	if text == "" {
		return recorder{}
	}
	minutes, err := strconv.Atoi(text)
	require.NoError(t, err, "PLIMSOLL_LABELLED_MINUTES")
	return recorder{until: time.Now().Add(time.Duration(minutes) * time.Minute)}
}

func (r recorder) over() bool { return !r.until.IsZero() && time.Now().After(r.until) }

// on makes those of one machine, one load after the other; it is booted if one is to be made.
func (r recorder) on(t *testing.T, name, machine string, scenes []scene, boot func(*testing.T) *node) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		left := slices.DeleteFunc(scenes, scene.recorded)
		switch {
		case len(left) == 0:
			t.Skip("its recordings are there")
		case r.over():
			t.Skip("left to the next run: the time is over")
		}
		n := boot(t)
		for _, s := range left {
			went := t.Run(s.name, func(t *testing.T) {
				if r.over() {
					t.Skip("left to the next run: the time is over")
				}
				n.with(t).play(machine, s)
			})
			if !went { // the next would be recorded on what this one left behind
				return
			}
		}
	})
}

// file of its recording, without the ending.
func (s scene) file() string {
	dir := labelledDir()
	if s.heldOut {
		dir = filepath.Join(dir, judgement.HeldOutDir)
	}
	return filepath.Join(dir, s.name)
}

// recorded tells whether its recording is there, held out or not any more: the label is
// written last.
func (s scene) recorded() bool {
	_, err := os.Stat(s.file() + ".yaml")
	_, moved := os.Stat(filepath.Join(labelledDir(), s.name+".yaml"))
	return err == nil || moved == nil
}

// heldOutOn are the same scenes on a machine of another kernel.
func heldOutOn(kernel string, list []scene) []scene {
	for i := range list {
		list[i].name += "-" + kernel
	}
	return heldOut(list)
}

// heldOut are scenes that came after the rules: none was or may be tuned by them.
func heldOut(list []scene) []scene {
	for i := range list {
		list[i].heldOut = true
	}
	return list
}

// play records one scene. Its files get their names last, so that one that was cut off is
// made again.
func (n *node) play(machine string, s scene) {
	n.t.Helper()
	if s.before != nil {
		s.before(n)
	}
	n.run("rm -rf " + onState + "*")
	n.configure("recording: {dir: " + onState + ", segmentSize: 256Mi, minAvailable: 0}\n" + s.config)
	n.startAgentWith(cmp.Or(s.agent, "--standalone --config /root/agent.yaml"))
	n.t.Cleanup(func() { n.run("systemctl stop plimsoll 2>/dev/null || true") })
	n.until(2*calm, "calm is recorded", halfway(calm))
	from := n.clock()
	s.begin(n)
	wanted := n.clock()
	n.until(s.run+time.Minute, "the load has run", halfway(s.run))
	n.loadsRun()
	n.witnessed(s)
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
	file := filepath.Join(n.t.TempDir(), "recorded")
	n.run("mv " + onState + "/*.rec " + onState + ".rec") // there is one segment
	require.NoError(n.t, n.Pull(context.WithoutCancel(n.t.Context()), onState+".rec", file))
	l, list := s.label(n.t, machine, file, from, wanted, pressed, to)
	if s.kubelet != nil {
		l.Kubelet = s.kubelet(n, list[0].Time)
	}
	s.keep(n.t, l, file)
}

// label of a recording, with its samples: the load went from from to to, and what is wanted
// from wanted to pressed. The recording is packed.
func (s scene) label(t *testing.T, machine, file string, from, wanted, pressed, to time.Time) (judgement.Label, []*snapshot.Sample) {
	t.Helper()
	list := repack(t, file)
	start := list[0].Time
	at := func(t time.Time) float64 { return float64(t.Sub(start).Milliseconds()) / 1000 }
	l := judgement.Label{Class: s.class, Machine: machine, Did: s.did, Why: s.why, Load: judgement.Span{From: at(from), To: at(to)}, Usual: s.usual, Want: s.want}
	for i := range l.Want {
		l.Want[i].Span = judgement.Span{From: at(wanted), To: at(pressed)}
	}
	l.NotJudged = s.notJudged
	for i := range l.NotJudged {
		l.NotJudged[i].Span = judgement.Span{From: at(wanted), To: at(pressed)}
	}
	require.Empty(t, l.Hole(list), "the machine was starved: record it on an idle host; it lacks")
	t.Logf("%s: load from %.1f to %.1f s, wanted from %.1f s", s.name, at(from), at(to), at(wanted))
	return l, list
}

// keep puts a recording and its label where the set is.
func (s scene) keep(t *testing.T, l judgement.Label, file string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(s.file()), 0o755))
	text, err := yaml.Marshal(l)
	require.NoError(t, err)
	packed, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, part := range []struct {
		ending string
		bytes  []byte
	}{{".rec", packed}, {".yaml", text}} {
		name := s.file() + part.ending
		require.NoError(t, state.Replace(name, func(w io.Writer) error {
			_, err := w.Write(part.bytes)
			return err
		}))
		require.NoError(t, os.Chmod(name, 0o644), "all may read it") //nolint:gosec // it is published
	}
}

// repack packs a recording as small as it goes: an agent flushes at each sample.
func repack(t *testing.T, file string) (list []*snapshot.Sample) {
	t.Helper()
	packed, err := os.ReadFile(file)
	require.NoError(t, err)
	_, err = probes.Play(bytes.NewReader(packed), func(s *snapshot.Sample) error {
		list = append(list, s)
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
	t.Logf("%d samples, %d bytes", len(list), small.Len())
	return list
}

// unit starts a program of the shell as a unit; properties are systemd's.
func (n *node) unit(name, properties, script string) {
	n.t.Helper()
	n.run(fmt.Sprintf("systemd-run -q --unit=%s %s bash -c %s", name, properties, shellQuoted(script)))
	n.loads = append(n.loads, name)
	n.t.Cleanup(func() { n.run("systemctl stop " + name + " 2>/dev/null || true") })
}

// loadsRun fails where a load has ended by itself: its recording would not show what its
// label says.
func (n *node) loadsRun() {
	n.t.Helper()
	for _, name := range n.loads {
		state := n.run("systemctl is-active " + name + " || true")
		require.Equal(n.t, "active\n", state, "%s has ended: %s", name, n.run("systemctl status --no-pager -n 5 "+name+" || true"))
	}
}

// witnessed reports how long the services waited for a request of their disk, as they
// measured it themselves, and fails where one did not that its label says waits.
func (n *node) witnessed(s scene) {
	n.t.Helper()
	waits := map[string]time.Duration{}
	for _, name := range n.loads {
		if n.run("ls "+worked(name)+" 2>/dev/null || true") == "" {
			continue
		}
		did := n.didSoFar(name)
		if requests := (did.Written + did.Read) / (256 << 10); requests > 0 {
			waits[name] = did.Waited / time.Duration(requests)
			n.t.Logf("%s waited %s for a request", name, waits[name].Round(time.Millisecond))
		}
	}
	for _, w := range s.want {
		if usual := s.usual[w.Scope]; w.Resource == plugins.Disk && !w.AtMost && usual > 0 && len(waits) > 0 {
			require.Greater(n.t, slices.Max(slices.Collect(maps.Values(waits))), 4*usual, "no service waited for %s", w.Scope)
		}
	}
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

// TestMakeLabelledRecordings makes the set that daemon/judge judges: on each machine one load
// after the other. A recording that is there is not made again.
func TestMakeLabelledRecordings(t *testing.T) {
	if labelledDir() == "" {
		t.Skip("makes recordings that are committed, for five hours in pieces: make labelled")
	}
	r := newRecorder(t)
	bootV2 := func(o vm.Options) func(*testing.T) *node {
		return func(t *testing.T) *node {
			o.Name, o.Disks, o.Slots = "labelled", 8, 2
			n := startNode(t, o, ".", "./e2e/vm/steady", "./e2e/vm/hog")
			n.kernelIs(o)
			n.prepareStage()
			return n
		}
	}
	const v2, v2New = "QEMU (emulated), Linux 6.1, cgroup v2, 2 CPUs, 2 GiB", "QEMU (emulated), Linux 6.12, cgroup v2, 2 CPUs, 2 GiB"
	r.on(t, "v2", v2, scenes(), bootV2(vm.Options{}))
	r.on(t, "v1", "QEMU (emulated), Linux 6.1, cgroup v1 with v2 beside it for pressure, 2 CPUs, 1 GiB", scenesOfV1(), func(t *testing.T) *node {
		n := startNode(t, vm.Options{Name: "labelled-v1", MemMiB: 1024, Disks: 2, Append: "systemd.unified_cgroup_hierarchy=0"}, ".", "./e2e/vm/steady", "./e2e/vm/hog")
		n.throttle(100, "vd2")
		n.run("for d in vdb vdc; do mkfs.ext4 -q /dev/$d && mkdir -p /$d && mount /dev/$d /$d; done; dd if=/dev/zero of=/vdb/pages bs=1M count=150 status=none; sync")
		return n
	})
	r.on(t, "numa", "QEMU (emulated), Linux 6.1, cgroup v2, 2 CPUs and 1.5 GiB in two NUMA nodes", scenesOfNUMA(), func(t *testing.T) *node {
		n := startNode(t, vm.Options{Name: "labelled-numa", MemMiB: 1536, NUMA: 2, Disks: 2}, ".", "./e2e/vm/steady", "./e2e/vm/hog")
		n.throttle(1000, "vd1")
		n.run("mkfs.ext4 -q /dev/vdb && mkdir -p /vdb && mount /dev/vdb /vdb; dd if=/dev/zero of=/vdb/pages bs=1M count=150 status=none; sync")
		return n
	})
	recordRootfs(t, r)
	recordKubelet(t, r)
	r.on(t, "v2-uncounted", "QEMU (emulated), Linux 6.1, cgroup v2 without the io controller, 2 CPUs, 1 GiB", scenesUncounted(), func(t *testing.T) *node {
		n := startNode(t, vm.Options{Name: "labelled-uncounted", MemMiB: 1024, Disks: 1, Append: "cgroup_disable=io"}, ".", "./e2e/vm/steady")
		n.throttle(100, "vd1")
		return n
	})
	bootPrograms := func(o vm.Options) func(*testing.T) *node {
		return func(t *testing.T) *node {
			o.Programs = true
			n := bootV2(o)(t)
			n.preparePrograms()
			return n
		}
	}
	ofCloud := func() []scene { return slices.Concat(scenesOfCloud(), scenesOfSlowDisks()) }
	r.on(t, "v2-programs", v2, scenesOfPrograms(), bootPrograms(vm.Options{}))
	r.on(t, "v2-cloud", v2, heldOut(ofCloud()), bootCloud(vm.Options{}))
	recordHost(t, r)
	r.on(t, "v2-6.12", v2New, heldOutOn("6.12", scenes()), bootV2(vm.Options{Backports: true}))
	r.on(t, "v2-programs-6.12", v2New, heldOutOn("6.12", scenesOfPrograms()), bootPrograms(vm.Options{Backports: true}))
	r.on(t, "v2-cloud-6.12", v2New, heldOutOn("6.12", ofCloud()), bootCloud(vm.Options{Backports: true}))
}

// kernelIs fails where the machine has another kernel than the labels say.
func (n *node) kernelIs(o vm.Options) {
	n.t.Helper()
	want := "6.1."
	if o.Backports {
		want = "6.12."
	}
	require.True(n.t, strings.HasPrefix(n.run("uname -r"), want), "the labels say %s", want)
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
