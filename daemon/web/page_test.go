package web

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func pageScenes() map[string]*view.State {
	return map[string]*view.State{
		"waiting": nil, "first_tick": scenes.FirstTick(), "calm": scenes.Calm(), "memory_hard": scenes.MemoryHard(),
		"own_limit": scenes.OwnLimit(), "absent": scenes.EverythingAbsent(), "hostile": scenes.Hostile(),
		"dry_run": scenes.DryRun(), "evicted": scenes.Evicted(), "deaf": scenes.Disconnected(), "contended": scenes.Contended(), "rivals": besideKatalyst(),
	}
}

// besideKatalyst is a calm node where another process asks outer plugins too.
func besideKatalyst() *view.State {
	return scenes.Calm().WithOuter(&view.OuterPlugins{
		Beside: outer.BesideReport,
		Rivals: []outer.Rival{{Dir: "/var/lib/katalyst/plugin-socks", PID: 4711, Command: "katalyst-agent\x1b[2J", Cgroup: "/system.slice/katalyst-agent.service"}},
	})
}

// decisionsOf is the decisions of rounds before the state, or without a cluster
// that of the first round.
func decisionsOf(s *view.State) []evict.Decision {
	if s == nil {
		return nil
	}
	if s.Levels.Of(plugins.Disk) > plugins.None {
		return scenes.ContendedDecisions(s)
	}
	if s.Cluster != nil {
		return scenes.Decisions(s.Cluster.DryRun)
	}
	d, _ := evict.Decide(evict.Input{Time: s.Snapshot.Time, Levels: s.Levels, Config: evict.DefaultConfig()})
	if len(d.Causes) == 0 {
		return nil
	}
	return []evict.Decision{d}
}

// getPage is the page of a state a moment after its tick.
func getPage(t *testing.T, s *view.State, query string, late time.Duration) (string, *httptest.ResponseRecorder) {
	t.Helper()
	p := newPage(func() *view.State { return s }, func() []evict.Decision { return decisionsOf(s) })
	if s != nil {
		p.now = func() time.Time { return s.Snapshot.Time.Add(late) }
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/"+query, nil))
	require.Equal(t, 200, w.Code, w.Body)
	return w.Body.String(), w
}

func TestPageGolden(t *testing.T) {
	for name, s := range pageScenes() {
		got, _ := getPage(t, s, "", time.Second/2)
		file := filepath.Join("testdata", "page_"+name+".html")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", name)
	}
}

// elements are all elements of a page, in order.
func elements(t *testing.T, text string) []*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	require.NoError(t, err)
	var list []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			list = append(list, n)
		}
	}
	return list
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// unbalanced is a tag that is not closed in order, if there is one.
func unbalanced(text string) string {
	void := " meta link br input "
	z := html.NewTokenizer(strings.NewReader(text))
	var open []string
	for {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			return strings.Join(open, " ")
		case html.StartTagToken, html.EndTagToken:
			name, _ := z.TagName()
			switch {
			case strings.Contains(void, " "+string(name)+" "):
			case kind == html.StartTagToken:
				open = append(open, string(name))
			case len(open) == 0 || open[len(open)-1] != string(name):
				return fmt.Sprintf("</%s> after %v", name, open)
			default:
				open = open[:len(open)-1]
			}
		}
	}
}

func TestPageWellFormed(t *testing.T) {
	for name, s := range pageScenes() {
		text, _ := getPage(t, s, "?open", 0)
		assert.Empty(t, unbalanced(text), name)
		for _, n := range elements(t, text) {
			if n.Data == "th" {
				assert.Contains(t, []string{"col", "row"}, attribute(n, "scope"), "%s: each heading says what it heads", name)
			}
		}
	}
}

// withoutScript leaves out the page's own script, once.
func withoutScript(page string) string {
	return strings.Replace(page, "<script>"+pageScript+"</script>", "", 1)
}

