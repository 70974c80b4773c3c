package web

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/pods"
)

func TestPageHostileClusterTexts(t *testing.T) {
	const evil = "\x1b[2J<script>\u202e"
	d := scenes.Decisions(false)[1]
	d.ID, d.Reason, d.Causes[0].Plugin, d.Causes[0].Scope, d.Causes[0].Reason = evil, evil, evil, evil, evil
	pod := pods.Pod{UID: evil, QoS: evil, Owner: pods.Owner{Kind: evil, Name: evil}}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		c.Name, c.Cgroup, c.Why, c.Reason, c.Pod, c.Answers = evil, evil, evil, evil, &pod, []evict.Answer{{Outcome: evil, Text: evil}}
	}
	d.Candidates[0].Code = evil
	s := scenes.Disconnected()
	s.Cluster.StaleReason = evil
	s.Cluster.Conditions = []evict.Condition{{Type: evil, Status: evil, Reason: evil, Message: evil}}
	p := newPage(func() *view.State { return s }, func() []evict.Decision { return []evict.Decision{d} })
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/", http.NoBody))
	text := withoutScript(w.Body.String())
	assert.Greater(t, strings.Count(text, "&lt;script&gt;"), 30)
	for _, never := range []string{"<script", "\x1b", "\u202e", "ZgotmplZ"} {
		assert.False(t, strings.Contains(text, never), "%q", never)
	}
}

func TestPageSkippedCandidates(t *testing.T) {
	text, _ := getPage(t, scenes.MemoryHard(), "", 0)
	assert.True(t, strings.Contains(text, "Candidates, with the reason each was skipped: 3"), "Candidates, with the reason each was skipped: 3")
	assert.True(t, strings.Contains(text, evict.Standalone), evict.Standalone)
}

func TestPageEviction(t *testing.T) {
	text, _ := getPage(t, scenes.Evicted(), "", 0)
	for _, want := range []string{
		`<span class="badge hard">evicted</span>`, ">shop/cart-66b8d-mm4qz</a></b> · Burstable · priority 100 · ReplicaSet cart-66b8d · requests 1.0 GiB of memory",
		"UID 41aa9e07-0000-4000-8000-00000000000a", "3.0 GiB (working set 3.0 GiB)", "<dt>Answer</dt><dd>12:00:55 UTC, API server: evicted (201)",
		"12:01:09 UTC, 14 s after the decision", "memory-stall: hard → none, 41.0 % (threshold &gt;= 25.0 %) → &lt;0.1 % (threshold &gt;= 10.0 %)",
		"Other candidates, with the reason each was skipped: 3", "needs 1 healthy pods and has 1 currently", "answer 12:00:55 UTC, API server: blocked (429)",
		"protected: DaemonSet collector would recreate it on this node",
	} {
		assert.True(t, strings.Contains(text, want), want)
	}
	assert.Equal(t, 1, strings.Count(text, "needs 1 healthy pods"), "the API server's words are shown once")
	assert.False(t, strings.Contains(text, "DRY RUN"), "DRY RUN")
}

func TestPageDryRunFirst(t *testing.T) {
	text, _ := getPage(t, scenes.DryRun(), "", 0)
	loud, judged := strings.Index(text, "<strong>DRY RUN</strong>"), strings.Index(text, "<h2>Verdicts")
	assert.Positive(t, loud)
	assert.Less(t, loud, judged)
	assert.True(t, strings.Contains(text, "dry run: would evict</span>"), "dry run: would evict")
	assert.True(t, strings.Contains(text, "no: dry run"), "no: dry run")
	assert.False(t, strings.Contains(text, `hard">evicted</span>`), "nothing says that a pod was evicted")
	assert.False(t, strings.Contains(text, "It throttles pods."), "throttling is a dry run, too")
	throttles := *scenes.DryRun()
	c := *throttles.Cluster
	c.Throttles = &view.Throttles{}
	throttles.Cluster = &c
	text, _ = getPage(t, &throttles, "", 0)
	assert.True(t, strings.Contains(text, "evicts no pod. It throttles pods."), "of evictions only")
}

