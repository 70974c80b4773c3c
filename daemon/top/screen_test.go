package top

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// at is when the states of these tests arrive, by the clock of the terminal.
func at(seconds int) time.Time { return scenes.Start().Add(time.Duration(seconds) * time.Second) }

func screenOf(s *view.State, width, height int) Screen {
	return NewScreen(s, time.Second, at(0), width, height)
}

// press keys: each is one of the names, or else its characters are pressed.
func press(t *testing.T, s Screen, keys ...Key) Screen {
	t.Helper()
	for _, k := range keys {
		var quit bool
		s, quit = s.Pressed(k)
		require.False(t, quit, k)
	}
	return s
}

// typed is one key for each character.
func typed(text string) (keys []Key) {
	for _, r := range text {
		keys = append(keys, Key(string(r)))
	}
	return keys
}

func plainLines(s Screen) []string {
	var list []string
	for _, l := range s.lines() {
		var b strings.Builder
		l.write(&b, 1<<20, false)
		list = append(list, strings.TrimRight(b.String(), " "))
	}
	return list
}

func plainText(s Screen) string { return strings.Join(plainLines(s), "\n") + "\n" }

// rowsOf are the names of the visible rows, and the selected one.
func rowsOf(s Screen) (names []string, selected string) {
	lines := plainLines(s)
	_, visible := s.heights()
	head, _ := s.heights()
	for _, l := range lines[head+2 : min(len(lines)-1, head+2+visible)] {
		if l == "" {
			break
		}
		name, _, _ := strings.Cut(l[2:], "  ")
		names = append(names, name)
		if strings.HasPrefix(l, "> ") {
			selected = name
		}
	}
	return names, selected
}

func TestScreenGolden(t *testing.T) {
	for name, s := range map[string]Screen{
		"contended_80x24":   screenOf(scenes.Contended(), 80, 24),
		"contended_120x40":  screenOf(scenes.Contended(), 120, 40),
		"contended_40x20":   screenOf(scenes.Contended(), 40, 20),
		"hostile_80x24":     screenOf(scenes.Hostile(), 80, 24),
		"absent_80x24":      screenOf(scenes.EverythingAbsent(), 80, 24),
		"disks_80x24":       press(t, screenOf(scenes.Contended(), 80, 24), KeyTab),
		"verdicts_80x24":    press(t, screenOf(scenes.MemoryHard(), 80, 24), KeyTab, KeyTab, KeyTab, KeyTab),
		"notes_80x24":       press(t, screenOf(scenes.EverythingAbsent(), 80, 24), KeyBackTab),
		"workload_100x50":   press(t, screenOf(scenes.Contended(), 100, 50), append(append([]Key{"/"}, typed("du-of")...), KeyEnter, KeyEnter)...),
		"disk_100x50":       press(t, screenOf(scenes.Contended(), 100, 50), KeyTab, KeyEnter),
		"disk_40x20":        press(t, screenOf(scenes.Contended(), 40, 20), KeyTab, KeyEnter),
		"verdict_80x24":     press(t, screenOf(scenes.MemoryHard(), 80, 24), KeyLeft, KeyLeft, KeyEnter),
		"filesystem_80x24":  press(t, screenOf(scenes.MemoryHard(), 80, 24), KeyTab, KeyTab, KeyTab, KeyEnter),
		"help_80x24":        press(t, screenOf(scenes.Calm(), 80, 24), "?"),
		"lost_80x24":        screenOf(scenes.Calm(), 80, 24).Failed("no agent is listening on /run/plimsoll.sock", at(75)),
		"no_rows_80x24":     press(t, screenOf(scenes.Calm(), 80, 24), append([]Key{"/"}, typed("nosuch")...)...),
		"own_limit_80x24":   screenOf(scenes.OwnLimit(), 80, 24),
		"first_tick_80x24":  screenOf(scenes.FirstTick(), 80, 24),
		"workload_hostile":  press(t, screenOf(scenes.Hostile(), 80, 40), KeyEnter),
		"nic_80x24":         press(t, screenOf(scenes.Contended(), 80, 24), KeyTab, KeyTab, KeyEnter),
		"no_network_80x24":  press(t, screenOf(withoutNICs(), 80, 24), KeyTab, KeyTab),
		"sorted_desc_80x24": press(t, screenOf(scenes.Contended(), 80, 24), "s", "s", "r"),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", "screen", name+".txt")
			got := plainText(s)
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", file)
		})
	}
}

