package top

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const stamp = "2026-03-01T12:02:05Z "

const address = "http://127.0.0.1:9773/"

func TestChanges(t *testing.T) {
	var out strings.Builder
	c := &Changes{Out: &out, Page: address}
	c.Show(nil)
	c.Show(scenes.Calm())
	c.Show(scenes.Calm())
	c.Show(scenes.OwnLimit())
	assert.Equal(t, stamp+"node-a: No pressure; standalone mode: evictions disabled; status page "+address+"\n"+
		stamp+"cache.service is at its cgroup's memory limit: it waits for that, not for the node's memory (memory stall 83.0 %, limit hit 1200 times)\n", out.String())
}

func TestLinesFirstIsSummary(t *testing.T) {
	assert.Equal(t, []string{stamp + "node-a: No pressure; standalone mode: evictions disabled"}, Lines(nil, scenes.Calm()))
}

func TestLinesInitialProblems(t *testing.T) {
	lines := Lines(nil, scenes.EverythingAbsent())
	assert.Len(t, lines, 1+4+1+6+1, "summary, four resources that were not judged, note, six probes, configuration")
	assert.Equal(t, "2026-03-01T12:00:00Z node-a: No pressure found; not judged: memory, CPU, disk, and 1 more; standalone mode: evictions disabled", lines[0])
	assert.Equal(t, "2026-03-01T12:00:00Z not judged: memory: the kernel was started without psi=1", lines[1])
	assert.Contains(t, lines[12], "unknown key")
}

func TestLinesUnchangedIsEmpty(t *testing.T) {
	for name, s := range allScenes() {
		if s != nil {
			assert.Empty(t, Lines(s, s), name)
		}
	}
}

func TestLinesOldSample(t *testing.T) {
	const begun = stamp + "no new values for 12 s: the agent answers, but takes no new sample"
	assert.Equal(t, []string{begun}, Lines(scenes.Calm(), agedBy(12)))
	assert.Empty(t, Lines(agedBy(12), agedBy(13)), "once")
	assert.Equal(t, []string{"2026-03-01T12:02:25Z the agent takes samples again"}, Lines(agedBy(13), sampledAt(20)))
	assert.Contains(t, Lines(nil, agedBy(12)), begun, "also of the first state")
	assert.Empty(t, Lines(scenes.Calm(), agedBy(5)))
}

func TestLinesLevelChange(t *testing.T) {
	calm, hard := scenes.Calm(), scenes.MemoryHard()
	up := Lines(calm, hard)
	assert.Len(t, up, 4)
	assert.Contains(t, up[0], stamp+"Memory: none → hard (memory-stall): memory stall, full, over 5s 41.0 %")
	assert.Equal(t, stamp+"Memory: candidate: pod 8d1c2f6e, working set 5.0 GiB", up[1])
	down := Lines(hard, calm)
	assert.Len(t, down, 1)
	assert.Contains(t, down[0], "Memory: hard → none (memory-stall)")
}

func TestLinesPluginOffUnderPressure(t *testing.T) {
	off := scenes.MemoryHard()
	off.Levels = &plugins.Levels{}
	assert.Equal(t, []string{stamp + "Memory: hard → no longer judged (memory-stall)"}, Lines(scenes.MemoryHard(), off))
	assert.Empty(t, Lines(scenes.Calm(), off), "without pressure nothing is lost")
}

func TestLinesWorkloadAtOwnLimit(t *testing.T) {
	calm, own := scenes.Calm(), scenes.OwnLimit()
	assert.Equal(t, []string{stamp + "cache.service is at its cgroup's memory limit: it waits for that, not for the node's memory (memory stall 83.0 %, limit hit 1200 times)"}, Lines(calm, own))
	assert.Equal(t, []string{stamp + "cache.service no longer stalls at its own limit"}, Lines(own, calm))
	gone := scenes.Calm()
	gone.Snapshot.Workloads = gone.Snapshot.Workloads[:2]
	assert.Equal(t, []string{stamp + "cache.service, which stalled at its own limit, no longer exists"}, Lines(own, gone))
}

func TestLinesProbeFails(t *testing.T) {
	with := func(err string) *view.State {
		s := scenes.Calm()
		s.Snapshot.Probes = []snapshot.Probe{{Name: "cpu"}, {Name: "disks", Error: err}}
		return s
	}
	assert.Equal(t, []string{stamp + "probe disks failed: permission denied"}, Lines(with(""), with("permission denied")))
	assert.Empty(t, Lines(with("permission denied"), with("no such file")), "it still fails")
	assert.Equal(t, []string{stamp + "probe disks recovered"}, Lines(with("permission denied"), with("")))
}

