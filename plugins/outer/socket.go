package outer

import (
	"context"
	"errors"
	"time"
)

const (
	// firstRetry is short: a plugin's socket is seen before it listens.
	firstRetry = 20 * time.Millisecond
	maxRetry   = 5 * time.Minute
)

// socket is one path at which a plugin may be. Its goroutine lives as long as
// there is a file.
type socket struct {
	host   *Host
	path   string
	ctx    context.Context
	cancel context.CancelFunc
	// changed has the newest identity that was not looked at yet.
	changed chan identity
	seen    identity // of the walk alone
	looked  identity // of run alone: what was at the path at the last attempt
	after   <-chan struct{}
	done    chan struct{}

	// guarded by the host's mu
	problem string // why nothing is registered there
}

// newSocket is called with the host's lock. One of the same path that ends has
// ended before this one begins.
func (h *Host) newSocket(ctx context.Context, path string, id identity) *socket {
	s := &socket{host: h, path: path, changed: make(chan identity, 1), seen: id, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if before := h.sockets[path]; before != nil {
		s.after = before.done
	}
	return s
}

func (s *socket) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// see tells the goroutine when another socket has taken the place.
func (s *socket) see(id identity) {
	if id == s.seen {
		return
	}
	s.seen = id
	select {
	case <-s.changed:
	default:
	}
	s.changed <- id
}

// run registers what is at the path, again and again while it is there.
func (s *socket) run() {
	defer close(s.done)
	defer s.cancel()
	if s.after != nil {
		<-s.after
	}
	wait := firstRetry
	for {
		replaced, err := s.attempt()
		if s.ctx.Err() != nil {
			return
		}
		switch {
		case replaced, errors.Is(err, errGone):
			wait = firstRetry
		case errors.Is(err, errRefused):
			wait = max(wait, time.Second)
		}
		if !replaced && !s.sleep(err, wait) {
			return
		}
		wait = min(2*wait, maxRetry)
	}
}

// attempt registers what is there now, and lasts as long as that does.
func (s *socket) attempt() (replaced bool, err error) {
	id, there := identify(s.path)
	if !there {
		return false, errNoSocket
	}
	s.looked = id
	ctx, end := context.WithCancel(s.ctx)
	defer end()
	over := make(chan error, 1)
	go func() { over <- s.register(ctx, id) }()
	for {
		select {
		case err := <-over:
			return false, err
		case now := <-s.changed:
			if now != id { // or the walk has only now seen what is registered
				end()
				return true, <-over
			}
		}
	}
}

// sleep until the next attempt, and for ever after another kind of socket; a
// new socket at the path ends it. False: nothing is there any more.
func (s *socket) sleep(err error, wait time.Duration) bool {
	again := time.NewTimer(wait)
	defer again.Stop()
	timer := again.C
	if errors.Is(err, errOtherKind) {
		timer = nil
	}
	for {
		select {
		case <-s.ctx.Done():
			return false
		case now := <-s.changed:
			if now != s.looked {
				return true
			}
		case <-timer:
			return true
		}
	}
}

// say keeps why nothing is registered, and logs it when it is news.
func (s *socket) say(problem string) {
	s.host.mu.Lock()
	news := problem != s.problem
	s.problem = problem
	s.host.mu.Unlock()
	if news && problem != "" {
		s.host.Log.Info("a socket is not registered", "socket", s.path, "reason", problem)
	}
}