func withoutNICs() *view.State {
	s := *scenes.Calm()
	n := *s.Snapshot
	n.NICs = nil
	s.Snapshot = &n
	return &s
}

// everywhere is each view of a state.
func everywhere(t *testing.T, s Screen) []Screen {
	var all []Screen
	for range lists {
		all = append(all, s, press(t, s, KeyEnter), press(t, s, "G", KeyEnter, "G"), press(t, s, "/", "x"), press(t, s, "s", "s", "r"))
		s = press(t, s, KeyTab)
	}
	return append(all, press(t, s, "?"), press(t, s, "?", "G"), s.Failed("gone", at(60)))
}

func TestScreenFits(t *testing.T) {
	for name, state := range allScenes() {
		all := []Screen{screenOf(state, 100, 30)}
		if state != nil {
			all = everywhere(t, all[0])
		}
		for _, size := range [][2]int{{80, 24}, {40, 10}, {40, 24}, {12, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 40}, {200, 1}, {0, 0}, {200, 60}} {
			for _, s := range all {
				lines := s.Resized(size[0], size[1]).lines()
				assert.LessOrEqual(t, len(lines), size[1], "%s %v", name, size)
				for _, l := range lines {
					assert.LessOrEqual(t, l.columns(), size[0], "%s %v: %v", name, size, l)
				}
			}
		}
	}
}

// Whatever a workload, a device or a reason is called, no control character and no
// direction mark is part of a line.
func TestScreenNamesEscaped(t *testing.T) {
	escaped := false
	for _, s := range everywhere(t, screenOf(scenes.Hostile(), 200, 60)) {
		for _, l := range s.lines() {
			for _, part := range l {
				assert.Equal(t, view.Printable(part.text), part.text)
				escaped = escaped || strings.Contains(part.text, `\x1b]0;owned\x07`)
			}
		}
	}
	assert.True(t, escaped, "the names are shown as text")
}

func TestScreenQuits(t *testing.T) {
	s := screenOf(scenes.Calm(), 80, 24)
	for _, c := range []struct {
		name string
		in   Screen
		key  Key
		quit bool
	}{
		{"q in a list", s, "q", true},
		{"q in a detail", press(t, s, KeyEnter), "q", true},
		{"q in the help", press(t, s, "?"), "q", true},
		{"q in a filter is a letter", press(t, s, "/"), "q", false},
		{"Ctrl-C in a list", s, KeyInterrupt, true},
		{"Ctrl-C in a filter", press(t, s, "/"), KeyInterrupt, true},
		{"Esc in a list", s, KeyEsc, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, quit := c.in.Pressed(c.key)
			assert.Equal(t, c.quit, quit)
		})
	}
}

// many is a node with n workloads, w000 with the most CPU.
func many(n int) *view.State {
	s := *scenes.Calm()
	of := *s.Snapshot
	of.Workloads = nil
	for i := range n {
		w := snapshot.WorkloadState{Workload: snapshot.Workload{Cgroup: fmt.Sprintf("/w%03d", i), Name: fmt.Sprintf("w%03d", i)}, WorkingSetBytes: snapshot.Some(uint64(i) << 20)}
		w.Rates = snapshot.Some(snapshot.WorkloadRates{CPUCores: snapshot.Some(float64(n - i))})
		of.Workloads = append(of.Workloads, w)
	}
	s.Snapshot = &of
	return &s
}

