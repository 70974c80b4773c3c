package outer

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll/backoff"
	"github.com/plimsoll-dev/plimsoll/katalyst"
)

const (
	// firstRetry is short: a plugin's socket is seen before it listens.
	firstRetry = 20 * time.Millisecond
	maxRetry   = 5 * time.Minute
)

// socket is a socket file of a plugin. Its goroutine registers the plugin that
// listens there, and again after it ended, while the file exists. A registered
// plugin lives as long as its connection, since any user who may write to the
// directory may delete the file.
type socket struct {
	host *Host
	path string
	file fileIdentity
	// ctx ends with the host, there also when the file is removed.
	ctx, fileCtx context.Context
	cancelFile   context.CancelFunc // ends there
	// wake ends its backoff: the name or place that it needs may be available, or a rival
	// has gone.
	wake chan struct{}
	done chan struct{}
	// hungUp: the last plugin hung up before it was of use. Used by run only.
	hungUp bool

	// guarded by the registry's mu
	problem     string // reason why no plugin is registered
	wantedName  string // the name that another plugin holds
	wantedPlace bool   // all places for plugins are taken
	listener    *listener
}

func newSocket(ctx context.Context, h *Host, path string, file fileIdentity) *socket {
	s := &socket{host: h, path: path, file: file, ctx: ctx, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.fileCtx, s.cancelFile = context.WithCancel(ctx)
	return s
}

// retry ends the wait until the next attempt.
func (s *socket) retry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *socket) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// run registers the plugin, with exponential backoff, while the file exists.
func (s *socket) run() {
	defer close(s.done)
	defer s.cancelFile()
	retries := backoff.Exponential{First: firstRetry, Longest: maxRetry}
	for wait := retries.First; ; wait = retries.Next(wait) {
		err := s.register()
		switch {
		case errors.Is(err, errDisconnected):
			wait = retries.First
		case errors.Is(err, errRefused):
			wait = max(wait, time.Second)
		}
		if !s.sleep(err, wait) {
			return
		}
	}
}

// sleep waits until the next attempt, or for the end if the socket is of
// another kind. It returns false once the file is removed.
func (s *socket) sleep(err error, wait time.Duration) bool {
	again := time.NewTimer(wait)
	defer again.Stop()
	timer := again.C
	if errors.Is(err, katalyst.ErrOtherKind) {
		timer = nil
	}
	select {
	case <-s.fileCtx.Done():
		return false
	case <-s.wake:
	case <-timer:
	}
	return s.fileCtx.Err() == nil
}

// report stores the reason why no plugin is registered, and logs a new one.
func (s *socket) report(problem string) {
	if news := s.host.registry.setProblem(s, problem); news && problem != "" {
		s.host.Log.Info("plugin socket not registered", "socket", s.path, "reason", problem)
	}
}
