package web

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// endedServer serves a state some time after its first workload has ended, with a
// history of the ten minutes before.
func endedServer(s *view.State, later time.Duration) (server *Server, ended snapshot.WorkloadState) {
	server = pageServer(s)
	server.History = historyOf(s)
	ended = s.Snapshot.Workloads[0]
	now := *s.Snapshot
	now.Time, now.Workloads = now.Time.Add(later), slices.Clone(now.Workloads[1:])
	state := *s
	state.Snapshot = &now
	server.State = func() *view.State { return &state }
	server.now = func() time.Time { return now.Time }
	return server, ended
}

// assertHas does not print the page.
func assertHas(t *testing.T, page, text string) {
	t.Helper()
	assert.True(t, strings.Contains(page, text), text)
}

func assertHasNot(t *testing.T, page, text string) {
	t.Helper()
	assert.False(t, strings.Contains(page, text), text)
}

func TestWorkloadEnded(t *testing.T) {
	// Seen in the step up to 12:02:00; the scene is of 12:02:05.
	const seen = `It has ended: last seen at <time datetime="2026-03-01T12:02:00Z">2026-03-01 12:02:00 UTC</time>, `
	t.Run("its history is shown", func(t *testing.T) {
		server, ended := endedServer(scenes.Calm(), 5*time.Minute)
		for _, name := range []string{ended.Cgroup, ended.Title()} {
			status, text, _ := askPage(t, server, named(name))
			require.Equal(t, http.StatusOK, status, name)
			assertHas(t, text, seen+"5 min 5 s ago.")
			assertHas(t, text, "<h3>Working set</h3>")
			assertHas(t, text, `aria-current="true">last hour<`)
			assertHasNot(t, text, "No value yet")
			assertUsable(t, name, text)
			assert.Empty(t, unbalanced(text))
			assertLoadsNothing(t, name, text)
		}
	})
	t.Run("that about its end, where it ended long ago", func(t *testing.T) {
		server, ended := endedServer(scenes.Calm(), 5*time.Hour)
		history := regexp.MustCompile(`<small>(.*) to (.*) UTC</small>`)
		_, text, _ := askPage(t, server, named(ended.Cgroup))
		assertHas(t, text, seen+"5 h")
		assert.Equal(t, []string{"2026-03-01 11:32:00", "2026-03-01 12:32:00"}, history.FindStringSubmatch(text)[1:])
		_, text, _ = askPage(t, server, named(ended.Cgroup)+"&at="+url.QueryEscape("2026-03-01T16:30:00Z"))
		assert.Equal(t, []string{"2026-03-01 16:00:00", "2026-03-01 17:00:00"}, history.FindStringSubmatch(text)[1:], "as asked for")
		_, text, _ = askPage(t, server, named(ended.Cgroup)+"&range=day")
		assertHas(t, text, `aria-current="true">last day<`)
		status, _, _ := askPage(t, server, named(ended.Cgroup)+"&range=week")
		assert.Equal(t, http.StatusBadRequest, status)
	})
	t.Run("older than may be asked for", func(t *testing.T) {
		server, ended := endedServer(scenes.Calm(), 25*time.Hour)
		status, text, _ := askPage(t, server, named(ended.Cgroup))
		assert.Equal(t, http.StatusOK, status)
		assertHas(t, text, `aria-current="true">last hour<`)
	})
	t.Run("the search finds it", func(t *testing.T) {
		server, ended := endedServer(scenes.Calm(), 5*time.Minute)
		_, text, _ := askPage(t, server, "/search?q="+url.QueryEscape(ended.Title()))
		assertHas(t, text, "0 workloads and 1 that ended, ")
		assertHas(t, text, `<a href="workload?name=`+strings.ReplaceAll(ended.Cgroup, "/", "%2f")+`">`)
		assertHas(t, text, "last seen 5 min 5 s ago")
		live := scenes.Calm().Snapshot.Workloads[1]
		_, text, _ = askPage(t, server, "/search?q="+url.QueryEscape(live.Cgroup))
		assertHasNot(t, text, "that ended") // it is there
	})
	t.Run("a name of none", func(t *testing.T) {
		server, _ := endedServer(scenes.Calm(), 5*time.Minute)
		for _, name := range []string{"", "no-such-workload"} {
			status, _, _ := askPage(t, server, named(name))
			assert.Equal(t, http.StatusNotFound, status, name)
		}
	})
	t.Run("hostile names are text", func(t *testing.T) {
		server, ended := endedServer(scenes.Hostile(), 5*time.Minute)
		status, text, _ := askPage(t, server, named(ended.Cgroup))
		require.Equal(t, http.StatusOK, status)
		assertHasNot(t, text, "<script")
		assertHasNot(t, text, "\x1b")
		assertHasNot(t, text, "ZgotmplZ")
		assert.Empty(t, unbalanced(text))
	})
}