func TestScreenScrolls(t *testing.T) {
	s := screenOf(many(100), 80, 24)
	names, _ := rowsOf(s)
	page := len(names)
	require.Greater(t, page, 5)
	row := func(i int) string { return fmt.Sprintf("w%03d", i) }
	for _, c := range []struct {
		name            string
		keys            []Key
		first, selected string
	}{
		{"at first", nil, row(0), row(0)},
		{"down", []Key{KeyDown, "j"}, row(0), row(2)},
		{"up", []Key{KeyDown, "j", KeyUp}, row(0), row(1)},
		{"not above the first", []Key{"k", KeyPageUp}, row(0), row(0)},
		{"a page down", []Key{KeyPageDown}, row(1), row(page)},
		{"a page up", []Key{KeyPageDown, KeyPageDown, KeyPageUp}, row(page), row(page)},
		{"the last", []Key{"G"}, row(100 - page), row(99)},
		{"not below the last", []Key{KeyEnd, "j", KeyPageDown}, row(100 - page), row(99)},
		{"the first", []Key{"G", "g"}, row(0), row(0)},
		{"Home", []Key{"G", KeyHome}, row(0), row(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, selected := rowsOf(press(t, s, c.keys...))
			assert.Equal(t, c.first, names[0])
			assert.Equal(t, c.selected, selected)
			assert.Len(t, names, page)
		})
	}
}

func TestScreenSorts(t *testing.T) {
	state := many(5)
	state.Snapshot.Workloads[2].WorkingSetBytes = snapshot.Opt[uint64]{}
	s := screenOf(state, 80, 24)
	for _, c := range []struct {
		name   string
		keys   []Key
		want   []string
		status string
	}{
		{"as the list comes", nil, []string{"w000", "w001", "w002", "w003", "w004"}, ""},
		{"as it comes, reversed", []Key{"r"}, []string{"w004", "w003", "w002", "w001", "w000"}, "reversed"},
		{"by name", []Key{"s"}, []string{"w000", "w001", "w002", "w003", "w004"}, "sorted by workload, A first"},
		{"by name, reversed", []Key{"s", "r"}, []string{"w004", "w003", "w002", "w001", "w000"}, "sorted by workload, Z first"},
		{"by a number", []Key{"s", "s"}, []string{"w000", "w001", "w002", "w003", "w004"}, "sorted by cpu, highest first"},
		{"what is not measured comes last", []Key{"s", "s", "s"}, []string{"w004", "w003", "w001", "w000", "w002"}, "sorted by memory, highest first"},
		{"and last in reverse", []Key{"s", "s", "s", "r"}, []string{"w000", "w001", "w003", "w004", "w002"}, "sorted by memory, lowest first"},
		{"one column back", []Key{"s", "s", "s", "S", "r"}, []string{"w004", "w003", "w002", "w001", "w000"}, "sorted by cpu, lowest first"},
		{"after the last column as it comes", slices.Repeat([]Key{"s"}, 8), []string{"w000", "w001", "w002", "w003", "w004"}, ""},
		{"each list for itself", []Key{"s", "s", "s", KeyTab, KeyBackTab}, []string{"w004", "w003", "w001", "w000", "w002"}, "sorted by memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := press(t, s, c.keys...)
			names, _ := rowsOf(after)
			assert.Equal(t, c.want, names)
			last := plainLines(after)[23]
			assert.Contains(t, last, c.status)
			assert.Equal(t, c.status != "", strings.Contains(last, "sorted by") || strings.Contains(last, "reversed"))
		})
	}
}

func TestScreenFilters(t *testing.T) {
	s := screenOf(many(30), 80, 24)
	for _, c := range []struct {
		name string
		keys []Key
		want []string
	}{
		{"while it is typed", []Key{"/", "W", "0", "2", "1"}, []string{"w021"}},
		{"after Enter", []Key{"/", "0", "2", "1", KeyEnter}, []string{"w021"}},
		{"Backspace", []Key{"/", "0", "2", "1", KeyBackspace, "2"}, []string{"w022"}},
		{"a character of two bytes is one", []Key{"/", "2", "2", "ä", KeyBackspace}, []string{"w022"}},
		{"letters are no keys", []Key{"/", "g", KeyBackspace, "2", "2"}, []string{"w022"}},
		{"none", []Key{"/", "x"}, nil},
		{"a control character is none of it", []Key{"/", "2", "\x1b", "\u202e", "2"}, []string{"w022"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := press(t, s, c.keys...)
			if c.want == nil {
				assert.Contains(t, plainText(after), `no name contains "x": Esc clears the filter`)
				return
			}
			names, _ := rowsOf(after)
			assert.Equal(t, c.want, names)
			assert.Contains(t, plainText(after), "[workloads 1 of 30]")
		})
	}
	t.Run("Esc clears it", func(t *testing.T) {
		for _, keys := range [][]Key{{"/", "0", "2", "1", KeyEsc}, {"/", "0", "2", "1", KeyEnter, KeyEsc}, {"/", "x", KeyEnter, KeyEsc}} {
			assert.Contains(t, plainText(press(t, s, keys...)), "[workloads 30]", keys)
		}
	})
	t.Run("a text without end is cut", func(t *testing.T) {
		after := press(t, s, append([]Key{"/"}, slices.Repeat([]Key{"é"}, 10_000)...)...)
		assert.Equal(t, maxFilter, utf8.RuneCountInString(after.places[workloadList].filter))
	})
}

