package web

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// historyOf is the history of a node that was in a state for ten minutes.
func historyOf(s *view.State) *history.Store {
	store := &history.Store{}
	snap, levels := *s.Snapshot, s.Levels
	for at := s.Snapshot.Time.Add(-10 * time.Minute); !at.After(s.Snapshot.Time); at = at.Add(10 * time.Second) {
		snap.Time = at
		store.Add(&snap, levels)
	}
	return store
}

func getHistory(t *testing.T, s *view.State, query string) (string, *httptest.ResponseRecorder) {
	t.Helper()
	return getPast(t, s, "/history"+query)
}

// getPast is a page of an agent with a history.
func getPast(t *testing.T, s *view.State, path string) (string, *httptest.ResponseRecorder) {
	t.Helper()
	server := &Server{
		State: func() *view.State { return s }, Decisions: func() []evict.Decision { return decisionsOf(s) }, History: historyOf(s),
		now: func() time.Time { return s.Snapshot.Time },
	}
	w := httptest.NewRecorder()
	server.testMux().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Body.String(), w
}

func TestHistoryPage(t *testing.T) {
	t.Run("golden", func(t *testing.T) {
		for name, s := range map[string]*view.State{"contended": scenes.Contended(), "absent": scenes.EverythingAbsent(), "hostile": scenes.Hostile()} {
			got, w := getHistory(t, s, "")
			require.Equal(t, http.StatusOK, w.Code)
			file := filepath.Join("testdata", "page_history_"+name+".html")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", name)
		}
	})
	t.Run("it loads nothing, runs nothing and is small", historyLoadsNothing)
	t.Run("what is not known is no all-clear", func(t *testing.T) {
		for want, n := range map[string][3]int{
			"Rules that were judged and neither soft nor hard: 4, all of them.":                                                             {0, 4, 0},
			"Other rules that were judged, and neither soft nor hard: 3.":                                                                   {1, 3, 0},
			"No rule was judged in this time. Rules whose level is not known for all or a part of this time: 1.":                            {0, 0, 1},
			"Other rules that were judged, and neither soft nor hard: 3. Rules whose level is not known for all or a part of this time: 2.": {1, 3, 2},
		} {
			assert.Equal(t, want, calmText(n[0], n[1], n[2]))
		}
		store, snap := &history.Store{}, *scenes.Calm().Snapshot
		store.Add(&snap, &plugins.Levels{Time: snap.Time, Verdicts: []plugins.Verdict{{Plugin: "known", Scope: "node"}, {Plugin: "never", Scope: "node", Absent: "no baseline"}}})
		r, err := history.ParseRange(nil, snap.Time)
		require.NoError(t, err)
		rules, calm, gaps := store.Rules(r)
		assert.Equal(t, "Rules that were judged and neither soft nor hard: 1. Rules whose level is not known for all or a part of this time: 2.", calmText(len(rules), calm, gaps))
	})
	t.Run("a wrong query is told, as text", func(t *testing.T) {
		for _, query := range []string{"?range=<script>", "?at=now", "?at=2031-01-01T00:00:00Z", "?at=2021-01-01T00:00:00Z"} {
			text, w := getHistory(t, scenes.Calm(), query)
			assert.Equal(t, http.StatusBadRequest, w.Code, text)
			assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
		}
	})
	t.Run("a decision leads to its hour, in which it is marked", func(t *testing.T) {
		s := scenes.Evicted()
		status, _ := getPage(t, s, "", 0)
		d := decisionsOf(s)[0]
		link := moment(&d, s.Snapshot.Time)
		assert.Contains(t, status, strings.ReplaceAll(link, "&", "&amp;"))
		query, anchor, _ := strings.Cut(strings.TrimPrefix(link, "history"), "#")
		assert.Equal(t, decisionAnchor(&d), anchor)
		text, w := getHistory(t, s, query)
		require.Equal(t, http.StatusOK, w.Code)
		assert.Contains(t, text, `<li id="`+decisionAnchor(&d)+`">`)
		assert.Contains(t, text, `class="plot-mark"`)
		assert.Contains(t, text, "The hour about "+view.Clock(d.Time))
		assert.Empty(t, moment(&d, d.Time.Add(25*time.Hour)), "no link to what is not kept")
	})
	t.Run("the pages of a device and of a workload have theirs", func(t *testing.T) {
		s := scenes.Calm()
		for path, want := range map[string]string{"/device?name=sda": "sda await", "/workload?name=" + s.Snapshot.Workloads[0].Cgroup: "Working set"} {
			text, w := getPast(t, s, path+"&range=day")
			require.Equal(t, http.StatusOK, w.Code, path)
			assert.Contains(t, text, "<h3>"+want+"</h3>")
			assert.Contains(t, text, `aria-current="true">last day<`)
			_, w = getPast(t, s, path+"&range=week")
			assert.Equal(t, http.StatusBadRequest, w.Code)
		}
	})
}

