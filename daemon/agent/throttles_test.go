package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// throttleFixture is a made-up node of cgroup v2 with one data mover on sda.
type throttleFixture struct {
	t         *testing.T
	dir       string // of the cgroup file system
	state     string
	boot      string // ID
	log       bytes.Buffer
	config    config.Agent
	now       time.Time
	set       time.Duration // by how much the clock was set
	pods      pods.List
	events    []string
	labels    map[string]string // of namespaces
	throttles *throttles
	lock      *StateLock // nil: it is known
}

// booted is when the made-up node did.
var booted = time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)

const moverPod = "/kubepods/besteffort/pod1"

func newThrottleFixture(t *testing.T) *throttleFixture {
	t.Helper()
	h := &throttleFixture{t: t, dir: t.TempDir(), state: t.TempDir(), boot: bootID("/proc"), config: config.Default(), now: booted.Add(time.Hour)}
	h.config.VGDP.DryRun = false
	require.NoError(t, os.MkdirAll(filepath.Join(h.dir, moverPod), 0o755))
	h.write("8:0 rbps=max wbps=max riops=max wiops=max\n")
	h.start()
	return h
}

// files of the harbour: a file that is written is not merged, as io.max would be.
type files struct{ throttle.Tree }

func (f files) Set(k throttle.Knob, limit uint64) error {
	if k.Name == throttle.Memory || k.Name == throttle.CPU {
		return f.Tree.Set(k, limit)
	}
	other, err := f.Get(throttle.Knob{Cgroup: k.Cgroup, Name: map[string]string{throttle.Read: throttle.Write, throttle.Write: throttle.Read}[k.Name], Device: k.Device})
	if err != nil {
		return err
	}
	rates := map[string]uint64{k.Name: limit, map[string]string{throttle.Read: throttle.Write, throttle.Write: throttle.Read}[k.Name]: other}
	return os.WriteFile(filepath.Join(f.IO.Dir, k.Cgroup, "io.max"), []byte("8:0 rbps="+limitText(rates[throttle.Read])+" wbps="+limitText(rates[throttle.Write])+"\n"), 0o644)
}

func limitText(n uint64) string {
	if n == 0 {
		return "max"
	}
	return strconv.FormatUint(n, 10)
}

func (h *throttleFixture) write(text string) {
	require.NoError(h.t, os.WriteFile(filepath.Join(h.dir, moverPod, "io.max"), []byte(text), 0o644))
}

func (h *throttleFixture) read() string {
	b, err := os.ReadFile(filepath.Join(h.dir, moverPod, "io.max"))
	require.NoError(h.t, err)
	return string(b)
}

// patient is the lock of an agent that waits for a busy machine, too.
func patient() *StateLock { return &StateLock{until: time.Now().Add(time.Minute)} }

// start an agent's part, as after a restart.
func (h *throttleFixture) start() {
	h.t.Helper()
	host, err := probes.NewHost(probes.Paths{Procfs: "/proc", Sysfs: "/sys", Cgroupfs: h.dir}, nil)
	require.NoError(h.t, err)
	h.throttles = newThrottles(h.state, h.boot, cmp.Or(h.lock, patient()), host, slog.New(slog.NewTextHandler(&h.log, nil)))
	require.Equal(h.t, saveTimeout, h.throttles.journal.Timeout)
	h.throttles.saveTimeout = time.Minute // on a busy machine, too
	h.throttles.ofNamespace = func(namespace string) string { return h.labels[namespace] }
	h.throttles.event = func(pod evict.Victim, kind, reason, text string) {
		h.events = append(h.events, kind+" "+reason+" "+pod.Namespace+"/"+pod.Name+": "+text)
	}
	of := throttle.Hierarchy{Dir: h.dir}
	tree := throttle.Tree{IO: of, CPU: of, Memory: of}
	h.throttles.journal.Files, h.throttles.journal.Timeout = files{tree}, time.Minute
}

