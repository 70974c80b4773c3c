package top

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// contending is a calm node with these contentions.
func contending(list ...snapshot.Contention) *view.State {
	s := *scenes.Calm()
	n := *s.Snapshot
	n.Contention = list
	s.Snapshot = &n
	return &s
}

func onDisk(device string, state snapshot.ContentionState) snapshot.Contention {
	return snapshot.Contention{Resource: snapshot.SharedDisk, Device: device, State: state, Coverage: snapshot.Some(0.94)}
}

func culpritNamed(name string, share float64) snapshot.Culprit {
	return snapshot.Culprit{Party: snapshot.Party{Name: name}, Share: share, BytesPerSecond: share * 1e8}
}

func suffererNamed(name string, waited float64) snapshot.Sufferer {
	return snapshot.Sufferer{Party: snapshot.Party{Name: name}, Waited: waited}
}

// after is the line with the words and those below it.
func after(t *testing.T, frame, words string) []string {
	t.Helper()
	lines := strings.Split(frame, "\n")
	for i, l := range lines {
		if strings.Contains(l, words) {
			return lines[i:]
		}
	}
	require.Fail(t, "not found", "%q in\n%s", words, frame)
	return nil
}

func TestTopContentionBelowHeader(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}} {
		frame := frameOf(scenes.Contended(), size[0], size[1], false)
		hurt, judged := strings.Index(frame, "CONTENTION 10.0 s"), strings.Index(frame, "memory-stall")
		assert.Positive(t, hurt)
		assert.Less(t, hurt, judged)
		lines := after(t, frame, "nvme0n1  contention  coverage 94.3 %")
		assert.Regexp(t, `^ +66\.0 % +380 MB/s +batch-.*x2k9p +33\.9 % +payments-.*them-0$`, lines[1], "the culprit beside the sufferer")
		assert.Regexp(t, `^ +and 13 more +and 12 more$`, lines[4])
	}
}

func TestTopBusyDeviceOneLine(t *testing.T) {
	busy := onDisk("nvme0n1", snapshot.ContentionBusy)
	busy.Culprits = []snapshot.Culprit{culpritNamed("backup.service", 0.97)}
	lines := after(t, frameOf(contending(busy), 120, 40, false), "CONTENTION")
	assert.Equal(t, []string{"nvme0n1  busy, no contention  97.0 % backup.service", ""}, lines[1:3])
	lines = after(t, frameOf(contending(busy, onDisk("sda", snapshot.ContentionBusy)), 80, 24, false), "CONTENTION")
	assert.Equal(t, "CONTENTION 10.0 s  busy without contention: nvme0n1, sda", lines[0], "where it is tight it costs no line")
	assert.True(t, strings.HasPrefix(lines[1], "memory-stall"))
}

func TestTopNoContentionNoSection(t *testing.T) {
	assert.NotContains(t, frameOf(contending(), 80, 24, false), "CONTENTION")
}

func TestTopSufferersUnknown(t *testing.T) {
	c := onDisk("sda", snapshot.ContentionUnknown)
	c.Absent.Because("sufferers", "no PSI")
	c.Culprits = []snapshot.Culprit{culpritNamed("backup.service", 0.97)}
	frame := frameOf(contending(c), 80, 24, false)
	assert.Contains(t, frame, "sda  sufferers unknown  coverage 94.0 %")
	assert.NotContains(t, frame, "no contention")
}

func TestTopContentionOneSideEmpty(t *testing.T) {
	c := onDisk("sda", snapshot.ContentionPresent)
	c.Sufferers = []snapshot.Sufferer{suffererNamed("web/db", 0.4)}
	assert.Regexp(t, `^ +no workload found using it +40\.0 % +web/db$`, after(t, frameOf(contending(c), 80, 24, false), "sda  contention")[1])
}

