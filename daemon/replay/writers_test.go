package replay

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var update = flag.Bool("update", false, "update the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// written is what a writer makes of a report.
func written(t *testing.T, write func(io.Writer, *Report) error, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, write(&b, r))
	return b.String()
}

// A real machine, recorded by the agent; see testdata/README.md.
func TestReplayGoldenRealShortage(t *testing.T) {
	r, err := play(t, "testdata/shortage-vm-2GiB.rec")
	require.NoError(t, err)
	golden(t, "shortage.table.golden.txt", written(t, WriteTable, r))
	golden(t, "shortage.golden.svg", written(t, WriteSVG, r))
	for i := range r.Scopes { // of the lines a few points do
		r.Scopes[i].Points = r.Scopes[i].Points[:3]
	}
	r.Stall = r.Stall[:3]
	golden(t, "shortage.golden.json", written(t, WriteJSON, r))
}

// eventful has a shortage, a gap and a reboot.
func eventful(t *testing.T) *Report {
	n := newNode().seconds(61, 0).short(20).seconds(60, 0)
	n.available = 5 * gib
	n.seconds(60, 0.2)
	n.available = 40 * gib
	n.pass(2*60*1e9, 0).seconds(40, 0).reboot().seconds(30, 0)
	r, err := play(t, recordingFile(t, "a.rec", n.samples))
	require.NoError(t, err)
	r.Recordings[0].File, r.Recordings[0].Kernel, r.Recordings[0].Command = "a.rec", "6.1.0 x86_64", "plimsoll agent"
	return r
}

func TestReplayGoldenEventful(t *testing.T) {
	golden(t, "eventful.table.golden.txt", written(t, WriteTable, eventful(t)))
	golden(t, "eventful.golden.svg", written(t, WriteSVG, eventful(t)))
}

func TestReplayTableNothingHappened(t *testing.T) {
	table := written(t, WriteTable, replayed(player(nil), newNode().seconds(61, 0)))
	assert.Contains(t, table, "no level changed and no decision was made")
	assert.Contains(t, table, "judged with the default configuration, as by an agent that has been running for a long time")
	assert.Contains(t, table, "Pods: the recording has none from the API server.")
}

func TestReplayTableStoppedAndOmitted(t *testing.T) {
	r := eventful(t)
	r.Failed, r.Config, r.WarmUp, r.Omitted.Changes = "b.rec: sample 7: spoiled", "agent.yaml", true, 12
	table := written(t, WriteTable, r)
	assert.Contains(t, table, "replay stopped: b.rec: sample 7: spoiled")
	assert.Contains(t, table, "judged with agent.yaml, as by an agent that has just started")
	assert.Contains(t, table, "not listed: 12 changes, 0 decisions")
}

// hostile is a report with malicious names.
func hostile(t *testing.T) *Report {
	r := eventful(t)
	const name = "x\x1b[2J</title><script>alert(1)</script>\u202e\n\t\"'&\xff" + "veryveryveryveryveryveryveryveryveryveryveryveryveryveryverylong"
	r.Recordings[0].File, r.Recordings[0].Kernel, r.Recordings[0].Command, r.Config, r.Failed = name, name, name, name, name
	for i := range r.Scopes {
		r.Scopes[i].Scope, r.Scopes[i].Unit, r.Scopes[i].Operator, r.Scopes[i].Absent = name, name, name, name
	}
	for i := range r.Changes {
		r.Changes[i].Scope, r.Changes[i].Reason, r.Changes[i].Unit = name, name, name
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		d.Reason = name
		for j := range d.Candidates {
			d.Candidates[j].Name, d.Candidates[j].Why = name, name
		}
	}
	r.Gaps[0].Reason = name
	return r
}