func TestScreenCursor(t *testing.T) {
	state := many(50)
	without := many(50)
	without.Snapshot.Workloads = slices.Delete(without.Snapshot.Workloads, 2, 3)
	t.Run("stays on its workload when that moves", func(t *testing.T) {
		s := press(t, screenOf(state, 80, 24), "j", "j", "s", "r")
		names, selected := rowsOf(s)
		assert.Equal(t, "w002", selected)
		assert.Contains(t, names, "w002", "it is visible")
	})
	t.Run("stays on top when it is there", func(t *testing.T) {
		_, selected := rowsOf(press(t, screenOf(state, 80, 24), "s", "r"))
		assert.Equal(t, "w049", selected)
	})
	t.Run("goes to the next one when its workload ends", func(t *testing.T) {
		_, selected := rowsOf(press(t, screenOf(state, 80, 24), "j", "j").Answered(without, at(1)))
		assert.Equal(t, "w003", selected)
	})
	t.Run("is on the last one when all others end", func(t *testing.T) {
		_, selected := rowsOf(press(t, screenOf(state, 80, 24), "G").Answered(many(2), at(1)))
		assert.Equal(t, "w001", selected)
	})
	t.Run("stays visible in a smaller terminal", func(t *testing.T) {
		_, selected := rowsOf(press(t, screenOf(state, 80, 40), slices.Repeat([]Key{"j"}, 15)...).Resized(60, 14))
		assert.Equal(t, "w015", selected)
	})
	t.Run("Enter on a list without rows does nothing", func(t *testing.T) {
		s := press(t, screenOf(many(0), 80, 24), "j", "G", KeyEnter, KeyDown)
		assert.Contains(t, plainText(s), "[workloads 0]")
	})
}

func TestScreenDetail(t *testing.T) {
	list := screenOf(scenes.Contended(), 100, 24)
	s := press(t, list, KeyTab, KeyEnter)
	t.Run("Enter shows it, Esc goes back", func(t *testing.T) {
		assert.Equal(t, "nvme0n1 nvme", plainLines(s)[0])
		assert.Equal(t, plainText(press(t, list, KeyTab)), plainText(press(t, s, KeyEsc)))
	})
	t.Run("scrolls", func(t *testing.T) {
		assert.Contains(t, plainLines(s)[23], "lines 1 to 23 of ")
		assert.Contains(t, plainLines(press(t, s, "j"))[23], "lines 2 to 24 of ")
		end := press(t, s, "G")
		assert.Equal(t, plainText(end), plainText(press(t, end, "j", KeyPageDown)))
		assert.Equal(t, plainText(s), plainText(press(t, end, "g")))
	})
	t.Run("follows the newest state", func(t *testing.T) {
		calmer := scenes.Contended()
		calmer.Snapshot.Contention = nil
		assert.Contains(t, plainText(s), "culprits")
		assert.NotContains(t, plainText(s.Answered(calmer, at(1))), "culprits")
	})
	t.Run("of what is no longer there", func(t *testing.T) {
		gone := scenes.Contended()
		gone.Snapshot.Disks = gone.Snapshot.Disks[1:]
		assert.Contains(t, plainText(s.Answered(gone, at(1))), "No longer there: it is not in the newest sample.")
	})
	t.Run("the help is above it", func(t *testing.T) {
		help := press(t, s, "?")
		assert.Equal(t, "Keys", plainLines(help)[0])
		assert.Equal(t, plainText(s), plainText(press(t, help, KeyEsc)))
	})
	t.Run("the words fit a narrow terminal by wrapping", func(t *testing.T) {
		text := plainText(press(t, screenOf(scenes.Contended(), 40, 200), KeyTab, KeyEnter))
		assert.NotContains(t, text, "…")
	})
}

