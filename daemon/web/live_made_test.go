package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// publisher is an agent that publishes states on a real socket.
type publisher struct {
	t       *testing.T
	server  *Server
	state   atomic.Pointer[view.State]
	bell    Notifier
	address string
	stop    context.CancelFunc
	ended   chan error
}

func publish(t *testing.T, s *view.State) *publisher {
	t.Helper()
	p := &publisher{t: t, ended: make(chan error, 1)}
	p.state.Store(s)
	p.server = serverOf(s)
	p.server.State, p.server.Cluster, p.server.Published = p.state.Load, nil, p.bell.Next
	p.server.Decisions = func() []evict.Decision { return nil }
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	l, err := p.server.Listen(ctx, "127.0.0.1:0", Exposure{})
	require.NoError(t, err)
	p.address = l.Addr().String()
	go func() { p.ended <- l.Serve(ctx) }()
	t.Cleanup(stop)
	return p
}

// next publishes a numbered state and does not wait.
func (p *publisher) next(which string) {
	s := *p.state.Load()
	l := *s.Levels
	l.Verdicts = slices.Clone(l.Verdicts)
	l.Verdicts[0].Reason = "tick " + which + "."
	s.Levels = &l
	p.state.Store(&s)
	p.bell.Notify()
}

// end ends the server and returns how long that took.
func (p *publisher) end() time.Duration {
	p.t.Helper()
	start := deadline.Start()
	p.stop()
	select {
	case err := <-p.ended:
		require.NoError(p.t, err)
	case <-deadline.After(10 * time.Second):
		p.t.Fatal("the server does not end")
	}
	return start.Elapsed()
}

// watcher is a client of the page.
type watcher struct {
	t    *testing.T
	body io.ReadCloser
	read *bufio.Reader
}

func (p *publisher) watch() (*watcher, int) {
	p.t.Helper()
	ctx, cancel := deadline.Context(p.t.Context(), time.Minute)
	p.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/live", http.NoBody)
	require.NoError(p.t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = resp.Body.Close() })
	return &watcher{p.t, resp.Body, bufio.NewReader(resp.Body)}, resp.StatusCode
}

// event is the next one, without the marks of its lines.
func (w *watcher) event() (string, error) {
	var b strings.Builder
	for {
		line, err := w.read.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "\n" {
			return b.String(), nil
		}
		data, isData := strings.CutPrefix(line, "data: ")
		if !isData && line != "data:\n" {
			return "", fmt.Errorf("%q is no line of an event", line)
		}
		b.WriteString(data)
	}
}

// hears reads events until one is about the node.
func (w *watcher) hears(which string) {
	w.t.Helper()
	for {
		text, err := w.event()
		require.NoError(w.t, err)
		if strings.Contains(text, "tick "+which+".") {
			return
		}
	}
}

// eventually polls until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline.Eventually(t, holds, 20*time.Second, 5*time.Millisecond, what)
}
