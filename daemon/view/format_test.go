package view

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestFormatUnits(t *testing.T) {
	for want, got := range map[string]string{
		"0 B": Bytes(0), "512 B": Bytes(512), "1.0 KiB": Bytes(1024), "1.5 GiB": Bytes(1.5 * (1 << 30)), "16.0 GiB": Bytes(16 << 30), "300 MiB": Bytes(300 << 20),
		"1.9 TB": Size(1_920_383_410_176), "67.1 MB": Size(64 << 20),
		"0 kB/s": ByteRate(0), "<0.1 kB/s": ByteRate(3), "54.0 MB/s": ByteRate(54e6),
		"10.0 Gbit/s": BitRate(1.25e9), "100 Mbit/s": BitRate(12.5e6), "0 kbit/s": BitRate(0),
		"0 %": Ratio(0), "<0.1 %": Ratio(0.0004), "12.3 %": Ratio(0.123), "100 %": Ratio(1), "99.9 %": Ratio(0.999),
		"0": Number(0), "3": Number(3), "0.4": Number(0.4), "1234": Number(1234), "12.3 k": Number(12_345), "4.5 M": Number(4.5e6),
		"250 µs": Seconds(250e-6), "12.5 ms": Seconds(0.0125), "1.2 s": Seconds(1.2), "0 µs": Seconds(0),
		"3.0 %": Quantity(0.03, "ratio"), "2.0 MiB": Quantity(2<<20, "bytes"), "5.0 ms": Quantity(0.005, "seconds"), "7 pages": Quantity(7, "pages"), "7": Quantity(7, ""),
	} {
		assert.Equal(t, want, got)
	}
}

func TestFormatRoundingStaysInUnit(t *testing.T) {
	assert.Equal(t, "1.0 MiB", Bytes(1<<20-1))
	assert.Equal(t, "1.0 MB", Size(999_960))
	assert.Equal(t, "1.0 ms", Seconds(999.96e-6))
	assert.Equal(t, "100", Number(99.96))
}

func TestFormatAge(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0 s": -time.Second, "12 s": 12 * time.Second, "59 s": 59*time.Second + 999*time.Millisecond, "1 min": time.Minute, "3 min 20 s": 200 * time.Second,
		"2 h 5 min": 2*time.Hour + 5*time.Minute + 7*time.Second, "1 d": 24 * time.Hour, "3 d 4 h": 76 * time.Hour,
	} {
		assert.Equal(t, want, Age(d))
	}
}

func TestFormatAbsentIsNotZero(t *testing.T) {
	assert.Equal(t, "–", Optional(snapshot.Opt[float64]{}, Ratio))
	assert.Equal(t, "0 %", Optional(snapshot.Some(0.0), Ratio))
}

func TestAbsentReasonOfFirstKey(t *testing.T) {
	absent := snapshot.Absent{"rates": "first sample\x1b[2J"}
	assert.Equal(t, `first sample\x1b[2J`, AbsentReason(absent, "memoryBytes", "rates"))
	assert.Equal(t, "not measured", AbsentReason(absent, "memoryBytes"))
}

func TestPrintableEscapesControlCharacters(t *testing.T) {
	for name, want := range map[string]string{
		"nvme0n1": "nvme0n1", "größe": "größe", "\x1b[31mred": `\x1b[31mred`, "a\nb\x7f": `a\x0ab\x7f`, "\xff": `\xff`,
		"\u202egnp": `\u202egnp`, "\u009b2J": `\u009b2J`, "\u200b": `\u200b`,
	} {
		assert.Equal(t, want, Printable(name))
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b]0;x\x07")
	f.Add("a\xc3")
	f.Fuzz(func(t *testing.T, s string) {
		p := Printable(s)
		assert.True(t, utf8.ValidString(p))
		assert.Negative(t, strings.IndexFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }))
		assert.Equal(t, p, Printable(p), "what is printable stays as it is")
	})
}

func judgedBy(list ...plugins.Verdict) *State {
	return &State{Snapshot: &snapshot.Snapshot{Time: time.Unix(100, 0)}, Levels: &plugins.Levels{Verdicts: list}}
}