func TestReplayTableUnjudgedIsNotNone(t *testing.T) {
	n := newNode().seconds(61, 0)
	r := replayed(player(nil), n)
	assert.Equal(t, "No level was reached; measurements are missing for up to 30 s", r.headline())
	assert.Contains(t, written(t, WriteTable, r), "memory-stall: measurements missing for 30 s, last: 29s of the last 30s seen so far\n")

	for _, s := range n.samples {
		s.Pressure = snapshot.Pressure{Absent: snapshot.Absent{"memory": "this kernel has no PSI"}}
	}
	r = replayed(player(nil), n)
	assert.Equal(t, "No level was reached; measurements are missing for up to 1 min", r.headline())
	for _, write := range []func(io.Writer, *Report) error{WriteTable, WriteSVG} {
		assert.Contains(t, written(t, write, r), "measurements missing for 1 min")
	}
	assert.Equal(t, "No level was reached; nothing was judged", (&Report{}).headline(), "no plugin is switched on")
	mostly := &Report{Scopes: []Scope{{NoneSeconds: 1000, UnjudgedSeconds: 100}, {NoneSeconds: 1000}}}
	assert.Equal(t, "No level was reached; measurements are missing for up to 1 min 40 s", mostly.headline())
	assert.Equal(t, "No level was reached", (&Report{Scopes: mostly.Scopes[1:]}).headline())
	first := Scope{NoneSeconds: 1000, UnjudgedSeconds: 0.1}
	assert.Equal(t, "No level was reached", (&Report{Scopes: []Scope{first}}).headline())
	assert.Empty(t, first.Unjudged(), "the first sample has no rates")
}

func TestReplayTimesOfSeveralDays(t *testing.T) {
	r := eventful(t)
	assert.Contains(t, written(t, WriteTable, r), "40.0 % (≥ 10.0 %) at 12:01:21")
	r.End = r.End.Add(36 * time.Hour)
	assert.Contains(t, written(t, WriteTable, r), "40.0 % (≥ 10.0 %) at 2026-03-01 12:01:21")
	svg := written(t, WriteSVG, r)
	for _, words := range []string{"40.0 % (≥ 10.0 %) at 2026-03-01 12:01:21", "<title>2026-03-01 12:01:04 would evict", "1 · 2026-03-01 12:01:04"} {
		assert.Contains(t, svg, words)
	}
}

func TestReplayHostileNamesAreText(t *testing.T) {
	r := hostile(t)
	for line := range strings.SplitSeq(written(t, WriteTable, r), "\n") {
		assert.NotRegexp(t, `[\x00-\x1f\x{202e}]`, line)
	}
	svg := written(t, WriteSVG, r)
	assert.NotContains(t, svg, "<script")
	wellFormed(t, svg)
}

// wellFormed parses an SVG as XML and counts its elements.
func wellFormed(t *testing.T, svg string) map[string]int {
	t.Helper()
	elements := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF { //nolint:errorlint // the decoder's own end
			return elements
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
		}
	}
}

func TestPlotSVGInert(t *testing.T) {
	for name, r := range map[string]*Report{"eventful": eventful(t), "hostile": hostile(t)} {
		svg := written(t, WriteSVG, r)
		elements := wellFormed(t, svg)
		for _, element := range []string{"script", "image", "use", "foreignObject", "a", "link"} {
			assert.Zero(t, elements[element], "%s: %s", name, element)
		}
		assert.NotRegexp(t, regexp.MustCompile(`(?i)\b(href|src|on[a-z]+)\s*=|url\(|@import`), svg, name)
		assert.Equal(t, 1, strings.Count(svg, "http"), "the name space alone")
		assert.NotContains(t, svg, "ZgotmplZ", "nothing was taken out by the template")
		assert.Contains(t, svg, "prefers-color-scheme: dark")
		assert.Positive(t, elements["title"])
		assert.Equal(t, 1, elements["desc"])
	}
}

func TestPlotSVGWords(t *testing.T) {
	svg := written(t, WriteSVG, eventful(t))
	for _, words := range []string{
		"memory-stall: hard 47 s, soft 1 min 15 s", "soft ≥ 10.0 %", "hard ≥ 25.0 %", "a.rec (Linux 6.1.0 x86_64)",
		"Memory stall of the node (some): up to", "would evict pod/" + largeUID, "the machine rebooted", "Limits of a replay",
		`class="hard"`, `class="soft"`, `class="gap"`, `class="at-hard"`, `class="at-soft"`, `class="mark"`,
	} {
		assert.Contains(t, svg, words)
	}
}

