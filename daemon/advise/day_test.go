package advise

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// day is a made-up node, a sample every thirty seconds.
type day struct {
	at        time.Duration
	stalled   uint64 // µs
	scans     uint64
	available uint64
	kills     uint64
	busy      float64 // share of the time that the disk is
	await     float64 // ms of a read of the disk, ten a second
	readMs    float64
	reads     uint64
	again     float64 // of a thousand segments a second
	resent    float64
	samples   []*snapshot.Sample
}

const (
	step = 30 * time.Second
	gib  = 1 << 30
)

func newDay() *day { return &day{at: time.Hour, available: 40 * gib, await: 2} }

// pass adds time with this share of it stalled; reclaim scans if any is.
func (d *day) pass(long time.Duration, stall float64) *day {
	for end := d.at + long; d.at < end; {
		d.at += step
		d.stalled += uint64(stall * float64(step.Microseconds()))
		if stall > 0 {
			d.scans += 1000
		}
		d.reads += 300
		d.readMs += 300 * d.await
		d.resent += 30_000 * d.again
		d.samples = append(d.samples, d.sample())
	}
	return d
}

func (d *day) scarce() *day { d.available = 8 * gib; return d }

func (d *day) sample() *snapshot.Sample {
	u := snapshot.Some[uint64]
	return &snapshot.Sample{
		Time: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(d.at), Monotonic: d.at, Boottime: d.at, BootID: "boot-1",
		Memory: snapshot.Memory{
			TotalBytes: u(64 * gib), AvailableBytes: u(d.available), FreeBytes: u(gib), ScansDirect: u(0), ScansKswapd: u(d.scans), OOMKills: u(d.kills),
		},
		Pressure: snapshot.Pressure{Memory: snapshot.Stall{Some: u(d.stalled), Full: u(d.stalled)}, IO: snapshot.Stall{Some: u(0), Full: u(0)}},
		Network:  snapshot.Network{TCPSegmentsSent: u(uint64(d.at.Seconds()) * 1000), TCPRetransmits: u(uint64(d.resent))},
		Disks: []snapshot.Disk{{
			Name: "sda", Number: "8:0", WWID: snapshot.Some("naa.1"), Rotational: snapshot.Some(false), Layer: snapshot.LayerLeaf,
			DiskCounters: snapshot.DiskCounters{Reads: d.reads, ReadMs: uint64(d.readMs), Writes: d.reads, WriteMs: d.reads, BusyMs: uint64(d.busy * float64(d.at.Milliseconds()))},
		}},
	}
}

// advice is what a day gives, by the defaults as changed.
func (d *day) advice(t *testing.T, change func(*config.Agent)) *Advice {
	t.Helper()
	a, _ := d.played(t, change)
	return a
}

// played is a day's advice, and the report of its replay.
func (d *day) played(t *testing.T, change func(*config.Agent)) (*Advice, *replay.Report) {
	t.Helper()
	file, err := config.Open("", change)
	require.NoError(t, err)
	var w Watcher
	p := replay.Player{Config: file.Current(), Watch: w.Watch}
	for _, s := range d.samples {
		p.Add(s)
	}
	r := p.Report()
	a, err := w.Advice(file.Current().Plugins.Inner, r)
	require.NoError(t, err)
	return a, r
}

// text is an Advice for people.
func text(t *testing.T, a *Advice) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteText(&b, a))
	return b.String()
}

func of(t *testing.T, a *Advice, key string) Proposal {
	t.Helper()
	for _, p := range a.Proposals {
		if p.Key == "plugins."+key {
			return p
		}
	}
	t.Fatalf("no proposal for %s", key)
	return Proposal{}
}

// accepted is the configuration with the proposed changes, as the agent loads it.
func accepted(t *testing.T, a *Advice) *config.Agent {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(file, []byte(a.Configuration), 0o600))
	c, err := config.Open(file, nil)
	require.NoError(t, err, a.Configuration)
	return c.Current()
}

func TestAdviseSlowDiskThreshold(t *testing.T) {
	d := newDay()
	d.await = 34
	a := d.pass(25*time.Hour, 0).advice(t, nil)
	p := of(t, a, "diskContention.await")
	assert.Equal(t, Change, p.Outcome)
	assert.InDelta(t, 0.050, p.Value, 1e-9)
	assert.Equal(t, "p99.9 await of sda in calm minutes was 34.0 ms (1499 minutes): 20.0 ms would leave a margin of only 0.6 ×: propose 50.0 ms", p.Reason)
	assert.Equal(t, 50*time.Millisecond, accepted(t, a).Plugins.DiskContention.Await)
}

func TestAdviseLoneBackupNoEvidence(t *testing.T) {
	d := newDay()
	d.await, d.busy = 240, 0.9
	p := of(t, d.pass(25*time.Hour, 0).advice(t, nil), "diskContention.await")
	assert.Equal(t, NotEnough, p.Outcome, p.Reason)
	d = newDay()
	d.await, d.busy = 34, 0.4
	assert.Equal(t, Change, of(t, d.pass(25*time.Hour, 0).advice(t, nil), "diskContention.await").Outcome)
}