func TestEvidenceText(t *testing.T) {
	for want, e := range map[string]plugins.Evidence{
		"met":     {Observed: snapshot.Some(2.0), Met: true},
		"not met": {Observed: snapshot.Some(0.5)},
		"unknown": {},
	} {
		assert.True(t, strings.HasSuffix(evidenceText(&e), ": "+want), "%s: %s", want, evidenceText(&e))
	}
}

func TestScreenCulprit(t *testing.T) {
	const because = "others wait because of it"
	of := func(change func(*snapshot.Contention)) string {
		s := scenes.Contended()
		list := s.Snapshot.Contention
		s.Snapshot.Contention = nil
		for _, c := range list {
			if c.Device == "nvme0n1" {
				change(&c)
				s.Snapshot.Contention = append(s.Snapshot.Contention, c)
			}
		}
		return plainText(press(t, screenOf(s, 100, 60), append(append([]Key{"/"}, typed("du-of")...), KeyEnter, KeyEnter)...))
	}
	for _, c := range []struct {
		name    string
		change  func(*snapshot.Contention)
		because bool
	}{
		{"the main one of a contention", func(*snapshot.Contention) {}, true},
		{"of a disk that is busy", func(c *snapshot.Contention) { c.State = snapshot.ContentionBusy }, false},
		{"of a disk of which it is unknown", func(c *snapshot.Contention) { c.State = snapshot.ContentionUnknown }, false},
		{"with a small share", func(c *snapshot.Contention) {
			c.Culprits = slices.Clone(c.Culprits)
			slices.Reverse(c.Culprits)
		}, false},
		{"where too little is counted to tell", func(c *snapshot.Contention) { c.Coverage = snapshot.Some(0.5) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := of(c.change)
			assert.Contains(t, got, "AS CULPRIT")
			assert.Contains(t, got, "Disk nvme0n1: ")
			assert.Equal(t, c.because, strings.Contains(got, because), got)
		})
	}
}

func TestScreenLinks(t *testing.T) {
	of := func(device, nic string) string {
		s := scenes.Contended()
		s.Snapshot.Contention = []snapshot.Contention{{
			Resource: snapshot.SharedNetwork, Device: device, State: snapshot.ContentionUnknown,
			Culprits: []snapshot.Culprit{{Party: snapshot.Party{Name: "batch/upload", Cgroup: "/upload"}, Share: 0.7, BytesPerSecond: 9e8}},
		}}
		return plainText(press(t, screenOf(s, 100, 60), append(append([]Key{KeyTab, KeyTab, "/"}, typed(nic)...), KeyEnter, KeyEnter)...))
	}
	for _, c := range []struct{ name, device, nic, want string }{
		{"several in use, a physical one", "", "eth0", "CONTENTION of all links together (last 10.0 s)"},
		{"several in use, loopback", "", "lo", ""},
		{"several in use, one of a pod", "", "cali1", ""},
		{"the only one in use", "eth0", "eth0", "CONTENTION (last 10.0 s)"},
		{"beside the only one in use", "eth0", "lo", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := of(c.device, c.nic)
			assert.True(t, strings.HasPrefix(got, c.nic), got)
			assert.Contains(t, got, c.want)
			assert.Equal(t, c.want != "", strings.Contains(got, "batch/upload"), got)
		})
	}
}

