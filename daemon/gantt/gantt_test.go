package gantt

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", name)
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func textOf(t *testing.T, w Text, n *backup.Night) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, w.Write(&b, n))
	return b.String()
}

func TestTextGolden(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	golden(t, "made_up_120.txt", textOf(t, Text{Width: 120, Zone: berlin, Schedules: true}, madeUp()))
	shown := textOf(t, Text{Width: 100, Zone: berlin}, madeUp())
	golden(t, "made_up_100.txt", shown)
	document, err := os.ReadFile("../../docs/backups.md")
	require.NoError(t, err)
	assert.True(t, strings.Contains(string(document), "\n"+shown+"```\n"), "the document shows testdata/made_up_100.txt")
	golden(t, "made_up_80_ascii.txt", textOf(t, Text{Width: 80, Zone: berlin, ASCII: true}, madeUp()))
}

func TestOldForecastSaid(t *testing.T) {
	n := madeUp()
	const said = "This forecast is 12m old. A new one is due each minute, or each backups.resync if that is longer; if none comes, see the controller's log.\n"
	for age, want := range map[time.Duration]bool{-time.Hour: false, 0: false, 4*time.Minute + 59*time.Second: false, 12 * time.Minute: true} {
		text := textOf(t, Text{Width: 100, Zone: time.UTC, Now: n.From.Add(age)}, n)
		assert.Equal(t, want, strings.Contains(text, "\n"+said), "%s: %s", age, text)
	}
	assert.NotContains(t, textOf(t, Text{Width: 100, Zone: time.UTC}, n), "This forecast", "who gives no time does not know")
}

func TestOmittedSaid(t *testing.T) {
	n := madeUp()
	n.Omitted = 2
	const said = "Of 2 Schedules, which create very many Backups, only the first to come are in this forecast."
	assert.Contains(t, textOf(t, Text{Width: 100, Zone: time.UTC}, n), "\n"+said+"\n")
	assert.NotContains(t, textOf(t, Text{Width: 100, Zone: time.UTC}, madeUp()), "Of 2 Schedules")
	n.Cut, n.Until = true, n.From.Add(3*time.Hour)
	assert.Equal(t, said+" So many Backups wait that this forecast reaches only 3h ahead.", Omitted(n))
}

func TestCounts(t *testing.T) {
	n := madeUp()
	assert.Equal(t, "1 of at most 2 Backups running, 3 waiting, 4 to come, 1 will be late", Counts(n))
	for _, phase := range []backup.Phase{backup.WaitingForOperations, backup.WaitingForOperationsPartial, backup.Finalizing, backup.FinalizingPartial} {
		n.Backups = append(n.Backups, backup.Foreseen{Name: "uploads", Phase: phase, Begins: at(21, 0)})
	}
	n.Backups = append(n.Backups, backup.Foreseen{Name: "ready", Phase: backup.Ready})
	assert.Equal(t, "2 of at most 2 Backups running, 4 finishing, 3 waiting, 4 to come, 1 will be late", Counts(n))
}

func TestTextFitsWidth(t *testing.T) {
	for _, width := range []int{80, 100, 120, 200} {
		text := textOf(t, Text{Width: width, Zone: time.UTC}, many(40))
		plot, _, _ := strings.Cut(text, "waits  ")
		for line := range strings.Lines(plot) {
			if strings.HasPrefix(line, "Velero ") {
				continue // a sentence
			}
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, "%q", line)
		}
	}
}

func TestTextASCII(t *testing.T) {
	for _, n := range []*backup.Night{madeUp(), many(40)} {
		for _, r := range textOf(t, Text{Width: 100, Zone: time.UTC, ASCII: true, Schedules: true}, n) {
			require.Less(t, r, rune(128))
		}
	}
}

