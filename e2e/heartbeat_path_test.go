package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

// path is the way from one client to the API server: a relay of bytes, which has
// what goes wrong with connections, and behind it a relay of requests, which has
// what goes wrong with those.
type path struct {
	// Mind is asked for each request: for how long to hold it, and the status to
	// refuse it with, 0 for none. Nil: all go on.
	Mind atomic.Pointer[func(n int) (hold time.Duration, status int)]

	t        *testing.T
	listener net.Listener
	desk     *httptest.Server
	requests atomic.Int64
	dials    atomic.Int64
	opened   atomic.Int64 // connections to desk
	sick     atomic.Int64 // so many of them, the first, get a 503 for everything

	mu    sync.Mutex // guards wires
	wires map[*strand]bool
}

// strand is one connection of the client and its other half.
type strand struct {
	client, server *net.TCPConn
	swallows       atomic.Bool
}

// connection is the key of its number, in the context of a request.
type connection struct{}

// newPath leads to the API server of how, whose credentials it does not need.
func newPath(t *testing.T, how *rest.Config) *path {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return newPathFrom(t, l, how)
}

// newPathFrom begins at a listener, which it closes.
func newPathFrom(t *testing.T, l net.Listener, how *rest.Config) *path {
	t.Helper()
	p := &path{t: t, listener: l, wires: map[*strand]bool{}}
	p.desk = p.newDesk(how)
	var served sync.WaitGroup
	served.Go(func() { p.serve(&served) })
	t.Cleanup(func() {
		_ = p.listener.Close() // that ends serve
		p.each(func(w *strand) { w.close() })
		served.Wait()
		p.desk.CloseClientConnections()
		p.desk.Close()
	})
	return p
}

func (p *path) newDesk(how *rest.Config) *httptest.Server {
	to, err := url.Parse(how.Host)
	require.NoError(p.t, err)
	authority := x509.NewCertPool()
	require.True(p.t, authority.AppendCertsFromPEM(how.CAData))
	onward := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 10}
	p.t.Cleanup(onward.CloseIdleConnections)
	relay := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: onward,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	desk := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(p.requests.Add(1))
		if r.Context().Value(connection{}).(int64) <= p.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mind := p.Mind.Load()
		if mind == nil {
			relay.ServeHTTP(w, r)
			return
		}
		hold, status := (*mind)(n)
		select {
		case <-time.After(hold):
		case <-r.Context().Done():
			return
		}
		if status == 0 {
			relay.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
	}))
	desk.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connection{}, p.opened.Add(1))
	}
	desk.EnableHTTP2 = true
	desk.StartTLS()
	return desk
}

// config leads along the path with the token of how.
func (p *path) config(how *rest.Config) *rest.Config {
	c := &rest.Config{Host: "https://" + p.listener.Addr().String(), BearerToken: how.BearerToken, BearerTokenFile: how.BearerTokenFile}
	c.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.desk.Certificate().Raw})
	return c
}

func (p *path) serve(served *sync.WaitGroup) {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.dials.Add(1)
		s, err := net.Dial("tcp", p.desk.Listener.Addr().String())
		if err != nil {
			_ = c.Close()
			continue
		}
		w := &strand{client: c.(*net.TCPConn), server: s.(*net.TCPConn)}
		p.mu.Lock()
		p.wires[w] = true
		p.mu.Unlock()
		served.Go(func() { w.copy(w.client, w.server) })
		served.Go(func() { w.copy(w.server, w.client) })
	}
}

// copy until one of them ends.
func (w *strand) copy(to, from *net.TCPConn) {
	defer w.close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if w.swallows.Load() {
			n = 0
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *strand) close() {
	_ = w.client.Close() // it may be
	_ = w.server.Close()
}

// each does something to all connections that there are.
func (p *path) each(do func(*strand)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.wires {
		do(w)
	}
}

// swallow lets the connections there are take everything and pass nothing on.
func (p *path) swallow() { p.each(func(w *strand) { w.swallows.Store(true) }) }

// sicken makes the connections there are those of an API server that answers 503; new ones lead
// to another.
func (p *path) sicken() { p.sick.Store(p.opened.Load()) }

// reset ends them.
func (p *path) reset() {
	p.each(func(w *strand) {
		_ = w.client.SetLinger(0) // then closing is a reset
		w.close()
	})
}

// blackHole makes the kernel drop every packet of the client on them, so that
// it acknowledges nothing.
func (p *path) blackHole() {
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	p.each(func(w *strand) {
		w.swallows.Store(true)
		raw, err := w.client.SyscallConn()
		if err == nil {
			_ = raw.Control(func(fd uintptr) {
				err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
			})
		}
		if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
			p.t.Error(err)
		}
	})
}