func TestScreenConnectionLost(t *testing.T) {
	s := screenOf(scenes.Calm(), 120, 24)
	for _, c := range []struct {
		name string
		in   Screen
		want string
	}{
		{"an answer", s.At(at(1)), ""},
		{"an error", s.Failed("connection refused", at(2)), "No new values for 2 s: connection refused (asked again every 1.0 s)"},
		{"its age grows", s.Failed("connection refused", at(2)).At(at(90)), "No new values for 1 min 30 s: connection refused (asked again every 1.0 s)"},
		{"no answer", s.At(at(10)), "No new values for 10 s: no answer yet (asked again every 1.0 s)"},
		{"the same sample once more", s.Answered(scenes.Calm(), at(6)), ""},
		{"the same sample for ever", s.Answered(scenes.Calm(), at(6)).Answered(scenes.Calm(), at(12)), "No new values for 12 s: the agent answers, but takes no new sample (asked again every 1.0 s)"},
		{"a new sample, by whatever clock", s.Answered(scenes.Calm(), at(12)).Answered(sampledAt(-3600), at(13)), ""},
		{"an old sample at the first look", screenOf(agedBy(90), 120, 24), "No new values for 1 min 30 s: the agent answers, but takes no new sample (asked again every 1.0 s)"},
		{"a new sample that is old", s.Answered(agedBy(90), at(1)).Answered(sampledAt(1), at(2)), ""},
		{"seldom a sample", screenOf(seldom(), 120, 24).Answered(seldom(), at(20)), ""},
		{"an answer again", s.Failed("connection refused", at(2)).Answered(scenes.Calm(), at(3)), ""},
		{"a hostile cause", s.Failed("\x1b[2J", at(2)), `No new values for 2 s: \x1b[2J (asked again every 1.0 s)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want != "", strings.Contains(plainText(c.in), "No new values"))
			assert.Contains(t, plainText(c.in), c.want)
			assert.Contains(t, plainText(press(t, c.in, KeyEnter)), c.want, "also above a detail")
		})
	}
}

func TestScreenLostInAFewLines(t *testing.T) {
	for height := 3; height < 14; height++ {
		lines := plainLines(screenOf(scenes.Contended(), 80, height).Failed("connection refused", at(2)))
		assert.Contains(t, lines[1], "No new values for 2 s: connection refused", "%d lines", height)
		assert.LessOrEqual(t, len(lines), height)
	}
}

// sampledAt is a calm state whose sample is of another second.
func sampledAt(seconds int) *view.State {
	s := *scenes.Calm()
	of := *s.Snapshot
	of.Time = of.Time.Add(time.Duration(seconds) * time.Second)
	s.Snapshot = &of
	return &s
}

// agedBy is a calm state whose sample was old when the agent answered.
func agedBy(seconds int) *view.State {
	return scenes.Calm().Answered(scenes.Calm().Snapshot.Time.Add(time.Duration(seconds) * time.Second))
}

// seldom is a calm state of an agent that samples every 30 s.
func seldom() *view.State {
	s := *scenes.Calm()
	s.Agent.TickSeconds = 30
	return &s
}

// Old values are no all-clear.
func TestScreenHeadlineOld(t *testing.T) {
	of := func(s Screen) style { return s.lines()[0][3].style }
	s := screenOf(scenes.Calm(), 80, 24)
	assert.Equal(t, green, of(s))
	assert.Equal(t, bold, of(s.Failed("connection refused", at(2))))
	assert.Equal(t, bold, of(s.Answered(scenes.Calm(), at(12))))
	assert.Equal(t, green, of(s.Answered(scenes.Calm(), at(12)).Answered(sampledAt(12), at(13))))
	hard := screenOf(scenes.MemoryHard(), 80, 24)
	assert.Equal(t, red, of(hard))
	assert.Equal(t, red, of(hard.Failed("connection refused", at(2))))
}

func TestLineWraps(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"short", 10, []string{"short"}},
		{"one two three", 9, []string{"one two", " three"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"abcdefghijklm", 10, []string{"abcdefghij", "  klm"}},
		{"ab cdefghijklmno", 10, []string{"ab", "  cdefghij", "  klmno"}},
		{"", 10, []string{""}},
		{"abc", 1, []string{"a", "b", "c"}},
	} {
		var got []string
		for _, l := range (line{{c.text, plain}}).wrap(c.width, 2) {
			var b strings.Builder
			l.write(&b, c.width, false)
			got = append(got, strings.TrimRight(b.String(), " "))
		}
		assert.Equal(t, c.want, got, "%q in %d", c.text, c.width)
	}
}