// seen is a sample with a level of the disk, and whether it could be judged.
func (h *throttleFixture) seen(level plugins.Level, partial bool) *view.State {
	mover := snapshot.WorkloadState{
		Workload: snapshot.Workload{Cgroup: moverPod, Kind: snapshot.KindPod}, Pod: &snapshot.Pod{UID: "1", Namespace: "velero", Name: "du-1", Mover: true},
		Rates: snapshot.Some(snapshot.WorkloadRates{IO: []snapshot.WorkloadIORates{{Number: "8:0", ReadBytesPerSecond: 1000 << 20}}}),
	}
	return &view.State{
		Snapshot: &snapshot.Snapshot{
			Time: h.now, UptimeSeconds: h.now.Add(-h.set).Sub(booted).Seconds(), Disks: []snapshot.DiskState{{Disk: snapshot.Disk{Name: "sda", Number: "8:0"}}}, Workloads: []snapshot.WorkloadState{mover},
			Contention: []snapshot.Contention{{Resource: snapshot.SharedDisk, Device: "sda", Culprits: []snapshot.Culprit{{Party: snapshot.Party{Cgroup: moverPod, Name: "velero/du-1"}, Share: 0.9}}}},
		},
		Levels: &plugins.Levels{Time: h.now, Verdicts: []plugins.Verdict{{Resource: plugins.Disk, Scope: "sda", Level: level, Partial: partial, Reason: "slow"}}},
	}
}

// round passes some seconds and runs one.
func (h *throttleFixture) round(seconds int, level plugins.Level) {
	h.now = h.now.Add(time.Duration(seconds) * time.Second)
	h.throttles.round(h.seen(level, false), &h.config, h.pods)
}

const (
	free   = "8:0 rbps=max wbps=max\n"
	fourOf = "8:0 rbps=838860800 wbps=838860800\n"
)

func TestMoverThrottledAndReleased(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	assert.Equal(t, fourOf, h.read())
	assert.Equal(t, []snapshot.SharedResource{snapshot.SharedDisk}, (*h.throttles.cgroups.Load())[moverPod], "its stall is our doing")
	shown := h.throttles.shown.Load()
	require.Len(t, shown.Throttled, 1)
	assert.Equal(t, "velero/du-1: sda limited to 839 MB/s read, 839 MB/s write, 80 % of its previous use, released in steps when the pressure is over, since velero/du-1 has 90 % of the traffic", shown.Throttled[0].Text())
	assert.Equal(t, []string{"Normal Throttled velero/du-1: sda limited to 839 MB/s read, 839 MB/s write, 80 % of its previous use, released in steps when the pressure is over, since velero/du-1 has 90 % of the traffic"}, h.events)
	assert.Contains(t, h.log.String(), "velero/du-1")
	for range 20 {
		h.round(30, plugins.None)
	}
	assert.Equal(t, free, h.read())
	assert.Empty(t, h.throttles.shown.Load().Throttled)
	assert.Empty(t, *h.throttles.cgroups.Load())
	require.Len(t, h.events, 2)
	assert.Equal(t, "Normal ThrottleReleased velero/du-1: no longer throttled on sda: the pressure is over, or it may not be throttled any more", h.events[1])
}

func TestMoverLimitSurvivesRestart(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	h.start()
	assert.Equal(t, []snapshot.SharedResource{snapshot.SharedDisk}, (*h.throttles.cgroups.Load())[moverPod], "from the first sample on")
	h.now = h.now.Add(4 * time.Minute)
	h.throttles.round(h.seen(plugins.None, true), &h.config, h.pods)
	assert.Equal(t, fourOf, h.read(), "it has just started and sees nothing yet")
	h.start()
	h.now = h.now.Add(time.Minute)
	h.throttles.round(h.seen(plugins.None, true), &h.config, h.pods)
	assert.Equal(t, free, h.read())
}

// startsUnread starts an agent's part while the disk hangs. The disk answers by the channel.
func (h *throttleFixture) startsUnread() chan<- state.Answer[savedThrottles] {
	h.start()
	late := make(chan state.Answer[savedThrottles], 1)
	h.throttles.late = late
	h.throttles.take(savedThrottles{})
	clear(h.throttles.list)
	clear(h.throttles.told)
	return late
}

// While the disk does not tell what an earlier agent has limited nothing is changed; then it is
// taken over.
func TestMoverLimitReadLate(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	kept := h.throttles.saved
	late := h.startsUnread()
	h.round(10, plugins.Hard)
	assert.Equal(t, fourOf, h.read(), "another agent's limit looks like another program's")
	assert.Empty(t, h.throttles.list)
	late <- state.Answer[savedThrottles]{Value: kept}
	h.round(10, plugins.None)
	assert.Len(t, h.throttles.list, 1)
	assert.Equal(t, 1, strings.Count(h.log.String(), "the disk of the state directory answers"))
	for range 20 {
		h.round(30, plugins.None)
	}
	assert.Equal(t, free, h.read())
}