func TestRows(t *testing.T) {
	rows := Rows(madeUp())
	var names []string
	for i := range rows {
		names = append(names, rows[i].Name())
	}
	assert.Equal(t, []string{"bank-20260301214500", "shop-20260301213000", "new-20260301215000", "by-hand", "nightly, to come", "hourly, 3 to come"}, names, "what will be late is first")
	t.Run("a row to come names the one that will be late first", func(t *testing.T) {
		n := madeUp()
		n.Backups[1].LateSeconds, n.Backups[6].LateSeconds, n.Backups[7].LateSeconds = 0, 60, 120
		first := Rows(n)[0]
		assert.Equal(t, at(25, 5), first.First.Begins)
		assert.Len(t, first.Backups, 3)
	})
	t.Run("each Backup is in one row", func(t *testing.T) {
		for _, n := range []*backup.Night{madeUp(), many(300), hostile()} {
			seen := map[*backup.Foreseen]int{}
			for _, r := range Rows(n) {
				for _, f := range r.Backups {
					seen[f]++
				}
			}
			assert.Len(t, seen, len(n.Backups))
		}
	})
}

// What is more than a day away has its weekday, and its date where that could be of another week.
func TestClockOfOtherDays(t *testing.T) {
	n := madeUp() // from Sunday, 1 March, 22:00
	for days, want := range map[int]string{-8: "2026-02-21 23:00", -5: "Tue 23:00", 0: "23:00", 5: "Fri 23:00", 8: "2026-03-09 23:00"} {
		assert.Equal(t, want, clock(n, n.From.AddDate(0, 0, days), zone(t, "Europe/Berlin")), days)
	}
}

func TestVerdict(t *testing.T) {
	for want, f := range map[string]backup.Foreseen{
		"will miss its deadline by 40m, because of x; it would be in time with a, or with b": {LateSeconds: 2390, Because: "of x", Helps: []string{"a", "b"}},
		"will miss its deadline by 1m":            {LateSeconds: 2},
		"not known: new":                          {Why: "new", Deadline: at(6, 0)},
		"no deadline":                             {Ends: at(5, 0), Latest: at(7, 0)},
		"not known: it ends after the forecast":   {Deadline: at(6, 0)},
		"in time by the estimate; it may be late": {Deadline: at(6, 0), Ends: at(5, 0), Latest: at(7, 0)},
		"in time": {Deadline: at(6, 0), Ends: at(5, 0), Latest: at(6, 0)},
	} {
		assert.Equal(t, want, (&Row{[]*backup.Foreseen{&f}, &f}).Verdict())
	}
}

// A Schedule that will miss its deadline is named also where none of its Backups is late.
func TestWillMiss(t *testing.T) {
	n := madeUp()
	assert.Empty(t, WillMiss(n, time.UTC))
	n.Schedules[0].LateSeconds, n.Schedules[0].Because = new(2400.0), "it waits"
	assert.Empty(t, WillMiss(n, time.UTC), "its Backup says it")
	n.Schedules = append(n.Schedules,
		backup.ScheduleState{Name: "db", Deadline: at(28, 0), LateSeconds: new(7200.0), Because: "Backup db-1 failed, and the next one comes at 2026-03-02T05:00:00Z", Helps: []string{"a", "b"}},
		backup.ScheduleState{Name: "in-time", Deadline: at(28, 0), LateSeconds: new(0.0)})
	line := "Schedule db, due 05:00: will miss its deadline by 2h, because Backup db-1 failed, and the next one comes at 2026-03-02T05:00:00Z; it would be in time with a, or with b."
	assert.Equal(t, []string{line}, WillMiss(n, zone(t, "Europe/Berlin")))
	text := textOf(t, Text{Width: 100, Zone: zone(t, "Europe/Berlin")}, n)
	assert.Contains(t, text, "\n\nWill be late:\n  bank-20260301214500, due 03:00: ")
	assert.Contains(t, text, ".\n  "+line+"\n\nHave missed their deadlines:\n")
	n.Backups = nil
	assert.Contains(t, textOf(t, Text{Width: 100, Zone: time.UTC}, n), "Will be late:\n  Schedule bank, due 02:00: will miss its deadline by 40m, because it waits.\n")
}

// The clocks of Berlin are put forward on 29 March and back on 25 October.
func TestHoursWhereClocksChange(t *testing.T) {
	words := func(from time.Time, zone *time.Location, most int) (list []string) {
		for _, h := range (axis{from, from.Add(6 * time.Hour)}).hours(zone, most) {
			list = append(list, h.In(zone).Format("15:04"))
		}
		return list
	}
	berlin := zone(t, "Europe/Berlin")
	assert.Equal(t, []string{"00:00", "01:00", "03:00", "04:00", "05:00", "06:00", "07:00"}, words(time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC), berlin, 8))
	assert.Equal(t, []string{"00:00", "01:00", "02:00", "02:00", "03:00", "04:00", "05:00"}, words(time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC), berlin, 8))
	assert.Equal(t, []string{"18:00", "21:00"}, words(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC), zone(t, "Asia/Kathmandu"), 2), "hours of a zone 5:45 h ahead")
	assert.Empty(t, axis{at(0, 0), at(24*400, 0)}.hours(berlin, 8), "a year has no hours")
}

