package web

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func TestLiveEventsReachClients(t *testing.T) {
	p := publish(t, scenes.Calm())
	w, code := p.watch()
	require.Equal(t, http.StatusOK, code)
	first, err := w.event()
	require.NoError(t, err)
	assert.Contains(t, first, "<h1>No pressure</h1>")
	for i := range 20 {
		p.next(fmt.Sprint(i))
		w.hears(fmt.Sprint(i))
	}
	page, _ := getPage(t, p.state.Load(), "", time.Since(p.state.Load().Snapshot.Time)) // both are stale
	_, main, _ := strings.Cut(page, `<main id="main" tabindex="-1">`)
	main, _, _ = strings.Cut(main, "</main>")
	p.bell.Notify()
	again, err := w.event()
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(withoutAlarms(main), withoutAlarms(again)), "what is sent is what the page is")
}

// withoutAlarms leaves out how old the state is.
func withoutAlarms(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, `role="alert"`) }), "\n")
}

func TestLiveClientNotReadingCutOff(t *testing.T) {
	p := publish(t, scenes.Contended())
	p.server.live.writeTimeout = 2 * time.Second
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(1024))
	_, err = io.WriteString(conn, "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	eventually(t, "it is let in", func() bool { return p.server.live.clients.Load() == 1 })
	w, _ := p.watch()
	cut, start := false, deadline.Start()
	for i := 0; !cut; i++ {
		require.Less(t, start.Elapsed(), 30*time.Second, "it is cut off")
		rung := deadline.Start()
		p.next(fmt.Sprint(i))
		require.Less(t, rung.Elapsed(), time.Second, "publishing never waits")
		w.hears(fmt.Sprint(i))
		cut = p.server.live.clients.Load() == 1
	}
	require.NoError(t, w.body.Close())
	eventually(t, "all are gone", func() bool { return p.server.live.clients.Load() == 0 })
	assert.Less(t, p.end(), time.Second)
}

func TestLiveClientsLimited(t *testing.T) {
	p := publish(t, scenes.Calm())
	before := runtime.NumGoroutine()
	var in []*watcher
	away := 0
	for range 100 {
		w, code := p.watch()
		switch code {
		case http.StatusOK:
			in = append(in, w)
		case http.StatusServiceUnavailable:
			away++
			require.NoError(t, w.body.Close())
		default:
			t.Errorf("status %d", code)
		}
	}
	assert.Len(t, in, maxClients)
	assert.Equal(t, 100-maxClients, away)
	p.next("all")
	for _, w := range in {
		w.hears("all")
	}
	for _, w := range in {
		require.NoError(t, w.body.Close())
	}
	eventually(t, "no client is left", func() bool { return p.server.live.clients.Load() == 0 })
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	p.server.live.mu.Lock()
	assert.Nil(t, p.server.live.rendered, "nor is what was drawn for them")
	assert.Nil(t, p.server.live.renderedState)
	p.server.live.mu.Unlock()
	w, code := p.watch()
	assert.Equal(t, http.StatusOK, code, "there is room again")
	p.next("again")
	w.hears("again")
}

func TestLiveServerShutdown(t *testing.T) {
	p := publish(t, scenes.Contended())
	for range 3 {
		w, _ := p.watch()
		_, err := w.event() // and waits for the next one
		require.NoError(t, err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(1024))
	_, err = io.WriteString(conn, "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	eventually(t, "all are in", func() bool { return p.server.live.clients.Load() == 4 })
	reads, _ := p.watch()
	for i := range 200 { // more than the sockets of one that never reads take
		p.next(fmt.Sprint(i))
		reads.hears(fmt.Sprint(i))
	}
	took := p.end()
	t.Logf("ended after %s", took)
	assert.Less(t, took, time.Second, "less than a request is given to end (%s)", shutdownTimeout)
	eventually(t, "no client is connected", func() bool { return p.server.live.clients.Load() == 0 })
}

func TestLiveStaleStateShowsAge(t *testing.T) {
	p := publish(t, scenes.Calm())
	w, _ := p.watch()
	start := deadline.Start()
	for range 2 {
		text, err := w.event()
		require.NoError(t, err)
		assert.Contains(t, text, "The newest sample is")
	}
	assert.Greater(t, start.Passed(), eventPeriod/2)
	assert.Less(t, start.Elapsed(), 4*eventPeriod, "longer than a request may be read (%s)", headerTimeout)
}

func TestLiveBeforeFirstTick(t *testing.T) {
	p := publish(t, scenes.Calm())
	first := p.state.Swap(nil)
	w, _ := p.watch()
	text, err := w.event()
	require.NoError(t, err)
	assert.Contains(t, text, view.WaitingText)
	p.state.Store(first)
	p.next("one")
	w.hears("one")
}

func TestLiveOnlyWherePageIs(t *testing.T) {
	s := serverOf(scenes.Calm())
	mux := http.NewServeMux()
	s.public(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/live", http.NoBody))
	assert.Equal(t, http.StatusNotFound, w.Code, "an address that others reach")
	s.restricted(mux)
	for method, code := range map[string]int{http.MethodHead: http.StatusOK, http.MethodPost: http.StatusMethodNotAllowed} {
		w = httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, "/live", http.NoBody))
		assert.Equal(t, code, w.Code, method)
	}
}

// The one script of the page is let run by its hash; nothing else is.
func TestPagePolicyAllowsOneScript(t *testing.T) {
	text, w := getPage(t, scenes.Contended(), "", 0)
	policy := w.Header().Get("Content-Security-Policy")
	scripts := 0
	for _, n := range elements(t, text) {
		if n.Data != "script" {
			continue
		}
		scripts++
		assert.Empty(t, n.Attr)
		require.Equal(t, html.TextNode, n.FirstChild.Type)
		sum := sha256.Sum256([]byte(n.FirstChild.Data))
		assert.Contains(t, policy, "script-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';")
	}
	assert.Equal(t, 1, scripts)
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, policy, "connect-src 'self'")
	assert.NotContains(t, policy, "unsafe-eval")
	held, _ := getPage(t, scenes.Contended(), "?hold", 0)
	assert.NotContains(t, held, "<script")
}