// What cannot be read, though the disk answers, is no success: the limits stay.
func TestMoverLimitUnreadable(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	h.startsUnread() <- state.Answer[savedThrottles]{Err: assert.AnError}
	h.round(10, plugins.None)
	assert.Equal(t, fourOf, h.read())
	assert.Contains(t, h.log.String(), "cannot read the saved limits of throttled pods; they stay until their pods end")
	assert.NotContains(t, h.log.String(), "the disk of the state directory answers")
	assert.Nil(t, h.throttles.late, "pods are throttled")
}

// The clock is set while a limit is in force, and once while no agent runs: the limit is kept,
// though what the pod uses through it would make a lower one.
func TestMoverLimitClockSet(t *testing.T) {
	for _, set := range []time.Duration{-24 * time.Hour, time.Hour} {
		for _, restart := range []bool{false, true} {
			h := newThrottleFixture(t)
			h.round(0, plugins.Hard)
			limit := h.read()
			if restart {
				h.start()
			}
			h.now, h.set = h.now.Add(set), set
			s := h.seen(plugins.Hard, false)
			s.Snapshot.Workloads[0].Rates = snapshot.Some(snapshot.WorkloadRates{IO: []snapshot.WorkloadIORates{{Number: "8:0", ReadBytesPerSecond: 200 << 20}}})
			h.throttles.round(s, &h.config, h.pods)
			assert.Equal(t, limit, h.read(), "set by %s, restarted: %t", set, restart)
			h.now, h.set = h.now.Add(throttle.Lifetime), set
			h.throttles.round(h.seen(plugins.None, true), &h.config, h.pods)
			assert.Equal(t, free, h.read(), "set by %s, restarted: %t", set, restart)
		}
	}
}

// A static pod has the same cgroup after a reboot, and no limit any more.
func TestMoverLimitEndsWithBoot(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Hard)
	h.boot = "another"
	h.write(free)
	h.start()
	assert.Empty(t, h.throttles.list)
	h.round(60, plugins.Soft)
	assert.Equal(t, fourOf, h.read(), "it is throttled anew")
	assert.False(t, h.throttles.shown.Load().Throttled[0].Foreign, "by this agent")
}

func TestMoverLimitsUndone(t *testing.T) {
	for what, undo := range map[string]func(h *throttleFixture){
		"at the end":              func(h *throttleFixture) { h.throttles.lift(h.t.Context()) },
		"when it is switched off": func(h *throttleFixture) { h.throttles.disable() },
		"by a dry run": func(h *throttleFixture) {
			h.config.VGDP.DryRun = true
			h.round(1, plugins.Soft)
			assert.True(t, h.throttles.shown.Load().Throttled[0].DryRun)
			assert.Contains(t, h.throttles.shown.Load().Throttled[0].Text(), "(dry run: not applied)")
			assert.Empty(t, h.throttles.relief, "nothing is relieved")
		},
		"by the next agent, when it is off by then": func(h *throttleFixture) {
			h.start()
			h.throttles.disable()
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := newThrottleFixture(t)
			h.round(0, plugins.Soft)
			require.Equal(t, fourOf, h.read())
			undo(h)
			assert.Equal(t, free, h.read())
			h.start()
			assert.Empty(t, h.throttles.journal.Limits, "and forgotten")
		})
	}
}

func TestMoverLimitNotSavedNotWritten(t *testing.T) {
	h := newThrottleFixture(t)
	h.throttles.file.Path = filepath.Join(h.dir, moverPod, "io.max", "throttles.json") // below a file
	before := h.read()
	h.round(0, plugins.Soft)
	assert.Equal(t, before, h.read())
	assert.Contains(t, h.throttles.shown.Load().Problem, "no pod is throttled further")
	assert.Contains(t, h.log.String(), "failed to apply the limits of throttled pods")
	assert.Empty(t, h.throttles.relief, "nobody waits for what was not done")
	assert.Empty(t, h.events, "its owner is told of no limit that there is not")
	assert.Empty(t, h.throttles.shown.Load().Throttled)
	assert.Equal(t, "velero/du-1, sda: its limit could not be written", h.throttles.shown.Load().Exempt[0].Text())
}