func TestHeadline(t *testing.T) {
	memory := plugins.Verdict{Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Since: time.Unix(88, 0)}
	disk := plugins.Verdict{Plugin: "disk", Resource: plugins.Disk, Scope: "sda", Since: time.Unix(40, 0)}
	cpu := plugins.Verdict{Plugin: "cpu-contention", Resource: plugins.CPU, Scope: "node"}
	say := func(m, d plugins.Level, absent string) string {
		memory.Level, disk.Level, disk.Absent = m, d, absent
		text, level := judgedBy(memory, disk, cpu).Headline()
		assert.Equal(t, max(m, d), level)
		return text
	}
	assert.Equal(t, "No pressure", say(plugins.None, plugins.None, ""))
	assert.Equal(t, "Memory: soft for 12 s", say(plugins.Soft, plugins.None, ""))
	assert.Equal(t, "Memory: hard for 12 s · Disk sda: soft for 1 min", say(plugins.Hard, plugins.Soft, ""))
	assert.Equal(t, "No pressure found; not judged: disk sda", say(plugins.None, plugins.None, "no PSI"))
	assert.Equal(t, "Memory: soft for 12 s; not judged: disk sda", say(plugins.Soft, plugins.None, "no PSI"))
	many := judgedBy(memory, cpu)
	for _, scope := range []string{"sda", "sdb", "sdc", "sdd", "sde"} {
		disk.Scope, disk.Level = scope, plugins.None
		many.Levels.Verdicts = append(many.Levels.Verdicts, disk)
	}
	text, _ := many.Headline()
	assert.Equal(t, "Memory: soft for 12 s; not judged: disk sda, disk sdb, disk sdc, and 2 more", text)
	assert.Equal(t, []string{"disk sda, disk sdb, disk sdc, disk sdd, disk sde: no PSI"}, many.UnjudgedText())
	assert.False(t, many.AllClear())
	nothing, _ := judgedBy().Headline()
	assert.Equal(t, "Not judged: no plugin is enabled", nothing)
	waiting, _ := (*State)(nil).Headline()
	assert.Equal(t, WaitingText, waiting)
	memory.Level = plugins.None
	assert.True(t, judgedBy(memory, cpu).AllClear())
	cpu.Partial = true
	assert.False(t, judgedBy(memory, cpu).AllClear(), "what has just started has not judged")
	cpu.Partial = false
	ended := judgedBy(memory, cpu).WithOuter(&OuterPlugins{Ended: []plugins.Verdict{{Plugin: "vendor", Scope: "raid", Absent: "no answer since noon: the plugin has ended"}}})
	assert.False(t, ended.AllClear())
	text, _ = ended.Headline()
	assert.Equal(t, "No pressure found; not judged: vendor raid", text)
}

func TestLevelText(t *testing.T) {
	assert.Equal(t, "none", LevelText(plugins.Verdict{}))
	assert.Equal(t, "none found, measurements missing", LevelText(plugins.Verdict{Absent: "no PSI"}))
	assert.Equal(t, "hard: threshold met", LevelText(plugins.Verdict{Level: plugins.Hard, Absent: "no PSI"}))
}

func TestModeTextStandalone(t *testing.T) {
	assert.Equal(t, "standalone mode: evictions disabled", (&State{Agent: Agent{Mode: "standalone"}}).ModeText())
	assert.Equal(t, "something else", (&State{Agent: Agent{Mode: "something else"}}).ModeText())
}

// What was not judged for one reason is one line, however much it is.
func TestNotJudgedByReason(t *testing.T) {
	s := &State{Snapshot: &snapshot.Snapshot{}, Levels: &plugins.Levels{}}
	for i := range 8 {
		s.Levels.Verdicts = append(s.Levels.Verdicts, plugins.Verdict{Plugin: "disk-contention", Resource: plugins.Disk, Scope: fmt.Sprintf("sd%d", i), Absent: "no rates yet"})
	}
	s.Levels.Verdicts = append(s.Levels.Verdicts, plugins.Verdict{Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Absent: "psi=0"})
	var disks, memory []string
	for _, text := range s.UnjudgedText() {
		if strings.HasSuffix(text, ": no rates yet") {
			disks = append(disks, text)
		}
		if strings.HasSuffix(text, ": psi=0") {
			memory = append(memory, text)
		}
	}
	assert.Equal(t, []string{"disk sd0, disk sd1, disk sd2, disk sd3, disk sd4, disk sd5, and 2 more: no rates yet"}, disks)
	assert.Equal(t, []string{"memory: psi=0"}, memory)
}