func TestTopManyDevicesBounded(t *testing.T) {
	var list []snapshot.Contention
	for i := range 40 {
		c := onDisk(fmt.Sprintf("sd%02d", i), snapshot.ContentionPresent)
		c.Culprits, c.Sufferers = []snapshot.Culprit{culpritNamed("backup.service", 0.9)}, []snapshot.Sufferer{suffererNamed("web/db", 0.4)}
		list = append(list, c)
	}
	frame := frameOf(contending(list...), 80, 24, false)
	assert.Contains(t, frame, "and 32 more: sd08, sd09")
	list[20].Sufferers = []snapshot.Sufferer{suffererNamed("web/db", 0.9)}
	assert.Contains(t, frameOf(contending(list...), 80, 24, false), "waits 90.0 % web/db", "the longest wait is shown")
	assert.Contains(t, frame, "memory-stall none")
	assert.Contains(t, frame, "sd07  contention  coverage 94.0 %  90.0 % backu…rvice  waits 40.0 % web/db")
	assert.Equal(t, 40, strings.Count(frameOf(contending(list...), 120, 1000, false), "contention  coverage"), "without a terminal all of it is shown")
}

func TestTopShortensLongName(t *testing.T) {
	assert.Equal(t, "payment…5-x2k9p", shorten("payments/checkout-7d9c8b6f5-x2k9p", 15))
	for width := 1; width < 40; width++ {
		got := shorten("payments/checkout-7d9c8b6f5-x2k9p", width)
		assert.LessOrEqual(t, utf8.RuneCountInString(got), width)
	}
	assert.Equal(t, "web/a", shorten("web/a", 5))
	assert.Equal(t, `\x1b[2J`, shorten("\x1b[2J", 20))
}

func TestTopDevicesWithoutLevelShareLine(t *testing.T) {
	s := scenes.Contended()
	for i := range 12 {
		v := s.Levels.Verdicts[3]
		v.Scope = fmt.Sprintf("sd%c", 'c'+i)
		s.Levels.Verdicts = append(s.Levels.Verdicts, v)
	}
	blind := s.Levels.Verdicts[3]
	blind.Scope, blind.Absent = "sdz", "no PSI"
	s.Levels.Verdicts = append(s.Levels.Verdicts, blind)
	frame := frameOf(s, 200, 60, false)
	assert.Contains(t, frame, "disk-contention none  sda 14.0 ms  sdb 4.0 ms")
	assert.Contains(t, frame, "cpu-contention none  node")
	assert.Contains(t, frame, "disk-contention none  sdc 4.0 ms  sdd 4.0 ms")
	assert.Contains(t, frame, "disk-contention nvme0n1 soft for 40 s")
	assert.Contains(t, frame, "disk-contention sdz none for 3 h", "what was not judged in full stands apart")
	assert.Equal(t, 4+1, strings.Count(frame, "disk-contention"), "and a line with the missing measurement")
	assert.Nil(t, calmScopes([]plugins.Verdict{{Plugin: "a", Scope: "x"}, {Plugin: "a", Scope: "y"}}), "few are shown in full")
}

// The live screen names a culprit where the page does.
func TestTopLineCulprit(t *testing.T) {
	c := onDisk("sda", snapshot.ContentionPresent)
	c.Culprits = []snapshot.Culprit{culpritNamed("shop/db", 0.5), culpritNamed("batch/copy", 0.44)}
	c.Sufferers = []snapshot.Sufferer{suffererNamed("shop/db", 0.38)}
	textOf := func() string {
		var b strings.Builder
		for _, s := range contentionLine(&c, 120) {
			b.WriteString(s.text)
		}
		return b.String()
	}
	assert.Contains(t, textOf(), "44.0 % batch/copy  waits 38.0 % shop/db")
	c.Coverage = snapshot.Some(0.12)
	assert.Contains(t, textOf(), "no culprit named  waits 38.0 % shop/db", "too little of the use is accounted for")
	c.Coverage, c.Culprits[1].Share = snapshot.Some(0.94), 0.01
	assert.Contains(t, textOf(), "no culprit named  waits 38.0 % shop/db", "its share is too small")
}

func TestTopJustStartedIsNotGreen(t *testing.T) {
	assert.Equal(t, bold, verdictStyle(plugins.Verdict{Partial: true}))
	assert.Equal(t, green, verdictStyle(plugins.Verdict{}))
}

func TestTopPriorityIsWhole(t *testing.T) {
	d := &detail{state: scenes.Calm()}
	d.workload(&snapshot.WorkloadState{Pod: &snapshot.Pod{QoS: "Burstable", Priority: 1049000}})
	var b strings.Builder
	for _, l := range d.lines {
		for _, s := range l {
			b.WriteString(s.text + "\n")
		}
	}
	assert.Contains(t, b.String(), "priority 1049000\n")
}