// A limit cannot be saved, and so not be written, for 40 s: it is not judged by what it did not
// do, and no eviction waits for it. Then it is written in the next round, and has 20 s to show
// its effect.
func TestThrottleNotJudgedBeforeWritten(t *testing.T) {
	h := newThrottleFixture(t)
	before, path := h.read(), h.throttles.file.Path
	h.throttles.file.Path = filepath.Join(h.dir, moverPod, "io.max", "throttles.json")
	round := func() throttle.Throttle {
		h.now = h.now.Add(time.Second)
		s := h.seen(plugins.Hard, false)
		s.Snapshot.Contention[0].State = snapshot.ContentionPresent
		s.Snapshot.Contention[0].Sufferers = []snapshot.Sufferer{{Party: snapshot.Party{Cgroup: "/service"}, Waited: 0.5, Share: snapshot.Some(0.1)}}
		h.throttles.round(s, &h.config, h.pods)
		return h.throttles.list[throttle.Target{Cgroup: moverPod, Disk: "sda"}]
	}
	for range 40 {
		require.Zero(t, round().UselessUntil)
		require.Empty(t, h.throttles.relief)
	}
	assert.Equal(t, before, h.read())
	h.throttles.file.Path = path
	for range 20 {
		require.Zero(t, round().UselessUntil)
		require.Equal(t, "8:0 rbps=209715200 wbps=209715200\n", h.read())
		require.Len(t, h.throttles.relief, 1)
	}
	assert.NotZero(t, round().UselessUntil, "no one waits less")
	assert.Empty(t, h.throttles.relief)
	assert.Equal(t, free, h.read())
}

// A limit of the pod's own is tighter: none of Plimsoll's is written, and none is told of.
func TestMoverLimitedAlready(t *testing.T) {
	h := newThrottleFixture(t)
	own := "8:0 rbps=1000 wbps=1000\n"
	h.write(own)
	h.round(0, plugins.Soft)
	assert.Equal(t, own, h.read())
	assert.Empty(t, h.events)
	assert.Empty(t, h.throttles.relief)
	assert.Empty(t, h.throttles.shown.Load().Throttled)
	assert.Equal(t, "velero/du-1, sda: its cgroup has a limit that is as tight, or its disk is gone", h.throttles.shown.Load().Exempt[0].Text())
}

// Without the io controller no limit can be written: none is told of, and no eviction waits.
func TestMoverWithoutController(t *testing.T) {
	h := newThrottleFixture(t)
	require.NoError(t, os.Remove(filepath.Join(h.dir, moverPod, "io.max")))
	h.round(0, plugins.Hard)
	assert.Contains(t, h.throttles.shown.Load().Problem, "the cgroup controller is not enabled there")
	assert.Empty(t, h.events)
	assert.Empty(t, h.throttles.relief)
	assert.Empty(t, *h.throttles.cgroups.Load())
}

// The disk is unplugged while a limit is in force, and another one gets its name: nothing of
// the first limit is left, and the second begins anew.
func TestMoverDiskGone(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	require.Equal(t, fourOf, h.read())
	gone := h.seen(plugins.None, false)
	gone.Snapshot.Disks, gone.Snapshot.Contention, gone.Levels.Verdicts = nil, nil, nil
	h.write("")
	h.throttles.round(gone, &h.config, h.pods)
	assert.Empty(t, h.throttles.journal.Limits)
	assert.Empty(t, *h.throttles.cgroups.Load())
	assert.Empty(t, h.throttles.shown.Load().Throttled)

	h.now = h.now.Add(time.Second)
	h.write(free)
	another := h.seen(plugins.None, false)
	another.Snapshot.Disks[0].Sequence = snapshot.Some(uint64(2))
	h.throttles.round(another, &h.config, h.pods)
	assert.Equal(t, free, h.read())
	assert.Empty(t, h.throttles.list)
}

// Its pod ends while it is throttled: the log says so, and which one it was, also after a restart.
func TestThrottledPodEnds(t *testing.T) {
	for _, restart := range []bool{false, true} {
		h := newThrottleFixture(t)
		h.round(0, plugins.Soft)
		if restart {
			h.start()
		}
		s := h.seen(plugins.None, false)
		s.Snapshot.Workloads, s.Snapshot.Contention = nil, nil
		h.throttles.round(s, &h.config, h.pods)
		assert.Contains(t, h.log.String(), `msg="pod no longer throttled" pod=velero/du-1 disk=sda reason="no longer throttled on sda: its pod has ended"`)
		assert.Len(t, h.events, 1, "it has no owner to tell any more")
	}
}

