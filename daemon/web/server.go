// Package web serves metrics, health, the status pages and the API: over HTTP,
// read-only, and on a Unix socket, where the configuration can also be
// reloaded. No handler reads the kernel or waits for a tick: all answer from
// the last published State, except the examination and the processes of a workload, of
// each of which one runs at a time.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/guard"
	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Server serves an agent. Its functions must not block.
type Server struct {
	// State is nil before the first tick.
	State func() *view.State
	// Published returns a channel that is closed with the next State; nil: no
	// notification.
	Published func() <-chan struct{}
	// Cluster is nil, or returns nil, for an agent that runs standalone.
	Cluster func() *view.Cluster
	// Outer plugins; nil, or returns nil, where they are disabled.
	Outer func() *view.OuterPlugins
	// Decisions that are stored, newest first.
	Decisions func() []evict.Decision
	// Healthy and Ready return an error that names the failed part, or nil.
	Healthy, Ready func() error
	// Reload the configuration; only on the local socket.
	Reload func() error
	// Examine the machine as plimsoll doctor does; it may block. Nil: it is not served.
	Examine func(context.Context) any
	// Processes reads those of a workload's cgroup, for its page; it may block until
	// ctx ends. Nil: they are not shown.
	Processes func(ctx context.Context, cgroup string) (probes.ProcessList, error)
	// Pods are the series of single workloads, nil for none.
	Pods *PodSeries
	// History of the published states; nil: it is not served.
	History *history.Store
	Version string
	Log     *slog.Logger

	live        live
	examination examination
	processes   turns
	now         func() time.Time // nil: time.Now
}

// currentState is the newest state with the cluster's current state, outer plugins and
// the newest eviction; nil before the first tick.
func (s *Server) currentState() *view.State {
	return s.State().WithCluster(s.cluster(), s.Decisions()).WithOuter(s.outer())
}

func (s *Server) cluster() *view.Cluster {
	if s.Cluster == nil {
		return nil
	}
	return s.Cluster()
}

func (s *Server) outer() *view.OuterPlugins {
	if s.Outer == nil {
		return nil
	}
	return s.Outer()
}

// Exposure is what an address shows, and to whom.
type Exposure struct {
	// Open: everything, on non-loopback addresses too.
	Open bool
	// Pprof adds /debug/pprof/.
	Pprof bool
	// Auth authenticates clients; nil: none.
	Auth *guard.Authenticator
}

// ProbePaths are the paths without authentication: probes have no credentials.
func ProbePaths() []string { return []string{"/-/healthy", "/-/ready"} }

// Listener is an open address with its server. Serve or Close ends it.
type Listener struct {
	net.Listener
	server *http.Server
	tls    bool // the server has certificates
}

// URL of the first page.
func (l *Listener) URL() string {
	scheme := "http"
	if l.tls {
		scheme = "https"
	}
	return scheme + "://" + l.Addr().String() + "/"
}

// Listen opens a TCP address. On a non-loopback address unauthenticated clients
// get only /metrics and /-/*, unless the exposure is open.
func (s *Server) Listen(ctx context.Context, address string, x Exposure) (*Listener, error) {
	return listen(ctx, address, x, s, s.Log)
}

// On serves on an open listener, as Listen does.
func (s *Server) On(l net.Listener, x Exposure) (*Listener, error) { return serveOn(l, x, s, s.Log) }

// handlers is the two sets of handlers of a server: those of every address, and
// the restricted ones.
type handlers interface {
	public(mux *http.ServeMux)
	restricted(mux *http.ServeMux)
}

func listen(ctx context.Context, address string, x Exposure, s handlers, log *slog.Logger) (*Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("web: listen on %s: %w", address, innermost(err))
	}
	return serveOn(l, x, s, log)
}

// serveOn closes a listener that it cannot serve on.
func serveOn(l net.Listener, x Exposure, s handlers, log *slog.Logger) (_ *Listener, err error) {
	mux := http.NewServeMux()
	s.public(mux)
	mux.HandleFunc("POST /-/reload", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "reload: only on the local socket", http.StatusForbidden)
	})
	whole := mux
	if !x.Open {
		whole = http.NewServeMux()
		only := guard.RequireAuthenticated
		if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
			only = guard.RequireAddressHost
		}
		mux.Handle("/", only(whole))
	}
	s.restricted(whole)
	if x.Pprof {
		addProfiles(whole)
	}
	listener := &Listener{Listener: &boundedListener{Listener: l}, server: newServer(mux, log)}
	if x.Auth != nil {
		if listener.tls, err = x.Auth.Protect(listener.server); err != nil {
			return nil, errors.Join(fmt.Errorf("web: %w", err), l.Close())
		}
	}
	return listener, nil
}