func TestAdviseBoundsThresholds(t *testing.T) {
	d := newDay()
	d.await, d.again = 400, 0.2
	a := d.pass(25*time.Hour, 0).advice(t, nil)
	p := of(t, a, "diskContention.await")
	assert.InDelta(t, mostAwait.Seconds(), p.Value, 1e-9)
	assert.Contains(t, p.Reason, "propose 100 ms, the highest safe value")
	assert.InDelta(t, mostRetransmits, of(t, a, "networkContention.retransmits").Value, 1e-9)
	assert.InDelta(t, mostRetransmits, accepted(t, a).Plugins.NetworkContention.Retransmits, 1e-9)
}

func TestAdviseNotEnoughData(t *testing.T) {
	d := newDay()
	d.await = 34
	a := d.scarce().pass(12*time.Hour, 0.09).advice(t, nil)
	for _, p := range a.Proposals {
		assert.Equal(t, NotEnough, p.Outcome, p.Key)
		assert.InDelta(t, p.Now, p.Value, 0, p.Key)
	}
	assert.Contains(t, of(t, a, "memoryStall.soft.stallFull").Reason, "not enough data: measured for 11 h 59 min, needs 1 d")
	assert.Contains(t, of(t, a, "diskContention.await").Reason, "719 calm minutes of sda observed, needs 1000")
	assert.Contains(t, a.Configuration, "no changes proposed")
	assert.Equal(t, config.Default(), *accepted(t, a))
}

func TestAdviseKeepsThresholdWithMargin(t *testing.T) {
	a := newDay().pass(24*time.Hour, 0).scarce().pass(time.Hour, 0.06).advice(t, nil)
	p := of(t, a, "memoryStall.soft.stallFull")
	assert.Equal(t, Keep, p.Outcome)
	assert.Contains(t, p.Reason, "the highest harmless stall over 30s while memory was scarce was 6.0 %")
	assert.Contains(t, p.Reason, "10.0 % leaves a margin of 1.7 ×: keep")
}

func TestAdviseStallWithAmpleMemory(t *testing.T) {
	p := of(t, newDay().pass(25*time.Hour, 0.5).advice(t, nil), "memoryStall.soft.stallFull")
	assert.Equal(t, Keep, p.Outcome)
	assert.Contains(t, p.Reason, "memory was never scarce while the node was healthy")
}

// A node that stalls for half of the time serves no requests, with or without OOM kills.
func TestAdviseStallBeyondBoundIsHarm(t *testing.T) {
	p := of(t, newDay().pass(24*time.Hour, 0).scarce().pass(time.Hour, 0.5).advice(t, nil), "memoryStall.soft.stallFull")
	assert.Equal(t, Keep, p.Outcome)
	assert.Contains(t, p.Reason, "memory was never scarce while the node was healthy")
}

func TestAdviseRaisesSoftStallBelowHard(t *testing.T) {
	d := newDay().pass(24*time.Hour, 0).scarce().pass(time.Hour, 0.09)
	a := d.advice(t, nil)
	assert.InDelta(t, 0.13, of(t, a, "memoryStall.soft.stallFull").Value, 1e-9)
	assert.InDelta(t, 0.13, accepted(t, a).Plugins.MemoryStall.Soft.StallFull, 1e-9)
	a = d.advice(t, func(c *config.Agent) { c.Plugins.MemoryStall.Hard.StallFull = 0.11 })
	assert.LessOrEqual(t, accepted(t, a).Plugins.MemoryStall.Soft.StallFull, accepted(t, a).Plugins.MemoryStall.Hard.StallFull)
}

// Where hard looks back further than soft it may have seen less.
func TestAdviseSoftNotAboveKeptHard(t *testing.T) {
	c := plugins.Default()
	c.MemoryStall.Hard.StallFull = 0.12
	w := Watcher{memory: memoryRecord{measured: 2 * enoughSeconds, scarce: 1, soft: highest{value: 0.10}, hard: highest{value: 0.05}}}
	p := w.propose(c)
	assert.Equal(t, []float64{0.12, 0.12}, []float64{p[0].Value, p[1].Value})
}

// The stall before a kill was no good time; only what lies a minute off counts.
func TestAdviseStallAroundOOMKill(t *testing.T) {
	d := newDay().pass(24*time.Hour, 0).scarce().pass(10*time.Minute, 0.03).pass(time.Minute, 0.095)
	d.kills++
	a := d.pass(time.Minute, 0.095).pass(10*time.Minute, 0.03).advice(t, nil)
	p := of(t, a, "memoryStall.soft.stallFull")
	assert.Contains(t, p.Reason, "was 3.0 %", "what came before the kill is left out")
	assert.Equal(t, Keep, p.Outcome)
	assert.Equal(t, []uint64{1, 0, 1}, []uint64{a.OOMKills, a.OOMKillsAtOwnLimit, a.OOMKillsWithoutLevel})
}

// What came after the recording is not known: the node may have hung in its last minute.
func TestAdviceLastMinuteLeftOut(t *testing.T) {
	a := newDay().pass(24*time.Hour, 0).scarce().pass(10*time.Minute, 0.03).pass(40*time.Second, 0.095).advice(t, nil)
	assert.Contains(t, of(t, a, "memoryStall.soft.stallFull").Reason, "was 3.0 %")
}