func TestAxis(t *testing.T) {
	a := axisOf(madeUp())
	assert.Equal(t, axis{at(21, 30), at(31, 0)}, a, "from when the first that runs began")
	n := madeUp()
	n.Backups[0].Begins = at(2, 0)
	assert.Equal(t, at(19, 45), axisOf(n).from, "of the past a quarter of the forecast at most")
}

// Each cell of a bar is what the Backup does at that time, by a slow model.
func TestBarModel(t *testing.T) {
	const width = 114 // 5 min each
	n := madeUp()
	a, s := axisOf(n), Text{}.signs()
	for i := range n.Backups {
		f := &n.Backups[i]
		if f.Why != "" {
			continue
		}
		bar := []rune(a.bar(&Row{[]*backup.Foreseen{f}, f}, width, s))
		require.Len(t, bar, width)
		for c, got := range bar {
			now := a.from.Add(time.Duration(c) * 5 * time.Minute)
			want := modelled(f, a, now)
			assert.Equal(t, string(want), string(got), "%s%s at %s", f.Name, f.Schedule, now)
		}
	}
}

// modelled is the cell of a Backup that is known, at a time.
func modelled(f *backup.Foreseen, a axis, now time.Time) rune {
	in := func(from, to time.Time) bool { return !now.Before(from) && now.Before(to) }
	earliest, ends, latest := f.Earliest, f.Ends, f.Latest
	if ends.IsZero() {
		earliest, ends, latest = a.to, a.to, a.to
	}
	switch {
	case now.Equal(f.Deadline) && f.LateSeconds > 0:
		return '!'
	case now.Equal(f.Deadline):
		return '│'
	case now.Equal(f.Opens):
		return '['
	case in(f.Begins, earliest):
		return '█'
	case in(earliest, ends):
		return '▓'
	case in(ends, latest):
		return '░'
	case in(f.Created, f.Begins) && !now.Before(f.Opens):
		return '·'
	}
	return ' '
}

func TestHostileNight(t *testing.T) {
	for name, text := range map[string]string{
		"text": textOf(t, Text{Width: 1, Zone: time.UTC, Schedules: true}, hostile()), "svg": string(SVG(hostile())),
	} {
		assert.NotContains(t, text, "\x1b", name)
		assert.NotContains(t, text, "\u202e", name)
	}
	assert.NotContains(t, SVG(hostile()), "<script")
	assert.NotContains(t, SVG(hostile()), "NaN")
	empty := textOf(t, Text{Width: 80, Zone: time.UTC}, &backup.Night{Namespace: "velero"})
	assert.Equal(t, 1, strings.Count(empty, "\n"), empty)
}

func TestSVGGolden(t *testing.T) { golden(t, "made_up.svg", string(SVG(madeUp()))+"\n") }

func TestSVG(t *testing.T) {
	for name, n := range map[string]*backup.Night{"made up": madeUp(), "hostile": hostile(), "many": many(500), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			rows := 0
			for _, e := range elementsOf(t, string(SVG(n))) {
				if e.Name.Local == "g" {
					rows++
				}
				for _, attribute := range e.Attr {
					share, is := strings.CutSuffix(attribute.Value, "%")
					assert.False(t, is && strings.HasPrefix(share, "-"), "%s lies outside", attribute.Value)
				}
			}
			shown, more := First(n)
			assert.Len(t, shown, rows)
			assert.LessOrEqual(t, rows, MaxRows)
			assert.Equal(t, len(Rows(n)), rows+more)
		})
	}
	shown, more := First(many(500))
	assert.Equal(t, 440, more)
	assert.Equal(t, "app-0499", shown[0].Name(), "a late one is never among those that are left out")
}

func elementsOf(t *testing.T, drawing string) (list []xml.StartElement) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(drawing))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		if e, is := token.(xml.StartElement); is {
			list = append(list, e.Copy())
		}
	}
}