// A limit on one disk is none on another: what waits for that one is not postponed.
func TestMoverLimitedOnOneDisk(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	h.throttles.list[throttle.Target{Cgroup: moverPod, Disk: "sdb"}] = h.throttles.list[throttle.Target{Cgroup: moverPod, Disk: "sda"}]
	h.throttles.devices["sdb"] = "8:16"
	assert.Len(t, h.throttles.inForce(), 1)
	l := h.seen(plugins.Soft, false).Levels
	l.Verdicts[0].Scope = "sdb"
	assert.Empty(t, h.throttles.reliefOf(l, nil, time.Second))
}

// Another program has replaced the limit: the pod's stall is not the agent's doing any more.
func TestMoverLimitReplaced(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	h.write("8:0 rbps=1000 wbps=1000\n")
	h.round(1, plugins.Soft)
	assert.True(t, h.throttles.shown.Load().Throttled[0].Foreign)
	assert.Empty(t, *h.throttles.cgroups.Load())
	assert.Empty(t, h.throttles.relief)
}

// The agent of a dry run is restarted, and does not know its pods yet: it writes nothing,
// and tells no owner.
func TestMoverDryRunRestarted(t *testing.T) {
	h := newThrottleFixture(t)
	h.config.VGDP.DryRun = true
	h.round(0, plugins.Soft)
	before := h.read()
	h.start()
	unlisted := h.seen(plugins.Soft, false)
	unlisted.Snapshot.Workloads[0].Pod = nil
	h.throttles.round(unlisted, &h.config, h.pods)
	assert.Equal(t, before, h.read())
	assert.Empty(t, h.throttles.shown.Load().Throttled, "whether it is throttled is not known yet")
	for range 20 {
		h.round(30, plugins.None)
	}
	assert.Empty(t, h.throttles.list)
	assert.Empty(t, h.events)
	assert.Equal(t, before, h.read())
}

// The agent of a dry run is restarted with a configuration that is none, and the label of the
// pod's namespace is not listed yet: what was decided as a dry run stays one until it is.
func TestThrottleDryRunRestartedUnlisted(t *testing.T) {
	h := newMemoryFixture(t)
	h.config.Throttle.DryRun = true
	h.throttles.round(h.eats(), &h.config, h.pods)
	h.config.Throttle.DryRun = false
	h.start()
	h.labels = map[string]string{"batch": pods.Unlisted}
	h.throttles.round(h.sample(1400, plugins.Hard), &h.config, h.pods)
	assert.Equal(t, "max", h.high())
	h.labels = nil
	h.throttles.round(h.sample(1400, plugins.Hard), &h.config, h.pods)
	assert.Equal(t, "1610616832", h.high())
}

// A pod is throttled a little, then another one that may not be throttled presses: evictions
// for it wait no longer than for any first limit.
func TestReliefOfNoCulprit(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	first := h.now
	for range 30 {
		h.now = h.now.Add(time.Second)
		s := h.seen(plugins.Hard, false)
		s.Snapshot.Contention = nil
		h.throttles.round(s, &h.config, h.pods)
	}
	require.Equal(t, fourOf, h.read())
	require.Len(t, h.throttles.relief, 1)
	assert.Equal(t, first.Add(10*time.Second), h.throttles.relief[0].Until)
}

// The limit cannot be made tighter, since nothing can be saved: the one in force is shown.
func TestMoverLimitNotTightened(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	h.throttles.file.Path = filepath.Join(h.dir, moverPod, "io.max", "throttles.json")
	h.round(11, plugins.Soft)
	assert.Equal(t, fourOf, h.read())
	assert.Len(t, h.throttles.shown.Load().Throttled, 1)
	assert.NotEmpty(t, h.throttles.shown.Load().Problem)
	assert.Equal(t, []snapshot.SharedResource{snapshot.SharedDisk}, (*h.throttles.cgroups.Load())[moverPod])
}

// The clock is set back by an hour: no eviction waits for that long.
func TestReliefClockSetBack(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Hard)
	h.set = -time.Hour
	h.round(-3600, plugins.Hard)
	h.round(1, plugins.Hard)
	require.Len(t, h.throttles.relief, 1)
	assert.Equal(t, h.now.Add(-time.Second), h.throttles.relief[0].Since)
	assert.False(t, h.throttles.relief[0].Until.After(h.now.Add(10*time.Second)))
}