// A container is killed at its own limit, half a minute after a level of memory ended.
func TestAdviseOOMKillAtOwnLimit(t *testing.T) {
	d := newDay().pass(time.Hour, 0)
	d.available = 5 * gib
	d.pass(time.Minute, 0.15)
	d.available = 40 * gib
	d.pass(step, 0).kills++
	a := d.pass(24*time.Hour, 0).advice(t, nil)
	assert.Equal(t, []uint64{1, 1, 0}, []uint64{a.OOMKills, a.OOMKillsAtOwnLimit, a.OOMKillsWithoutLevel})
	assert.Contains(t, text(t, a), "\n1 OOM kills, 1 of them in cgroups at their own limit; of the others 0 with no level of memory in the minute before.\n")
	require.Equal(t, "memory-stall", a.Scopes[0].Plugin)
	assert.EqualValues(t, 1, a.Scopes[0].Soft.Times)
	assert.Zero(t, a.Scopes[0].Soft.OOMKilled)
}

func TestAdviseOOMKillOfNode(t *testing.T) {
	for _, c := range []struct {
		available uint64
		stall     float64 // reclaim scans with it
		atLimit   uint64
	}{{40 * gib, 0, 1}, {40 * gib, 0.01, 0}, {8 * gib, 0, 0}} {
		d := newDay()
		d.available = c.available
		d.pass(5*time.Minute, c.stall).kills++
		a := d.pass(5*time.Minute, c.stall).advice(t, nil)
		assert.Equal(t, []uint64{1, c.atLimit, 1 - c.atLimit}, []uint64{a.OOMKills, a.OOMKillsAtOwnLimit, a.OOMKillsWithoutLevel}, c)
	}
}

func TestAdviseNothingFromUnmeasuredStall(t *testing.T) {
	without := func(samples []*snapshot.Sample) {
		for _, s := range samples {
			s.Pressure.Memory, s.Pressure.Absent = snapshot.Stall{}, snapshot.Absent{"memory": "this kernel has no PSI"}
		}
	}
	d := newDay().pass(25*time.Hour, 0)
	whole := len(d.samples)
	without(d.scarce().pass(time.Hour, 0.05).samples[whole:])
	p := of(t, d.advice(t, nil), "memoryStall.soft.stallFull")
	assert.Equal(t, Keep, p.Outcome)
	assert.Contains(t, p.Reason, "memory was never scarce while the node was healthy (0 s of scarce memory in 1 d)")

	d = newDay().scarce().pass(25*time.Hour, 0.05)
	without(d.samples)
	a := d.advice(t, nil)
	for _, key := range []string{"memoryStall.soft.stallFull", "memoryStall.hard.stallFull"} {
		p := of(t, a, key)
		assert.Equal(t, NotEnough, p.Outcome, p.Reason)
		assert.Equal(t, "not enough data: measured for 0 s, needs 1 d", p.Reason)
	}
	assert.Regexp(t, `(?m)^and \d never judged$`, text(t, a))
	assert.Regexp(t, `(?m)^memory-stall: measurements missing for 1 d, last: this kernel has no PSI$`, text(t, a))
}

// A replay lists a thousand decisions; these are more.
func TestAdviseEvictionAfterManyDecisions(t *testing.T) {
	d := newDay()
	for range 600 {
		d.available = 5 * gib
		d.pass(time.Minute, 0.2)
		d.available = 40 * gib
		d.pass(2*time.Minute, 0)
	}
	d.available = 2 * gib
	d.pass(time.Minute, 0.5)
	for _, s := range d.samples {
		s.Workloads = []snapshot.Workload{{
			Cgroup: "/kubepods.slice/pod7.slice", Inode: 7, Kind: snapshot.KindPod, Name: "pod 7", PodUID: "7", At: s.Monotonic, DetailAt: s.Monotonic, ThrottledAt: s.Monotonic,
			MemoryBytes: snapshot.Some[uint64](30 * gib), InactiveFileBytes: snapshot.Some[uint64](0), LimitHits: snapshot.Some[uint64](0),
		}}
	}
	a, r := d.played(t, nil)
	assert.Positive(t, r.Omitted.Decisions)
	assert.Equal(t, []Action{{Name: "pod/7", Evicted: 1, EvictedUnthrottled: 1, Throttled: map[string]uint64{}}}, a.Actions)
	assert.NotContains(t, text(t, a), "no pod would have been")
}

func TestAdviseText(t *testing.T) {
	d := newDay().pass(24*time.Hour, 0).scarce()
	d.available = 2 * gib
	a := d.pass(5*time.Minute, 0.5).pass(time.Hour, 0).advice(t, nil)
	got := text(t, a)
	assert.Regexp(t, `memory-stall +node +1 d 1 h +hard +1 +\d+ min \d+ s`, got)
	assert.Contains(t, got, "  memoryStall.soft.stallFull: ")
	assert.Contains(t, got, "\nConfiguration:\n  apiVersion: plimsoll.dev/v1alpha1\n")
}