func TestPageTwoEvicted(t *testing.T) {
	shown := func(list []evict.Decision) string {
		s := scenes.Evicted()
		w := httptest.NewRecorder()
		newPage(func() *view.State { return s.WithCluster(s.Cluster, list) }, func() []evict.Decision { return list }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		assert.Empty(t, unbalanced(w.Body.String()))
		_, decisions, _ := strings.Cut(w.Body.String(), "<h2>Latest decisions</h2>")
		victims, _, _ := strings.Cut(decisions, "Other candidates")
		return victims
	}
	list := scenes.TwoEvicted()
	text := shown(list)
	first, second := strings.Index(text, ">batch/report-28f7c-x2k9p</a></b>"), strings.Index(text, ">shop/cart-66b8d-mm4qz</a></b>")
	require.Positive(t, first)
	require.Greater(t, second, first)
	assert.Contains(t, text[first:second], "<dt>Terminated</dt><dd>12:01:00 UTC, 5 s after the decision</dd>")
	assert.Contains(t, text[second:], "<dt>Terminated</dt><dd>not yet</dd>")
	assert.Equal(t, 1, strings.Count(text, "unknown until each evicted pod has terminated"))

	for i := range list {
		list[i].DryRun = true
	}
	list[0].Code, list[0].Candidates[0].Code, list[0].Candidates[2].Code = evict.CodeWouldEvict, evict.CodeWouldEvict, evict.CodeWouldEvict
	text = shown(list)
	assert.Equal(t, 2, strings.Count(text, "<dd>no: dry run</dd>"))
	assert.NotContains(t, text, "<dt>Pressure</dt>")
}

// The chart's agents ask the controller, which has reasons of its own to refuse.
func TestPageAnswersOfController(t *testing.T) {
	s, list := scenes.Evicted(), scenes.Decisions(false)
	for i := range list[1].Candidates {
		for k := range list[1].Candidates[i].Answers {
			list[1].Candidates[i].Answers[k].Via = evict.ViaController
		}
	}
	w := httptest.NewRecorder()
	newPage(func() *view.State { return s }, func() []evict.Decision { return list }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	assert.True(t, strings.Contains(w.Body.String(), "<dt>Answer</dt><dd>12:00:55 UTC, controller: evicted (201)"), "the victim's")
	assert.True(t, strings.Contains(w.Body.String(), "answer 12:00:55 UTC, controller: blocked (429)"), "a skipped candidate's")
}

func TestPageAPIServerLost(t *testing.T) {
	text, _ := getPage(t, scenes.Disconnected(), "", 0)
	assert.True(t, strings.Contains(text, "No connection to the API server for 1 min 35 s (dial tcp 10.0.0.1:6443: connect: connection refused)"), "alarm")
	assert.True(t, strings.Contains(text, "no connection for 1 min 35 s"), "no connection for 1 min 35 s")
	s := scenes.Disconnected()
	s.Cluster.StaleSince = s.Snapshot.Time.Add(-4 * time.Second)
	text, _ = getPage(t, s, "", 0)
	assert.False(t, strings.Contains(text, "No connection to the API server"), "a watch that begins again is no alarm")
	s.Cluster.PodsSynced, s.Cluster.StaleSince, s.Cluster.RoundsStuckSeconds = true, time.Time{}, 90
	text, _ = getPage(t, s, "", 0)
	assert.True(t, strings.Contains(text, "No round has ended for 1 min 30 s"), "what is shown is old")
	assert.True(t, strings.Contains(text, "rounds stuck for 1 min 30 s, no pod is evicted"), "the mode says so too")
	s.Cluster.PodsSynced, s.Cluster.RoundsStuckSeconds = false, 0
	text, _ = getPage(t, s, "", 0)
	assert.True(t, strings.Contains(text, "pods not listed yet, evictions paused"), "pods not listed yet")
	assert.True(t, strings.Contains(text, `title="not listed yet`), "what is not known is no number")
	assert.True(t, strings.Contains(text, "no answer yet"), "nor is it known to be connected")
}

// The wall clock was set back by an hour; the monotonic one was not.
func TestPageAgesOfSetClock(t *testing.T) {
	s := scenes.Calm()
	s.Sampled = time.Now()
	s.Snapshot.Time = s.Sampled.Add(time.Hour).Round(0)
	s.Cluster = &view.Cluster{PodsSynced: true, StaleSince: s.Sampled.Add(-90 * time.Second)}
	var texts []string
	for _, a := range alarms(s, s.Sampled.Add(time.Minute)) {
		texts = append(texts, a.Text)
	}
	require.Len(t, texts, 2)
	assert.Contains(t, texts[0], "The newest sample is 1 min old")
	assert.Contains(t, texts[1], "No connection to the API server for 1 min 30 s")
	assert.Equal(t, map[string]float64{"": 90}, valuesOf(t, s, "plimsoll_api_server_stale_seconds", ""))
	assert.Equal(t, time.Minute, s.Answered(s.Sampled.Add(time.Minute)).SampleAge)
}

func TestPageStateUnsaved(t *testing.T) {
	s := scenes.Evicted()
	s.Cluster.UnsavedSeconds, s.Cluster.UnsavedReason = 95, "read-only file system"
	text, _ := getPage(t, s, "", 0)
	assert.True(t, strings.Contains(text, "The eviction state has not been saved for 1 min 35 s (read-only file system)"), "alarm")
}

func TestPageMissedSamples(t *testing.T) {
	s := scenes.Calm()
	s.Agent.TicksMissed = 3
	for ago, shown := range map[time.Duration]bool{missedShown - time.Second: true, missedShown: false} {
		s.Agent.MissedAt = s.Snapshot.Time.Add(-ago)
		text, _ := getPage(t, s, "", 0)
		assert.Equal(t, shown, strings.Contains(text, "3 samples missed since the start, the last one"), ago)
	}
}

func TestPageConditions(t *testing.T) {
	text, _ := getPage(t, scenes.Evicted(), "", 0)
	for _, want := range []string{
		`<b>plimsoll.dev/DiskContention</b> <span class="badge unknown">Unknown</span> NotSeen`,
		`<b>plimsoll.dev/MemoryContention</b> <span class="badge soft">True</span> Settling`,
		`<b>plimsoll.dev/NetworkContention</b> <span class="badge none">False</span> Clear`,
	} {
		assert.True(t, strings.Contains(text, want), want)
	}
	alone, _ := getPage(t, scenes.Calm(), "", 0)
	assert.False(t, strings.Contains(alone, "<h2>Cluster</h2>"), "without a cluster there is none")
	for want, c := range map[string]view.Cluster{
		"None yet: waiting for the first round.":         {},
		"None in a dry run.":                             {DryRun: true},
		"None: conditions.enabled is false.":             {ConditionsOff: true, Conditions: []evict.Condition{}},
		"None: no rule that marks the Node is in force.": {Conditions: []evict.Condition{}},
	} {
		text, _ := getPage(t, scenes.Calm().WithCluster(&c, nil), "", 0)
		assert.Contains(t, text, want)
	}
}

// Without a decision the page claims that no level has changed only while the agent decides.
func TestPageNoDecision(t *testing.T) {
	const claim = "None yet: no level has changed since the agent started."
	for name, row := range map[string]struct {
		change func(s *view.State)
		age    time.Duration
		claims bool
	}{
		"standalone":       {func(s *view.State) { s.Cluster = nil }, 0, true},
		"rounds end":       {func(*view.State) {}, 0, true},
		"rounds are stuck": {func(s *view.State) { s.Cluster.RoundsStuckSeconds = 600 }, 0, false},
		"an old sample":    {func(*view.State) {}, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := scenes.Calm().WithCluster(&view.Cluster{PodsSynced: true}, nil)
			row.change(s)
			p := newPage(func() *view.State { return s }, func() []evict.Decision { return nil })
			p.now = func() time.Time { return s.Snapshot.Time.Add(row.age) }
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			assert.Equal(t, row.claims, strings.Contains(w.Body.String(), claim))
			assert.Equal(t, !row.claims, strings.Contains(w.Body.String(), `<p class="quiet">None yet.</p>`))
		})
	}
}

func TestPageOldDecisionsFolded(t *testing.T) {
	one := scenes.Decisions(false)[1]
	for range 40 {
		one.Candidates = append(one.Candidates, one.Candidates[3])
	}
	one.Omitted = 5
	list := slices.Repeat([]evict.Decision{one}, 60)
	p := newPage(scenes.Evicted, func() []evict.Decision { return list })
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/", http.NoBody))
	text := w.Body.String()
	assert.Empty(t, unbalanced(text))
	assert.True(t, strings.Contains(text, "Earlier decisions: 17"), "Earlier decisions: 17")
	assert.True(t, strings.Contains(text, "the reason each was skipped: 10 and 38 more"), "the reason each was skipped: 10 and 38 more")
	assert.Less(t, len(text), 200<<10)
}

func TestPageNewestEvictionNotFolded(t *testing.T) {
	quiet, gone := scenes.Decisions(false)[2], scenes.Decisions(false)[1]
	for before, want := range map[int]int{0: 3, 2: 3, 3: 4, 7: 8, 8: 3} {
		list := append(slices.Repeat([]evict.Decision{quiet}, before), gone, gone, quiet)
		list = append(list, slices.Repeat([]evict.Decision{quiet}, 3)...)
		assert.Equal(t, want, unfolded(pageDecisions(list, scenes.Start(), false)), "%d decisions before it", before)
	}
	text, _ := getPage(t, scenes.Evicted(), "", 0)
	assert.True(t, strings.Contains(text, "<p>Last eviction, 1 min 10 s ago: evicted shop/cart-66b8d-mm4qz: working set 3.0 GiB; terminated after 14 s</p>"), "and in a line at the top")
}