func TestMoverStateCorruptTouchesNothing(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	path := filepath.Join(h.state, "throttles.json")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b[:len(b)/2], 0o600))
	h.start()
	h.throttles.lift(h.t.Context())
	assert.Equal(t, fourOf, h.read())
	assert.Contains(t, h.log.String(), "they stay until their pods end")
}

// gone are the files of cgroups that have ended.
type gone struct{}

func (gone) Get(throttle.Knob) (uint64, error)                { return 0, throttle.ErrGone }
func (gone) Set(throttle.Knob, uint64) error                  { return throttle.ErrGone }
func (gone) Effective(throttle.Knob, float64) (uint64, error) { return 0, throttle.ErrGone }

// Whatever an agent before wrote down, one that reads it starts, and forgets the limits of pods
// that have ended.
func FuzzMoverState(f *testing.F) {
	f.Add([]byte(`{`))
	f.Add([]byte(`{"boot":"another","limits":[{"cgroup":"/x","name":"read","ours":1,"written":true}]}`))
	f.Add([]byte(`{"boot":"boot","limits":[{"cgroup":"/../x","name":"read","ours":1,"written":true},{"name":"memory"}],"throttles":[{"cgroup":"/x"},{}]}`))
	host, err := probes.NewHost(probes.Paths{Procfs: "/proc", Sysfs: "/sys"}, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "throttles.json")
		if (state.File[json.RawMessage]{Path: path, UntilBoot: true}).Save(b) != nil { // it is no JSON
			require.NoError(t, os.WriteFile(path, b, 0o600))
		}
		for range 2 {
			m := newThrottles(dir, "boot", patient(), host, slog.New(slog.DiscardHandler))
			m.journal.Files = gone{}
			m.lift(t.Context())
			require.Empty(t, m.journal.Limits)
			require.Empty(t, m.list)
		}
	})
}

func TestThrottleOfDryRunIsLogged(t *testing.T) {
	h := newThrottleFixture(t)
	h.config.VGDP.DryRun = true
	h.round(0, plugins.Soft)
	h.round(1, plugins.Soft)
	assert.Equal(t, 1, strings.Count(h.log.String(), `msg="pod throttled" pod=velero/du-1 disk=sda`), h.log.String())
	assert.Contains(t, h.log.String(), "dryRun=true")
	assert.Empty(t, h.events)
	h.config.VGDP.DryRun = false
	h.round(1, plugins.Soft)
	assert.Len(t, h.events, 1, "from now on it is")
	h.start()
	h.round(1, plugins.Soft)
	assert.Len(t, h.events, 1, "once, also after a restart")
}

// What is shown is how far a pod is limited, where that is no fifth, too.
func TestThrottleOfLittleShown(t *testing.T) {
	h := newThrottleFixture(t)
	s := h.seen(plugins.Hard, false)
	s.Snapshot.Workloads[0].Rates = snapshot.Some(snapshot.WorkloadRates{IO: []snapshot.WorkloadIORates{{Number: "8:0", ReadBytesPerSecond: 2e6}}})
	h.throttles.round(s, &h.config, h.pods)
	require.Len(t, h.throttles.shown.Load().Throttled, 1)
	assert.Contains(t, h.throttles.shown.Load().Throttled[0].Text(), "sda limited to 1.0 MB/s read, 1.0 MB/s write, 52 % of its previous use")
}

// The end of a limit is told once and when it ends: by a dry run, which goes on as one, and by
// the end of the agent.
func TestThrottleEndIsTold(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	h.config.VGDP.DryRun = true
	for range 3 {
		h.round(1, plugins.Soft)
		require.Len(t, h.events, 2)
		assert.Equal(t, "Normal ThrottleReleased velero/du-1: no longer throttled on sda: it is a dry run now", h.events[1])
	}
	assert.Equal(t, 2, strings.Count(h.log.String(), `msg="pod throttled" pod=velero/du-1`), "the second one as a dry run")
	h.config.VGDP.DryRun = false
	h.round(1, plugins.Soft)
	clear(h.throttles.titles) // its pod is gone
	h.throttles.lift(h.t.Context())
	assert.Contains(t, h.log.String(), `msg="pod no longer throttled" pod=velero/du-1 disk=sda reason="no longer throttled on sda: the agent ends, or there is no cluster"`)
}