// assertLoadsNothing: nothing is loaded, no script but the page's own runs, and nothing
// leads elsewhere but a link to our documents and the search of this server.
func assertLoadsNothing(t *testing.T, name, text string) {
	t.Helper()
	for _, n := range elements(t, text) {
		assert.NotContains(t, []string{"script", "img", "iframe", "object"}, n.Data, name)
		href := attribute(n, "href")
		switch n.Data {
		case "link":
			assert.True(t, strings.HasPrefix(href, "data:"), name)
		case "a":
			ours := strings.HasPrefix(href, "https://github.com/plimsoll-dev/plimsoll/blob/main/docs/") && attribute(n, "rel") == "noreferrer"
			assert.True(t, ours || !strings.Contains(href, ":") || strings.HasPrefix(href, "workload?name=") || strings.HasPrefix(href, "device?name="), "%s: %s", name, href)
		case "form":
			assert.Equal(t, "search get", attribute(n, "action")+" "+attribute(n, "method"), name)
		}
		for _, a := range n.Attr {
			assert.False(t, strings.HasPrefix(a.Key, "on"), "%s: <%s %s>", name, n.Data, a.Key)
			if a.Key != "href" {
				assert.NotContains(t, a.Val, "https://", name)
			}
		}
	}
}

func TestPageLoadsNothing(t *testing.T) {
	for name, s := range pageScenes() {
		text, w := getPage(t, s, "", 0)
		assertLoadsNothing(t, name, withoutScript(text))
		policy := w.Header().Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'", name)
		assert.Contains(t, policy, "form-action 'self'", name)
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"), name)
	}
}

func TestHostileNameIsOnlyText(t *testing.T) {
	text, _ := getPage(t, scenes.Hostile(), "", 0)
	text = withoutScript(text)
	assert.False(t, strings.Contains(text, "<script"), "<script")
	assert.True(t, strings.Contains(text, "&lt;script&gt;"), "&lt;script&gt;")
	assert.False(t, strings.Contains(text, "\x1b"), "control characters are written out")
	assert.False(t, strings.Contains(text, "\u202e"), "a name cannot turn the direction of the text")
	assert.False(t, strings.Contains(text, "ZgotmplZ"), "nothing of the page itself was taken for an attack")
}

// The script is run by a browser in e2e.
func TestPageNotLiveIsNotGreen(t *testing.T) {
	live, _ := getPage(t, scenes.Calm(), "", 0)
	assert.True(t, strings.Contains(live, "classList.toggle('lost', lost)"), "the script marks it")
	assert.True(t, strings.Contains(live, "main.lost { filter: grayscale(1);"), "and the style takes its colours")
}

func TestPageRefreshAndHold(t *testing.T) {
	live, _ := getPage(t, scenes.Calm(), "", 0)
	held, _ := getPage(t, scenes.Calm(), "?hold", 0)
	assert.True(t, strings.Contains(live, `<meta http-equiv="refresh" content="2">`), `<meta http-equiv="refresh" content="2">`)
	assert.False(t, strings.Contains(held, "http-equiv"), "http-equiv")
	open, _ := getPage(t, scenes.Calm(), "?open", 0)
	assert.Zero(t, strings.Count(live, " open><summary>"))
	assert.Equal(t, strings.Count(open, "<details"), strings.Count(open, " open><summary>"))
}

func TestPageBeforeFirstTick(t *testing.T) {
	text, _ := getPage(t, nil, "", 0)
	assert.True(t, strings.Contains(text, view.WaitingText), view.WaitingText)
	assert.False(t, strings.Contains(text, "No pressure"), "what was not judged is not healthy")
}

func TestPageOldSample(t *testing.T) {
	fresh, _ := getPage(t, scenes.Calm(), "", 3*time.Second)
	old, _ := getPage(t, scenes.Calm(), "", 4*time.Second)
	assert.False(t, strings.Contains(fresh, "newest sample is"), "newest sample is")
	assert.True(t, strings.Contains(old, "The newest sample is 4 s old"), "The newest sample is 4 s old")
}