func historyLoadsNothing(t *testing.T) {
	for name, s := range pageScenes() {
		if s == nil {
			continue
		}
		text, w := getHistory(t, s, "?range=day")
		assert.Equal(t, searchPolicy, w.Header().Get("Content-Security-Policy"))
		assert.Less(t, len(text), 200_000, name)
		assert.Empty(t, unbalanced(text), name)
		for _, n := range elements(t, text) {
			assert.NotContains(t, []string{"script", "img", "iframe", "object"}, n.Data, name)
			if href := attribute(n, "href"); href != "" {
				assert.Regexp(t, `^(data:|#main$|\./$|(history|device|metrics|api/v1/[a-z]+)(\?|$)|https://github.com/)`, href, name)
			}
		}
	}
}

// Lines, texts and levels of plots differ enough from what they are on: 3 to 1, and
// texts 4.5 to 1 (WCAG 2.2, 1.4.3 and 1.4.11).
func TestHistoryContrast(t *testing.T) {
	text, _ := getHistory(t, scenes.Calm(), "")
	light, dark, _ := strings.Cut(text, "prefers-color-scheme: dark")
	for scheme, style := range map[string]string{"light": light, "dark": dark} {
		luminance := func(name string) float64 {
			m := regexp.MustCompile(`--` + name + `: #([0-9a-f]{6})`).FindStringSubmatch(style)
			require.NotNil(t, m, "%s %s", scheme, name)
			rgb, err := strconv.ParseUint(m[1], 16, 32)
			require.NoError(t, err)
			sum := 0.0
			for shift, weight := range map[int]float64{16: 0.2126, 8: 0.7152, 0: 0.0722} {
				c := float64(rgb>>shift&0xff) / 255
				if c <= 0.04045 {
					sum += weight * c / 12.92
				} else {
					sum += weight * math.Pow((c+0.055)/1.055, 2.4)
				}
			}
			return sum + 0.05
		}
		for _, row := range []struct {
			what  string
			least float64
			on    []string
		}{
			{"ink", 4.5, []string{"card", "soft-bg", "hard-bg", "track"}},
			{"soft-ink", 4.5, []string{"card", "bg"}},
			{"fill", 3, []string{"card", "soft-bg", "hard-bg"}},
			{"soft", 3, []string{"card", "soft-bg"}},
			{"hard", 3, []string{"card", "hard-bg"}},
		} {
			for _, on := range row.on {
				a, b := luminance(row.what), luminance(on)
				assert.GreaterOrEqual(t, max(a, b)/min(a, b), row.least, "%s: %s on %s", scheme, row.what, on)
			}
		}
	}
}

func TestHistoryAPI(t *testing.T) {
	s := scenes.Calm()
	store := historyOf(s)
	snap := *s.Snapshot
	snap.Time = time.Now()
	store.Add(&snap, s.Levels) // the handler knows only the time of the machine
	h := &historyAPI{store, time.Now}
	get := func(query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/history"+query, nil))
		return w
	}
	assert.Equal(t, http.StatusBadRequest, get("?range=year").Code)
	w := get("?workload=" + snap.Workloads[0].Cgroup)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var a struct {
		StepSeconds int
		Node        map[string]struct{ Mean []*float64 }
		Disks       []struct{ Device string }
		Workloads   []struct{ Cgroup string }
		Rules       []struct{ Plugin string }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	assert.Equal(t, 10, a.StepSeconds)
	assert.Equal(t, snap.Workloads[0].Cgroup, a.Workloads[0].Cgroup)
	assert.NotEmpty(t, a.Disks)
	assert.NotEmpty(t, a.Rules)
	mean, known := a.Node["availableRatio"].Mean, 0
	require.Len(t, mean, 360)
	available, _ := snap.Memory.AvailableRatio.Get()
	for _, v := range mean {
		if v != nil {
			known++
			assert.InDelta(t, available, *v, 0.01*math.Abs(available))
		}
	}
	assert.Equal(t, 1, known)
}
