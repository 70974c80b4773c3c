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

// socket is one file at which a plugin may be. Its goroutine registers what
// listens there, again and again while the file is there. What is registered
// lives as long as its connection: whoever may write in the directory may take
// the file away.
type socket struct {
	host *Host
	path string
	file identity
	// ctx ends with the host, there when the file has gone, too.
	ctx, there context.Context
	leave      context.CancelFunc // ends there
	// freed wakes it when the name that it wants may be free.
	freed chan struct{}
	done  chan struct{}

	// guarded by the host's mu
	problem string // why nothing is registered there
	wants   string // the name that another plugin had
}

func (h *Host) newSocket(ctx context.Context, path string, file identity) *socket {
	s := &socket{host: h, path: path, file: file, ctx: ctx, freed: make(chan struct{}, 1), done: make(chan struct{})}
	s.there, s.leave = context.WithCancel(ctx)
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

// run registers what is there, again and again while the file is.
func (s *socket) run() {
	defer close(s.done)
	defer s.leave()
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		err := s.register()
		switch {
		case errors.Is(err, errGone):
			wait = firstRetry
		case errors.Is(err, errRefused):
			wait = max(wait, time.Second)
		}
		if !s.sleep(err, wait) {
			return
		}
	}
}

// sleep until the next attempt, and for ever after another kind of socket.
// False: the file has gone.
func (s *socket) sleep(err error, wait time.Duration) bool {
	again := time.NewTimer(wait)
	defer again.Stop()
	timer := again.C
	if errors.Is(err, errOtherKind) {
		timer = nil
	}
	select {
	case <-s.there.Done():
		return false
	case <-s.freed:
	case <-timer:
	}
	return s.there.Err() == nil
}

// say keeps why nothing is registered, and logs it when it is news.
func (s *socket) say(problem string) {
	s.host.mu.Lock()
	news := problem != s.problem
	s.problem = problem
	s.host.mu.Unlock()
	if news && problem != "" {
		s.host.Log.Info("plugin socket not registered", "socket", s.path, "reason", problem)
	}
}
