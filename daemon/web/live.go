package web

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// live is shared by all clients that follow the status page. Each has its own
// goroutine, which sends the newest state and is cut off when the client does
// not read: a slow client delays no other.
type live struct {
	clients atomic.Int32
	// writeTimeout is the write timeout for a client that does not read; 0:
	// eventTimeout.
	writeTimeout time.Duration

	mu            sync.Mutex // guards all below
	renderedState *view.State
	renderedAt    time.Time
	rendered      []byte // of an event, rendered once for all clients; immutable
}

const (
	// maxClients is the limit of concurrent clients over all addresses.
	maxClients = 32
	// eventTimeout is the write timeout of one event.
	eventTimeout = 10 * time.Second
	// eventPeriod is after how long without a new state the page is sent again,
	// with the age of its values.
	eventPeriod = 5 * time.Second
	// renderMaxAge is how old a rendering of the same state may be.
	renderMaxAge = time.Second
)

// liveHandler is GET /live: the main part of the page as a server-sent event for each
// published state, until the client disconnects or the server ends.
type liveHandler struct {
	live      *live
	page      *page
	state     func() *view.State
	published func() <-chan struct{} // Server.Published
	log       *slog.Logger
}

func (f *liveHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.live.acquire() {
		http.Error(w, "too many clients follow the page live; it reloads instead", http.StatusServiceUnavailable)
		return
	}
	defer f.live.release()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return
	}
	c := http.NewResponseController(w)
	// A write that blocks must not outlive the server.
	ended := context.AfterFunc(r.Context(), func() { _ = c.SetWriteDeadline(time.Now()) })
	defer ended()
	for f.sendEvent(r.Context(), w, c) {
	}
}

// sendEvent sends the newest state and waits for the next one; false: the
// client disconnected or does not read, or the server ends.
func (f *liveHandler) sendEvent(ctx context.Context, w http.ResponseWriter, c *http.ResponseController) bool {
	next := f.next() // before reading the state, so that none is missed
	text, err := f.live.render(f.state(), f.page)
	if err != nil {
		f.log.Error("failed to render the status page", "error", err)
		return false
	}
	_ = c.SetWriteDeadline(time.Now().Add(cmp.Or(f.live.writeTimeout, eventTimeout)))
	if ctx.Err() != nil { // checked after the deadline is set: the end of the context sets another one
		return false
	}
	if _, err := w.Write(text); err != nil || c.Flush() != nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-next:
	case <-time.After(eventPeriod):
	}
	return true
}

// next is closed with the next state; nil: no notification.
func (f *liveHandler) next() <-chan struct{} {
	if f.published == nil {
		return nil
	}
	return f.published()
}

func (l *live) acquire() bool {
	if l.clients.Add(1) > maxClients {
		l.release()
		return false
	}
	return true
}

// release drops the rendering when the last client leaves.
func (l *live) release() {
	if l.clients.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renderedState, l.rendered = nil, nil
}

// render renders the event of a state once for all clients.
func (l *live) render(of *view.State, p *page) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.rendered != nil && l.renderedState == of && now.Sub(l.renderedAt) < renderMaxAge {
		return l.rendered, nil
	}
	var b bytes.Buffer
	if err := p.template.ExecuteTemplate(&b, "main", p.data(false)); err != nil {
		return nil, err
	}
	text := append([]byte("data: "), bytes.ReplaceAll(bytes.TrimSpace(b.Bytes()), []byte("\n"), []byte("\ndata: "))...)
	l.renderedState, l.renderedAt, l.rendered = of, now, append(text, "\n\n"...)
	return l.rendered, nil
}