func TestReliefWhileItCanBeTighter(t *testing.T) {
	h := newThrottleFixture(t)
	for range 4 {
		h.round(11, plugins.Soft)
		assert.Equal(t, h.now.Add(10*time.Second), h.throttles.relief[0].Until)
	}
	floor := h.now
	h.round(19, plugins.Soft)
	assert.Equal(t, h.now.Add(10*time.Second), h.throttles.relief[0].Until, "it has not shown its effect yet")
	h.round(2, plugins.Soft)
	assert.False(t, h.throttles.relief[0].Until.After(floor), "now it has")
}

// Pods become culprits one after the other, each until its throttle is about to have shown its
// effect: evictions wait as long as for one, also where for moments none is throttled. Where the
// pressure becomes hard they wait for its throttles.
func TestReliefOfOneAfterAnother(t *testing.T) {
	for _, row := range []struct {
		none   int // of 15 seconds, without a throttle
		before plugins.Level
	}{{0, plugins.Hard}, {1, plugins.Hard}, {0, plugins.Soft}, {1, plugins.Soft}} {
		h := newThrottleFixture(t)
		second := func(s int, level plugins.Level) {
			h.now = h.now.Add(time.Second)
			state, cgroup := h.seen(level, false), fmt.Sprintf("/kubepods/besteffort/mover%d", s/15)
			state.Snapshot.Workloads[0].Cgroup, state.Snapshot.Contention[0].Culprits[0].Cgroup = cgroup, cgroup
			if os.Mkdir(filepath.Join(h.dir, cgroup), 0o755) == nil {
				require.NoError(t, os.WriteFile(filepath.Join(h.dir, cgroup, "io.max"), []byte(free), 0o644))
			}
			if s%15 < row.none {
				state.Snapshot.Workloads, state.Snapshot.Contention = nil, nil
			}
			h.throttles.round(state, &h.config, h.pods)
		}
		for s := range 130 {
			second(s, row.before)
			if s%15 >= row.none {
				require.Len(t, h.throttles.relief, 1)
				require.Equal(t, s <= row.none+70-1, h.throttles.relief[0].Until.After(h.now), "%+v: after %d s", row, s)
			}
		}
		second(140, plugins.Hard)
		require.Len(t, h.throttles.relief, 1)
		assert.Equal(t, row.before == plugins.Soft, h.throttles.relief[0].Until.After(h.now), "%+v", row)
	}
}

func TestMoverReliefFromFirstLimit(t *testing.T) {
	h := newThrottleFixture(t)
	h.round(0, plugins.Soft)
	first := h.now
	require.Len(t, h.throttles.relief, 1)
	assert.Equal(t, "throttled: velero/du-1 (sda limited to 839 MB/s read, 839 MB/s write, 80 % of its previous use)", h.throttles.relief[0].Action)
	assert.Equal(t, []any{plugins.Disk, "sda", first, first.Add(10 * time.Second)},
		[]any{h.throttles.relief[0].Resource, h.throttles.relief[0].Scope, h.throttles.relief[0].Since, h.throttles.relief[0].Until})
	h.round(5, plugins.Hard)
	assert.Equal(t, first, h.throttles.relief[0].Since)
	h.round(5, plugins.None)
	assert.Empty(t, h.throttles.relief)
	h.round(5, plugins.Soft)
	assert.Equal(t, h.now, h.throttles.relief[0].Since, "another pressure begins anew")
	l := h.seen(plugins.Soft, false).Levels
	l.Verdicts[0].Resource, l.Verdicts[0].Scope = plugins.Memory, "node"
	assert.Empty(t, h.throttles.reliefOf(l, nil, time.Second), "a limit on a disk is none for memory")
}

// What is disabled throttles no pod, whatever its dry run says.
func TestThrottleDisabledShown(t *testing.T) {
	for _, c := range []struct{ enabled, dryRun bool }{{true, false}, {true, true}, {false, false}, {false, true}} {
		h := newThrottleFixture(t)
		h.config.Throttle.Enabled, h.config.Throttle.DryRun = c.enabled, c.dryRun
		h.round(0, plugins.None)
		assert.Equal(t, !c.enabled || c.dryRun, h.throttles.shown.Load().DryRun, c)
	}
}
