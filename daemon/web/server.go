// Package web serves what the agent shows: metrics, health, the status page
// and the API, over HTTP where everything is read-only, and on a Unix socket
// where the configuration can also be reloaded. No handler reads the kernel or
// waits for a tick: all answer from the last published State.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// Server answers from these functions, which must not block.
type Server struct {
	// State is nil before the first tick.
	State func() *view.State
	// Cluster is nil, or returns nil, for an agent that runs standalone.
	Cluster func() *view.Cluster
	// Decisions that are kept, newest first.
	Decisions func() []evict.Decision
	// Healthy and Ready say what is wrong, naming the part, or nil.
	Healthy, Ready func() error
	// Reload the configuration; asked on the local socket only.
	Reload  func() error
	Version string
	Log     *slog.Logger
}

// whole is the newest state with what the cluster is like now and the newest
// eviction; nil before the first tick.
func (s *Server) whole() *view.State { return s.State().With(s.cluster(), s.Decisions()) }

func (s *Server) cluster() *view.Cluster {
	if s.Cluster == nil {
		return nil
	}
	return s.Cluster()
}

// Exposure says what an address may show.
type Exposure struct {
	// Open: everything, even where others can reach the address.
	Open bool
	// Pprof adds /debug/pprof/.
	Pprof bool
}

// Listener is an open address with its handler. Serve or Close ends it.
type Listener struct {
	net.Listener
	handler http.Handler
	log     *slog.Logger
}

// Listen opens a TCP address. One that others can reach shows only /metrics
// and /-/* unless the exposure is open.
func (s *Server) Listen(ctx context.Context, address string, x Exposure) (*Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("web: listen on %s: %w", address, cause(err))
	}
	mux := http.NewServeMux()
	s.public(mux)
	mux.HandleFunc("POST /-/reload", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "reload: only on the local socket", http.StatusForbidden)
	})
	if tcp, ok := l.Addr().(*net.TCPAddr); x.Open || ok && tcp.IP.IsLoopback() {
		s.everything(mux)
		if x.Pprof {
			profiles(mux)
		}
	}
	return &Listener{Listener: l, handler: mux, log: s.Log}, nil
}

// ListenLocal opens the Unix socket, for root and its group only. A socket
// that a killed agent left behind is replaced, one that answers is not.
func (s *Server) ListenLocal(ctx context.Context, path string) (*Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("api: socket: %w", err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("api: socket %s: %w", path, err)
	}
	// Nobody may come in between the socket and its mode.
	old := syscall.Umask(0o117)
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("api: socket %s: %w", path, cause(err))
	}
	mux := http.NewServeMux()
	s.public(mux)
	s.everything(mux)
	mux.HandleFunc("POST /-/reload", s.reload)
	return &Listener{Listener: l, handler: mux, log: s.Log}, nil
}

// cause is the end of the chain: the address is named once, by us.
func cause(err error) error {
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		return sys.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

var errAnswers = errors.New("another agent answers on it")

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("there is a file that is no socket")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errAnswers, c.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return cause(err)
}

// Deadlines of one request: a client that does not read loses its connection.
const (
	headerTimeout   = 5 * time.Second
	writeTimeout    = 60 * time.Second // a profile of 30 s fits
	shutdownTimeout = 2 * time.Second
)

// Serve answers until ctx is done, lets running requests end for a moment, and
// closes the listener.
func (l *Listener) Serve(ctx context.Context) error {
	srv := &http.Server{
		Handler: l.handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout,
		ErrorLog: slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close() // who still reads after the time is cut off
		}
		stopped <- nil
	})
	err := srv.Serve(l.Listener)
	if stop() {
		return fmt.Errorf("web: serve %s: %w", l.Addr(), err)
	}
	return <-stopped
}

// public is what every address shows.
func (s *Server) public(mux *http.ServeMux) {
	mux.Handle("GET /metrics", s.metrics())
	mux.HandleFunc("GET /-/healthy", probe(s.Healthy))
	mux.HandleFunc("GET /-/ready", probe(s.Ready))
}

func (s *Server) everything(mux *http.ServeMux) {
	mux.Handle("GET /{$}", s.page())
	mux.HandleFunc("GET /api/v1/snapshot", s.snapshot)
	mux.HandleFunc("GET /api/v1/pressure", s.pressure)
	mux.HandleFunc("GET /api/v1/plugins", s.plugins)
	mux.HandleFunc("GET /api/v1/decisions", s.decisions)
}

func profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