func TestPageAbsentWithReason(t *testing.T) {
	text, _ := getPage(t, scenes.EverythingAbsent(), "", 0)
	found := 0
	for _, n := range elements(t, text) {
		if n.Data != "td" || n.FirstChild == nil || n.FirstChild.Type != html.TextNode {
			continue
		}
		if n.FirstChild.Data == view.Unknown {
			found++
			assert.NotEmpty(t, attribute(n, "title"))
		}
		assert.NotEqual(t, "0", n.FirstChild.Data)
		assert.NotEqual(t, "0 %", n.FirstChild.Data)
	}
	assert.Greater(t, found, 80)
	assert.True(t, strings.Contains(text, "12 workloads"), "12 workloads")
	assert.True(t, strings.Contains(text, "6 of 6 probes failed"), "6 of 6 probes failed")
}

func TestPageWorkloadAtOwnLimit(t *testing.T) {
	text, _ := getPage(t, scenes.OwnLimit(), "", 0)
	assert.True(t, strings.Contains(text, "<h1>No pressure</h1>"), "<h1>No pressure</h1>")
	assert.Equal(t, 1, strings.Count(text, "at its cgroup&#39;s memory limit: it waits for that, not for the node&#39;s memory"))
}

func TestPageGauge(t *testing.T) {
	v := plugins.Verdict{Observed: snapshot.Some(0.05), Threshold: snapshot.Some(0.1), Operator: ">=", Unit: "ratio"}
	assert.Equal(t, &levelGauge{Value: 500, Text: "50.0 % of the way to ≥ 10.0 %"}, newGauge(&v))
	v.Observed = snapshot.Some(0.95)
	assert.Equal(t, &levelGauge{Value: 1000, Text: "at or beyond the threshold ≥ 10.0 %"}, newGauge(&v))
	v.Observed = snapshot.Opt[float64]{}
	assert.Nil(t, newGauge(&v), "what was not observed is not drawn")
}

func TestSparklineBreaksWhereUnknown(t *testing.T) {
	point := func(ago float64, some snapshot.Opt[float64]) snapshot.TrendPoint {
		return snapshot.TrendPoint{AgoSeconds: ago, Stall: snapshot.Ratios{IO: snapshot.StallRatio{Some: some}}}
	}
	s := newSparkline([]snapshot.TrendPoint{
		point(150, snapshot.Some(0.1)), point(3, snapshot.Some(0.5)), point(2, snapshot.Opt[float64]{}), point(1, snapshot.Some(0.0)), point(0, snapshot.Some(0.25)),
	}, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.IO })
	assert.Equal(t, []string{"117.0,0.0 ", "119.0,40.0 120.0,20.0 "}, s.Some)
	assert.Empty(t, s.Full)
	assert.Equal(t, "50.0 %", s.Scale)
}

// crowd is a node with many workloads, disks and NICs.
func crowd() *view.State {
	s := scenes.Calm()
	for i := range 250 {
		w := s.Snapshot.Workloads[i%5]
		w.Cgroup = fmt.Sprintf("%s/%03d", w.Cgroup, i)
		s.Snapshot.Workloads = append(s.Snapshot.Workloads, w)
		n := s.Snapshot.NICs[0]
		n.Name = fmt.Sprintf("veth%03d", i)
		s.Snapshot.NICs = append(s.Snapshot.NICs, n)
	}
	return s
}

func TestPageOfFullNodeBounded(t *testing.T) {
	text, _ := getPage(t, crowd(), "", 0)
	assert.True(t, strings.Contains(text, "and 240 more with less pressure"), "and 240 more with less pressure")
	assert.True(t, strings.Contains(text, "lo and less busy virtual devices"), "lo and less busy virtual devices")
	assert.Less(t, bytes.Count([]byte(text), []byte("\n")), 1500)
}

func TestPageProbeNote(t *testing.T) {
	s := scenes.Calm()
	none, _ := getPage(t, s, "", 0)
	assert.False(t, strings.Contains(none, "How it is read"), "no heading without a note")
	s.Snapshot.Probes = append(s.Snapshot.Probes, snapshot.Probe{Name: "workloads", Note: "read every 3rd tick: it costs 3 % of a core"})
	text, _ := getPage(t, s, "", 0)
	_, below, found := strings.Cut(text, "<h2>Missing measurements</h2>")
	assert.True(t, found && strings.Contains(below, "<li><b>probe workloads</b>: read every 3rd tick: it costs 3 % of a core</li>"), "<li>")
	assert.False(t, strings.Contains(text, "probes failed"), "it did not fail")
}