var geometry = regexp.MustCompile(`points="([^"]*)"`)

func TestPlotPointsInArea(t *testing.T) {
	for _, r := range []*Report{eventful(t), replayed(player(nil), newNode().seconds(1, 0)), replayed(player(nil), newNode().seconds(3, 0))} {
		svg := written(t, WriteSVG, r)
		for _, m := range geometry.FindAllStringSubmatch(svg, -1) {
			for p := range strings.FieldsSeq(m[1]) {
				var x, y float64
				_, err := fmt.Sscanf(p, "%f,%f", &x, &y)
				require.NoError(t, err, p)
				require.True(t, x >= 0 && x <= 1000 && y >= 0 && y <= stripHeight, p)
			}
		}
		assert.NotContains(t, svg, "NaN")
		assert.NotContains(t, svg, "Inf")
	}
}

func TestPlotChoosesScopes(t *testing.T) {
	r := eventful(t)
	for i := range 30 {
		r.Scopes = append(r.Scopes, Scope{Plugin: "quiet", Scope: fmt.Sprint(i), Soft: &Extreme{Observed: float64(i), Threshold: 100}})
	}
	r.Scopes = append(r.Scopes, Scope{Plugin: "less", Operator: "<", Soft: &Extreme{Observed: 1, Threshold: 100}})
	shown, more := r.nearest()
	assert.Len(t, shown, stripsShown)
	assert.Equal(t, len(r.Scopes)-stripsShown, more)
	var names []string
	for _, s := range shown {
		names = append(names, s.title())
	}
	assert.Equal(t, "memory-stall", names[0])
	assert.Equal(t, "less", names[stripsShown-1], "below a line that is met from below is near too")
	assert.Contains(t, names, "quiet 29")
	assert.NotContains(t, names, "quiet 0")
}

func TestPlotLinesBreakWhereUnknown(t *testing.T) {
	r := &Report{Seconds: 10}
	some, none := snapshot.Some(1.0), snapshot.Opt[float64]{}
	points := []Point[snapshot.Opt[float64]]{{0, false, some}, {1, false, some}, {2, false, none}, {3, false, some}, {5, true, some}, {6, false, some}}
	got := lines(r, points, "thin", func(float64) float64 { return 7 }, func(v snapshot.Opt[float64]) snapshot.Opt[float64] { return v })
	assert.Equal(t, []polyline{{"thin", "0.0,7.0 100.0,7.0"}, {"thin", "300.0,7.0 300.0,7.0"}, {"thin", "500.0,7.0 600.0,7.0"}}, got)
}

func TestPlotShortBandVisible(t *testing.T) {
	for _, from := range []float64{0, 500, 999.99, 1000} {
		b := newBand("hard", from, from, 0, 1, "")
		var x, w float64
		_, err := fmt.Sscan(b.X, &x)
		require.NoError(t, err)
		_, err = fmt.Sscan(b.W, &w)
		require.NoError(t, err)
		assert.InDelta(t, leastWidth, w, 0.1)
		assert.LessOrEqual(t, x+w, 1000.0)
	}
}

func TestPlotAxisTicks(t *testing.T) {
	for _, whole := range []float64{0, 1, 59, 61, 3600, 86_400, 7 * 86_400, 400 * 86_400} {
		step := tickStep(whole)
		assert.LessOrEqual(t, whole/step.Seconds(), float64(ticksWanted), "%v", whole)
		if whole > 7 {
			assert.GreaterOrEqual(t, whole/step.Seconds(), 2.0, "%v", whole)
		}
	}
}

func TestPlotTextWraps(t *testing.T) {
	for _, text := range []string{"", "word", strings.Repeat("word ", 60), strings.Repeat("ä", 200), "a " + strings.Repeat("b", 100) + " c"} {
		lines := wrap(text)
		for _, l := range lines {
			assert.LessOrEqual(t, len([]rune(l)), lineRunes)
		}
		assert.Equal(t, strings.Join(strings.Fields(text), ""), strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
	}
}
