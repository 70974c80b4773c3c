package web

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// live is what all who watch the status page have in common. Each of them is a
// goroutine of its own that takes the newest state when it has sent the one
// before, and is cut off when it does not read: nobody waits for it.
type live struct {
	watchers atomic.Int32
	// patience with a watcher that does not read; 0: eventPatience.
	patience time.Duration

	mu   sync.Mutex // guards all below
	of   *view.State
	at   time.Time
	text []byte // of an event, drawn once for all; it is never changed
}

const (
	// maxWatchers of all addresses together.
	maxWatchers = 32
	// eventPatience is what a slow line gets for one event.
	eventPatience = 10 * time.Second
	// eventPeriod is after how long without a new state the page is sent all
	// the same: it says then how old it is.
	eventPeriod = 5 * time.Second
	// redrawn is how old a drawing of the same state may be.
	redrawn = time.Second
)

// watch is GET /live: the main part of the page, as a server-sent event for
// each state that is published, until the client goes or the server ends.
func (s *Server) watch(p *page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.live.enter() {
			http.Error(w, "too many clients follow the page live; it reloads instead", http.StatusServiceUnavailable)
			return
		}
		defer s.live.leave()
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodHead {
			return
		}
		c := http.NewResponseController(w)
		// A write that nobody reads must not outlive the server.
		ended := context.AfterFunc(r.Context(), func() { _ = c.SetWriteDeadline(time.Now()) })
		defer ended()
		for s.sendEvent(r.Context(), w, c, p) {
		}
	}
}

// sendEvent sends the newest state and waits for the next one; false: the
// client is gone or does not read, or the server ends.
func (s *Server) sendEvent(ctx context.Context, w http.ResponseWriter, c *http.ResponseController, p *page) bool {
	next := s.published() // before the state is looked at: none is missed
	text, err := s.live.draw(s.State(), p)
	if err != nil {
		s.Log.Error("failed to render the status page", "error", err)
		return false
	}
	_ = c.SetWriteDeadline(time.Now().Add(cmp.Or(s.live.patience, eventPatience)))
	if ctx.Err() != nil { // looked at after the deadline was set: who ends it sets another
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

func (s *Server) published() <-chan struct{} {
	if s.Published == nil {
		return nil
	}
	return s.Published()
}

func (l *live) enter() bool {
	if l.watchers.Add(1) > maxWatchers {
		l.leave()
		return false
	}
	return true
}

// leave lets go of the drawing when nobody is left to see it.
func (l *live) leave() {
	if l.watchers.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of, l.text = nil, nil
}

// draw is the event of a state, drawn once however many watch.
func (l *live) draw(of *view.State, p *page) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.text != nil && l.of == of && now.Sub(l.at) < redrawn {
		return l.text, nil
	}
	var b bytes.Buffer
	if err := p.template.ExecuteTemplate(&b, "main", p.data(false)); err != nil {
		return nil, err
	}
	text := append([]byte("data: "), bytes.ReplaceAll(bytes.TrimSpace(b.Bytes()), []byte("\n"), []byte("\ndata: "))...)
	l.of, l.at, l.text = of, now, append(text, "\n\n"...)
	return l.text, nil
}