func TestLinesReloadFails(t *testing.T) {
	with := func(err string) *view.State {
		s := scenes.Calm()
		s.Agent.ConfigError = err
		return s
	}
	assert.Equal(t, []string{stamp + "configuration: reload failed, the previous one stays in force: line 7"}, Lines(with(""), with("line 7")))
	assert.Equal(t, []string{stamp + "configuration: reload failed, the previous one stays in force: line 8"}, Lines(with("line 7"), with("line 8")))
	assert.Equal(t, []string{stamp + "configuration: the file is valid again and in force"}, Lines(with("line 7"), with("")))
}

func TestLinesEviction(t *testing.T) {
	with := func(e *view.Eviction) *view.State {
		s := scenes.Calm()
		s.LastEviction = e
		return s
	}
	first := &view.Eviction{Decision: "d1", Time: scenes.Start(), Name: "shop/cart", Reason: "working set 3.0 GiB"}
	gone := *first
	gone.TerminatedAt = scenes.Start().Add(14 * time.Second)
	assert.Equal(t, []string{stamp + "evicted shop/cart: working set 3.0 GiB; still terminating (decision d1)"}, Lines(with(nil), with(first)))
	assert.Equal(t, []string{stamp + "shop/cart terminated 14 s after the eviction"}, Lines(with(first), with(&gone)))
	assert.Empty(t, Lines(with(&gone), with(&gone)))
	three, allGone := *first, gone
	three.More, allGone.More = 2, 2
	assert.Equal(t, []string{stamp + "evicted shop/cart and 2 more: working set 3.0 GiB; still terminating (decision d1)"}, Lines(with(nil), with(&three)))
	assert.Equal(t, []string{stamp + "shop/cart and 2 more terminated 14 s after the eviction"}, Lines(with(&three), with(&allGone)))
	dry := &view.Eviction{Decision: "d2", Time: scenes.Start(), Name: "shop/cart", Reason: "working set 3.0 GiB", DryRun: true}
	assert.Equal(t, []string{stamp + "dry run: would evict shop/cart: working set 3.0 GiB (decision d2)"}, Lines(with(&gone), with(dry)))
	assert.Empty(t, Lines(with(dry), with(nil)), "one that is kept no more is no news")
	migrates := *first
	migrates.Code = evict.CodeInProgress
	assert.Equal(t, []string{stamp + "eviction of shop/cart requested: working set 3.0 GiB; not carried out yet (decision d1)"}, Lines(with(nil), with(&migrates)))

	older := gone
	older.Decision, older.Name, older.Time, older.TerminatedAt = "d0", "shop/old", gone.Time.Add(-240*time.Hour), gone.TerminatedAt.Add(-240*time.Hour)
	assert.Equal(t, stamp+"last eviction, 10 d ago: evicted shop/old: working set 3.0 GiB; terminated after 14 s (decision d0)", Lines(nil, with(&older))[1], "it is not of now")
	assert.Len(t, Lines(nil, with(&older)), 2)
	assert.Equal(t, []string{stamp + "the eviction of shop/cart was not carried out (decision d1)"}, Lines(with(&migrates), with(&older)))
	assert.Empty(t, Lines(with(dry), with(&older)), "one that is kept no more is no news")
}

func TestLinesDryRunCandidates(t *testing.T) {
	up := Lines(scenes.Evicted(), scenes.DryRun())
	assert.Contains(t, up, stamp+"Memory: candidate: pod 8d1c2f6e, working set 5.0 GiB")
	assert.Contains(t, up[len(up)-1], "dry run: would evict shop/cart-66b8d-mm4qz")
	assert.Contains(t, Lines(nil, scenes.DryRun())[0], "DRY RUN of evictions: no mark, no eviction")
}

func TestLinesProbeNote(t *testing.T) {
	with := func(note string) *view.State {
		s := scenes.Calm()
		s.Snapshot.Probes = []snapshot.Probe{{Name: "cpu"}, {Name: "workloads", Note: note}}
		return s
	}
	assert.Equal(t, []string{stamp + "probe workloads: read every 3rd tick: it costs 3 % of a core"}, Lines(with(""), with("read every 3rd tick: it costs 3 % of a core")))
	assert.Empty(t, Lines(with("read every 3rd tick"), with("read every 4th tick")), "not one line per tick")
	assert.Equal(t, []string{stamp + "probe workloads is read at its usual rate again"}, Lines(with("read every 3rd tick"), with("")))
}