// ListenLocal opens the Unix socket, for root and its group only. A stale
// socket of a killed agent is replaced, one in use is not.
func (s *Server) ListenLocal(ctx context.Context, path string) (*Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("api: socket: %w", err)
	}
	if err := removeStaleSocket(ctx, path); err != nil {
		return nil, fmt.Errorf("api: socket %s: %w", path, err)
	}
	// No other process may connect between the creation of the socket and its
	// mode.
	old := syscall.Umask(0o117)
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("api: socket %s: %w", path, innermost(err))
	}
	mux := http.NewServeMux()
	s.public(mux)
	s.restricted(mux)
	mux.HandleFunc("POST /-/reload", reloadHandler(s.Reload))
	return &Listener{Listener: l, server: newServer(mux, s.Log)}, nil
}

// innermost is the innermost error: the caller adds the address.
func innermost(err error) error {
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		return sys.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	if request, ok := errors.AsType[*url.Error](err); ok { // its URL says nothing: the agent is asked over another way
		return request.Err
	}
	return err
}

var errSocketInUse = errors.New("another agent is listening on it")

func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("it exists and is not a socket")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errSocketInUse, c.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return innermost(err)
}

// Bounds of one request, which may be of an unknown client: one that does not read loses
// its connection.
const (
	headerTimeout   = 5 * time.Second
	writeTimeout    = 60 * time.Second // a profile of 30 s fits
	shutdownTimeout = 2 * time.Second
	maxHeaderBytes  = 64 << 10 // 128 unfinished ones of a client are 8 MiB
)

func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: streamsPerConnection},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// Serve answers until ctx is done, gives running requests a moment to end, and
// closes the listener.
func (l *Listener) Serve(ctx context.Context) error {
	l.server.BaseContext = func(net.Listener) context.Context { return ctx }
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if l.server.Shutdown(ctx) != nil {
			_ = l.server.Close() // remaining requests are cut off
		}
		stopped <- nil
	})
	err := l.serve()
	if stop() {
		return fmt.Errorf("web: serve %s: %w", l.Addr(), err)
	}
	return <-stopped
}

func (l *Listener) serve() error {
	if l.tls {
		return l.server.ServeTLS(l.Listener, "", "")
	}
	return l.server.Serve(l.Listener)
}

// public is the handlers of every address.
func (s *Server) public(mux *http.ServeMux) {
	mux.Handle("GET /metrics", &boundedScrapes{next: s.metrics()})
	mux.HandleFunc("GET /-/healthy", probeHandler(s.Healthy))
	mux.HandleFunc("GET /-/ready", probeHandler(s.Ready))
}

// restricted are the handlers of addresses that show everything. Each is a small type of
// its own, in the file that is named after its page or endpoint.
func (s *Server) restricted(mux *http.ServeMux) {
	p := s.page()
	mux.Handle("GET /{$}", p)
	mux.Handle("GET /live", &liveHandler{live: &s.live, page: p, state: s.State, published: s.Published, log: s.Log})
	of := &pages{template: p.template, now: s.clock(), state: s.currentState, decisions: s.Decisions, past: s.History}
	mux.Handle("GET /workload", &workloadHandler{of, &s.processes, s.Processes})
	mux.Handle("GET /device", &deviceHandler{of})
	mux.Handle("GET /search", &searchHandler{of})
	a := &api{state: s.currentState, stored: s.Decisions, now: s.clock()}
	mux.HandleFunc("GET /api/v1/snapshot", a.snapshot)
	mux.HandleFunc("GET /api/v1/pressure", a.pressure)
	mux.HandleFunc("GET /api/v1/plugins", a.plugins)
	mux.HandleFunc("GET /api/v1/decisions", a.decisions)
	if s.History != nil {
		mux.Handle("GET /history", &historyHandler{of})
		mux.Handle("GET /api/v1/history", &historyAPI{s.History, s.clock()})
	}
	if s.Examine != nil {
		mux.Handle("GET /api/v1/doctor", &doctorHandler{&s.examination, s.Examine})
	}
}

func (s *Server) page() *page { return newPage(s.currentState, s.Decisions) }

// metrics is the handler of /metrics.
func (s *Server) metrics() http.Handler {
	return &metricsHandler{
		agent: view.Agent{Version: s.Version}, pods: s.Pods,
		state: func() *view.State { return s.State().WithCluster(s.cluster(), nil).WithOuter(s.outer()) },
	}
}

func (s *Server) clock() func() time.Time {
	if s.now == nil {
		return time.Now
	}
	return s.now
}

func addProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

func probeHandler(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
